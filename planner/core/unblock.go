package core

import (
	"math"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Unblock finds what an operator could stop so that a job that waits for room
// starts at once, and that costs least, whoever has a right to displace whom; only
// what is never to be preempted is left out. It is false if the job does not wait
// for room, or nothing that runs would help. An error names every fault of the
// snapshot.
func Unblock(snapshot *model.Snapshot, policy Policy, job model.JobName) (model.Unblock, bool, error) {
	p, err := Prepare(snapshot, policy)
	if err != nil {
		return model.Unblock{}, false, err
	}
	c := newCycle(p, snapshot.Now)
	defer c.revert()
	c.asked = &unblocking{job: jobKey{job.Namespace, job.ID}}
	c.decide()
	return c.asked.found, c.asked.ok, nil
}

// unblocking is who asks what would unblock him, and the answer.
type unblocking struct {
	job   jobKey
	found model.Unblock
	ok    bool
	// looking: whoever runs may be stopped.
	looking bool
}

// findUnblock answers a gang that waits for room, before it keeps any.
func (c *cycle) findUnblock(j *model.Job, g *gang) {
	q := c.asked
	if q == nil || q.job != keyOf(j) || q.ok || g.grown > 0 {
		return
	}
	old := c.yield
	defer func() { c.yield, q.looking = old, false }()
	c.yield, q.looking = c.newYield(), true
	c.yield.perHour, c.yield.rates = math.MaxInt, nil
	mark := c.views[viewNow].State.Mark()
	defer c.views[viewNow].State.Revert(mark)
	for _, l := range c.yield.leaving {
		c.yields(l.hold, g.queue)
	}
	m, ok := c.displace(j, g)
	if !ok {
		return
	}
	q.ok, q.found.Cost = true, m.cost
	for _, v := range m.now {
		key := keyOf(c.yield.gangs[v].job)
		name := model.JobName{Namespace: key.namespace, ID: key.id}
		if n := len(q.found.Stop); n == 0 || q.found.Stop[n-1] != name {
			q.found.Stop = append(q.found.Stop, name)
		}
	}
	q.found.Level, q.found.Domain = m.result.Level, m.result.Domain
	q.found.Reason = "stopping " + c.openAhead().jobList(q.found.Stop) + " would make room in " + domainName(m.result.Level, m.result.Domain) +
		"; that costs " + costText(m.cost, "checkpoints or starts")
}
