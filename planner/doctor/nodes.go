package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
)

// plugins finds nodes that should have GPUs and show none: those that carry a
// level's meta, as only GPU clients are told to, and those of a node pool of
// its own where most others have some.
func (x *examination) plugins() {
	type pool struct{ with, without []string }
	pools := map[string]*pool{}
	var lacking []string
	for i, n := range x.View.Nodes {
		m := &x.View.Snapshot.Nodes[i]
		if m.Unschedulable == api.NodeStatusDown || m.Unschedulable == api.NodeStatusDisconnected {
			continue // its devices are the last that it told
		}
		p := pools[m.Pool]
		if p == nil {
			p = &pool{}
			pools[m.Pool] = p
		}
		switch {
		case n.GPUs > 0:
			p.with = append(p.with, nodeName(n))
		case x.placed(m):
			lacking = append(lacking, nodeName(n))
		default:
			p.without = append(p.without, nodeName(n))
		}
	}
	for name, p := range pools {
		if name != api.NodePoolDefault && name != "" && len(p.with) > len(p.without) {
			for _, n := range p.without {
				lacking = append(lacking, fmt.Sprintf("%s (node pool %s)", n, name))
			}
		}
	}
	slices.Sort(lacking)
	const name, do = "device-plugin", "on the node: nomad-device-caravan check; then look for the plugin in the agent's log and its plugin_dir"
	switch gpus := x.gpus(); {
	case gpus == 0:
		x.fail(name, do, "none of %s shows a device that matches %q", count(len(x.View.Nodes), "node"), x.View.Devices)
	case len(lacking) > 0:
		x.warn(name, do, "%s should have GPUs and show none: %s", count(len(lacking), "node"), list(lacking))
	default:
		x.ok(name, "%s on every node that should have some", count(gpus, "GPU"))
	}
}

// placed says whether the node carries the meta of a level.
func (x *examination) placed(n *model.Node) bool {
	return slices.ContainsFunc(x.Config.Levels, func(l config.Level) bool {
		return strings.HasPrefix(l.Meta, config.MetaPrefix) && n.Attributes["meta."+l.Meta] != ""
	})
}

func (x *examination) doubled() {
	var nodes []string
	devices := 0
	for _, n := range x.View.Nodes {
		if n.Twice > 0 {
			nodes, devices = append(nodes, nodeName(n)), devices+n.Twice
		}
	}
	if len(nodes) == 0 {
		x.ok("device-plugin-once", "no device is listed twice")
		return
	}
	x.fail("device-plugin-once", "take nomad-device-nvidia (or whatever else reports the same GPUs) out of these agents' plugin_dir and configuration, and restart them",
		"%s listed twice on %s: two device plugins report the same GPUs, and Nomad gives each to two tasks: %s",
		count(devices, "GPU"), count(len(nodes), "node"), list(nodes))
}

func (x *examination) topology() {
	var faults []string
	known := 0
	for _, n := range x.View.Nodes {
		switch {
		case n.TopologyFault != "":
			faults = append(faults, nodeName(n)+": "+n.TopologyFault)
		case n.GPUs > 0:
			known++
		}
	}
	if len(faults) == 0 {
		x.ok("topology", "the paths between the GPUs are known on %s", count(known, "node"))
		return
	}
	x.warn("topology", "run nomad-device-caravan, at the planner's version, on these nodes; until then each of their GPUs counts as an island of its own",
		"the paths between the GPUs are unknown on %s: %s", count(len(faults), "node"), list(faults))
}

func (x *examination) health() {
	var sick []string
	for i := range x.View.Snapshot.Nodes {
		n := &x.View.Snapshot.Nodes[i]
		for _, g := range n.GPUs {
			if g.Unhealthy != "" {
				sick = append(sick, fmt.Sprintf("%s %s (%s)", nodeName(x.View.Nodes[i]), g.UUID, g.Unhealthy))
			}
		}
	}
	if len(sick) == 0 {
		x.ok("gpu-health", "all healthy")
		return
	}
	x.warn("gpu-health", "reset or replace them; caravan topology NODE shows each", "%s unhealthy: %s", count(len(sick), "GPU")+verb(len(sick)), list(sick))
}

func verb(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// gateMeta is the node meta key that opens every gate.
const gateMeta = "meta.caravan_gate"

func (x *examination) gate() {
	var open []string
	for i := range x.View.Snapshot.Nodes {
		if x.View.Snapshot.Nodes[i].Attributes[gateMeta] == "open" {
			open = append(open, nodeName(x.View.Nodes[i]))
		}
	}
	if len(open) == 0 {
		x.ok("gate", "no node opens it")
		return
	}
	x.fail("gate", "take caravan_gate out of these clients' meta: nomad node meta apply -node-id NODE -unset caravan_gate, or the agent's configuration",
		"%s: Nomad places every waiting job there, unasked: %s", count(len(open), "node")+" with meta caravan_gate = \"open\"", list(open))
}

// has says whether Nomad knows a node of that ID.
func (x *examination) has(id string) bool {
	_, ok := slices.BinarySearchFunc(x.View.Nodes, id, func(n observe.NodeRef, id string) int { return strings.Compare(n.ID, id) })
	return ok
}
