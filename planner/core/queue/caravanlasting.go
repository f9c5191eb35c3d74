package queue

import (
	"cmp"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Where nobody has a deadline and enough have ended to tell what is little, the order of
// those that wait is the same for as long as the past is: who has little left has no more
// and no less of it while he waits, and the others go by age, or by age and size. Only who
// is let through (see letThrough), or has his turn (see Turns), changes with who runs. So the
// order can be kept from one decision to the next, in place of finding out anew how each job
// stands.

// Lasting is that order.
type Lasting struct {
	order *caravan
	guess *guess
	trust time.Duration
	// gpus are those of the cluster.
	gpus int
}

// NewLasting is the order of a policy as the past has it, on so many GPUs; nil if it does
// not last.
func NewLasting(p Policy, past *Past, gpus int) *Lasting {
	if p.Order != OrderCaravan || p.Preempt.Enabled && p.Caravan.DeadlinesOnly || p.Interactive.Any() || past.Jobs() < minDemands {
		return nil
	}
	c := &caravan{p.Caravan.WithDefaults(), p}
	return &Lasting{order: c, guess: newGuess(Situation{Past: past}), trust: p.Backfill.Trust(), gpus: gpus}
}

// Moves reports whether a place may be another one in this order than in the one before it.
func (l *Lasting) Moves(before *Lasting, p *Place) bool {
	return before == nil || p.guessed || l.gpus != before.gpus || l.guess.little != before.guess.little
}

// Place is where a job stands that waits.
type Place struct {
	Job      *model.Job
	priority int
	// short: it goes before longer ones, by key. The others go as if they had been submitted
	// later by a time. needs is how many GPUs it asks for.
	short bool
	key   float64
	later time.Duration
	needs int
	// since is when it began to wait, zero if nobody knows.
	since time.Time
	// guessed: nobody knows how long it runs, so that it hangs on the past where it stands.
	guessed bool
	// line is where it stands behind others.
	line line
	// first: it goes before all others of its priority, while turns are given.
	first bool
}

// Place is a job's.
func (l *Lasting) Place(e *Entry) Place {
	p := Place{Job: e.Job, priority: e.Priority, needs: e.needs(), line: line{e.Priority, e.Job.Queue}, since: e.Job.Submitted}
	p.guessed = !e.Left.Known
	if e.Job.Accounted.After(p.since) {
		p.since = e.Job.Accounted
	}
	unsaid := *e
	unsaid.Waiting = false
	st := l.order.standing(&unsaid, &Situation{Now: e.Job.Submitted, GPUs: l.gpus}, l.guess)
	if p.short = isShort(&st); p.short {
		p.key = st.Key
	} else if !e.Job.Submitted.IsZero() {
		p.later = l.order.later(e, &Situation{GPUs: l.gpus})
	}
	return p
}

// Compare is negative if a goes before b, never 0 for two jobs.
func (p *Place) Compare(o *Place) int {
	switch {
	case p.priority != o.priority:
		return cmp.Compare(o.priority, p.priority)
	case p.short != o.short:
		return Before(p.short, o.short)
	case p.key != o.key:
		return cmp.Compare(p.key, o.key)
	case p.later != o.later:
		if first := p.Job.Submitted.Add(p.later).Compare(o.Job.Submitted.Add(o.later)); first != 0 {
			return first
		}
	}
	return CompareAge(p.Job, o.Job)
}

// SamePriority reports whether two have the same.
func (p *Place) SamePriority(o *Place) bool { return p.priority == o.priority }

// BeforeByPriority reports whether p goes before another one by its priority alone.
func (p *Place) BeforeByPriority(o *Place) bool { return p.priority > o.priority }

// CompareAge is the order of priorities, and in each of age.
func (p *Place) CompareAge(o *Place) int {
	return cmp.Or(cmp.Compare(o.priority, p.priority), CompareAge(p.Job, o.Job))
}

// LetThrough finds who is put before all others (see letThrough), nil if it is nobody, and
// what is said of that. The places come in their order, and in that of CompareAge. Those who
// run are asked for if need be.
func (l *Lasting) LetThrough(s *Situation, running func() []Entry, order, byAge func(yield func(*Place) bool)) (p *Place, why string) {
	latest := s.Now.Add(-l.trust)
	rested := func(p *Place) bool { return !p.since.After(latest) && !p.since.IsZero() }
	for p = range order {
		if rested(p) && s.canRun(p.Job) {
			break
		}
		p = nil
	}
	if p == nil {
		return nil, ""
	}
	s.Jobs = running()
	out := s.standings()
	for k := range s.Jobs {
		out[k] = l.order.standing(&s.Jobs[k], s, l.guess)
		out[k].Class = classCalm
	}
	if !p.short && l.order.onlyShortInWay(s, out, p.Job, p.priority) {
		return p, passedByNone(l.trust)
	}
	after := max(l.order.StuckAfter, l.trust)
	for _, p := range l.shortFirst(s, byAge, rested) {
		if l.order.onlyShortInWay(s, out, p.Job, p.priority) {
			return p, passedByNone(after)
		}
	}
	return nil, ""
}

// shortFirst are those of whole nodes who have little left and are the first of their line
// for StuckAfter.
func (l *Lasting) shortFirst(s *Situation, byAge func(yield func(*Place) bool), rested func(*Place) bool) (list []*Place) {
	seen, last := map[line]bool{}, line{}
	for p := range byAge {
		if !rested(p) || len(seen) > 0 && p.line == last || seen[p.line] || !s.canRun(p.Job) {
			continue
		}
		last = p.line
		if seen[last] = true; p.short && s.NodeGPUs > 0 && p.needs >= s.NodeGPUs && min(s.Now.Sub(p.since), s.Now.Sub(lastBegun(s, p.Job))) >= l.order.StuckAfter {
			list = append(list, p)
		}
	}
	return list
}

// lastBegun is when the last of those has begun that run and are older than a job; zero if
// there is none.
func lastBegun(s *Situation, j *model.Job) (last time.Time) {
	for i := range s.Jobs {
		if begun := s.Now.Add(-s.Jobs[i].Turn); begun.After(last) && CompareAge(s.Jobs[i].Job, j) < 0 {
			last = begun
		}
	}
	return last
}

// Standing is how a job stands that waits.
func (l *Lasting) Standing(e *Entry, now time.Time) Standing {
	return l.order.standing(e, &Situation{Now: now, GPUs: l.gpus}, l.guess)
}
