package study

import (
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// rowWait is a fleet that knows of no deadlines, and buys for whoever would wait for
// longer than a decision, if that is sooner, as burst.wait has it.
const rowWait = "smaller, buys for long waits"

// waitOver is that wait, and waitQuota how many times the fixed fleet's nodes may be bought
// for it: where they are no more than these, bursts of the trace wait for nodes.
const (
	waitOver  = time.Duration(interval) * time.Second
	waitQuota = 4
)

func withoutDeadlines(jobs []trace.Job) []trace.Job {
	out := slices.Clone(jobs)
	for i := range out {
		out[i].Deadline = 0
	}
	return out
}

// met is the part of the jobs' deadlines that was met, whoever knew of them.
func met(done []sim.Done, jobs []trace.Job) float64 {
	n := 0.0
	for i := range jobs {
		if done[i].Ended <= jobs[i].Deadline {
			n++
		}
	}
	return n / float64(len(jobs))
}

// waitVerdict says of a figure that is to be a limit at most whether it is, by its
// interval.
func waitVerdict(is sim.Interval, limit float64) string {
	switch {
	case is.High <= limit:
		return "reached"
	case is.Low > limit:
		return "not reached"
	}
	return "undecided"
}

// waits says what it costs that nobody waits for long.
func (p *page) waits(c *Played) {
	wait := sim.Of(c.costs(rowWait, func(x *Cost) float64 { return x.QueueP95 }))
	if len(c.costs(rowWait, bought)) == 0 {
		return
	}
	limit := bootTime.Seconds() + interval
	d, b := c.cheaper(rowWait, cheaperRatio, false), c.cheaper(rowWait, cheaperRatio, true)
	p.say("- **P95 wait at most boot time and a decision, %s, where long waits buy nodes** (`burst.wait` of %s, up to %d times the fixed fleet may be bought, no job has a deadline that is known): %s, %s (%s to %s), for %s bought GPU-hours against %s for deadlines alone; %s of the deadlines are met all the same. Cost per run at a ratio of %d by all hours owned: %s (%s to %s) lower than on premises only; by busy hours %s.",
		span(limit), span(waitOver.Seconds()), waitQuota, waitVerdict(wait, limit), span(wait.Mean), span(wait.Low), span(wait.High), whole(c.cost(rowWait, bought)), whole(c.cost(rowDemand, bought)),
		percent(c.cost(rowWait, func(x *Cost) float64 { return x.Met })), cheaperRatio, percent(d.Mean), percent(d.Low), percent(d.High), percent(b.Mean))
}
