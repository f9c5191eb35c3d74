package bound

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// window is a choice of a job: it is done within a time, which costs something.
type window struct {
	within, cost float64
	// exceeds are the softs that are exceeded by it.
	exceeds []int
}

// windows are the choices of jobs that count, or of others, at this percentile.
func (d *dual) windows(x float64, counted bool) []window {
	type tier struct {
		within, price float64
		soft          int
	}
	var tiers []tier
	hard := d.hard[1]
	if counted {
		hard = d.hard[0]
		tiers = append(tiers, tier{x, 1, -1})
	}
	for i, s := range d.softs {
		if s.all || counted {
			tiers = append(tiers, tier{s.within, s.price, i})
		}
	}
	slices.SortStableFunc(tiers, func(a, b tier) int { return cmp.Compare(a.within, b.within) })
	var out []window
	cost := 0.0
	var exceeds []int
	for _, t := range tiers {
		if t.within >= hard {
			break
		}
		out = append(out, window{t.within, cost, slices.Clone(exceeds)})
		cost += t.price
		if t.soft >= 0 {
			exceeds = append(exceeds, t.soft)
		}
	}
	return append(out, window{hard, cost, exceeds})
}

// part is a slot, or what of it a job may use, and what a second there costs.
type part struct {
	slot         int
	from, length float64
	cost         float64
}

// value is what all jobs cost at least at these prices, less what the GPUs and the
// limits are worth, and by how much rounding may have it wrong. It notes what they
// use.
func (d *dual) value(x float64) (q, wrong float64) {
	for k := range d.used {
		d.used[k] = 0
	}
	for i := range d.over {
		d.over[i] = 0
	}
	for i := range d.sums {
		d.sums[i] = 0
	}
	total := 0.0
	var sides [2]side
	for k, counted := range []bool{true, false} {
		sides[k] = d.side(x, counted)
	}
	for i := range d.jobs {
		j := &d.jobs[i]
		if j.Counted {
			total += d.job(j, &sides[0])
		} else {
			total += d.job(j, &sides[1])
		}
	}
	worth := 0.0
	for k := range slots {
		worth += d.prices[k] * d.p.GPUs * d.width
	}
	for _, s := range d.softs {
		worth += s.price * float64(s.more)
	}
	for _, m := range d.means {
		worth += m.price * m.limit
	}
	return total - worth, 1e-6 + 1e-9*(total+worth)
}

// side is what is the same for all jobs that count, or for all others.
type side struct {
	windows []window
	// slow is what a second costs for a GPU-second of work.
	slow    float64
	counted bool
	least   rangeMin
	// paid is the integral of the prices up to each edge.
	paid []float64
}

func (d *dual) side(x float64, counted bool) side {
	s := side{windows: d.windows(x, counted), counted: counted}
	for _, m := range d.means {
		if m.all || counted {
			s.slow += m.price
		}
	}
	costs := make([]float64, len(d.prices))
	s.paid = make([]float64, len(d.edges))
	for k, price := range d.prices {
		costs[k] = price + s.slow*d.edges[k]
		s.paid[k+1] = s.paid[k] + price*(d.edges[k+1]-d.edges[k])
	}
	s.least = newRangeMin(costs)
	return s
}

// job is what one costs at least, with what it uses noted.
func (d *dual) job(j *Job, s *side) float64 {
	best, chosen, at := math.Inf(1), -1, choice{}
	for k, w := range s.windows {
		if w.within < j.Shortest-1e-9 || w.cost >= best {
			continue
		}
		to := min(j.Release+w.within, d.edges[len(d.edges)-1])
		if cost, where := d.cheapest(j, s, to); w.cost+cost < best {
			best, chosen, at = w.cost+cost, k, where
			if where.kind == inPieces {
				d.room, d.kept = d.kept, d.room
			}
		}
	}
	if chosen < 0 {
		return 0 // its limit cannot be kept: no schedule does, so this was none
	}
	d.use(j, at)
	for _, i := range s.windows[chosen].exceeds {
		d.over[i]++
	}
	for i := range d.means {
		if d.means[i].all || s.counted {
			d.sums[i] += j.work() * at.took
		}
	}
	return best
}

// choice is where a job runs: in one slot, in one piece from a time on, or in the
// pieces that are kept.
type choice struct {
	kind choiceKind
	slot int
	from float64
	// took is how long after its release it is done at least.
	took float64
}

type choiceKind int8

const (
	inSlot choiceKind = iota
	inOnePiece
	inPieces
)

// slotOf is the slot of a time.
func (d *dual) slotOf(at float64) int {
	return max(0, min(int((at-d.edges[0])/d.width), len(d.prices)-1))
}

// cheapest is what a job costs at least that is done by a time.
func (d *dual) cheapest(j *Job, s *side, to float64) (float64, choice) {
	switch {
	case j.Shortest <= d.width:
		return d.inSlot(j, s, to)
	case d.p.Whole:
		return d.onePiece(j, s, to)
	}
	return d.pieces(j, s, to)
}

// inSlot is the cheapest slot for a job that takes no longer than one. It counts as
// if all of it ran there from the slot's beginning on.
func (d *dual) inSlot(j *Job, s *side, to float64) (float64, choice) {
	first, last := d.slotOf(j.Release), d.slotOf(to-1e-9)
	at, took := first, 0.0
	cost := d.prices[first]
	if first < last {
		if k := s.least.of(first+1, last); d.prices[k]+s.slow*(d.edges[k]-j.Release) < cost {
			at, took = k, d.edges[k]-j.Release
			cost = d.prices[k] + s.slow*took
		}
	}
	return j.work() * (cost + s.slow*j.Shortest/2), choice{kind: inSlot, slot: at, took: took + j.Shortest/2}
}

// onePiece is the cheapest time for a job that is not stopped: between the edges of
// slots, for its start and its end, what it costs is linear.
func (d *dual) onePiece(j *Job, s *side, to float64) (float64, choice) {
	best, at := math.Inf(1), j.Release
	try := func(from float64) {
		from = max(j.Release, min(from, to-j.Shortest))
		cost := j.Width * (d.paidUntil(s, from+j.Shortest) - d.paidUntil(s, from))
		if cost += s.slow * j.work() * (from + j.Shortest - j.Release); cost < best {
			best, at = cost, from
		}
	}
	try(j.Release)
	try(to - j.Shortest)
	for k := d.slotOf(j.Release); k < len(d.edges) && d.edges[k] <= to; k++ {
		try(d.edges[k])
		try(d.edges[k] - j.Shortest)
	}
	return best, choice{kind: inOnePiece, from: at, took: at + j.Shortest - j.Release}
}

// paidUntil is what a GPU costs from the first edge on until a time.
func (d *dual) paidUntil(s *side, at float64) float64 {
	k := d.slotOf(at)
	return s.paid[k] + (at-d.edges[k])*d.prices[k]
}

// pieces are the cheapest times for a job that may be stopped: as long as it takes
// in all. It is done no sooner than half of its run time after the mean of these
// times (Goemans et al., Single Machine Scheduling with Release Dates, SIAM J.
// Discrete Math. 15, 2002).
func (d *dual) pieces(j *Job, s *side, to float64) (float64, choice) {
	d.room = d.room[:0]
	for k := d.slotOf(j.Release); k < len(d.prices) && d.edges[k] < to; k++ {
		from, until := max(d.edges[k], j.Release), min(d.edges[k+1], to)
		d.room = append(d.room, part{k, from, until - from, d.prices[k] + s.slow*((from+until)/2-j.Release)})
	}
	slices.SortFunc(d.room, func(a, b part) int { return cmp.Compare(a.cost, b.cost) })
	left, level, sum, n := j.Shortest, 0.0, 0.0, 0
	for i := range d.room {
		p := &d.room[i]
		n, level = i+1, p.cost
		p.length = min(p.length, left)
		sum += p.length * (p.from + p.length/2 - j.Release)
		if left -= p.length; left <= 0 {
			break
		}
	}
	d.room = d.room[:n]
	// Whatever the level is, this is a bound: what is dearer counts as if it cost no
	// more than the level, and no time that is cheaper is used twice.
	cost := level * j.Shortest
	for k := d.slotOf(j.Release); k < len(d.prices) && d.edges[k] < to; k++ {
		from, until := max(d.edges[k], j.Release), min(d.edges[k+1], to)
		cost -= below(level-d.prices[k]-s.slow*(from-j.Release), s.slow, until-from)
	}
	return j.Width * (cost + s.slow*j.Shortest*j.Shortest/2), choice{kind: inPieces, took: sum/j.Shortest + j.Shortest/2}
}

// below is the area below a line that begins at a height and falls by a slope for
// each second, above 0, within a length.
func below(height, slope, length float64) float64 {
	switch end := height - slope*length; {
	case height <= 0:
		return 0
	case end >= 0:
		return (height + end) / 2 * length
	default:
		return height * height / (2 * slope)
	}
}

// use notes the GPU-seconds of a job.
func (d *dual) use(j *Job, at choice) {
	switch at.kind {
	case inSlot:
		d.used[at.slot] += j.work()
	case inOnePiece:
		until := at.from + j.Shortest
		for k := d.slotOf(at.from); k < len(d.used) && d.edges[k] < until; k++ {
			d.used[k] += j.Width * (min(until, d.edges[k+1]) - max(at.from, d.edges[k]))
		}
	case inPieces:
		for _, p := range d.kept {
			d.used[p.slot] += j.Width * p.length
		}
	}
}

// rangeMin finds the place of the least of some numbers between two places, at
// once: of each power of two that it is long.
type rangeMin struct {
	values []float64
	places [][]int32
}

func newRangeMin(values []float64) rangeMin {
	r := rangeMin{values: values, places: [][]int32{make([]int32, len(values))}}
	for i := range values {
		r.places[0][i] = int32(i)
	}
	for step := 1; 2*step <= len(values); step *= 2 {
		last := r.places[len(r.places)-1]
		next := make([]int32, len(values)-2*step+1)
		for i := range next {
			next[i] = r.less(last[i], last[i+step])
		}
		r.places = append(r.places, next)
	}
	return r
}

func (r *rangeMin) less(a, b int32) int32 {
	if r.values[b] < r.values[a] {
		return b
	}
	return a
}

// of is the place of the least from one place to another, both included.
func (r *rangeMin) of(from, to int) int {
	k := bits.Len(uint(to-from+1)) - 1
	return int(r.less(r.places[k][from], r.places[k][to-1<<k+1]))
}
