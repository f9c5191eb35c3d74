package core

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// quotaRights are the rights where queues are limited. Within a queue the higher
// priority counts. Beyond it only what has been borrowed gives way, whatever its
// priority, and only to what is guaranteed; so nobody displaces whom he has
// given way to: a borrower has no right to displace others.
type quotaRights struct {
	c          *cycle
	byPriority preempt.ByPriority
	borrowers  map[jobKey]bool
}

// rights are those by which jobs give way.
func (c *cycle) rights(gap int) preempt.Rights {
	byPriority := preempt.ByPriority{Gap: gap}
	if !c.limited() {
		return byPriority
	}
	a := c.accounts
	r := &quotaRights{c: c, byPriority: byPriority, borrowers: map[jobKey]bool{}}
	var list []queue.Use
	for key, amount := range a.byJob {
		if j := c.jobs[key]; j != nil && !amount.Zero() {
			list = append(list, queue.Use{Job: j, Amount: amount})
		}
	}
	for i, borrows := range a.tree.Borrowers(list) {
		r.borrowers[keyOf(list[i].Job)] = borrows
	}
	return r
}

// limited reports whether jobs need a right to what they take.
func (c *cycle) limited() bool { return c.ledger != nil && c.accounts.tree.Limited }

// MayDisplace implements preempt.Rights.
func (r *quotaRights) MayDisplace(preemptor, victim *model.Job) (bool, string) {
	tree := r.c.accounts.tree
	claimant, other := tree.HomeOf(preemptor), tree.HomeOf(victim)
	if least := tree.MinRun(other); !victim.Started.IsZero() && r.c.now.Sub(victim.Started) < least {
		return false, fmt.Sprintf("it has run for %s only; its queue grants %s", r.c.now.Sub(victim.Started).Round(time.Second), least)
	}
	if claimant.SameQueue(other) {
		x, y := *preemptor, *victim
		x.Priority, y.Priority = tree.Priority(preemptor), tree.Priority(victim)
		return r.byPriority.MayDisplace(&x, &y)
	}
	if !r.borrowers[keyOf(victim)] {
		return false, fmt.Sprintf("it is within the guarantee of queue %s", tree.Name(other))
	}
	return r.c.ledger.Reclaim(claimant, r.c.asking, other)
}
