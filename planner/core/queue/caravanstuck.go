package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Who is stuck. Short jobs pass longer ones, and who needs few GPUs finds them where one
// who needs many does not. So a gang that needs most of a cluster would wait for as long
// as a short job always wants a GPU.
//
// Where jobs give way, one is stuck when it has been the first in line for StuckAfter, and
// without a place: among those of its queue and priority it is the oldest that has not its
// turn, and nobody older has started for that long. Then nobody younger passes it until it
// has run for a quarter of StuckAfter: it has a fifth of the time at least, and the others
// have the rest. Each becomes the first some day.
//
// One that is older and not in its turn, and runs all the same since nobody wants its
// place, is in nobody's way, and neither is one that cannot run.
//
// Where nobody gives way, nodes are kept from all behind it for the first in the order that
// has waited for Backfill.Trust. Once none but short jobs run where it would go, no short
// one passes it either. As long as others are in its way too these may use what is kept,
// which would lie idle else. A short one of whole nodes is passed by
// shorter ones until it has been the first in line for StuckAfter, as above.

// kindStuck goes before all other kinds.
const kindStuck = -1

// stuckTurn is by what StuckAfter is divided for how long one who is stuck has its turn.
const stuckTurn = 4

// stuckJob is one of Situation's Jobs, and what is said of it.
type stuckJob struct {
	at  int
	why string
}

// line is where jobs stand behind each other.
type line struct {
	priority int
	queue    string
}

// stuck finds those that are stuck where jobs give way, the oldest first.
func (c *caravan) stuck(s *Situation, out []Standing) (found []stuckJob) {
	var seen map[line]bool
	most := s.GPUs - c.keptOf(s) - c.heldForGood(s)
	first := time.Time{} // from when on a job as old as this can have been the first
	for i := range s.Jobs {
		e, st := &s.Jobs[i], &out[i]
		if e.Job.Submitted.After(first) {
			first = e.Job.Submitted
		}
		if s.Now.Sub(first) < c.StuckAfter {
			break // nor has anybody behind it
		}
		runs := e.Running && e.Turn >= c.StuckAfter/stuckTurn
		if st.InTurn || early(e, st) || runs {
			if started := s.Now.Add(-e.Turn); e.Running && started.After(first) {
				first = started
			}
			continue
		}
		own := line{e.Priority, e.Job.Queue}
		// Who cannot run at all helps nobody by being the first.
		if e.needs() > most || seen[own] || !e.Running && !s.canRun(e.Job) {
			continue
		}
		if seen == nil {
			seen = map[line]bool{}
		}
		seen[own] = true
		if e.rested(s.Now) < c.StuckAfter {
			continue
		}
		j := stuckJob{at: i}
		if e.Waiting {
			j.why = stuckWhy(first, c.StuckAfter)
		}
		found = append(found, j)
	}
	return found
}

// putFirst puts a job before all others of its class.
func (c *caravan) putFirst(e *Entry, s *Situation, st *Standing) {
	st.Key = kindSpan*kindStuck + max(-maxSeconds, e.Job.Submitted.Sub(s.Now).Seconds())
}

// rested is for how long a job was without a place before its turn, or has been.
func (e *Entry) rested(now time.Time) time.Duration {
	if !e.Running {
		return e.Rest
	}
	began, since := now.Add(-e.Turn), e.Job.Submitted
	if n := len(e.Job.Preempted); n > 0 && e.Job.Preempted[n-1].At.Before(began) {
		since = e.Job.Preempted[n-1].At
	}
	return began.Sub(since)
}

// letThrough puts who has waited for long before short jobs where nobody gives way, if
// only such jobs are in its way: the first in the order, if it is a long one, else a short one
// of whole nodes that is the oldest of its queue and priority that waits, where nobody older
// has begun for StuckAfter.
func (c *caravan) letThrough(s *Situation, out []Standing) {
	seen, trust := map[line]bool{}, c.policy.Backfill.Trust()
	var waited, short []int
	first := time.Time{}
	for i := range s.Jobs {
		e, st := &s.Jobs[i], &out[i]
		own := line{e.Priority, e.Job.Queue}
		if begun := s.Now.Add(-e.Turn); e.Running && begun.After(first) {
			first = begun
		}
		if !e.Waiting || e.Running || st.Class != classCalm || !st.Latest.IsZero() || e.Rest < trust {
			continue
		}
		if waited = append(waited, i); seen[own] || !s.canRun(e.Job) {
			continue
		}
		whole := s.NodeGPUs > 0 && e.needs() >= s.NodeGPUs
		if seen[own] = true; isShort(st) && whole && min(e.Rest, s.Now.Sub(first)) >= c.StuckAfter {
			short = append(short, i)
		}
	}
	slices.SortFunc(waited, func(a, b int) int {
		x, y := &s.Jobs[a], &s.Jobs[b]
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), c.policy.Interactive.First(x.Job, y.Job), cmp.Compare(out[a].Key, out[b].Key), cmp.Compare(a, b))
	})
	i := slices.IndexFunc(waited, func(i int) bool { return s.canRun(s.Jobs[i].Job) })
	if i >= 0 && isLong(&out[waited[i]]) && c.letOneThrough(s, out, waited[i], trust) {
		return
	}
	slices.SortStableFunc(short, func(a, b int) int { return cmp.Compare(s.Jobs[b].Priority, s.Jobs[a].Priority) })
	for _, i := range short {
		if c.letOneThrough(s, out, i, max(c.StuckAfter, trust)) {
			return
		}
	}
}

// letOneThrough puts a job before short ones, if no others are in its way.
func (c *caravan) letOneThrough(s *Situation, out []Standing, i int, after time.Duration) bool {
	e, st := &s.Jobs[i], &out[i]
	if !c.onlyShortInWay(s, out, e.Job, e.Priority) {
		return false
	}
	c.putFirst(e, s, st)
	st.Why += passedByNone(after)
	return true
}

// onlyShortInWay reports whether a job of a priority would have a place but for short ones.
func (c *caravan) onlyShortInWay(s *Situation, out []Standing, j *model.Job, priority int) bool {
	return s.fitsWithout(j, c.shortOnes(s, out, priority))
}

func passedByNone(after time.Duration) string {
	return fmt.Sprintf("; it has waited for more than %s and only short jobs are in its way, so none passes it now", after)
}

func isShort(st *Standing) bool {
	return st.Key >= kindSpan*kindShort-maxSeconds && st.Key < kindSpan*kindLong-maxSeconds
}

func isLong(st *Standing) bool { return st.Key >= kindSpan*kindLong-maxSeconds }

// shortOnes are the short jobs that run, of a priority and below. Those above it come again
// and again, whatever is kept for it. One that has run for Short is not among them,
// whatever is said of it: nobody knows when it ends.
func (c *caravan) shortOnes(s *Situation, out []Standing, priority int) (list []*model.Job) {
	for i := range s.Jobs {
		e, st := &s.Jobs[i], &out[i]
		if e.Running && e.Priority <= priority && e.Ran < c.Short && st.Class == classCalm && isShort(st) {
			list = append(list, e.Job)
		}
	}
	return list
}

// heldForGood counts the GPUs of services that never give way: they run for as long as
// nobody stops them by hand.
func (c *caravan) heldForGood(s *Situation) (gpus int) {
	for i := range s.Jobs {
		if e := &s.Jobs[i]; e.Running && e.Job.Type == "service" && !c.policy.Preempt.GivesWay(e.Job) {
			gpus += e.Held
		}
	}
	return gpus
}

func (s *Situation) canRun(j *model.Job) bool { return s.CanRun == nil || s.CanRun(j) }

func (s *Situation) fitsWithout(j *model.Job, gone []*model.Job) bool {
	return s.FitsWithout == nil || s.FitsWithout(j, gone)
}
