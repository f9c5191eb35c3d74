package terraform

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	tfjson "github.com/hashicorp/terraform-json"
)

func change(address string, actions ...tfjson.Action) *tfjson.ResourceChange {
	return &tfjson.ResourceChange{Address: address, Change: &tfjson.Change{Actions: actions, Before: map[string]any{}}}
}

// imported is a change that is an import too.
func imported(address string, actions ...tfjson.Action) *tfjson.ResourceChange {
	rc := change(address, actions...)
	rc.Change.Importing = &tfjson.Importing{ID: "i-1"}
	return rc
}

func names(all ...string) map[string]bool {
	out := map[string]bool{}
	for _, n := range all {
		out[n] = true
	}
	return out
}

func TestCheckPlan(t *testing.T) {
	const create, del, update, noop, read = tfjson.ActionCreate, tfjson.ActionDelete, tfjson.ActionUpdate, tfjson.ActionNoop, tfjson.ActionRead
	incomplete := false
	tests := map[string]struct {
		keep, add, remove   map[string]bool
		adopt, begun, ended map[string]bool
		resources           []string
		changes             []*tfjson.ResourceChange
		noVariable          bool
		complete            *bool
		// want are parts of the refusal; none is accepted.
		want []string
		kind error
	}{
		"a node comes": {
			keep: names("a"), add: names("b"),
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, noop), change(`x_vm.node["b"]`, create), change(`x_disk.data["b"]`, create), change(`data.x_image.os`, read)},
		},
		"a node goes": {
			keep: names("a"), remove: names("b"),
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, noop), change(`x_vm.node["b"]`, del), change(`module.p.x_disk.data["b"]`, del)},
		},
		"in a module for each": {
			add:     names("a"),
			changes: []*tfjson.ResourceChange{change(`module.node["a"].x_vm.this`, create), change(`module.node["a"].x_disk.this[0]`, create)},
		},
		"a purchase begins and another ends": {
			keep: names("a"), add: names("b"), remove: names("c"), begun: names("p2"), ended: names("p3"),
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, noop), change(`x_vm.node["b"]`, create), change(`x_group.near["p2"]`, create), change(`x_vm.node["c"]`, del), change(`x_group.near["p3"]`, del)},
		},
		"what belongs to a purchase that stays goes": {
			keep: names("a"), begun: names(), ended: names(), kind: ErrPlanRefused, want: []string{`x_group.near["p1"]: it would be deleted`},
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, noop), change(`x_group.near["p1"]`, del)},
		},
		"a node in doubt is imported, with what it is in": {
			keep: names("a"), adopt: names("b", "c", "d"), begun: names("p2"),
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, noop), imported(`x_vm.node["b"]`, noop), imported(`x_vm.node["c"]`, update), change(`x_vm.node["d"]`, create), imported(`x_group.near["p2"]`, noop)},
		},
		"a node that is in no doubt is imported": {
			keep: names("a"), adopt: names("b"), kind: ErrPlanRefused, want: []string{`x_vm.node["a"]: it would be imported`},
			changes: []*tfjson.ResourceChange{imported(`x_vm.node["a"]`, noop), imported(`x_vm.node["b"]`, noop)},
		},
		"a node in doubt is imported and would be replaced": {
			adopt: names("b"), kind: ErrPlanRefused, want: []string{`x_vm.node["b"]: it would be imported and has the actions [delete create]`},
			changes: []*tfjson.ResourceChange{imported(`x_vm.node["b"]`, del, create)},
		},
		"a node that vanished is made again": {
			keep: names("a"), changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, create)},
		},
		"another resource is made": {
			add: names("a"), kind: ErrPlanRefused,
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, create), change(`x_network.main`, create)},
			want:    []string{"x_network.main: it would be created"},
		},
		"another node goes": {
			keep: names("a"), remove: names("b"), kind: ErrPlanRefused,
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, del), change(`x_vm.node["b"]`, del)},
			want:    []string{`x_vm.node["a"]: it would be deleted, and node "a" is to stay`},
		},
		"a stranger goes": {
			keep: names("a"), remove: names("b"), kind: ErrPlanRefused,
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, noop), change(`x_vm.node["c"]`, del)},
			want:    []string{`x_vm.node["c"]: it would be deleted, and belongs to none`},
		},
		"everything is replaced": {
			keep: names("a", "b"), add: names("c"), kind: ErrPlanRefused,
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, del, create), change(`x_vm.node["b"]`, create, del), change(`x_vm.node["c"]`, create), change("x_net.n", del, create)},
			want:    []string{`node "a" would be replaced`, `node "b" would be replaced`, "x_net.n: it would be replaced"},
		},
		"a node changes in place": {
			keep: names("a"), kind: ErrPlanRefused,
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, update)},
			want:    []string{`x_vm.node["a"]: it would be changed in place`},
		},
		"what a node had before is left": {
			remove:  names("a"),
			changes: []*tfjson.ResourceChange{{Address: `x_vm.node["a"]`, DeposedKey: "00aa", Change: &tfjson.Change{Actions: tfjson.Actions{del}}}},
		},
		"what another had before is left": {
			keep: names("a"), kind: ErrPlanRefused, want: []string{"an earlier replacement"},
			changes: []*tfjson.ResourceChange{{Address: `x_vm.node["a"]`, DeposedKey: "00aa", Change: &tfjson.Change{Actions: tfjson.Actions{del}}}},
		},
		"import": {
			add: names("a"), kind: ErrPlanRefused, want: []string{"imported"},
			changes: []*tfjson.ResourceChange{{Address: `x_vm.node["a"]`, Change: &tfjson.Change{Actions: tfjson.Actions{noop}, Importing: &tfjson.Importing{ID: "i-1"}}}},
		},
		"forget": {
			remove: names("a"), kind: ErrPlanRefused, want: []string{"forget"},
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, tfjson.ActionForget)},
		},
		"many are listed in part": {
			kind: ErrPlanRefused, want: []string{"and 2 more"},
			changes: []*tfjson.ResourceChange{change("x.a", create), change("x.b", create), change("x.c", create), change("x.d", create), change("x.e", create), change("x.f", create), change("x.g", create)},
		},
		"no for_each": {
			add: names("a"), kind: ErrPlanRefused, want: []string{`makes no node "a"`, "for_each = var.nodes"},
			changes: []*tfjson.ResourceChange{change("data.x.y", read)},
		},
		"another resource's for_each": {
			add: names("a"), resources: []string{"x_vm.gpu"}, kind: ErrPlanRefused, want: []string{`makes no node "a"`, "x_vm.gpu"},
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, create)},
		},
		"no variable": {add: names("a"), noVariable: true, kind: ErrVariable, want: []string{`no variable "nodes"`}},
		"incomplete": {add: names("a"), complete: &incomplete, kind: ErrPlanRefused, want: []string{"not complete"},
			changes: []*tfjson.ResourceChange{change(`x_vm.node["a"]`, create)}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &tfjson.Plan{ResourceChanges: test.changes, Complete: test.complete, Variables: map[string]*tfjson.PlanVariable{"nodes": {}}}
			if test.noVariable {
				p.Variables = nil
			}
			for _, m := range []*map[string]bool{&test.keep, &test.add, &test.remove} {
				if *m == nil {
					*m = map[string]bool{}
				}
			}
			err := checkPlan(p, wanted{variable: "nodes", resources: test.resources, keep: test.keep, add: test.add, remove: test.remove, adopt: test.adopt, begun: test.begun, ended: test.ended})
			if len(test.want) == 0 {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if !errors.Is(err, test.kind) {
				t.Fatalf("error = %v, want one that is %v", err, test.kind)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	tests := map[string]struct {
		resources []string
		base      string
		keys      []string
		node      string
	}{
		`aws_instance.node["a"]`:                          {base: "aws_instance.node", keys: []string{"a"}, node: "a"},
		`module.pool.aws_instance.node["p-1"]`:            {base: "module.pool.aws_instance.node", keys: []string{"p-1"}, node: "p-1"},
		`module.node["n"].aws_instance.this[0]`:           {base: "module.node.aws_instance.this", keys: []string{"n"}, node: "n"},
		`module.pool["eu"].aws_instance.node["b"]`:        {base: "module.pool.aws_instance.node", keys: []string{"eu", "b"}, node: "b"},
		`aws_subnet.zones["a"]`:                           {base: "aws_subnet.zones", keys: []string{"a"}},
		`aws_instance.node[3]`:                            {base: "aws_instance.node"},
		`aws_instance.node["x\"y]\\"]`:                    {base: "aws_instance.node", keys: []string{`x"y]\`}, node: `x"y]\`},
		`aws_instance.gpu["a"]`:                           {resources: []string{"aws_instance.gpu"}, base: "aws_instance.gpu", keys: []string{"a"}, node: "a"},
		`module.gpus["a"].aws_instance.x`:                 {resources: []string{"module.gpus"}, base: "module.gpus.aws_instance.x", keys: []string{"a"}, node: "a"},
		`aws_instance.node["not of the resources given"]`: {resources: []string{"aws_instance.gpu"}, base: "aws_instance.node", keys: []string{"not of the resources given"}},
	}
	for full, want := range tests {
		a := parseAddress(full)
		node, _ := a.node(want.resources)
		if a.base != want.base || !cmp.Equal(a.keys, want.keys) || node != want.node {
			t.Errorf("%s: base %q, keys %q, node %q; want %+v", full, a.base, a.keys, node, want)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	f.Add(`module.a["b"].c.d["e\"]"][0]`)
	f.Add(`a["`)
	f.Add(`a[`)
	f.Fuzz(func(t *testing.T, s string) {
		a := parseAddress(s)
		if len(a.base) > len(s) {
			t.Errorf("base %q is longer than %q", a.base, s)
		}
		a.node(nil)
	})
}
