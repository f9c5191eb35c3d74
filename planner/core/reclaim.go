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
	// victims remembers what is asked of each, and of what it depends on himself.
	victims map[*model.Job]victimRights
}

// victimRights is what counts of a job that runs.
type victimRights struct {
	home queue.Home
	// fresh: it has not run for long enough yet.
	fresh, borrows bool
	priority       int
}

// of is what counts of a job that runs.
func (r *quotaRights) of(victim *model.Job) victimRights {
	v, known := r.victims[victim]
	if !known {
		tree := r.c.accounts.tree
		v.home, v.borrows, v.priority = tree.HomeOf(victim), r.borrowers[keyOf(victim)], tree.Priority(victim)
		v.fresh = r.tooFresh(victim, tree.MinRun(v.home))
		r.victims[victim] = v
	}
	return v
}

// rights are those by which jobs give way.
func (c *cycle) rights(gap int) preempt.Rights {
	byPriority := preempt.ByPriority{Gap: gap}
	if !c.limited() {
		return byPriority
	}
	a := c.accounts
	r := &quotaRights{c: c, byPriority: byPriority, borrowers: map[jobKey]bool{}, victims: map[*model.Job]victimRights{}}
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
func (r *quotaRights) MayDisplace(preemptor, victim *model.Job) bool {
	tree, v := r.c.accounts.tree, r.of(victim)
	if v.fresh && r.c.yield.waive == waiveNothing {
		return false
	}
	claimant := tree.HomeOf(preemptor)
	if claimant.SameQueue(v.home) {
		return r.byPriority.Beyond(tree.Priority(preemptor), v.priority)
	}
	if !v.borrows {
		return false
	}
	may, _ := r.c.ledger.Reclaim(claimant, r.c.asking, v.home)
	return may
}

// Why implements preempt.Rights.
func (r *quotaRights) Why(preemptor, victim *model.Job) string {
	tree := r.c.accounts.tree
	claimant, other := tree.HomeOf(preemptor), tree.HomeOf(victim)
	switch least := tree.MinRun(other); {
	case r.tooFresh(victim, least):
		return fmt.Sprintf("it has run for %s only; its queue grants %s", r.c.now.Sub(victim.Started).Round(time.Second), least)
	case claimant.SameQueue(other):
		return r.byPriority.Words(tree.Priority(preemptor), tree.Priority(victim))
	case !r.borrowers[keyOf(victim)]:
		return fmt.Sprintf("it is within the guarantee of queue %s", tree.Name(other))
	}
	_, why := r.c.ledger.Reclaim(claimant, r.c.asking, other)
	return why
}

// tooFresh reports whether a job has not run for as long as its queue grants.
func (r *quotaRights) tooFresh(victim *model.Job, least time.Duration) bool {
	return !victim.Started.IsZero() && r.c.now.Sub(victim.Started) < least
}
