package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// What an order asks about a job's place before anybody has been placed.

// canRun reports whether a job that waits could run if nobody else did but who never gives
// way and has no end.
func (c *cycle) canRun(j *model.Job) bool {
	if c.constraintFaults(j) != "" {
		return false
	}
	gangs := c.gangs(j)
	for i := range gangs {
		g := &gangs[i]
		if c.prepare(j, g); g.nowhere != "" {
			return false
		}
		p := c.possibility(g)
		if p.code != "" || p.view == viewEmpty && !c.besideServices(g) || c.neverMay(j, g) {
			return false
		}
	}
	return len(gangs) > 0
}

// besideServices reports whether a gang, for which there is room only where services run,
// has some beside those that give way to nobody.
func (c *cycle) besideServices(g *gang) bool {
	if !c.policy.Preempt.Enabled || c.policy.Caravan.DeadlinesOnly {
		return false
	}
	empty := c.views[viewEmpty]
	mark := empty.State.Mark()
	defer empty.State.Revert(mark)
	for node := range int32(empty.State.Len()) {
		for _, h := range c.holders(node) {
			if h.of != nil && h.stays && !c.policy.Preempt.GivesWay(h.of) {
				empty.State.Take(node, c.claimOf(node, &h))
			}
		}
	}
	return c.placeable(empty, g)
}

// neverMay reports whether a gang has more GPUs than its queue or its user ever may.
func (c *cycle) neverMay(j *model.Job, g *gang) bool {
	if !c.limited() {
		return false
	}
	tree := c.queueTree()
	return slices.ContainsFunc(tree.Limits(tree.HomeOf(j), j.Preempt == model.PreemptNever), func(l queue.Limit) bool { return l.Model == "" && l.GPUs < g.gpus })
}

// fitsWithout reports whether the first gang of a job that waits would have a place now if
// other jobs had ended, and remembers where.
func (c *cycle) fitsWithout(j *model.Job, gone []*model.Job) bool {
	gangs := c.gangs(j)
	if len(gangs) == 0 {
		return false
	}
	state := c.views[viewNow].State
	mark := state.Mark()
	defer state.Revert(mark)
	c.giveBack(gone)
	g := &gangs[0]
	c.prepare(j, g)
	for i := range max(1, len(g.options)) {
		g.use(i)
		now := state.Mark()
		r, ok := c.views[viewNow].Place(g.unit)
		if state.Revert(now); !ok {
			continue
		}
		if c.clearing == nil {
			c.clearing = map[jobKey][]int32{}
		}
		nodes := make([]int32, 0, len(r.Placed))
		for i := range r.Placed {
			nodes = append(nodes, r.Placed[i].Node)
		}
		c.clearing[keyOf(j)] = sortedNodes(nodes)
		return true
	}
	return false
}

// giveBack makes free what jobs hold that run.
func (c *cycle) giveBack(gone []*model.Job) {
	leaves, given := make(map[*model.Job]bool, len(gone)), map[int32]bool{}
	for _, j := range gone {
		leaves[j] = true
	}
	for _, j := range gone {
		for i := range j.Members {
			node, known := c.tree.Find(j.Members[i].Node)
			if !known || given[node] {
				continue
			}
			given[node] = true
			for _, h := range c.holders(node) {
				if h.of != nil && leaves[h.of] {
					c.views[viewNow].State.Give(node, c.claimOf(node, &h))
				}
			}
		}
	}
}

// claimOf is what of a node is usable again once a holder has left it.
func (c *cycle) claimOf(node int32, h *holder) topo.Claim {
	return topo.Claim{GPUs: h.gpus & c.views[viewEmpty].State.Row(node).GPUs, Resources: h.resources, Ports: h.ports}
}
