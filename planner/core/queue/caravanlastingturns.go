package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Where jobs give way, who should run now is found out in each decision, as in giveTurns. In
// an order that is kept those who wait need not be brought into order for that, nor be looked
// at behind whoever gets the last GPUs.

// TakesTurns reports whether it is to be found out who should run now.
func (l *Lasting) TakesTurns() bool { return l.order.policy.Preempt.Enabled }

// Runner is one that runs.
type Runner struct {
	Entry
	// Standing is how it stands.
	Standing Standing
}

// Turn is one that waits and has its turn.
type Turn struct {
	Place    *Place
	Standing Standing
	// why is said of one that is stuck.
	why string
}

// Turns are who should run now.
type Turns struct {
	l      *Lasting
	s      *Situation
	runs   []*Runner
	byTurn []*Runner
	// order and byAge are those who wait, in their order and by age.
	order, byAge func(yield func(*Place) bool)
	// Waiting are those that wait and have their turns, as the order has them.
	Waiting []Turn
	// had is memory for those that had their turns until it was found that some are stuck.
	had []Turn
}

// GiveTurns finds out who should run now, as giveTurns does. Those who run come by age, those
// who wait in their order and by age. What it finds holds until it is asked again.
func (t *Turns) GiveTurns(l *Lasting, s *Situation, runs []*Runner, order, byAge func(yield func(*Place) bool)) {
	t.l, t.s, t.runs, t.order, t.byAge = l, s, runs, order, byAge
	t.Waiting = t.Waiting[:0]
	for _, r := range runs {
		r.Standing = l.order.standing(&r.Entry, s, l.guess)
	}
	t.sortRunning()
	t.pass(nil)
	stuck := t.stuck()
	if len(stuck) > 0 {
		t.passStuck(stuck)
	}
	t.finish(stuck)
}

// sortRunning brings those who run into the order of turns: mostly they are in it.
func (t *Turns) sortRunning() {
	t.byTurn = append(t.byTurn[:0], t.runs...)
	slices.SortFunc(t.byTurn, func(a, b *Runner) int {
		if first := cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Standing.Key, b.Standing.Key)); first != 0 {
			return first
		}
		return CompareAge(a.Job, b.Job)
	})
}

// keyOf is the key of one that waits.
func (t *Turns) keyOf(p *Place) float64 {
	if p.short {
		return p.key
	}
	within := p.Job.Submitted.Sub(t.s.Now).Seconds() + p.later.Seconds()
	return kindSpan*kindLong + max(-maxSeconds, min(within, maxSeconds))
}

// goesFirst is one that goes before all others of its priority: it runs or it waits.
type goesFirst struct {
	runner *Runner
	place  *Place
}

func (f *goesFirst) job() *model.Job {
	if f.runner != nil {
		return f.runner.Job
	}
	return f.place.Job
}

func (f *goesFirst) priority() int {
	if f.runner != nil {
		return f.runner.Priority
	}
	return f.place.priority
}

// pass gives each his turn for whom there are GPUs, those first who go first.
func (t *Turns) pass(first []goesFirst) {
	c, left := t.l.order, t.s.GPUs
	for _, r := range t.runs {
		if r.Standing.InTurn = c.firm(&r.Entry, t.s); r.Standing.InTurn {
			left -= r.Held
		}
	}
	takeRunner := func(r *Runner) {
		if !r.Standing.InTurn && r.needs() <= left {
			r.Standing.InTurn = true
			left -= r.needs()
		}
	}
	takePlace := func(p *Place, key float64) {
		if p.needs <= left {
			t.Waiting = append(t.Waiting, Turn{Place: p, Standing: Standing{Key: key}})
			left -= p.needs
		}
	}
	rest := t.byTurn
	// until takes whoever goes before one that waits with a key, all if it is nil.
	until := func(p *Place, key float64) {
		for left > 0 {
			switch {
			case len(first) > 0 && (len(rest) == 0 || first[0].priority() >= rest[0].Priority):
				if p != nil && first[0].priority() < p.priority {
					return
				}
				if f := &first[0]; f.runner != nil {
					takeRunner(f.runner)
				} else {
					takePlace(f.place, t.keyOf(f.place))
				}
				first = first[1:]
			case len(rest) > 0:
				if p != nil && !rest[0].goesBefore(p, key) {
					return
				}
				takeRunner(rest[0]) // if it went first without success, there are no more GPUs now
				rest = rest[1:]
			default:
				return
			}
		}
	}
	if left > 0 {
		for p := range t.order {
			if p.needs > left || p.first {
				continue
			}
			key := t.keyOf(p)
			if until(p, key); left <= 0 {
				break
			}
			takePlace(p, key)
		}
	}
	until(nil, 0)
}

// goesBefore reports whether one that runs goes before one that waits with a key.
func (r *Runner) goesBefore(p *Place, key float64) bool {
	switch {
	case r.Priority != p.priority:
		return r.Priority > p.priority
	case r.Standing.Key != key:
		return r.Standing.Key < key
	}
	return CompareAge(r.Job, p.Job) < 0
}

// stuck finds those that are stuck, the oldest first, as the order does that is made anew.
func (t *Turns) stuck() (found []stuckOne) {
	c, s := t.l.order, t.s
	first := time.Time{} // from when on a job as old as this can have been the first
	if len(t.runs) > 0 {
		first = t.runs[0].Job.Submitted
	}
	for p := range t.byAge {
		if len(t.runs) == 0 || CompareAge(p.Job, t.runs[0].Job) < 0 {
			first = p.Job.Submitted
		}
		break
	}
	if s.Now.Sub(first) < c.StuckAfter {
		return nil
	}
	first = time.Time{}
	seen := map[line]bool{}
	most := s.GPUs
	for _, r := range t.runs {
		if r.Job.Type == "service" && !c.policy.Preempt.GivesWay(r.Job) {
			most -= r.Held
		}
	}
	late := func(j *model.Job) bool {
		if j.Submitted.After(first) {
			first = j.Submitted
		}
		return s.Now.Sub(first) < c.StuckAfter
	}
	add := func(one stuckOne, rested time.Duration, waiting bool) {
		if rested < c.StuckAfter {
			return
		}
		if waiting {
			one.why = stuckWhy(first, c.StuckAfter)
		}
		found = append(found, one)
	}
	rest := t.runs
	// until looks at those that run and are older than one that waits, all if it is nil; false
	// if nobody behind them can be stuck.
	until := func(p *Place) bool {
		for len(rest) > 0 && (p == nil || CompareAge(rest[0].Job, p.Job) < 0) {
			r := rest[0]
			rest = rest[1:]
			if late(r.Job) {
				return false
			}
			if r.Standing.InTurn || r.Turn >= c.StuckAfter/stuckTurn {
				if started := s.Now.Add(-r.Turn); started.After(first) {
					first = started
				}
				continue
			}
			if own := (line{r.Priority, r.Job.Queue}); r.needs() <= most && !seen[own] {
				seen[own] = true
				add(stuckOne{goesFirst: goesFirst{runner: r}}, r.rested(s.Now), false)
			}
		}
		return true
	}
	last, any := line{}, false
	for p := range t.byAge {
		if !until(p) || late(p.Job) {
			return found
		}
		if any && p.line == last || p.needs > most || t.hasTurn(p) || seen[p.line] || !s.canRun(p.Job) {
			continue
		}
		last, any = p.line, true
		seen[last] = true
		rested := time.Duration(0)
		if !p.since.IsZero() {
			rested = max(0, s.Now.Sub(p.since))
		}
		add(stuckOne{goesFirst: goesFirst{place: p}}, rested, true)
	}
	until(nil)
	return found
}

// stuckOne is one that is stuck, and what is said of it.
type stuckOne struct {
	goesFirst
	why string
}

func stuckWhy(first time.Time, after time.Duration) string {
	return fmt.Sprintf("; the first in line since %s, more than %s, so nobody younger passes it now", minute(first), after)
}

// hasTurn reports whether one that waits has its turn.
func (t *Turns) hasTurn(p *Place) bool {
	return slices.ContainsFunc(t.Waiting, func(turn Turn) bool { return turn.Place == p })
}

// passStuck gives turns once more: those who are stuck come behind whoever is older and has
// his turn, and before all who are younger.
func (t *Turns) passStuck(stuck []stuckOne) {
	last := stuck[len(stuck)-1].job()
	var first []goesFirst
	for _, r := range t.runs {
		if r.Standing.InTurn && CompareAge(r.Job, last) < 0 {
			first = append(first, goesFirst{runner: r})
		}
	}
	for i := range t.Waiting {
		if p := t.Waiting[i].Place; CompareAge(p.Job, last) < 0 {
			first = append(first, goesFirst{place: p})
		}
	}
	for i := range stuck { // none of them has his turn
		first = append(first, stuck[i].goesFirst)
	}
	slices.SortFunc(first, func(a, b goesFirst) int {
		return cmp.Or(cmp.Compare(b.priority(), a.priority()), CompareAge(a.job(), b.job()))
	})
	t.had, t.Waiting = append(t.had[:0], t.Waiting...), t.Waiting[:0]
	mark := func(is bool) {
		for i := range first {
			if p := first[i].place; p != nil {
				p.first = is
			}
		}
	}
	mark(true)
	t.pass(first)
	mark(false)
}

// finish says how each stands by the turns that were given, and brings those who wait into
// the order of these.
func (t *Turns) finish(stuck []stuckOne) {
	c, s := t.l.order, t.s
	trust := c.policy.Backfill.Trust()
	for i := range stuck {
		one := &stuck[i]
		if r := one.runner; r != nil && r.Standing.InTurn {
			c.putFirst(&r.Entry, s, &r.Standing)
		}
		for k := range t.Waiting {
			if turn := &t.Waiting[k]; one.place != nil && turn.Place == one.place {
				c.putFirst(&Entry{Job: one.place.Job}, s, &turn.Standing)
				turn.why = one.why
			}
		}
	}
	class := func(st *Standing, needs int, waited time.Duration) {
		switch {
		case !st.InTurn:
			st.Class, st.Passed = classLater, true
			return
		case needs < s.NodeGPUs:
			st.Class = classPart
		default:
			st.Class = classWhole
		}
		st.Passed = waited < trust
	}
	for _, r := range t.runs {
		class(&r.Standing, r.needs(), r.Waited)
	}
	for i := range t.Waiting {
		turn, waited := &t.Waiting[i], time.Duration(0)
		if j := turn.Place.Job; !j.Submitted.IsZero() {
			waited = max(0, s.Now.Sub(j.Submitted)-j.Ran)
		}
		turn.Standing.InTurn = true
		class(&turn.Standing, turn.Place.needs, waited)
	}
	slices.SortFunc(t.Waiting, func(a, b Turn) int {
		return cmp.Or(cmp.Compare(b.Place.priority, a.Place.priority), cmp.Compare(a.Standing.Class, b.Standing.Class), cmp.Compare(a.Standing.Key, b.Standing.Key), CompareAge(a.Place.Job, b.Place.Job))
	})
}

// Later is how one stands that waits and has not its turn, but for its key.
func Later() Standing { return Standing{Class: classLater, Passed: true} }

// Why is what is said of one that waits beside its place in the order, "" if it is nothing.
func (t *Turns) Why(j *model.Job) string {
	for i := range t.Waiting {
		if t.Waiting[i].Place.Job == j {
			return t.Waiting[i].why
		}
	}
	return ""
}
