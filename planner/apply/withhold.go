package apply

import (
	"maps"
	"time"

	"github.com/caravan-sched/caravan/planner/record"
)

// withholds says whether a step is not taken, since the job's record is to stay.
func (c *Checker) withholds(step *Step) bool {
	if step.Forget == nil || c.opts.Withhold == nil || !c.opts.Withhold(step.Forget) {
		return false
	}
	c.withheld[key{step.Namespace, step.Job}] = true
	return true
}

// Withheld says whether the job has ended, as of the last Check, and its record
// stays all the same.
func (c *Checker) Withheld(namespace, job string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withheld[key{namespace, job}]
}

// arriving says whether the gateway has recorded a submission so lately that
// its job may still be on its way to Nomad.
func arriving(rec *record.Record, now time.Time) bool {
	return !rec.Arriving.IsZero() && now.Sub(rec.Arriving) < record.ArrivingFor
}

// keep drops what is remembered of jobs that are not there any more.
func keep[T any](m map[key]T, present map[key]bool) {
	maps.DeleteFunc(m, func(k key, _ T) bool { return !present[k] })
}
