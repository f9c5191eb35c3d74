package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// keepNode keeps a node for a gang that is to be on it: the whole node, unless its
// members can have some kinds of its GPUs only, as time slices or all but these. Then
// the others of it are for others.
func (c *cycle) keepNode(g *gang, node, owner int32) {
	state := c.views[viewNow].State
	mask := c.kindsFor(g, node)
	if mask == c.tree.Nodes[node].All || c.divides[node] {
		state.Keep(node, owner)
		return
	}
	if c.ahead != nil && c.ahead.booked[node] {
		c.showClear(node)
	}
	row, need := state.Row(node), model.Resources{}
	for _, part := range g.unit.Parts {
		r := part.Request.Resources
		need.CPUMHz, need.MemoryMiB, need.DiskMiB = need.CPUMHz+part.Count*r.CPUMHz, need.MemoryMiB+part.Count*r.MemoryMiB, need.DiskMiB+part.Count*r.DiskMiB
	}
	need.CPUMHz, need.MemoryMiB, need.DiskMiB = min(need.CPUMHz, max(row.Free.CPUMHz, 0)), min(need.MemoryMiB, max(row.Free.MemoryMiB, 0)), min(need.DiskMiB, max(row.Free.DiskMiB, 0))
	state.Take(node, topo.Claim{GPUs: mask & row.GPUs, Resources: need})
}

// kindsFor are the GPUs of a node that some member of a gang may have, busy or not; all
// of them for members without any.
func (c *cycle) kindsFor(g *gang, node int32) (mask uint64) {
	for _, part := range g.unit.Parts {
		switch {
		case part.Count == 0:
		case part.Request.GPUs == 0:
			return c.tree.Nodes[node].All
		default:
			mask |= c.catalog.Usable(part.Request, node)
		}
	}
	return mask
}
