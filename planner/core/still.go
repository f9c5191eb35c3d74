package core

import (
	"maps"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Most decisions of a simulation in which many wait are made only since time has passed:
// the order of the jobs may be another one by then. As long as it is not, and no job
// outlives what was expected of it, what each reserves stays at the same time of day, and
// there is only less time until then. So where nobody could be placed nobody can be now.
//
// Where jobs give way, and nobody was to, the same holds as long as all stand as they did and
// no limit on who gives way has passed: what a stop costs changes with the time, but not
// whether there is room without somebody.

// still is what is known of a plan that starts nobody.
type still struct {
	known bool
	// at is when it was made, for whom in which order.
	at       time.Time
	order    []*model.Job
	clearing map[jobKey][]int32
	// until is when the first job outlives what is expected of it, or waits for so long
	// that it trusts no estimates any more; zero: it has not been found out.
	until time.Time
	// stands are how all stood, by age, where jobs give way.
	stands []stood
	// turned are those who waited and had their turns, in an order that is kept.
	turned []*waiter
}

// stood is what of a standing it hangs on who gives way to whom, and who keeps what.
type stood struct {
	class          int
	latest         time.Time
	speed          float64
	domain         int32
	inTurn, passed bool
}

func stoodLike(st *queue.Standing) stood {
	return stood{st.Class, st.Latest, st.LeastSpeed, st.Domain, st.InTurn, st.Passed}
}

// mayStandStill reports whether such a plan is looked for at all.
func (c *cycle) mayStandStill() bool {
	return c.postponing || c.passesAlike && c.displaces() && c.policy.Backfills()
}

// standAsThen reports whether all stand as they did.
func (c *cycle) standAsThen() bool {
	if c.postponing || c.stands == nil {
		return true
	}
	return slices.Equal(c.stands.turned, c.still.turned) && slices.EqualFunc(c.stands.list, c.still.stands, func(st queue.Standing, s stood) bool { return stoodLike(&st) == s })
}

// staysStill reports whether the last plan, which started nobody, still holds for jobs in
// an order. A promise that has become another one is to be told.
func (c *cycle) staysStill(order []*model.Job) bool {
	s := &c.still
	if !s.known || !c.mayStandStill() || c.now.Before(s.at) || !slices.Equal(order, s.order) || len(c.promises) > 0 {
		return false
	}
	if !maps.EqualFunc(c.clearing, s.clearing, slices.Equal[[]int32]) || !c.standAsThen() {
		return false
	}
	if s.until.IsZero() {
		if s.until, s.known = c.firstChange(s.at); !s.known {
			return false
		}
	}
	return c.now.Before(s.until)
}

// noteStill notes a plan that starts nobody, if all that it hangs on is as above.
func (c *cycle) noteStill(order []*model.Job) {
	s := &c.still
	s.known = c.mayStandStill() && !c.unsure && len(c.given)+len(c.allocs)+len(c.jobsOf(someReplaced)) == 0 && c.ledger == nil
	if !s.known {
		return
	}
	s.at, s.order, s.clearing, s.until = c.now, append(s.order[:0], order...), c.clearing, time.Time{}
	// Another one may look a little more up.
	s.known = c.ahead == nil || c.ahead.work > maxWork/2
	if s.stands = s.stands[:0]; !c.postponing && c.stands != nil {
		s.turned = append(s.turned[:0], c.stands.turned...)
		for i := range c.stands.list {
			s.stands = append(s.stands, stoodLike(&c.stands.list[i]))
		}
	}
}

// firstChange is when, after a plan, a job outlives what is expected of it or begins to
// keep its nodes from everybody; false if there is some other job. No reservation begins
// before, since each is for when somebody has ended.
func (c *cycle) firstChange(at time.Time) (first time.Time, ok bool) {
	first = at.Add(eternity)
	sooner := func(t time.Time) {
		if t.After(at) && t.Before(first) {
			first = t
		}
	}
	for j := range c.allJobs() {
		if c.displaces() {
			c.limitsPass(j, sooner)
		}
		switch {
		case waits(j):
			if len(j.Members) > 0 || !j.RetryAfter.IsZero() {
				return first, false
			}
			sooner(j.Submitted.Add(c.policy.Backfill.Trust()))
			for i := range j.Preempted {
				sooner(j.Preempted[i].At.Add(c.policy.Backfill.Trust()))
			}
		case j.Started.IsZero() || j.Started.After(at):
			return first, false
		default:
			if e := c.expiryOf(j, at); e.at < eternity {
				sooner(at.Add(e.at))
			}
		}
	}
	return first, true
}

// limitsPass says when limits pass on whether others give way to a job, or it to them.
func (c *cycle) limitsPass(j *model.Job, passes func(time.Time)) {
	if j.State == model.StateRunning {
		passes(j.Started.Add(c.policy.Preempt.MinRunTime))
	}
	if j.Backfilled != nil {
		passes(j.Backfilled.Start)
	}
	for i := range j.Preempted {
		passes(j.Preempted[i].At.Add(promiseTime))
		passes(j.Preempted[i].At.Add(time.Hour))
	}
}
