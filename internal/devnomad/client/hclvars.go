package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// coreList is a list of cores as Nomad writes it.
func coreList(cores []uint16) string {
	var out []string
	for _, c := range slices.Sorted(slices.Values(cores)) {
		out = append(out, fmt.Sprint(c))
	}
	return strings.Join(out, ",")
}

// tree holds values by the parts of their dotted names; where a name is both a
// value and a parent, the parent wins.
type tree map[string]any

func (t tree) put(name, value string) {
	parts := strings.Split(name, ".")
	for _, p := range parts {
		if !hclsyntax.ValidIdentifier(p) {
			return // it cannot be referred to
		}
	}
	at := t
	for _, p := range parts[:len(parts)-1] {
		next, ok := at[p].(tree)
		if !ok {
			next = tree{}
			at[p] = next
		}
		at = next
	}
	last := parts[len(parts)-1]
	if _, parent := at[last].(tree); !parent {
		at[last] = value
	}
}

func (t tree) object() cty.Value {
	out := map[string]cty.Value{}
	for k, v := range t {
		switch v := v.(type) {
		case tree:
			out[k] = v.object()
		case string:
			out[k] = cty.StringVal(v)
		}
	}
	return cty.ObjectVal(out)
}

// hclVars are what a task's config block may refer to: the environment, by
// name or in env, and the node.
func (t *taskRunner) hclVars(env map[string]string) map[string]cty.Value {
	all, flat := tree{}, map[string]cty.Value{}
	for k, v := range env {
		all.put(k, v)
		flat[k] = cty.StringVal(v)
	}
	nodeVars(t.r.c.cfg.Region, t.r.c.fingerprint(), all.put)
	out := map[string]cty.Value{}
	for k := range all {
		if sub, ok := all[k].(tree); ok {
			out[k] = sub.object()
		} else {
			out[k] = cty.StringVal(all[k].(string))
		}
	}
	out["env"] = cty.MapVal(flat)
	return out
}

// nodeVars tells what jobs may refer to of a node.
func nodeVars(region string, n *state.Node, put func(name, value string)) {
	put("node.unique.id", n.ID)
	put("node.unique.name", n.Name)
	put("node.datacenter", n.Datacenter)
	put("node.class", n.NodeClass)
	put("node.pool", n.NodePool)
	put("node.region", region)
	for k, v := range n.Attributes {
		put("attr."+k, v)
	}
	for k, v := range n.Meta {
		put("meta."+k, v)
	}
}
