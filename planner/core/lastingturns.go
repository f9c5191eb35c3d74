package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Where jobs give way, an order that is kept says besides who should run now. All who wait
// and have not their turn stand alike, so only those who run, and those who have it, have
// standings of their own.

// lastingTurns finds out who should run now in an order that is kept.
func (c *cycle) lastingTurns(l *lasting) {
	s := queue.Situation{Now: c.now, Past: c.past, CanRun: c.canRun}
	s.GPUs, s.NodeGPUs, s.Models = c.usableGPUs()
	list := append(c.scratch.stands.list[:0], queue.Later())
	l.runs = l.runs[:0]
	for _, a := range l.running {
		if r := c.runnerOf(a); r != nil {
			l.runs = append(l.runs, r)
		}
	}
	l.turns.GiveTurns(l.of, &s, l.runs, placesOf(l.order), placesOf(l.byAge))
	k := 0
	for _, a := range l.running {
		if a.stands = -1; k < len(l.runs) && l.runs[k] == a.runner {
			a.stands = len(list)
			list = append(list, l.runs[k].Standing)
			k++
		}
	}
	for _, w := range l.turned {
		w.aged.stands, w.turned, w.rank.class = 0, false, list[0].Class
	}
	l.turned = l.turned[:0]
	for i := range l.turns.Waiting {
		w := l.waiters[l.turns.Waiting[i].Place.Job]
		w.aged.stands, w.turned, w.rank.class = len(list), true, l.turns.Waiting[i].Standing.Class
		list, l.turned = append(list, l.turns.Waiting[i].Standing), append(l.turned, w)
	}
	c.scratch.stands = standings{of: c.agedOf, list: list, turned: l.turned}
	c.stands = &c.scratch.stands
}

// runnerOf is a job as it runs now; nil if it does not.
func (c *cycle) runnerOf(a *agedJob) *queue.Runner {
	r := a.runner
	if r == nil || !lasts(a.job) {
		r = &queue.Runner{Entry: *c.lastingOf(a)}
		r.Entry.Priority = c.queueTree().Priority(a.job)
		a.runner = r
	}
	if !r.Running {
		return nil
	}
	r.Ran, r.Attained = a.job.Ran, a.job.AttainedGPUs
	c.times(&r.Entry)
	return r
}

// turnedFirst adds those who wait to a line, in each priority those first who have their
// turns.
func (l *lasting) turnedFirst(line []*waiter) []*waiter {
	turned := l.turned
	for _, w := range l.order {
		for len(turned) > 0 && !w.BeforeByPriority(&turned[0].Place) {
			line, turned = append(line, turned[0]), turned[1:]
		}
		if !w.turned {
			line = append(line, w)
		}
	}
	return append(line, turned...)
}

// whyOf is what is said of how a job stands.
func (c *cycle) whyOf(j *model.Job) string {
	if c.lasts {
		return c.lastingStanding(j).Why
	}
	return c.standing(j).Why
}
