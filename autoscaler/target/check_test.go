package target_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/autoscaler/target"
	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

const (
	checkedVariable = "variable \"nodes\" {\n  type = map(object({ purchase = optional(string, \"\"), market = optional(string, \"on_demand\") }))\n}\n"
	checkedNodes    = "resource \"terraform_data\" \"node\" {\n  for_each = var.nodes\n}\n"
)

// checkPools writes a pools file with a pool for each directory, by their names.
func checkPools(t *testing.T, dir string, names ...string) string {
	t.Helper()
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, `
pool %q {
  provider      = "aws"
  region        = "here"
  instance_type = "dgx"
  quota         = 8
  boot_time     = "1s"
  node {
    gpus       = 8
    model      = "H100"
    cpu_mhz    = 1000
    memory_mib = 1000
    disk_mib   = 1000
  }
  price {
    spot = 1
  }
  terraform {
    working_directory = %q
  }
}
`, name, name)
	}
	path := filepath.Join(dir, "pools.hcl")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// fingerprint is what a folder holds.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			fmt.Fprintln(&b, path, err)
			return nil
		}
		raw, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %x %v\n", path, sha256.Sum256(raw), err)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every pool's faults are told at once, with what to do, and nothing is changed.
func TestCheck(t *testing.T) {
	if !terraform.HasBinary() {
		t.Skip("no terraform and no tofu on the PATH: a working directory cannot be checked")
	}
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case "LOCK":
			w.WriteHeader(http.StatusLocked)
			_, _ = w.Write([]byte(`{"ID": "lock-1", "Who": "ann"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer locked.Close()
	backend := fmt.Sprintf("terraform {\n  backend \"http\" {\n    address = %q\n    lock_address = %q\n    unlock_address = %q\n  }\n}\n", locked.URL, locked.URL, locked.URL)
	tests := map[string]struct {
		main string // "" makes no directory
		init bool
		want []string // parts of the faults, one for each; none is none
	}{
		"good":          {main: checkedVariable + checkedNodes},
		"absent":        {want: []string{"want a directory that is there"}},
		"novariable":    {main: "resource \"terraform_data\" \"node\" {}\n", want: []string{`declares no variable "nodes"`}},
		"wrongtype":     {main: "variable \"nodes\" {\n  type = list(string)\n}\n", want: []string{`Declare variable "nodes" as map(object(`}},
		"needsanother":  {main: checkedVariable + checkedNodes + "variable \"ami\" {}\n", want: []string{`"ami"`}},
		"touchesmore":   {main: checkedVariable + checkedNodes + "resource \"terraform_data\" \"net\" {}\n", want: []string{"terraform_data.net: it would be created"}},
		"makesnone":     {main: checkedVariable, want: []string{`makes no node "caravan-check"`}},
		"uninitialised": {main: backend + checkedVariable + checkedNodes, want: []string{"Run terraform init"}},
		"locked":        {main: backend + checkedVariable + checkedNodes, init: true, want: []string{"terraform force-unlock lock-1"}},
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE123456789")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-somebody")
	t.Setenv("HOME", t.TempDir())
	dir, names := t.TempDir(), []string{}
	for name, test := range tests {
		names = append(names, name)
		if test.main == "" {
			continue
		}
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "main.tf"), []byte(test.main), 0o644); err != nil {
			t.Fatal(err)
		}
		if test.init {
			initialise(t, filepath.Join(dir, name))
		}
	}
	slices.Sort(names)
	file := checkPools(t, dir, names...)
	before := fingerprint(t, dir)
	var out, errOut strings.Builder
	if code := target.RunCheck(t.Context(), []string{"-pools", file, "-json"}, &out, &errOut); code != 1 || errOut.Len() > 0 {
		t.Errorf("exit status %d, %q; want 1", code, errOut.String())
	}
	if after := fingerprint(t, dir); after != before {
		t.Errorf("the check has changed something:\n%s\nwas\n%s", after, before)
	}
	var got []target.Checked
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || len(got) != len(tests) {
		t.Fatalf("it says %s (%v)", out.String(), err)
	}
	for _, c := range got {
		want := tests[c.Pool].want
		if len(c.Faults) != len(want) {
			t.Errorf("%s: faults are %q, want %q", c.Pool, c.Faults, want)
			continue
		}
		for i := range want {
			if !strings.Contains(c.Faults[i], want[i]) {
				t.Errorf("%s: fault %q, want %q", c.Pool, c.Faults[i], want[i])
			}
		}
		if !slices.Equal(c.Credentials, []string{"AWS_ACCESS_KEY_ID"}) {
			t.Errorf("%s: credentials are in %q", c.Pool, c.Credentials)
		}
	}
	for _, secret := range []string{"AKIAEXAMPLE", "a-secret-of"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("it tells a credential: %s", out.String())
		}
	}
	out.Reset()
	if code := target.RunCheck(t.Context(), []string{"-pools", file, "-pool", "good"}, &out, &errOut); code != 0 {
		t.Errorf("exit status %d for a pool without faults: %s", code, out.String())
	}
	for _, part := range []string{"pool good: nodes can be made", "workspace default", "version 1.", "credentials AWS_ACCESS_KEY_ID", `warning: the directory declares no variable "nodes_in_doubt"`} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("it says %q, want %q in it", out.String(), part)
		}
	}
}

// initialise runs terraform init in a directory.
func initialise(t *testing.T, dir string) {
	t.Helper()
	name := "terraform"
	if _, err := exec.LookPath(name); err != nil {
		name = "tofu"
	}
	cmd := exec.Command(name, "init", "-input=false", "-no-color")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("initialise: %v\n%s", err, out)
	}
}

func TestCheckArguments(t *testing.T) {
	file, empty := checkPools(t, t.TempDir(), "a"), checkPools(t, t.TempDir())
	tests := map[string]struct {
		args []string
		want string
	}{
		"no file":           {nil, "want -pools FILE"},
		"one that is none":  {[]string{"-pools", "nowhere.hcl"}, "nowhere.hcl"},
		"another pool":      {[]string{"-pools", file, "-pool", "b"}, `has no pool "b", only a`},
		"an argument":       {[]string{"-pools", file, "a"}, `["a"]`},
		"an unknown flag":   {[]string{"-apply"}, "-apply"},
		"no pool at all":    {[]string{"-pools", empty}, "has no pool: want a block"},
		"no time to plan":   {[]string{"-pools", file, "-timeout", "0s"}, "-timeout is 0s: want a duration above 0"},
		"a missing program": {[]string{"-pools", file, "-binary", "no-such-terraform"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errOut strings.Builder
			if code := target.RunCheck(t.Context(), test.args, &out, &errOut); code != 1 || !strings.Contains(errOut.String(), test.want) {
				t.Errorf("exit status %d, %q; want 1 and %q", code, errOut.String(), test.want)
			}
		})
	}
}

// The example of the documentation is what it says.
func TestCheckExample(t *testing.T) {
	if !terraform.HasBinary() {
		t.Skip("no terraform and no tofu on the PATH: a working directory cannot be checked")
	}
	doc, err := os.ReadFile("../../docs/autoscaler.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(doc), "```text check\n$ caravan-terraform check -pools pools.hcl -pool eu\n")
	want, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatal("there is no example")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE123456789")
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "eu"), 0o755); err != nil {
		t.Fatal(err)
	}
	main := checkedVariable + checkedNodes + "resource \"terraform_data\" \"network\" {}\n"
	if err := os.WriteFile(filepath.Join(dir, "eu", "main.tf"), []byte(main), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	if code := target.RunCheck(t.Context(), []string{"-pools", checkPools(t, dir, "eu", "us"), "-pool", "eu"}, &out, &errOut); code != 1 {
		t.Fatalf("exit status %d: %s", code, errOut.String())
	}
	got := strings.ReplaceAll(out.String(), dir, "terraform")
	got = regexp.MustCompile(`binary .*`).ReplaceAllString(got, "binary      /usr/bin/terraform, version 1.11.4")
	if got != want {
		t.Errorf("it says\n%s\nand the example\n%s", got, want)
	}
}
