package core

import (
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Draining: a gang that has waited for long keeps its nodes, so that they are empty as
// soon as what runs there has ended. That may take days where a single job runs on, and
// all the others' GPUs would be idle meanwhile. So who is expected to need a small part
// of what that job still runs may use them, once: what runs there then is waited for
// with nobody let in. Each of those who were there ends some day, and so do those who
// were let in before, so the gang has its turn.

// drainPart is by what it is divided for how long the last on drained nodes still runs:
// so much less does whoever is let in. Where the estimates of both are off by a lognormal
// factor (σ = 1) one in six outlives him all the same.
const drainPart = 4

// overdue reports whether a gang has waited for so long that estimates are not to
// be trusted any more: what was to end before its start has not, and what comes
// meanwhile would be late too. Then it drains its nodes. One gang does so at a time,
// the first in order: each gets its turn, and little lies idle.
func (c *cycle) overdue(j *model.Job) bool {
	if !c.policy.Backfills() || c.draining {
		return false
	}
	since := j.Submitted
	for i := range j.Preempted {
		if at := j.Preempted[i].At; at.After(since) {
			since = at
		}
	}
	return c.now.Sub(since) >= c.policy.Backfill.Trust()
}

// drain keeps nodes, on which a gang has reserved a time, from all others until
// then, but from those who have ended long before what runs there.
func (c *cycle) drain(j *model.Job, g *gang, k *kept, nodes []int32) {
	k.drained = true
	if k.open = c.openTo(j, nodes); k.open > 0 {
		// Closed for a moment at least: else who is let in could stay when it starts.
		k.open = min(k.open, max(g.outlook.at-time.Second, 1))
		c.unsure = true // it grows with how long they have run
		for _, node := range nodes {
			c.ahead.book(node, booking{from: k.open, until: max(g.outlook.at, k.open+1), closed: true, kept: true, drained: true, job: keyOf(j)})
			c.keepClear(node)
		}
		c.epoch++
		return
	}
	ids := make([]string, len(nodes))
	for i, node := range nodes {
		c.views[viewNow].State.Keep(node, int32(len(c.holds)))
		ids[i] = c.tree.Nodes[node].Model.ID
	}
	c.keptNow(j, g, nodes)
	c.ahead.keptUntil(j, ids, g.outlook.at)
}

// openTo is within what time who may use nodes that are drained for a job has ended; 0
// if nobody may. Where only short ones are in its way they are soon gone.
func (c *cycle) openTo(j *model.Job, nodes []int32) (most time.Duration) {
	if c.clearing[keyOf(j)] != nil {
		return 0
	}
	for _, node := range nodes {
		for i := range c.held[node] {
			if h := &c.held[node][i]; !letInFor(h.of, j) {
				most = max(most, c.partOfRest(h))
			}
		}
	}
	return most
}

// letInFor reports whether a job runs where another one had its nodes drained already.
func letInFor(of, j *model.Job) bool {
	return of != nil && of.Backfilled != nil && of.Backfilled.Drained && (jobKey{of.Backfilled.For.Namespace, of.Backfilled.For.ID}) == keyOf(j)
}

// partOfRest is a part of how long somebody still runs, and never more than is expected.
// Who was to end soon, and may have outlived what was expected, is taken to run for half
// of all that again: few end just when they were to.
func (c *cycle) partOfRest(h *holder) time.Duration {
	rest := c.ahead.leaves(h)
	if rest == eternity || isLeaving(h.of, h) {
		return 0
	}
	runs, _ := c.expected(h.of)
	return min(rest, max(rest, runs/2, c.now.Sub(h.of.Started)/2)/drainPart)
}
