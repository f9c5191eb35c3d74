package core

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// An elastic gang that runs with fewer members than it asks for grows where it
// is: only the members that it lacks are placed, all of them or none, near the
// others. It runs meanwhile, so it keeps no nodes and lets others pass.

// growable reports whether a running gang that is the whole job may get more
// members: the groups that lack some are elastic and have others, and none has
// ended.
func growable(j *model.Job) bool {
	if j.State != model.StateRunning {
		return false
	}
	for i := range j.Members {
		if j.Members[i].Ended {
			return false
		}
	}
	for i := range j.Groups {
		g := &j.Groups[i]
		if lacks(j, g) > 0 && (g.Max == 0 || !slices.ContainsFunc(j.Members, func(m model.Member) bool { return m.Group == g.Name })) {
			return false
		}
	}
	return true
}

// inForce counts the members that a gang has already; group is "" for the gang
// that is the whole job.
func inForce(j *model.Job, group string) int {
	n := 0
	if holdsMembers(j) {
		for i := range j.Members {
			if m := &j.Members[i]; !m.Ended && (group == "" || m.Group == group) {
				n++
			}
		}
	}
	return n
}

// onlyWhole leaves to new members the nodes that they take whole, other than
// those of their gang. Otherwise the group would have to list GPUs, or to be
// split, and its members to start anew.
func (c *cycle) onlyWhole(j *model.Job, g *gang) {
	u := g.unit
	for i := range j.Members {
		if at, ok := c.tree.Find(j.Members[i].Node); ok && !j.Members[i].Ended && len(j.Members[i].GPUs) > 0 {
			u.Taken = append(u.Taken, at)
		}
	}
	for i, part := range u.Parts {
		larger := c.largerThan(part.Request.GPUs)
		if len(larger) == 0 {
			continue
		}
		if u.TakenByPart == nil {
			u.TakenByPart = make([][]int32, len(u.Parts))
		}
		u.TakenByPart[i] = append(u.TakenByPart[i], larger...)
	}
	lo, hi := int32(-1), int32(-1)
	for i := range j.Members {
		m := &j.Members[i]
		if at, ok := c.tree.Find(m.Node); ok && !m.Ended && (gangOf(j) == model.GangJob || m.Group == g.groups[0].Name) {
			if lo < 0 || at < lo {
				lo = at
			}
			hi = max(hi, at)
		}
	}
	if lo >= 0 {
		g.near = c.domainAround(lo, hi)
	}
}

// largerThan are the nodes with more GPUs than that.
func (c *cycle) largerThan(gpus int) []int32 {
	if list, known := c.larger[gpus]; known {
		return list
	}
	var list []int32
	for node := range c.tree.Nodes {
		if len(c.tree.Nodes[node].Model.GPUs) > gpus {
			list = append(list, int32(node))
		}
	}
	if c.larger == nil {
		c.larger = map[int][]int32{}
	}
	c.larger[gpus] = list
	return list
}

// placeNear places a gang's new members in the domain around the others, or in
// the next wider one that has room; on the model that the others have, where it names
// none, if that has room anywhere.
func (c *cycle) placeNear(g *gang) (place.Result, bool) {
	if u := g.unit; u.Model != "" {
		if one := c.catalog.OnModel(u, u.Model); one != nil {
			if r, ok := c.nearOthers(g, one); ok {
				return r, true
			}
		}
	}
	return c.nearOthers(g, g.unit)
}

func (c *cycle) nearOthers(g *gang, u *place.Unit) (place.Result, bool) {
	find := c.views[viewNow].Place
	if g.replaces {
		find = c.placeWithSpares
	}
	if u.Topology.Mode == model.TopologyRequire {
		return find(u)
	}
	defer func() { u.Within = g.home() }()
	for d := g.near; ; d = c.tree.Domains[d].Parent {
		u.Within = d
		if r, ok := find(u); ok || d == topo.Root || d == g.home() {
			return r, ok
		}
	}
}

// growNear places the members by which a gang grows, not where they would still
// run when a maintenance begins.
func (c *cycle) growNear(g *gang) (place.Result, bool) {
	if c.ahead == nil || !c.ahead.overlooks(g.runs) {
		return c.placeNear(g)
	}
	now := c.views[viewNow]
	mark := now.State.Mark()
	c.shun(g)
	result, ok := c.placeNear(g)
	now.State.Revert(mark)
	if ok {
		now.Take(g.unit, result.Placed)
	}
	return result, ok
}

// growthReason is put before the reason of a decision on gangs that run.
func growthReason(gangs []gang, action model.Action) string {
	has, wants := 0, 0
	for i := range gangs {
		if gangs[i].grown > 0 {
			has += gangs[i].grown
			wants += gangs[i].members
		}
	}
	if has == 0 {
		return ""
	}
	if action == model.ActionAdmit && len(gangs) == 1 {
		return fmt.Sprintf("grows from %d to %d members: ", has, has+wants)
	}
	return fmt.Sprintf("runs with %d of %d members; to grow: ", has, has+wants)
}
