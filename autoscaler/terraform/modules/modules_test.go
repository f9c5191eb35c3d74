package modules_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

// clouds are the modules whose providers cannot be had here.
var clouds = []string{"aws", "azure", "gcp", "oci"}

// resource is what a provider's documentation says of one.
type resource struct {
	Documentation string
	Required      []string
	// Arguments are by the block that they are in, "" for the resource itself.
	Arguments map[string][]string
}

// metaArguments are Terraform's own.
var metaArguments = []string{"for_each", "lifecycle"}

func documented(t *testing.T) map[string]resource {
	t.Helper()
	raw, err := os.ReadFile("arguments.json")
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]resource
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// blocks are those of all files of a module.
func blocks(t *testing.T, module string) []*hclsyntax.Block {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(module, "*.tf"))
	if err != nil || len(files) == 0 {
		t.Fatalf("module %s has no files (%v)", module, err)
	}
	var out []*hclsyntax.Block
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		parsed, diags := hclsyntax.ParseConfig(src, f, hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		out = append(out, parsed.Body.(*hclsyntax.Body).Blocks...)
	}
	return out
}

// faults are the arguments of a resource that its documentation does not know, and
// those that are missing.
func (r resource) faults(body *hclsyntax.Body, at string) []string {
	var out []string
	has := map[string]bool{}
	check := func(name string) {
		has[name] = true
		if at == "" && slices.Contains(metaArguments, name) {
			return
		}
		if !slices.Contains(r.Arguments[at], name) {
			out = append(out, fmt.Sprintf("%s.%s is not in %s", at, name, r.Documentation))
		}
	}
	for name := range body.Attributes {
		check(name)
	}
	for _, b := range body.Blocks {
		name, inner := b.Type, b.Body
		if name == "dynamic" {
			name = b.Labels[0]
			for _, c := range b.Body.Blocks {
				inner = c.Body
			}
		}
		check(name)
		if name != "lifecycle" {
			out = append(out, r.faults(inner, strings.TrimPrefix(at+"."+name, "."))...)
		}
	}
	if at == "" {
		for _, name := range r.Required {
			if !has[name] {
				out = append(out, name+" is missing")
			}
		}
	}
	return out
}

// Every argument of every resource and data source is one that the provider documents.
func TestArgumentsAreDocumented(t *testing.T) {
	table, used := documented(t), map[string]bool{}
	for _, module := range clouds {
		for _, b := range blocks(t, module) {
			var name string
			switch b.Type {
			case "resource":
				name = b.Labels[0]
			case "data":
				name = "data." + b.Labels[0]
			default:
				continue
			}
			r, known := table[name]
			if !known {
				t.Errorf("%s: nothing is known of %s", module, name)
				continue
			}
			used[name] = true
			for _, fault := range r.faults(b.Body, "") {
				t.Errorf("%s: %s.%s: %s", module, b.Labels[0], b.Labels[1], fault)
			}
		}
	}
	for name := range table {
		if !used[name] {
			t.Errorf("arguments.json tells of %s, which no module uses", name)
		}
	}
}

func TestFaultsAreFound(t *testing.T) {
	src := "name = 1\nwrong = 2\ninner {\n  other = 3\n}\n"
	parsed, diags := hclsyntax.ParseConfig([]byte(src), "x.tf", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	r := resource{Documentation: "d", Required: []string{"zone"}, Arguments: map[string][]string{"": {"name", "inner"}, "inner": {"known"}}}
	got := r.faults(parsed.Body.(*hclsyntax.Body), "")
	slices.Sort(got)
	if want := []string{".wrong is not in d", "inner.other is not in d", "zone is missing"}; !slices.Equal(got, want) {
		t.Errorf("faults are %q, want %q", got, want)
	}
}

// Each module has the map of nodes, and resources named node over it, and what belongs
// to a purchase is keyed by its ID: so the plan's check lets both come and go. It has
// the map of nodes in doubt too, and each cloud's takes those that are there into the
// state under the keys of both.
func TestModulesHaveNodes(t *testing.T) {
	for _, module := range append([]string{"local"}, clouds...) {
		variables, nodes := map[string]bool{}, 0
		imported := map[string]bool{}
		for _, b := range blocks(t, module) {
			switch {
			case b.Type == "variable":
				variables[b.Labels[0]] = true
			case b.Type == "import":
				to, diags := hcl.AbsTraversalForExpr(b.Body.Attributes["to"].Expr.(*hclsyntax.IndexExpr).Collection)
				if diags.HasErrors() || b.Body.Attributes["for_each"] == nil {
					t.Errorf("%s: an import is not of resources by keys: %v", module, diags)
					continue
				}
				imported[to.RootName()+"."+to[1].(hcl.TraverseAttr).Name] = true
			case b.Type == "resource":
				each := b.Body.Attributes["for_each"]
				if each == nil {
					t.Errorf("%s: %v is one for all nodes: it would come with the first and be refused", module, b.Labels)
					continue
				}
				root := each.Expr.Variables()[0]
				name := root.RootName() + "." + root[1].(hcl.TraverseAttr).Name
				want := map[string][]string{"node": {"local.nodes", "local.interfaces"}, "purchase": {"local.purchases"}}[b.Labels[1]]
				if !slices.Contains(want, name) {
					t.Errorf("%s: %v is over %s, want one of %q", module, b.Labels, name, want)
				}
				if at := b.Labels[0] + "." + b.Labels[1]; module != "local" && !imported[at] {
					t.Errorf("%s: %s is not imported when it is in doubt, or after it was", module, at)
				}
				if b.Labels[1] == "node" {
					nodes++
				}
			}
		}
		if !variables["nodes"] || !variables["nodes_in_doubt"] || nodes == 0 {
			t.Errorf("%s: variables %v, resources named node: %d", module, variables, nodes)
		}
	}
}

// binary is terraform or tofu.
func binary(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"terraform", "tofu"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no terraform and no tofu on the PATH")
	return ""
}

func TestModulesAreFormatted(t *testing.T) {
	cmd := exec.Command(binary(t), "fmt", "-check", "-recursive", ".")
	if out, err := cmd.Output(); err != nil {
		t.Errorf("not formatted: %s", out)
	}
}

// What a node runs when it boots is a script without faults, and what it gives Nomad
// is a configuration with the node's name and meta.
func TestBoot(t *testing.T) {
	tf, dir := binary(t), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("boot")); err != nil {
		t.Fatal(err)
	}
	vars := `{"pool": "eu", "nodes": {"n1": {"purchase": "p1", "market": "spot"}},
	  "settings": {"nomad": {"url": "https://example.org/nomad.zip", "sha256": "00"},
	    "plugins": {"nomad-device-caravan": {"url": "https://example.org/p", "sha256": "11", "config": "source = \"nvml\""}},
	    "retry_join": ["provider=aws tag_key=nomad tag_value=server"], "meta": {"tier": "it's \"quoted\""},
	    "files": {"/etc/nomad.d/ca.pem": "it's a certificate"}, "extra": "acl {\n  enabled = true\n}\n"}}`
	if err := os.WriteFile(filepath.Join(dir, "terraform.tfvars.json"), []byte(vars), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		cmd := exec.Command(tf, args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}
	run("init", "-input=false", "-no-color")
	run("apply", "-auto-approve", "-input=false", "-no-color")
	var scripts map[string]string
	if err := json.Unmarshal(run("output", "-json", "user_data"), &scripts); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "boot.sh")
	if err := os.WriteFile(script, []byte(scripts["n1"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-n", script).CombinedOutput(); err != nil {
		t.Fatalf("the script has faults: %v\n%s", err, out)
	}
	files := written(t, scripts["n1"])
	var agent struct {
		Name   string
		Client struct {
			Meta       map[string]string
			ServerJoin struct {
				RetryJoin []string `json:"retry_join"`
			} `json:"server_join"`
		}
	}
	if err := json.Unmarshal([]byte(files["/etc/nomad.d/client.json"]), &agent); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{burstapi.MetaPool: "eu", burstapi.MetaNode: "n1", burstapi.MetaMarket: "spot", burstapi.MetaPurchase: "p1", "tier": `it's "quoted"`}
	if agent.Name != "n1" || !maps.Equal(agent.Client.Meta, want) || len(agent.Client.ServerJoin.RetryJoin) != 1 {
		t.Errorf("the agent is %+v, want node n1 with meta %v", agent, want)
	}
	for _, name := range []string{"plugins.hcl", "extra.hcl"} {
		if _, diags := hclsyntax.ParseConfig([]byte(files["/etc/nomad.d/"+name]), name, hcl.InitialPos); diags.HasErrors() {
			t.Errorf("%s: %v", name, diags)
		}
	}
	if !strings.Contains(files["/etc/nomad.d/plugins.hcl"], `source = "nvml"`) || files["/etc/nomad.d/ca.pem"] != "it's a certificate" {
		t.Errorf("files are %q", files)
	}
}

// written are the files that a script writes, by path.
func written(t *testing.T, script string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, part := range strings.Split(script, "base64 -d >'")[1:] {
		path, rest, _ := strings.Cut(part, "' <<'CARAVAN'\n")
		encoded, _, _ := strings.Cut(rest, "\n")
		content, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out[path] = string(content)
	}
	return out
}
