package core

import (
	"math/bits"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// GPUs kept for interactive jobs are capacity for a queue that all of them are in,
// whichever theirs is: so one starts at once where others wait, and nobody is
// stopped for it. Unlike capacity for a queue it is kept on nodes that are in pieces
// already.

// interactiveQueue is that queue. No queue of an operator's has a space in its name.
const interactiveQueue = "interactive jobs"

// interactiveReserve is what the reservation is told by.
const interactiveReserve = "interactive"

// queueWords names a queue that capacity is kept for.
func queueWords(queue string) string {
	if queue == interactiveQueue {
		return queue
	}
	return "queue " + queue
}

// reserveInteractive appends the reservation to an operator's.
func (p *Prepared) reserveInteractive() {
	if p.policy.Interactive.Reserves() {
		p.apart = append(p.apart, model.Reservation{Name: interactiveReserve, Kind: model.ReserveCapacity, Queue: interactiveQueue})
	}
}

// sizeReserve says how many GPUs are kept by now.
func (c *cycle) sizeReserve() {
	n := len(c.apart)
	if n == 0 || c.apart[n-1].Queue != interactiveQueue {
		return
	}
	healthy := 0
	for node := range c.tree.Nodes {
		if row := c.emptyRow(int32(node)); !row.Closed {
			healthy += bits.OnesCount64(row.GPUs)
		}
	}
	c.apart[n-1].GPUs = c.policy.Interactive.Kept(healthy)
}

// usesReserve reports whether a job may be placed on what is kept for interactive
// jobs: it is one, or others may use it meanwhile who give way.
func (c *cycle) usesReserve(j *model.Job) bool {
	i := &c.policy.Interactive
	return i.Is(j) || i.Lend && c.policy.Preempt.GivesWay(j)
}

// claimsReserve reports whether an interactive job has a right to the room of
// others: less is used than is kept.
func (c *cycle) claimsReserve(j *model.Job) bool {
	i := &c.policy.Interactive
	if !i.Lend || !i.Reserves() || !i.Is(j) {
		return false
	}
	for k := range c.uses {
		if c.apart[k].Queue == interactiveQueue {
			return c.uses[k].Used+c.claimed < c.uses[k].GPUs
		}
	}
	return false
}

// noteClaim counts what interactive jobs get in this plan of what is kept for them.
func (c *cycle) noteClaim(j *model.Job, g *gang) {
	if c.policy.Interactive.Lend && c.policy.Interactive.Is(j) {
		c.claimed += g.gpus
	}
}
