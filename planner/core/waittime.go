package core

import (
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// expectedWait is how much longer a gang is expected to wait if nobody is moved
// for it, and what that rests on: the forecast, if there is one. If not, a wait is
// taken to last as long again as it has lasted: the best that can be said of one
// of which nothing else is known.
func (c *cycle) expectedWait(j *model.Job, g *gang) (time.Duration, string) {
	if c.looksAhead() {
		if o := c.openAhead().foresee(j, g, who{foreseen: true}); o.known {
			return o.at, "until " + o.basis
		}
	}
	if j.Submitted.IsZero() {
		return 0, "it is not known since when it waits"
	}
	return max(0, c.now.Sub(j.Submitted)), "as long again as it has waited: it is not known when what is in its way ends"
}
