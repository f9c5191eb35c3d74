package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Where many wait, to find out how each of them stands costs more than all else. In a
// simulation the default order mostly lasts (see queue.Lasting): then it is kept from one
// decision to the next, and only who comes or goes is put in or taken out.

// lasting is the order that is kept.
type lasting struct {
	of   *queue.Lasting
	past *queue.Past
	gpus int
	// order are those who wait, byAge the same by age, where nobody gives way by priority
	// and age; waiters finds them, and running are those who have places, by age.
	order, byAge []*waiter
	waiters      map[*model.Job]*waiter
	running      []*agedJob
	// come are those who are still to be put in.
	come []*agedJob
	// turns are who should run now, and turned those of them that wait.
	turns  queue.Turns
	turned []*waiter
	runs   []*queue.Runner
}

// waiter is one who waits, with what he asks for, nil if it is not known. What is looked at
// of all of them in each decision is together.
type waiter struct {
	asks *request
	// told is where he finds what his like were answered, if asks is known.
	told *answered
	rank rank
	// turned: it is his turn to run now. aged has it too, but is looked up for each who waits.
	turned bool
	aged   *agedJob
	queue.Place
}

func compareWaiters(a, b *waiter) int { return a.Compare(&b.Place) }

// compareByAge is the order of byAge.
func (l *lasting) compareByAge(a, b *waiter) int {
	if l.of.TakesTurns() {
		return queue.CompareAge(a.Job, b.Job)
	}
	return a.CompareAge(&b.Place)
}

// placesOf are those of some who wait.
func placesOf(list []*waiter) func(yield func(*queue.Place) bool) {
	return func(yield func(*queue.Place) bool) {
		for _, w := range list {
			if !yield(&w.Place) {
				return
			}
		}
	}
}

// standLasting is stand where the order lasts; false if it does not.
func (c *cycle) standLasting() bool {
	if !c.terse || c.policy.Defrag.Enabled || c.policy.Preempt.Enabled && c.policy.Caravan.DeadlinesOnly || len(c.jobsOf(someElastic))+len(c.jobsOf(somePassing)) > 0 {
		c.lasting = nil
		return false
	}
	l := c.lasting
	gpus, _, _ := c.usableGPUs()
	if l == nil || l.past != c.past || l.gpus != gpus {
		of := queue.NewLasting(c.policy, c.past, gpus)
		if of == nil {
			c.lasting = nil
			return false
		}
		if l == nil {
			l = c.newLasting()
		}
		before := l.of
		c.lasting = l
		l.of, l.past, l.gpus = of, c.past, gpus
		c.placeAll(l, before)
	}
	for _, a := range l.come {
		w := c.waiterOf(l, a)
		l.order, l.byAge = with(l.order, w, compareWaiters), with(l.byAge, w, l.compareByAge)
	}
	clear(l.come)
	l.come = l.come[:0]
	if c.lasts = true; l.of.TakesTurns() {
		c.lastingTurns(l)
	} else {
		c.letThrough(l)
	}
	return true
}

// letThrough finds out who goes before all others of his priority.
func (c *cycle) letThrough(l *lasting) {
	s := queue.Situation{Now: c.now, Past: c.past, CanRun: c.canRun, FitsWithout: c.fitsWithout}
	s.GPUs, s.NodeGPUs, s.Models = c.usableGPUs()
	running := func() []queue.Entry {
		list := c.scratch.entries[:0]
		for _, a := range l.running {
			if e := c.entryOf(a); e.Running {
				list = append(list, e)
			}
		}
		c.scratch.entries = list
		return list
	}
	c.through, c.throughWhy = l.of.LetThrough(&s, running, placesOf(l.order), placesOf(l.byAge))
}

// lastingOrder is the order of those who wait.
func (c *cycle) lastingOrder() []*model.Job {
	l, line, out := c.lasting, c.scratch.inLine[:0], c.scratch.order[:0]
	if len(l.turned) > 0 {
		line = l.turnedFirst(line)
	} else if c.through != nil {
		at, _ := slices.BinarySearchFunc(l.order, c.through, func(w *waiter, p *queue.Place) int { return w.Compare(p) })
		first := at
		for first > 0 && l.order[first-1].SamePriority(c.through) {
			first--
		}
		line = append(append(line, l.order[:first]...), l.order[at])
		line = append(append(line, l.order[first:at]...), l.order[at+1:]...)
	} else {
		line = append(line, l.order...)
	}
	for _, w := range line {
		out = append(out, w.Job)
	}
	c.scratch.inLine, c.scratch.order = line, out
	return out
}

// lastingStanding is how a job stands that waits.
func (c *cycle) lastingStanding(j *model.Job) queue.Standing {
	a := c.agedOf[j]
	if a == nil {
		return noStanding
	}
	e := c.entryOf(a)
	st := c.lasting.of.Standing(&e, c.now)
	if c.through != nil && c.through.Job == j {
		st.Why += c.throughWhy
	}
	st.Why += c.lasting.turns.Why(j)
	return st
}

// newLasting finds who waits and who runs.
func (c *cycle) newLasting() *lasting {
	l := &lasting{waiters: map[*model.Job]*waiter{}}
	for _, a := range c.byAge() {
		l.put(a)
	}
	return l
}

// put notes one who has come.
func (l *lasting) put(a *agedJob) {
	if l == nil {
		return
	}
	if a.stands = 0; waits(a.job) {
		l.come = append(l.come, a)
	} else {
		l.running = with(l.running, a, compareAged)
	}
}

// drop takes one out who is gone.
func (l *lasting) drop(a *agedJob) {
	if l == nil {
		return
	}
	if w := l.waiters[a.job]; w != nil {
		delete(l.waiters, a.job)
		l.order, l.byAge = without(l.order, w, compareWaiters), without(l.byAge, w, l.compareByAge)
		return
	}
	l.running = without(l.running, a, compareAged)
	l.come = slices.DeleteFunc(l.come, func(b *agedJob) bool { return a == b })
}

// placeAll finds all places anew that may be others than in the order before this one.
func (c *cycle) placeAll(l *lasting, before *queue.Lasting) {
	moved := len(l.come) > 0
	for _, w := range l.byAge {
		if !l.of.Moves(before, &w.Place) {
			continue
		}
		e := c.entryOf(w.aged)
		was := w.Place
		w.Place = l.of.Place(&e)
		moved = moved || was != w.Place
	}
	for _, a := range l.come {
		w := c.waiterOf(l, a)
		l.order, l.byAge = append(l.order, w), append(l.byAge, w)
	}
	clear(l.come)
	l.come = l.come[:0]
	if !moved {
		return
	}
	slices.SortFunc(l.order, compareWaiters)
	slices.SortFunc(l.byAge, l.compareByAge)
}

// waiterOf notes where a job stands that has come.
func (c *cycle) waiterOf(l *lasting, a *agedJob) *waiter {
	e := c.entryOf(a)
	w := &waiter{Place: l.of.Place(&e), aged: a, rank: rank{a.job.Priority, queue.Later().Class}}
	l.waiters[a.job] = w
	return w
}

// entryOf is what a discipline sees of a job now.
func (c *cycle) entryOf(a *agedJob) queue.Entry {
	e := *c.lastingOf(a)
	c.complete(&e)
	return e
}
