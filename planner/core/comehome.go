package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Work on bought nodes comes home when that pays: others are free that nobody waits
// for, and what the bought ones would still cost is more than what the move loses.

// comesHome is for whom a gang moves that leaves bought nodes.
const comesHome = "nodes that are not paid for"

const (
	// homeRatio is how many times as much as it loses a move has to save.
	homeRatio = 2
	// homeRest is how long a gang runs at least before it is moved, and between two
	// moves.
	homeRest = 30 * time.Minute
)

// comeHome moves the gang for which that pays most; one in each plan.
func (c *cycle) comeHome() {
	if len(c.bought) == 0 || c.policy.Burst.StayAway || len(c.holds) > 0 || len(c.landings) > 0 {
		return
	}
	if c.yield == nil {
		c.yield = c.newYield()
	}
	if len(c.yield.plan) > 0 {
		return
	}
	k := c.compaction
	if k == nil {
		k = c.newCompaction()
	}
	for i := range k.movers {
		if c.bringHome(&k.movers[i]) {
			return
		}
	}
}

// paysHome is what a gang's purchase would still cost without a move, and what that
// is in the period that is paid for anyway; false if it is not to be moved.
func (c *cycle) paysHome(m *mover) (p *model.Purchase, saves float64, left time.Duration, ok bool) {
	j := m.job
	if j.Move == model.MoveNever || j.Preempt == model.PreemptNever || c.burstMode(j) != model.BurstAllow || c.givenTo[keyOf(j)] {
		return nil, 0, 0, false
	}
	for i := range j.Preempted {
		if j.Preempted[i].Moved && c.now.Sub(j.Preempted[i].At) < homeRest {
			return nil, 0, 0, false
		}
	}
	if j.Started.IsZero() || c.now.Sub(j.Started) < homeRest {
		return nil, 0, 0, false
	}
	for _, member := range m.members {
		at, found := c.tree.Find(member.Node)
		if !found || c.tree.Nodes[at].Model.Bought == nil {
			return nil, 0, 0, false
		}
		if p == nil {
			p = c.purchase(c.tree.Nodes[at].Model.Bought.Purchase)
		}
	}
	if p == nil || p.Billed.IsZero() {
		return nil, 0, 0, false
	}
	pool := c.poolOf(p.Pool)
	end := c.openAhead().endOf(j).at
	if pool == nil || end == eternity {
		return nil, 0, 0, false
	}
	been := c.now.Sub(p.Billed)
	nodes := max(1, p.Nodes-len(p.Gone))
	saves = burst.Bill(nodes, p.Price, been+end, pool.MinBilling, pool.Period) - burst.Bill(nodes, p.Price, been+stopTime, pool.MinBilling, pool.Period)
	return p, saves, end, saves > 0
}

func (c *cycle) bringHome(m *mover) bool {
	p, saves, end, ok := c.paysHome(m)
	if !ok || m.gpus == 0 || !c.yield.loads.Allow(c.yield.policy, m.job, m.gpus) {
		return false
	}
	each := p.Price * float64(p.Nodes) / float64(m.gpus) / 3600 // for a GPU-second
	state := c.views[viewNow].State
	mark := state.Mark()
	d, ok := c.elsewhere(&m.yielder)
	if !ok || slices.ContainsFunc(c.membersAt(nil, d.job, &d.gang, d.result), func(to model.Member) bool {
		at, _ := c.tree.Find(to.Node)
		return c.tree.Nodes[at].Model.Bought != nil
	}) {
		state.Revert(mark)
		return false
	}
	lost := time.Duration(float64(m.cost.Total())/float64(m.gpus)) * time.Second
	cost := float64(m.cost.Lost+m.cost.Restart) * each
	deadline := m.job.Deadline
	if saves < homeRatio*cost || !deadline.IsZero() && c.now.Add(end+lost+stopTime).After(deadline) {
		state.Revert(mark)
		return false
	}
	move := model.Preemption{
		Namespace: m.job.Namespace, Job: m.job.ID, Action: model.ActionMove, Members: slices.Clone(m.members), To: c.membersAt(nil, d.job, &d.gang, d.result),
		For: model.JobName{ID: comesHome}, Cost: m.cost, Moves: d.name(),
	}
	currency := c.burst.Currency
	move.Reason = fmt.Sprintf("comes home to %s, where nodes are free: its bought ones would cost %.2f %s more until it ends in %s, and the move loses what is worth %.2f %s (%s)",
		d.name(), saves, currency, span(end), cost, currency, costText(m.cost, m.sinceWhat()))
	last := m.parts[len(m.parts)-1]
	for _, v := range m.parts {
		c.yield.taken[v] = true
	}
	c.yield.plan, c.yield.last = append(c.yield.plan, move), append(c.yield.last, last)
	return true
}
