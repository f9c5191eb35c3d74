package core

import (
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// openRates counts the gangs that gave way within the last hour, by queue; nil
// where no queue limits that.
func (c *cycle) openRates() *queue.Rates {
	if c.accounts == nil {
		return nil
	}
	r := c.accounts.tree.NewRates()
	if r == nil {
		return nil
	}
	for _, j := range c.jobsOf(someGave) {
		for _, gave := range j.Preempted {
			if c.now.Sub(gave.At) < time.Hour && !gave.Returned {
				r.Note(c.accounts.tree.HomeOf(j), 1)
			}
		}
	}
	return r
}

// spent reports whether no more gangs of a job's queue may give way now.
func (c *cycle) spent(victim *model.Job) bool {
	if c.yield.rates == nil {
		return false
	}
	path, _ := c.yield.rates.Spent(c.accounts.tree.HomeOf(victim))
	return path != ""
}

// withinRates reports whether some victims may give way together.
func (c *cycle) withinRates(victims, of []int) bool {
	y := c.yield
	if y.rates == nil {
		return true
	}
	ok, noted := true, []queue.Home{}
	for _, v := range victims {
		g := &y.gangs[of[v]]
		if g.surplus {
			continue
		}
		h := c.accounts.tree.HomeOf(g.job)
		if path, _ := y.rates.Spent(h); path != "" {
			ok = false
			break
		}
		y.rates.Note(h, 1)
		noted = append(noted, h)
	}
	for _, h := range noted {
		y.rates.Note(h, -1)
	}
	return ok
}

// noteRates counts a gang that gives way.
func (c *cycle) noteRates(j *model.Job) {
	if c.yield.rates != nil {
		c.yield.rates.Note(c.accounts.tree.HomeOf(j), 1)
	}
}
