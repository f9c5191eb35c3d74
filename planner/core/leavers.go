package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// While gangs are stopping, each that waits asks whether what they leave is enough for it.
// For most it is too little, wherever they have to be: that is found out by counting, once
// for all who ask for the same, and not by leaving it on trial for each of them.

// leavers is what those leave who are leaving.
type leavers struct {
	// epoch and of are when it was found out: for how many who leave.
	epoch, of int
	known     bool
	// nodes are where they leave something, and rows what is free there then.
	nodes []int32
	rows  []topo.Row
	// members are how many members there is room for then, by what they ask for.
	members map[*place.Request]int
}

// asksTooMuch reports whether a gang asks for more than what is free and what is left by
// those who are leaving, and may take nobody else's room: then nothing more is looked at. It
// may be false though that is so.
func (c *cycle) asksTooMuch(j *model.Job, g *gang) bool {
	if !c.passesAlike || !g.simple() || len(c.placedNow) > 0 || !c.goesBeforeNone(j) {
		return false
	}
	part := &g.unit.Parts[0]
	return c.roomLeft(part.Request) < part.Count
}

// roomLeft counts the members of a request that there is room for once all have left.
func (c *cycle) roomLeft(r *place.Request) int {
	l := &c.yield.left
	if !l.known || l.epoch != c.epoch || l.of != len(c.yield.leaving) {
		c.findLeft(l)
	}
	n, counted := l.members[r]
	if counted {
		return n
	}
	now := c.views[viewNow]
	summary := now.Summary(r)
	n = summary.Members(topo.Root)
	for i, node := range l.nodes {
		n += int(now.Takes(r, node, &l.rows[i]).Members - summary.Fit(node).Members)
	}
	l.members[r] = n
	return n
}

// findLeft finds out what is free where somebody leaves.
func (c *cycle) findLeft(l *leavers) {
	l.known, l.epoch, l.of = true, c.epoch, len(c.yield.leaving)
	l.nodes, l.rows = l.nodes[:0], l.rows[:0]
	if clear(l.members); l.members == nil {
		l.members = map[*place.Request]int{}
	}
	state := c.views[viewNow].State
	at := c.scratch.counts(state.Len()) // by node, its place from 1
	for i := range c.yield.leaving {
		h := &c.yield.leaving[i].hold
		if at[h.Node] == 0 {
			l.nodes, l.rows = append(l.nodes, h.Node), append(l.rows, *state.Row(h.Node))
			at[h.Node] = int32(len(l.nodes))
		}
		l.rows[at[h.Node]-1].Give(c.leftOf(h, ""))
	}
	for _, node := range l.nodes {
		at[node] = 0
	}
}

// leftOf is what somebody leaves of what he holds, but for what is promised, or kept for
// others than a queue.
func (c *cycle) leftOf(h *preempt.Hold, queue string) topo.Claim {
	claim := h.Claim
	claim.GPUs &^= c.keptFrom(h.Node, queue)
	if p, ok := c.yield.promised[h.Node]; ok {
		claim.GPUs &^= p.GPUs
		claim.Ports = slices.DeleteFunc(slices.Clone(claim.Ports), func(port uint16) bool { return slices.Contains(p.Ports, port) })
	}
	return claim
}
