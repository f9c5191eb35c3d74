package core

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// What was placed on an estimate where a gang is to start, and has not ended when
// that gang's time has come, gives way to it, if the policy says so. Without that
// a wrong estimate would delay the gang, which EASY leaves to the killing of jobs
// at their limit.

// overstays reports whether a job that runs was to have ended for another one to
// start by now, and says so.
func (c *cycle) overstays(j, victim *model.Job) (bool, string) {
	b := victim.Backfilled
	if b == nil || !c.policy.Backfill.Reclaim || (jobKey{b.For.Namespace, b.For.ID}) != keyOf(j) || c.now.Before(b.Start) {
		return false, ""
	}
	return true, fmt.Sprintf("it was to have ended at %s, and is %s late", clock(b.Until, c.now), span(c.now.Sub(b.Until).Round(time.Second)))
}

// owed are the jobs for which others overstay.
func (c *cycle) owed() map[jobKey]bool {
	if !c.policy.Backfill.Reclaim {
		return nil
	}
	out := map[jobKey]bool{}
	for _, j := range c.jobs {
		if b := j.Backfilled; b != nil && j.State == model.StateRunning && !c.now.Before(b.Start) {
			out[jobKey{b.For.Namespace, b.For.ID}] = true
		}
	}
	return out
}
