package share

import (
	"cmp"
	"math"
	"slices"
)

// Progressive filling over time (Gu et al., ElasticFlow: An Elastic Serverless
// Training Platform for Distributed Deep Learning, ASPLOS'23, section 4.1). The
// minimum satisfactory share of a task is the least number of members with which
// it ends by its deadline, where it has as many at each time as are free then.
// Tasks are filled one after the other, by deadline; one more is admitted if all
// that are admitted already still end in time.
//
// It differs from the paper in this: a task that has begun goes on without a
// pause and never has fewer than its least members, since stopping a gang is not
// free; one that cannot be resized is one whose least and most are the same. Time
// has no fixed slots: things begin and end where they do. And where the order of
// deadlines makes one late, four others are tried, and a fifth for those that were
// admitted before: see plans.

// Task is a job as progressive filling sees it. Times are seconds from now.
type Task struct {
	// Work is what is left to be done, in seconds at a speed of 1.
	Work float64
	// Speed is how fast it is with so many members; nil: always 1. More members
	// never make it slower.
	Speed func(members int) float64
	// Min and Max bound the members, GPUs is what each of them takes; all 1 or
	// more.
	Min, Max, GPUs int
	// Needs are the places that each member takes in rooms besides. Of the Choices it
	// takes one, the first with which it is admitted; the first Need of each is the room
	// that it has to be in then.
	Needs   []Need
	Choices [][]Need
	choice  int
	// Deadline is by when it is to end.
	Deadline float64
	// Running: it has begun, and has Members.
	Running bool
	Members int
	// Firm: it keeps Members until it ends, whatever comes; Work may be +Inf. Its
	// deadline does not count.
	Firm bool
	// Kept: it has been admitted before. Those that were come first in the list, as
	// they were admitted, and are admitted together, if that can be, before any other.
	Kept bool
}

// Need is what one member takes of a room: a set of places, such as the nodes of a
// rack that are whole, of which GPUs alone say too little.
type Need struct {
	Room, Places int
	// Most, unless 0, is set where the task need not be in the room but may be, since it
	// is in one around it: it takes no more there than so many places, and only as long
	// as a task that is admitted has to be in the room.
	Most int
}

func (t *Task) speed(members int) float64 {
	if t.Speed == nil {
		return 1
	}
	return t.Speed(members)
}

// Alone is how long a task takes with all the members that it may have.
func (t *Task) Alone() float64 { return t.Work / t.speed(t.Max) }

// Verdict is what becomes of a task.
type Verdict struct {
	// Admitted: it ends by its deadline, and so do all others that are.
	Admitted bool
	// Members is its minimum satisfactory share, First with how many it begins or,
	// if it runs, has now: fewer where others have the GPUs for a while.
	Members, First int
	// Begin and End are when it does; for one that is not admitted, at the
	// earliest beside those that are, with all the members that it may have; End
	// is +Inf if it never could.
	Begin, End float64
	// Choice is which of its Choices it takes.
	Choice int
	// Urgent: it waits, and if it did so for the margin longer, it or another one
	// would be late.
	Urgent bool
}

// maxSpent bounds the search for the tasks to admit, in slots looked at.
const maxSpent = 1_000_000

// Fill decides which tasks are admitted, which are to be in the order in which
// they were admitted before, and after those were submitted: with exact estimates,
// who was admitted stays so when another one comes. rooms is how many places each room has.
func Fill(gpus int, rooms []int, tasks []Task, margin float64) []Verdict {
	f := &filling{tasks: tasks, base: newProfile(gpus, len(tasks)), plans: narrow, out: make([]Verdict, len(tasks))}
	for _, places := range rooms {
		f.base.rooms = append(f.base.rooms, []int{places})
	}
	f.begin()
	in, plan := f.admit()
	for k := range tasks {
		switch t := &tasks[k]; {
		case t.Firm:
		case in[k]:
			f.out[k] = plan.runs[k].verdict()
			f.out[k].Choice = t.choice
		case t.Running:
			f.out[k].End = t.Alone()
		default:
			r, _ := plan.left.fit(t, t.Min, t.Max, 0, math.Inf(1))
			f.out[k] = Verdict{Begin: r.begin, End: r.end}
		}
	}
	f.urgent(in, plan.by, margin)
	return f.out
}

func (r *run) verdict() Verdict {
	return Verdict{Admitted: true, Members: r.level, First: r.first, Begin: r.begin, End: r.end}
}

type filling struct {
	tasks []Task
	// base is what is free beside those that keep what they have.
	base *profile
	// orders are the plans' orders of all tasks, and plans is how many are tried.
	orders [planCount][]int
	plans  int
	out    []Verdict
	// spent is what looking at tasks and slots has cost.
	spent int
}

// begin takes away what is kept, and puts the tasks into the plans' orders.
func (f *filling) begin() {
	horizon := 0.0
	var all []int
	for k := range f.tasks {
		f.tasks[k].choice = 0
		if t := &f.tasks[k]; !t.Firm {
			all = append(all, k)
			if !math.IsInf(t.Deadline, 0) {
				horizon = max(horizon, t.Deadline)
			}
		}
	}
	if len(f.tasks) > mostSlots/4 {
		f.base.rule(horizon, f.base.most/2)
	}
	for k := range f.tasks {
		if t := &f.tasks[k]; t.Firm {
			f.base.hold(t)
		}
	}
	f.orders[byAge] = all
	f.orders[byDeadline] = slices.Clone(all)
	slices.SortStableFunc(f.orders[byDeadline], func(a, b int) int { return cmp.Compare(f.tasks[a].Deadline, f.tasks[b].Deadline) })
}

// order is in which a plan gives tasks their GPUs. Most plans are never tried.
func (f *filling) order(by int) []int {
	if f.orders[by] == nil {
		switch by {
		case steady:
			f.orders[by] = f.runningFirst(f.orders[byDeadline])
		case byLatest:
			f.orders[by] = f.runningFirst(f.sorted(func(t *Task) float64 { return t.Deadline - t.Alone() }))
		case bySize:
			f.orders[by] = f.runningFirst(f.sorted(func(t *Task) float64 { return -float64(t.Min * t.GPUs) }))
		case narrow:
			f.orders[by] = f.runningFirst(f.sorted(func(t *Task) float64 { return float64(t.Min * t.GPUs) }))
		}
	}
	return f.orders[by]
}

// sorted are all tasks by deadline, and before that by a key, the least first.
func (f *filling) sorted(key func(*Task) float64) []int {
	list := slices.Clone(f.orders[byDeadline])
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(key(&f.tasks[a]), key(&f.tasks[b])) })
	return list
}

func (f *filling) runningFirst(list []int) []int {
	var run, wait []int
	for _, k := range list {
		if f.tasks[k].Running {
			run = append(run, k)
		} else {
			wait = append(wait, k)
		}
	}
	return append(run, wait...)
}

// The plans. Each is what it was when it is made again later, as long as all goes
// by it and nobody new comes: so what was admitted by it stays so.
const (
	// byDeadline fills by deadline.
	byDeadline = iota
	// byAge fills as they were submitted: who comes later disturbs nobody.
	byAge
	// steady lets those that run go on with what they have, and gives the others,
	// by deadline, a number of members that does not change.
	steady
	// byLatest does so by when they have to begin at the latest, and bySize with those
	// first that take the most GPUs.
	byLatest
	bySize
	// narrow does so with those first that take the fewest: beside one that has begun,
	// where by deadline one that takes all waits for no more than that one, and the others
	// for both. It is for those that were admitted and are in no other plan any more, since
	// one of them has begun before another that was to begin with it.
	narrow
	planCount
)

// plan is a way to have some tasks end in time, with the run of each.
type plan struct {
	by   int
	runs []run
	left *profile
}

// admit finds the tasks to admit: the longest list of the first ones submitted
// with which all end in time, then without the one that spoils it, and so on.
// Those that were admitted before come first, and all at once: a part of them may
// be in no plan though the whole is. Of the others, those that run have come before
// those that wait.
func (f *filling) admit() (in []bool, best plan) {
	in = make([]bool, len(f.tasks))
	best = plan{left: f.base.clone(), runs: make([]run, len(f.tasks))}
	possible := slices.DeleteFunc(slices.Clone(f.orders[byAge]), func(k int) bool { return f.tasks[k].Alone() > f.tasks[k].Deadline+instant })
	kept := 0
	for kept < len(possible) && f.tasks[possible[kept]].Kept {
		kept++
	}
	rest := slices.Concat(possible[:kept], f.runningFirst(possible[kept:]))
	fits := func(more []int) bool {
		for _, k := range more {
			in[k] = true
		}
		p, ok := f.try(in)
		if ok {
			best = p
			return true
		}
		for _, k := range more {
			in[k] = false
		}
		return false
	}
	if fits(rest) {
		return in, best
	}
	if kept > 0 {
		ok := kept < len(rest) && fits(rest[:kept])
		if !ok {
			f.plans = planCount
			ok = fits(rest[:kept])
		}
		if ok {
			rest = rest[kept:]
		}
	}
	for len(rest) > 0 && f.spent < maxSpent {
		if fits(rest) {
			return in, best
		}
		low, high := 0, len(rest) // low are in, high do not fit
		for high-low > 1 && f.spent < maxSpent {
			if mid := (low + high) / 2; fits(rest[low:mid]) {
				low = mid
			} else {
				high = mid
			}
		}
		if high == low+1 {
			f.choose(rest[low], fits)
			rest = rest[high:]
		} else {
			rest = rest[low:]
		}
	}
	for _, k := range rest { // those that fit beside the others' plan
		if r := f.share(best.left, k, 0, best.by); !r.never() {
			best.left.take(&f.tasks[k], r)
			in[k], best.runs[k] = true, r
		}
	}
	return in, best
}

// choose tries what else a task may choose that does not fit as it is.
func (f *filling) choose(k int, fits func([]int) bool) {
	t := &f.tasks[k]
	for t.choice = 1; t.choice < len(t.Choices) && f.spent < maxSpent; t.choice++ {
		if fits([]int{k}) {
			return
		}
	}
	t.choice = 0
}

// wanted says of each room whether a task that waits has to be in it.
func (f *filling) wanted(in []bool) []bool {
	if len(f.base.rooms) == 0 {
		return nil
	}
	out := make([]bool, len(f.base.rooms))
	for k := range f.tasks {
		if t := &f.tasks[k]; in[k] && t.choice < len(t.Choices) {
			out[t.Choices[t.choice][0].Room] = true
		}
	}
	return out
}

// try finds a plan with which tasks end in time.
func (f *filling) try(in []bool) (plan, bool) {
	for by := range f.plans {
		if p, late := f.fill(in, by, nil, 0); late == 0 {
			return p, true
		}
	}
	return plan{}, false
}

// fill fills tasks. Those that wait begin at from or later, but for some that may
// begin at once. It returns how many are late; where all may begin at once it
// ends with the first.
func (f *filling) fill(in []bool, by int, atOnce []bool, from float64) (p plan, late int) {
	p = plan{by: by, left: f.base.clone(), runs: make([]run, len(f.tasks))}
	p.left.wanted = f.wanted(in)
	for _, k := range f.order(by) {
		if !in[k] {
			continue
		}
		start := from
		if f.tasks[k].Running || atOnce != nil && atOnce[k] {
			start = 0
		}
		p.runs[k] = f.share(p.left, k, start, by)
		if !p.runs[k].never() {
			p.left.take(&f.tasks[k], p.runs[k])
		} else if late++; from == 0 {
			break
		}
	}
	f.spent += len(f.tasks)/8 + p.left.visits
	return p, late
}

// share finds a task's minimum satisfactory share and its run with it.
func (f *filling) share(p *profile, k int, from float64, by int) run {
	t := &f.tasks[k]
	low, high := t.Min-1, t.Max // low is too little
	if by >= steady && t.Running {
		low, high = t.Members-1, t.Members
	}
	fit := func(level int) (run, float64) {
		least := t.Min
		if by >= steady {
			least = level
		}
		return p.fit(t, least, level, from, t.Deadline)
	}
	best, gap := fit(high)
	for !best.never() && high-low > 1 {
		mid := (low + high) / 2
		if r, g := fit(mid); r.never() {
			low = mid
		} else {
			high, best, gap = mid, r, g
		}
	}
	if !best.never() && by < steady && high > t.Min {
		p.relax(t, &best, gap)
	}
	return best
}

// urgent finds out who has to begin now. Those that would be late if all who wait
// began later are to begin at once; if that does not help, all that may.
func (f *filling) urgent(in []bool, by int, margin float64) {
	if margin <= 0 {
		return
	}
	p, late := f.fill(in, by, nil, margin)
	if late == 0 {
		return
	}
	now := make([]bool, len(in))
	for k := range in {
		now[k] = in[k] && p.runs[k].never()
	}
	p, late = f.fill(in, by, now, margin)
	for k := range in {
		v := &f.out[k]
		switch {
		case !in[k] || f.tasks[k].Running:
		case late > 0:
			v.Urgent = v.Begin < margin
		case now[k] && p.runs[k].begin < margin:
			*v = p.runs[k].verdict()
			v.Urgent, v.Choice = true, f.tasks[k].choice
		}
	}
}
