package core

import (
	"fmt"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// placementTime is what it is worth for each GPU of a gang that all of it is on
// one node; being together in a wider domain is worth a part of it.
const placementTime = 10 * time.Second

// unsaved is how much of a gang's work a stop would lose, and whether that is
// since a checkpoint. A gang goes on together, so the oldest of its members'
// checkpoints counts; members that have none of their own, as where one rank
// writes for all, do not. Of one that has told of none, but says how often it makes one,
// no more is lost than it does in that time.
func (c *cycle) unsaved(v *yielder) (lost time.Duration, saved bool) {
	for i := range v.members {
		if since := v.members[i].SinceCheckpoint; since != nil {
			lost, saved = max(lost, time.Duration(min(*since, int64(eternity/time.Second)))*time.Second), true
		}
	}
	if saved {
		return lost, true
	}
	start := v.job.Started
	if start.IsZero() {
		start = v.job.Submitted
	}
	if start.IsZero() {
		return 0, false
	}
	lost = max(0, c.now.Sub(start))
	if every := v.job.Checkpoint; every > 0 {
		lost = min(lost, every)
	}
	return lost, false
}

// costOf is what a stop of the whole gang loses.
func (c *cycle) costOf(y *yield, v *yielder) model.Cost {
	weight := int64(max(1, v.gpus))
	cost := model.Cost{Restart: weight * int64(y.policy.RestartTime/time.Second)}
	if v.job.Preempt != model.PreemptAlways {
		var lost time.Duration
		lost, v.saved = c.unsaved(v)
		cost.Lost = weight * int64(lost/time.Second)
	}
	if len(v.members) > 1 {
		cost.Placement = weight * int64(c.nearness(v)) * int64(placementTime/time.Second) / int64(len(c.tree.Levels)+1)
	}
	return cost
}

// nearness counts the levels inside of which a gang is together: none if it is
// all over the cluster, all of them if it is on one node.
func (c *cycle) nearness(v *yielder) int {
	lo, hi := v.holds[0].Node, v.holds[0].Node
	for _, h := range v.holds {
		lo, hi = min(lo, h.Node), max(hi, h.Node)
	}
	if lo == hi {
		return len(c.tree.Levels) + 1
	}
	return c.tree.Domains[c.domainAround(lo, hi)].Level + 1
}

// gpuTime says a number of GPU-seconds.
func gpuTime(seconds int64) string {
	switch {
	case seconds < 120:
		return plural(int(seconds), "GPU-second")
	case seconds < 120*60:
		return plural(int(seconds/60), "GPU-minute")
	default:
		return plural(int(seconds/3600), "GPU-hour")
	}
}

// costText says what a preemption loses.
func costText(cost model.Cost, since string) string {
	parts := []string{"nothing of its work"}
	if cost.Lost > 0 {
		parts[0] = fmt.Sprintf("%s since %s", gpuTime(cost.Lost), since)
	}
	parts = append(parts, gpuTime(cost.Restart)+" to start again")
	if cost.Placement > 0 {
		parts = append(parts, gpuTime(cost.Placement)+" for a place that was good")
	}
	return strings.Join(parts, ", ")
}

// sinceWhat says from when on work is lost.
func (v *yielder) sinceWhat() string {
	switch every := v.job.Checkpoint; {
	case v.saved:
		return "its checkpoint"
	case every > 0:
		return fmt.Sprintf("a checkpoint that it makes every %s", span(every))
	}
	return "its start"
}

// onward is what it costs more, for each GPU, to displace who should run now: it
// displaces somebody else in its turn.
const onward = 4 * time.Hour
