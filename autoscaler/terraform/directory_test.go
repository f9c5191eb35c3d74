package terraform_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

func TestApplyMakesAndTakesExactlyTheNamedNodes(t *testing.T) {
	t.Parallel()
	d := open(t, terraform.Config{Dir: workDir(t, plainNodes)})
	wantNodes(t, d)
	c := mustApply(t, d, "a", "b", "c")
	if want := []string{"a", "b", "c"}; !cmp.Equal(c.Made, want) || len(c.Gone) > 0 {
		t.Errorf("made %q, gone %q; want made %q", c.Made, c.Gone, want)
	}
	before, err := d.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c = mustApply(t, d, "a", "c", "d")
	if !cmp.Equal(c.Made, []string{"d"}) || !cmp.Equal(c.Gone, []string{"b"}) {
		t.Errorf("made %q, gone %q; want d and b", c.Made, c.Gone)
	}
	wantNodes(t, d, "a", "c", "d")
	if got, want := before["a"].Addresses, []string{`terraform_data.node["a"]`}; !cmp.Equal(got, want) {
		t.Errorf("addresses of a are %q, want %q", got, want)
	}
	mustApply(t, d)
	wantNodes(t, d)
}

// A node's values are those it was made with, whatever is asked later: another
// would change the machine.
func TestApplyKeepsValues(t *testing.T) {
	t.Parallel()
	d := open(t, terraform.Config{Dir: workDir(t, plainNodes)})
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	for _, purchase := range []string{"p1", "p2"} {
		if _, err := h.Apply(t.Context(), map[string]terraform.Value{"a": {Purchase: purchase, Market: "spot"}}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := h.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (terraform.Value{Purchase: "p1", Market: "spot"}); s["a"].Value != want {
		t.Errorf("value is %+v, want %+v", s["a"].Value, want)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		after  string
		cfg    terraform.Config
		want   []string // of the refusal
		kind   error
		reason terraform.Reason
	}{
		"the plan makes something else": {
			after: plainNodes + `resource "terraform_data" "network" {}`,
			want:  []string{"terraform_data.network: it would be created"}, kind: terraform.ErrPlanRefused, reason: terraform.ReasonRefused,
		},
		"the plan replaces all": {
			after: strings.Replace(plainNodes, "input ", "triggers_replace = \"new\"\n  input ", 1),
			want:  []string{`terraform_data.node["a"]: node "a" would be replaced`}, kind: terraform.ErrPlanRefused, reason: terraform.ReasonRefused,
		},
		"the plan changes a node": {
			after: strings.Replace(plainNodes, "name = each.key,", "name = upper(each.key),", 1),
			want:  []string{`terraform_data.node["a"]: it would be changed in place`}, kind: terraform.ErrPlanRefused, reason: terraform.ReasonRefused,
		},
		"no variable of the name": {
			after: `locals { x = 1 }`,
			want:  []string{`no variable "nodes"`}, kind: terraform.ErrVariable, reason: terraform.ReasonError,
		},
		"the variable has another type": {
			after: `variable "nodes" { type = number }`,
			want:  []string{"var.nodes", "number required"}, kind: terraform.ErrVariable, reason: terraform.ReasonError,
		},
		"another variable is missing": {
			after: plainNodes + `variable "region" { type = string }`,
			want:  []string{`"region" is not set`, "var file"}, kind: terraform.ErrVariable, reason: terraform.ReasonError,
		},
		"another variable has a wrong type": {
			after: plainNodes + `variable "size" { type = number }`, cfg: terraform.Config{VarFiles: []string{"wrong.tfvars"}},
			want: []string{"var.size", "a number is required"}, kind: terraform.ErrVariable, reason: terraform.ReasonError,
		},
		"a module that is not installed": {
			after: plainNodes + "module \"m\" {\n source = \"./m\"\n}",
			want:  []string{"Run terraform init in "}, kind: terraform.ErrUninitialised, reason: terraform.ReasonError,
		},
		"the files cannot be read": {
			after: plainNodes + `resource {`, want: []string{"terraform show"}, kind: terraform.ErrState, reason: terraform.ReasonError,
		},
	}
	made := workDir(t, plainNodes)
	mustApply(t, open(t, terraform.Config{Dir: made}), "a")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "wrong.tfvars"), []byte(`size = "large"`), 0o644); err != nil {
				t.Fatal(err)
			}
			plain := open(t, terraform.Config{Dir: dir})
			rewriteMain(t, dir, test.after)
			test.cfg.Dir = dir
			_, err := apply(t, open(t, test.cfg), "a", "b")
			if !errors.Is(err, test.kind) || terraform.ReasonOf(err) != test.reason {
				t.Fatalf("error is %v (reason %s), want %v (%s)", err, terraform.ReasonOf(err), test.kind, test.reason)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want %q in it", err, want)
				}
			}
			rewriteMain(t, dir, plainNodes)
			wantNodes(t, plain, "a")
		})
	}
}

func TestOpenReportsEveryFault(t *testing.T) {
	empty := t.TempDir()
	_, err := terraform.Open(terraform.Config{
		Dir: empty, Binary: "no-such-terraform", Workspace: "a b", Variable: "1", VarFiles: []string{"none.tfvars"}, Resources: []string{"node", `a.b["c"]`}, PlanLimit: -1,
	}, logger(t))
	if !errors.Is(err, terraform.ErrConfig) {
		t.Fatalf("error is %v", err)
	}
	for _, want := range []string{"working directory", "no no-such-terraform on the PATH", `workspace is "a b"`, `variable is "1"`, `var file is "none.tfvars"`, `resource is "node"`, `resource is "a.b`, "plan limit"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}

func TestNamesThatNoNodeMayHave(t *testing.T) {
	t.Parallel()
	d := open(t, terraform.Config{Dir: workDir(t, plainNodes)})
	for _, name := range []string{"", "-a", "a b", `a"]`, "a/b", strings.Repeat("x", 64)} {
		if _, err := apply(t, d, name); !errors.Is(err, terraform.ErrConfig) {
			t.Errorf("name %q: error is %v", name, err)
		}
	}
	wantNodes(t, d)
}

func TestOneApplyAtATime(t *testing.T) {
	t.Parallel()
	dir := workDir(t, plainNodes)
	d := open(t, terraform.Config{Dir: dir})
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = open(t, terraform.Config{Dir: dir}).Hold(t.Context())
	if !errors.Is(err, terraform.ErrBusy) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("a second hold: %v, want one that is busy and tells with whom", err)
	}
	if _, err := d.Nodes(t.Context()); err != nil {
		t.Errorf("the state cannot be read meanwhile: %v", err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	mustApply(t, d, "a")
}

func TestWorkspaces(t *testing.T) {
	t.Parallel()
	dir := workDir(t, plainNodes)
	one := open(t, terraform.Config{Dir: dir})
	mustApply(t, one, "a")
	if _, err := apply(t, open(t, terraform.Config{Dir: dir, Workspace: "other"}), "x"); err == nil {
		t.Error("a workspace that is not there was made without leave")
	}
	two := open(t, terraform.Config{Dir: dir, Workspace: "other", Init: true})
	h, err := two.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Apply(t.Context(), want("x", "y")); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	wantNodes(t, one, "a")
	wantNodes(t, two, "x", "y")
}

// Two pools may share a directory: what one does must leave the other's nodes.
func TestPoolsThatShareADirectory(t *testing.T) {
	t.Parallel()
	dir := workDir(t, `
variable "small" {
  type    = map(any)
  default = {}
}
variable "large" {
  type    = map(any)
  default = {}
}
resource "terraform_data" "small" { for_each = var.small }
resource "terraform_data" "large" { for_each = var.large }
`)
	small := open(t, terraform.Config{Dir: dir, Variable: "small", Resources: []string{"terraform_data.small"}})
	large := open(t, terraform.Config{Dir: dir, Variable: "large", Resources: []string{"terraform_data.large"}})
	mustApply(t, small, "s1", "s2")
	mustApply(t, large, "l1")
	mustApply(t, small, "s2")
	wantNodes(t, small, "s2")
	wantNodes(t, large, "l1")
}

// A state that somebody has edited decides: what is not in it is made again, and
// what is in it and not wanted goes.
func TestEditedState(t *testing.T) {
	t.Parallel()
	dir := workDir(t, plainNodes)
	d := open(t, terraform.Config{Dir: dir})
	mustApply(t, d, "a", "b")
	state := filepath.Join(dir, "terraform.tfstate")
	if err := os.WriteFile(state, []byte(`{"version": 4, "terraform_version": "1.5.0", "serial": 9, "lineage": "x", "outputs": {}, "resources": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	wantNodes(t, d)
	mustApply(t, d, "b", "c")
	wantNodes(t, d, "b", "c")
	if err := os.WriteFile(state, []byte(`{"version": 4, "resour`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Nodes(t.Context()); !errors.Is(err, terraform.ErrState) {
		t.Errorf("reading a state that is cut short: %v, want that it cannot be read", err)
	}
	if _, err := apply(t, d, "d"); !errors.Is(err, terraform.ErrState) {
		t.Errorf("applying it: %v, want that it cannot be read", err)
	}
}

// Half of a purchase fails with what a cloud says, and the rest is there: both show,
// and the next apply takes away what is not wanted.
func TestApplyFailsHalfWay(t *testing.T) {
	t.Parallel()
	dir := workDir(t, nodesVariable+`
resource "terraform_data" "node" {
  for_each = var.nodes
  provisioner "local-exec" {
    command = each.key == "b" ? "echo 'api error InsufficientInstanceCapacity: none left'; exit 1" : "true"
  }
}`)
	d := open(t, terraform.Config{Dir: dir})
	c, err := apply(t, d, "a", "b")
	if !errors.Is(err, terraform.ErrApply) || terraform.ReasonOf(err) != terraform.ReasonCapacity {
		t.Errorf("error is %v (reason %s), want a failed apply for lack of capacity", err, terraform.ReasonOf(err))
	}
	if !c.After["b"].Tainted || c.After["a"].Tainted || !cmp.Equal(c.Made, []string{"a", "b"}) {
		t.Errorf("change is %+v, want a made and b tainted", c)
	}
	if _, err := apply(t, d, "a", "b"); !errors.Is(err, terraform.ErrPlanRefused) {
		t.Errorf("another try: %v, want it refused as a replacement", err)
	}
	mustApply(t, d, "a")
	wantNodes(t, d, "a")
}

func TestSecretsShowInNoError(t *testing.T) {
	t.Setenv("TF_VAR_password", "correct-horse-battery")
	t.Setenv("CLOUD_SECRET_KEY", "wJalrXUtnFEMI")
	dir := workDir(t, plainNodes+`
variable "password" { type = string }
resource "terraform_data" "node_disk" {
  for_each = var.nodes
  provisioner "local-exec" {
    command = "echo no way with ${var.password} and $CLOUD_SECRET_KEY; exit 1"
  }
}`)
	_, err := apply(t, open(t, terraform.Config{Dir: dir}), "a")
	if err == nil || !strings.Contains(err.Error(), "no way with") {
		t.Fatalf("error is %v, want what the command said", err)
	}
	for _, secret := range []string{"correct-horse", "wJalrXU"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error holds a secret: %v", err)
		}
	}
}

// What belongs to a purchase as a whole comes with its first node and goes with its
// last.
func TestResourcesOfAPurchase(t *testing.T) {
	t.Parallel()
	d := open(t, terraform.Config{Dir: workDir(t, plainNodes+`
resource "terraform_data" "group" {
  for_each = toset([for n in var.nodes : n.purchase if n.purchase != ""])
}`)})
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	p1, p2 := terraform.Value{Purchase: "p1"}, terraform.Value{Purchase: "p2"}
	for _, nodes := range []map[string]terraform.Value{{"a": p1, "b": p1}, {"b": p1, "c": p2}, {"c": p2}, {}} {
		if _, err := h.Apply(t.Context(), nodes); err != nil {
			t.Fatalf("nodes %v: %v", nodes, err)
		}
	}
}

// What is said of a directory that cannot be used is true, and says where and what to do.
func TestExamineTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(none, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		main, state string
		cfg         terraform.Config
		want        []string // parts of all that is said
		not         string
	}{
		"a workspace that is not there": {main: plainNodes, cfg: terraform.Config{Workspace: "ws"}, want: []string{`there is no workspace "ws", only default: run terraform workspace new ws in`}, not: "variable."},
		"a state that is cut off":       {main: plainNodes, state: `{"version": 4, "ser`, want: []string{"state cannot be read", "Restore the state of"}, not: "force-unlock"},
		"a fault of the configuration":  {main: plainNodes + "resource\n", want: []string{"main.tf:10: "}},
		"nodes with another name":       {main: strings.ReplaceAll(plainNodes, `"node" {`, `"gpu" {`), want: []string{`that is named "node"`, "list in terraform_resources"}},
		"a program that is another":     {main: plainNodes, cfg: terraform.Config{Binary: none}, want: []string{"does not say its version, as terraform and tofu do"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := workDir(t, test.main)
			if test.state != "" {
				if err := os.WriteFile(filepath.Join(dir, "terraform.tfstate"), []byte(test.state), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			before, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			test.cfg.Dir = dir
			for range 2 { // one check must not change what the next one says
				said := ""
				for _, fault := range terraform.Examine(t.Context(), test.cfg, "spot", logger(t)).Faults {
					said += fault.Error() + "\n"
				}
				for _, part := range test.want {
					if !strings.Contains(said, part) {
						t.Errorf("it says %q, want %q in it", said, part)
					}
				}
				if test.not != "" && strings.Contains(said, test.not) {
					t.Errorf("it says %q, want no %q in it", said, test.not)
				}
			}
			after, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || !slices.Equal(after, before) {
				t.Errorf("the directory holds %q (%v), it held %q", after, err, before)
			}
		})
	}
}
