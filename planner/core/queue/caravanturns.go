package queue

import (
	"cmp"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Who should run now. In the order of the discipline each job takes its GPUs of
// those that the cluster has, as long as there are enough; one for which there are
// too few is passed by smaller ones. What cannot be stopped has its GPUs first.
// Those who should run displace the others, so nothing is emptied for a gang before
// its turn has come, and what is left over is used by whoever fits meanwhile.
//
// That there are GPUs enough does not say that they are together. So gangs that
// need whole nodes are placed first, and displace smaller ones, which find a place
// more easily; these displace others in turn. What that costs is counted, and it is
// done where no cheaper way is.
//
// The order of two jobs changes only when one becomes due or short, outlives what was
// expected of it, or what counts as little changes by a step; and nobody is displaced by one that he has displaced (see
// preempt.Policy), so nothing goes back and forth between two.

// The classes of those without a deadline that has to begin, after classUrgent:
// gangs of whole nodes, smaller ones, and those that run only where nobody else
// could.
const (
	classWhole = classCalm
	classPart  = classCalm + 1
	classLater = classCalm + 2
)

// giveTurns finds out who should run now.
func (c *caravan) giveTurns(s *Situation, out []Standing) {
	order := c.turnsInOrder(s, out)
	// What is kept for interactive jobs is only theirs.
	kept := 0
	if i := &c.policy.Interactive; i.Reserves() && !i.Lend {
		kept = min(i.Kept(s.GPUs), s.GPUs)
	}
	left := s.GPUs - kept
	take := func(e *Entry, gpus int) {
		if c.policy.Interactive.Is(e.Job) {
			own := min(kept, gpus)
			kept, gpus = kept-own, gpus-own
		}
		left -= gpus
	}
	for i := range s.Jobs {
		if e := &s.Jobs[i]; c.firm(e, s) {
			take(e, e.Held)
		}
	}
	for _, i := range order {
		e, st := &s.Jobs[i], &out[i]
		needs := max(e.Asked, 1)
		if e.Running {
			needs = max(e.Held, 1)
		}
		// Who was promised his deadline displaces nobody before he has to begin.
		early := e.Waiting && !st.Latest.IsZero() && st.Class != classUrgent
		room := left
		if c.policy.Interactive.Is(e.Job) {
			room += kept
		}
		st.InTurn = c.firm(e, s) || needs <= room && !early
		switch {
		case !st.InTurn:
			st.Class, st.Passed = classLater, !early
			continue
		case !c.firm(e, s):
			take(e, needs)
		}
		if st.Class != classUrgent && needs < s.NodeGPUs {
			st.Class = classPart
		}
		// It is placed at once as a rule; where nobody gives way it must not starve.
		st.Passed = e.Waited < c.policy.Backfill.Trust()
	}
}

// turnsInOrder are the jobs' numbers, in the order of the discipline.
func (c *caravan) turnsInOrder(s *Situation, out []Standing) []int {
	type place struct {
		priority, class, at int
		key                 float64
		interactive         bool
	}
	places, any := make([]place, len(s.Jobs)), c.policy.Interactive.Any()
	for i := range places {
		e := &s.Jobs[i]
		places[i] = place{priority: e.Priority, class: out[i].Class, at: i, key: out[i].Key, interactive: any && c.policy.Interactive.Is(e.Job)}
	}
	slices.SortFunc(places, func(a, b place) int {
		switch {
		case a.priority != b.priority:
			return cmp.Compare(b.priority, a.priority)
		case a.interactive != b.interactive:
			return Before(a.interactive, b.interactive)
		case a.class != b.class:
			return cmp.Compare(a.class, b.class)
		}
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at))
	})
	order := make([]int, len(places))
	for i := range places {
		order[i] = places[i].at
	}
	return order
}

// firm reports whether nobody displaces a job that runs, whosever turn it is.
func (c *caravan) firm(e *Entry, s *Situation) bool {
	return e.Running && (e.Job.Preempt == model.PreemptNever || e.Turn < c.policy.Preempt.MinRunTime || c.policy.Interactive.Protects(e.Job, s.Now))
}
