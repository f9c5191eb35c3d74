package core

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Spares are idle nodes, so many in each domain of a level, that nothing is placed
// on but replacements of members whose nodes have failed. Which nodes they are is
// no property of theirs: when a job takes the last idle node but those, they stay;
// when one fails or is used, the next node that becomes idle takes its place.

// spareOwner keeps a node as a spare.
const spareOwner = -2

// keepSpares keeps the spare nodes: of the idle nodes of a domain the largest, and
// of equals the last in the tree, where placements come last.
func (c *cycle) keepSpares() {
	policy := c.policy.Replace
	if policy.Spares == 0 {
		return
	}
	level := c.tree.LevelIndex(policy.SparesPer)
	if policy.SparesPer != "" && level < 0 {
		return
	}
	// A node that a gang comes back to is no spare, though nothing is there any more.
	seats := map[int32]bool{}
	for _, j := range c.jobsOf(someReplaced) {
		for _, b := range c.comebacks(j) {
			for i := range b.seats {
				seats[b.seats[i].placed.Node] = true
			}
		}
	}
	var idle []int32
	for node := int32(len(c.tree.Nodes)) - 1; node >= 0; node-- {
		if c.idle(node) && !seats[node] {
			idle = append(idle, node)
		}
	}
	size := func(node int32) int { return bits.OnesCount64(c.tree.Nodes[node].All) }
	slices.SortStableFunc(idle, func(a, b int32) int { return cmp.Compare(size(b), size(a)) })
	kept := map[int32]int{}
	for _, node := range idle {
		domain := int32(topo.Root)
		if level >= 0 {
			domain = c.tree.DomainAt(node, level)
		}
		if domain < 0 || kept[domain] >= policy.Spares {
			continue
		}
		kept[domain]++
		c.spares = append(c.spares, node)
		for _, v := range []int{viewNow, viewTrue, viewCalm} {
			c.views[v].State.Keep(node, spareOwner)
		}
	}
	if len(c.spares) > 0 {
		c.epoch++
	}
}

// idle reports whether a node with GPUs is sound, wholly free, and kept for
// nobody.
func (c *cycle) idle(node int32) bool {
	r := c.views[viewNow].State.Row(node)
	// Bought nodes are paid for by whom they are for.
	return c.tree.Nodes[node].Model.Bought == nil && r.GPUs != 0 && r.GPUs == c.tree.Nodes[node].All && r.Owner == 0 && !r.Closed && len(c.allocsOn[node])+len(c.membersOn[node]) == 0
}

// placeWithSpares places a unit that may use spare nodes.
func (c *cycle) placeWithSpares(u *place.Unit) (place.Result, bool) {
	now := c.views[viewNow]
	if r, ok := now.Place(u); ok || len(c.spares) == 0 {
		return r, ok
	}
	mark := now.State.Mark()
	var opened []int32
	for _, node := range c.spares {
		if now.State.Row(node).Owner == spareOwner {
			now.State.Keep(node, 0)
			opened = append(opened, node)
		}
	}
	r, ok := now.Place(u)
	if !ok {
		now.State.Revert(mark)
		return r, false
	}
	used := map[int32]bool{}
	for i := range r.Placed {
		used[r.Placed[i].Node] = true
	}
	for _, node := range opened {
		if !used[node] {
			now.State.Keep(node, spareOwner)
		}
	}
	return r, true
}
