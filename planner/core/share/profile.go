package share

import (
	"math"
	"slices"
)

// profile is how many GPUs are free, from now on: free[k] from at[k] until
// at[k+1], the last one for ever. Times are seconds from now.
type profile struct {
	at   []float64
	free []int
	// rooms is, by room, how many of its places are free in each slot.
	rooms [][]int
	// wanted says of each room whether somebody has to be in it; nil: nobody has.
	wanted []bool
	// most bounds the slots. When there are as many, what is taken is rounded up to
	// slots that are there, so that a plan is never better than it looks.
	most int
	// visits counts what looking at slots has cost.
	visits int
}

// Most slots of a profile: fewer where there are very many tasks.
const (
	fewestSlots = 32
	mostSlots   = 128
	slotsByTask = 400_000
)

// instant is a time that does not count, in seconds.
const instant = 1e-6

func newProfile(gpus, tasks int) *profile {
	most := min(mostSlots, max(fewestSlots, slotsByTask/max(1, tasks)))
	return &profile{at: []float64{0}, free: []int{gpus}, most: most}
}

func (p *profile) clone() *profile {
	out := &profile{at: slices.Clone(p.at), free: slices.Clone(p.free), rooms: make([][]int, len(p.rooms)), wanted: p.wanted, most: p.most}
	for r := range p.rooms {
		out.rooms[r] = slices.Clone(p.rooms[r])
	}
	return out
}

// rule divides a profile evenly up to a time.
func (p *profile) rule(until float64, slots int) {
	for k := 1; k <= slots && until > 0; k++ {
		p.cut(until * float64(k) / float64(slots))
	}
}

// cut makes a time the begin of a slot, if there may be more, and returns the
// slot that it begins, or the next one there is.
func (p *profile) cut(t float64) int {
	k, found := slices.BinarySearch(p.at, t)
	switch {
	case found || math.IsInf(t, 1):
		return k
	case k < len(p.at) && p.at[k]-t < instant:
		return k
	case t-p.at[k-1] < instant:
		return k - 1
	case len(p.at) < p.most:
		p.at, p.free = slices.Insert(p.at, k, t), slices.Insert(p.free, k, p.free[k-1])
		for r := range p.rooms {
			p.rooms[r] = slices.Insert(p.rooms[r], k, p.rooms[r][k-1])
		}
	}
	return k
}

// until is when a slot ends.
func (p *profile) until(k int) float64 {
	if k+1 < len(p.at) {
		return p.at[k+1]
	}
	return math.Inf(1)
}

// run is when a task runs: with up to level members until ease, and with one less
// from then on, fewer where fewer are free; with first at first. It never ends if
// it cannot be.
type run struct {
	begin, ease, end float64
	level, first     int
}

func (r *run) never() bool { return math.IsInf(r.end, 1) }

// fit finds the earliest run of a task with up to level members, and with least
// of them at least, that begins at from or later and ends by a limit. One that
// runs may not pause. gap is when it would have to stop, the limit at the latest.
func (p *profile) fit(t *Task, least, level int, from, limit float64) (r run, gap float64) {
	never := run{begin: math.Inf(1), end: math.Inf(1)}
	r, done, end := never, 0.0, math.Inf(1)
	for k := range p.at {
		if p.until(k) <= from {
			continue
		}
		start := max(p.at[k], from)
		if start >= limit {
			break
		}
		p.visits++
		n := min(level, p.members(t, k))
		switch {
		case n >= least:
		case !math.IsInf(end, 1):
			return r, start
		case t.Running:
			return never, 0
		default:
			r, done = never, 0
			continue
		}
		if math.IsInf(r.begin, 1) {
			r = run{begin: start, end: math.Inf(1), level: level, first: n}
		}
		if !math.IsInf(end, 1) {
			continue
		}
		if rate := t.speed(n); rate > 0 {
			end = start + (t.Work-done)/rate
			if end > p.until(k) {
				done, end = done+rate*(p.until(k)-start), math.Inf(1)
			} else if end > limit+instant {
				return never, 0
			} else {
				r.ease, r.end = end, end
				if level == t.Min || math.IsInf(limit, 1) {
					return r, end
				}
			}
		}
	}
	if math.IsInf(end, 1) {
		return never, 0
	}
	return r, limit
}

// relax lets a task go on with one member less from the time on from which that
// is enough to end by the limit. So its plan stays what it is as time goes by:
// else it would change when one less becomes enough.
func (p *profile) relax(t *Task, r *run, limit float64) {
	spare := -t.Work // what is done beyond the work, with level until the limit
	last := p.slot(limit)
	for k := p.slot(r.begin); k <= last; k++ {
		p.visits++
		if span := min(p.until(k), limit) - max(p.at[k], r.begin); span > 0 {
			spare += span * t.speed(min(r.level, p.members(t, k)))
		}
	}
	r.ease, r.end = r.begin, limit
	for k := last; k >= 0 && p.until(k) > r.begin; k-- {
		p.visits++
		begin, end := max(p.at[k], r.begin), min(p.until(k), limit)
		n := p.members(t, k)
		loss := t.speed(min(r.level, n)) - t.speed(min(r.level-1, n))
		if loss*(end-begin) > spare {
			r.ease = end - spare/loss
			break
		}
		spare -= max(0, loss*(end-begin))
	}
	if r.ease-r.begin < instant {
		r.level--
		r.first, r.ease = min(r.first, r.level), r.end
	}
}

// take takes what a task needs for a run.
func (p *profile) take(t *Task, r run) {
	p.cut(r.begin)
	ease, end := p.cut(r.ease), p.cut(r.end)
	for k := p.slot(r.begin); k < end; k++ {
		level := r.level
		if k >= ease {
			level--
		}
		n := min(level, p.members(t, k))
		p.free[k] -= t.GPUs * n
		p.occupy(t.Needs, k, n)
		if t.choice < len(t.Choices) {
			p.occupy(t.Choices[t.choice], k, n)
		}
	}
}

// occupy takes the places that n members need.
func (p *profile) occupy(needs []Need, k, n int) {
	for _, need := range needs {
		p.rooms[need.Room][k] -= p.places(need, n)
	}
}

// members is how many members a task can have in a slot.
func (p *profile) members(t *Task, k int) int {
	n := p.fitting(t.Needs, k, p.free[k]/t.GPUs)
	if t.choice < len(t.Choices) {
		n = p.fitting(t.Choices[t.choice], k, n)
	}
	return n
}

// fitting is how many of n members find the places that each needs.
func (p *profile) fitting(needs []Need, k, n int) int {
	for _, need := range needs {
		if free := p.rooms[need.Room][k]; p.places(need, n) > free {
			n = free / need.Places
		}
	}
	return n
}

// places are what so many members take of a room.
func (p *profile) places(need Need, members int) int {
	switch {
	case need.Most == 0:
		return need.Places * members
	case p.wanted == nil || !p.wanted[need.Room]:
		return 0
	}
	return min(need.Places*members, need.Most)
}

// hold takes what a task has from now until it ends, no more than there is.
func (p *profile) hold(t *Task) {
	end := p.cut(t.Work)
	for k := range end {
		p.free[k] = max(0, p.free[k]-t.Members*t.GPUs)
		for _, need := range t.Needs {
			p.rooms[need.Room][k] = max(0, p.rooms[need.Room][k]-t.Members*need.Places)
		}
	}
}

// slot is the one that a time is in.
func (p *profile) slot(t float64) int {
	k, found := slices.BinarySearch(p.at, t)
	if !found {
		k--
	}
	return k
}
