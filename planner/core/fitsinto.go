package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// plain reports whether room for each member is all that a gang needs.
func (g *gang) plain() bool { return g.countable() && !g.sliced() }

// simple reports whether it is placed in one way only: with room for each of its members,
// on GPUs of their own.
func (g *gang) simple() bool {
	return g.plain() && len(g.options) == 0 && !g.unit.Parts[0].Request.Shares()
}

// countable reports whether counting the members that a domain takes, in whole
// slices, says whether the gang fits into it.
func (g *gang) countable() bool {
	u := g.unit
	return len(u.Parts) == 1 && len(u.Quotas)+len(u.Taken)+len(u.TakenByPart) == 0
}

// fitsInto reports whether a gang fits into a domain or node, as things are.
func (c *cycle) fitsInto(g *gang, f domainFit) bool {
	if g.countable() {
		if part := &g.unit.Parts[0]; f.domain < 0 && g.unit.Only == nil {
			return c.nodeTakes(part, f.node, g.unit.Topology)
		}
		return newMeter(c.views[viewNow], g).takes(f)
	}
	mark := c.views[viewNow].State.Mark()
	_, ok := c.placeInto(g, f)
	c.views[viewNow].State.Revert(mark)
	return ok
}

// nodeTakes reports whether a node takes all members of a part, as things are. It
// looks at nothing but the node: while victims come and go on trial, bringing the
// summaries up to date would cost more.
func (c *cycle) nodeTakes(part *place.Part, node int32, t model.Topology) bool {
	fit := c.views[viewNow].FitOn(part.Request, node, ^uint64(0))
	most := fit.Members
	if t.Mode == model.TopologyRequire && t.Level == model.LevelIsland {
		most = fit.Island
	}
	return c.catalog.RoomOn(part, node, int(most)) >= part.Count
}

// countInto says how a gang's members are counted.
func (c *cycle) countInto(g *gang, fits []domainFit, problem *preempt.Problem) {
	part, island := &g.unit.Parts[0], newMeter(c.views[viewNow], g).island
	if island && slices.ContainsFunc(fits, func(f domainFit) bool { return f.domain >= 0 }) {
		return
	}
	problem.Members = part.Count
	problem.Room = func(p preempt.Place) int { return newMeter(c.views[viewNow], g).members(0, fits[p.ID]) }
	problem.Count = func(node int32, row *topo.Row) int {
		fit := c.views[viewNow].Takes(part.Request, node, row)
		if island {
			return int(fit.Island)
		}
		return int(fit.Members)
	}
}

// placeInto places a gang in a domain or on a node.
func (c *cycle) placeInto(g *gang, f domainFit) (place.Result, bool) {
	unit := *g.unit
	switch {
	case f.domain >= 0:
		unit.Within = f.domain
	case unit.Only == nil:
		unit.Only = &place.Spot{Node: f.node, GPUs: ^uint64(0)}
	}
	return c.views[viewNow].Place(&unit)
}
