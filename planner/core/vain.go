package core

import (
	"math"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// Most gangs that wait have no right to anybody's room: all that runs is of their
// priority, and of their class or a lower one. Then it is not found out who holds
// what and what it would cost to stop him.

// vain is what is known of gangs for whom nobody may give way.
type vain struct {
	known bool
	// plain: priority and class alone say who gives way, and nobody is leaving.
	plain bool
	// priority is the lowest of all that run, class the highest.
	priority, class int
	// searches is how many have asked.
	searches int
}

// inVain reports whether nobody may give way to a gang, for which there was no need
// to look at anybody so far.
func (c *cycle) inVain(j *model.Job, g *gang) bool {
	v := &c.vain
	if !v.known {
		c.lookForVictims()
	}
	if !v.plain || c.asked != nil || len(c.placedNow)+len(c.landings)+len(c.queuesApart) > 0 || c.policy.Interactive.Is(j) {
		return false
	}
	gap := preempt.ByPriority{Gap: c.policy.Preempt.WithDefaults().MinPriorityGap}
	if gap.Beyond(j.Priority, v.priority) || c.stands != nil && c.policy.Preemptive() && c.standing(j).Class < v.class {
		return false
	}
	// It counts as a search all the same, so that others are not looked at longer for
	// it.
	r := c.rankOf(j)
	if c.askedInVain(c.answersOf(g), r) {
		return true
	}
	c.noteVain(g, r)
	v.searches++
	return true
}

// lookForVictims finds out what runs.
func (c *cycle) lookForVictims() {
	v := &c.vain
	v.known, v.priority, v.class = true, math.MaxInt32, math.MinInt
	if v.plain = !c.limited() && !c.policy.Defrag.Enabled && !c.policy.Backfill.Reclaim && !c.anySurplus(); !v.plain {
		return
	}
	for _, a := range c.allocs {
		if a.Stopping {
			v.plain = false
			return
		}
	}
	list := c.byAge()
	if c.lasts {
		list = c.lasting.running
	}
	for _, a := range list {
		switch j := a.job; j.State {
		case model.StateStopping:
			v.plain = false
			return
		case model.StateRunning:
			v.priority = min(v.priority, j.Priority)
			if class := c.standingOf(a).Class; class != lastClass {
				v.class = max(v.class, class)
			}
		}
	}
}
