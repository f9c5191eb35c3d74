package terraform_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// findingNodes are nodes whose module imports those in doubt of which a file says that
// they are there, and steps as steppingNodes do.
func findingNodes(dir string) string {
	return nodesVariable + `
variable "nodes_in_doubt" {
  type    = map(object({ purchase = optional(string, ""), market = optional(string, "on_demand") }))
  default = {}
}
locals {
  found = { for name, node in var.nodes_in_doubt : name => node if fileexists("` + dir + `/${name}.there") }
}
import {
  for_each = local.found
  to       = terraform_data.node[each.key]
  id       = "vm-${each.key}"
}
resource "terraform_data" "node" {
  for_each = merge(local.found, var.nodes)
  provisioner "local-exec" {
    command = "echo begun >> ` + dir + `/${each.key}.log; until [ -e ` + dir + `/go ]; do sleep 0.02; done"
  }
}`
}

// cutShort has an apply of nodes killed while it makes them.
func cutShort(t *testing.T, d *terraform.Directory, names ...string) {
	t.Helper()
	dir := d.Config().Dir
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := h.Apply(t.Context(), want(names...))
		done <- err
	}()
	await(t, "the nodes to be begun", begun(dir, names...))
	if pid := terraformIn(t, dir); pid == 0 {
		t.Fatal("no terraform runs in the directory")
	} else if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, terraform.ErrApply) {
		t.Fatalf("error is %v, want a failed apply", err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	// What it had begun is ended with it.
	await(t, "the end of all it has started", func() bool { return len(processesOf(t, dir)) == 0 })
}

func touch(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func doubts(t *testing.T, d *terraform.Directory) map[string]int {
	t.Helper()
	all, err := d.Doubts()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for name, doubt := range all {
		out[name] = doubt.Looks
	}
	return out
}

func look(t *testing.T, d *terraform.Directory, names ...string) (terraform.Change, error) {
	t.Helper()
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	}()
	return h.Look(t.Context(), names)
}

// Nodes that an apply was to make which was killed are in doubt; those that are there
// are imported, and no other is touched.
func TestNodesInDoubtAreFound(t *testing.T) {
	t.Parallel()
	dir := workDir(t, "")
	rewriteMain(t, dir, findingNodes(dir))
	d := open(t, terraform.Config{Dir: dir})
	cutShort(t, d, "a", "b")
	if got := doubts(t, d); !maps.Equal(got, map[string]int{"a": 0, "b": 0}) {
		t.Fatalf("in doubt are %v, want a and b", got)
	}
	touch(t, filepath.Join(dir, "a.there"), filepath.Join(dir, "go"))
	c, err := look(t, d, "a", "b")
	if err != nil || !slices.Equal(c.Made, []string{"a"}) {
		t.Fatalf("found %v (%v), want a", c.Made, err)
	}
	wantNodes(t, d, "a")
	if got := doubts(t, d); !maps.Equal(got, map[string]int{"a": 1, "b": 1}) {
		t.Errorf("in doubt are %v, want both as looked for once, until they are resolved", got)
	}
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Resolve("a", "b"), h.Release()); err != nil {
		t.Fatal(err)
	}
	if got := doubts(t, d); len(got) != 0 {
		t.Errorf("in doubt are %v after they were resolved", got)
	}
	mustApply(t, d)
	wantNodes(t, d)
}

// A module that says nothing of nodes in doubt is not asked twice, and nothing is done.
func TestLookWithoutTheVariable(t *testing.T) {
	t.Parallel()
	dir := workDir(t, "")
	rewriteMain(t, dir, steppingNodes(dir))
	d := open(t, terraform.Config{Dir: dir})
	cutShort(t, d, "a")
	if _, err := look(t, d, "a"); !errors.Is(err, terraform.ErrBlind) {
		t.Errorf("error is %v, want that the module cannot look", err)
	}
	all, err := d.Doubts()
	if err != nil || all["a"].Looked.IsZero() || all["a"].Looks != 0 {
		t.Errorf("in doubt are %+v (%v), want a as tried in vain", all, err)
	}
	wantNodes(t, d)
}

// An import of what is not there fails: each node is looked for by itself then.
func TestLookForOneAfterTheOther(t *testing.T) {
	t.Parallel()
	dir := workDir(t, "")
	rewriteMain(t, dir, findingNodes(dir))
	cutShort(t, open(t, terraform.Config{Dir: dir}), "a", "b")
	touch(t, filepath.Join(dir, "a.there"), filepath.Join(dir, "b.there"), filepath.Join(dir, "go"))
	program := script(t, fmt.Sprintf(`#!/bin/sh
if [ "$1" = plan ] && grep -qs '"b"' .caravan/default/nodes.doubt.vars.json; then
	printf '%%s\n' '{"@level":"error","@message":"Error","type":"diagnostic","diagnostic":{"severity":"error","summary":"Cannot import non-existent remote object","detail":"no object exists with the given id"}}'
	exit 1
fi
exec %s "$@"
`, realTerraform(t)))
	d := open(t, terraform.Config{Dir: dir, Binary: program})
	c, err := look(t, d, "a", "b")
	if err != nil || !slices.Equal(c.Made, []string{"a"}) {
		t.Errorf("found %v (%v), want a", c.Made, err)
	}
	wantNodes(t, d, "a")
	if got := doubts(t, d); !maps.Equal(got, map[string]int{"a": 1, "b": 1}) {
		t.Errorf("in doubt are %v, want that both were looked for", got)
	}
}

// What was killed with its plugin is in doubt for the next, and what failed by itself
// is not: Terraform has said what there is.
func TestWhatIsInDoubt(t *testing.T) {
	t.Parallel()
	dir := workDir(t, plainNodes)
	journal, err := json.Marshal(map[string]any{"mark": "gone", "phase": "apply", "from": []string{"a"}, "to": map[string]any{"a": nil, "b": map[string]string{"purchase": "p", "market": "spot"}}})
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, ".caravan", "default"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ".caravan", "default", "nodes.journal.json"), journal, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := terraform.Open(terraform.Config{Dir: dir}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if all, err := d.Doubts(); err != nil || len(all) != 1 || all["b"].Purchase != "p" {
		t.Errorf("in doubt are %+v (%v), want b of p", all, err)
	}
	other := workDir(t, nodesVariable+"resource \"terraform_data\" \"node\" {\n  for_each = var.nodes\n  provisioner \"local-exec\" {\n    command = \"exit 3\"\n  }\n}\n")
	failing := open(t, terraform.Config{Dir: other})
	if _, err := apply(t, failing, "a"); !errors.Is(err, terraform.ErrApply) {
		t.Fatalf("error is %v, want a failed apply", err)
	}
	if got := doubts(t, failing); len(got) != 0 {
		t.Errorf("in doubt are %v after an apply that came to its end", got)
	}
}
