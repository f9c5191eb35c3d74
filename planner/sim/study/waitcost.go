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

// seconds is a time that is not rounded to minutes: it is compared with a limit.
func seconds(s float64) string { return whole(s) + " s" }

// waits says what it costs that nobody waits for long.
func (p *page) waits(c *Played) {
	wait := sim.Of(c.costs(rowWait, func(x *Cost) float64 { return x.QueueP95 }))
	if len(c.costs(rowWait, bought)) == 0 {
		return
	}
	limit := bootTime.Seconds() + interval
	p.say("- **P95 wait at most boot time and a decision, %s, where long waits buy nodes** (`burst.wait` of %s, up to %d times the fixed fleet may be bought, no job has a deadline that is known): %s, %s (%s to %s), for %s bought GPU-hours against %s for deadlines alone; %s of the deadlines are met all the same.",
		seconds(limit), seconds(waitOver.Seconds()), waitQuota, waitVerdict(wait, limit), seconds(wait.Mean), seconds(wait.Low), seconds(wait.High), whole(c.cost(rowWait, bought)), whole(c.cost(rowDemand, bought)),
		percent(c.cost(rowWait, func(x *Cost) float64 { return x.Met })))
	d, b := c.cheaper(rowWait, rowPremisesWait, cheaperRatio, false), c.cheaper(rowWait, rowPremisesWait, cheaperRatio, true)
	most, few := c.cheaper(rowWait, rowPremisesMost, cheaperRatio, false), c.cheaper(rowWait, rowPremises, cheaperRatio, false)
	p.say("- **Cost per run %s lower at a ratio of %d** (%s): %s by all hours owned, %s (%s to %s), against the fleet that meets as many deadlines; by busy hours %s. Few jobs make that fleet so large: against one that meets 99 %% it is %s (%s to %s) lower, and against one that meets as many as are met when only deadlines buy, fewer than here, %s (%s to %s).",
		percent(cheaperWanted), cheaperRatio, rowWait, judge(d, cheaperWanted, false), percent(d.Mean), percent(d.Low), percent(d.High), percent(b.Mean),
		percent(most.Mean), percent(most.Low), percent(most.High), percent(few.Mean), percent(few.Low), percent(few.High))
}
