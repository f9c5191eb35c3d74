package bound

import (
	"cmp"
	"math"
	"slices"
)

// slots is in how many spans of one price the time is divided at most.
const slots = 240

// soft is a limit that some jobs may exceed, at a price each.
type soft struct {
	within float64
	// more: how many may exceed it.
	more  int
	all   bool
	price float64
}

// mean is a limit of completion times weighted by work.
type mean struct {
	all bool
	// limit is in GPU-seconds times seconds.
	limit float64
	// price is for each of these.
	price float64
}

// dual are the prices of a Problem.
type dual struct {
	p *Problem
	// jobs are sorted by release; those that no limit is for are left out.
	jobs []Job
	// edges divide the time into slots of one price; in the last one GPUs cost
	// nothing, and each job has time enough.
	edges, prices []float64
	width         float64
	softs         []soft
	means         []mean
	// hard are what no job may exceed: of those that count, and of the others.
	hard [2]float64
	more int
	// used are the GPU-seconds of the jobs by slot, at these prices; over and sums
	// are what is used of softs and means.
	used       []float64
	over, sums []float64
	// room is what a job looks through, kept is what the one looked at last chose.
	room, kept []part
}

// newDual begins with prices of nothing, for percentiles up to most; nil if no job
// counts.
func newDual(p *Problem, most float64) *dual {
	d := &dual{p: p, hard: [2]float64{math.Inf(1), math.Inf(1)}}
	n := 0
	counted, whole := 0.0, 0.0
	for _, j := range p.Jobs {
		whole += j.work()
		if j.Counted {
			n++
			counted += j.work()
		}
		if j.Counted || p.All.any() {
			d.jobs = append(d.jobs, j)
		}
	}
	if n == 0 || p.GPUs <= 0 || !(most > 0) {
		return nil
	}
	slices.SortStableFunc(d.jobs, func(a, b Job) int { return cmp.Compare(a.Release, b.Release) })
	d.more = late(p.Part, n)
	d.limit(p.Counted, n, counted, false)
	d.limit(p.All, len(p.Jobs), whole, true)
	d.cut(most)
	return d
}

// limit takes conditions up for some jobs, n with so much work.
func (d *dual) limit(l Limits, n int, work float64, all bool) {
	for _, q := range l.Parts {
		if more := late(q.Part, n); more > 0 {
			d.softs = append(d.softs, soft{within: q.Within, more: more, all: all})
			continue
		}
		d.hard[0] = min(d.hard[0], q.Within)
		if all {
			d.hard[1] = min(d.hard[1], q.Within)
		}
	}
	if l.Weighted > 0 {
		d.means = append(d.means, mean{all: all, limit: l.Weighted * work})
	}
}

// cut divides the time until the last job has reached its last limit, by which most
// is one; after that all is free.
func (d *dual) cut(most float64) {
	first, last, longest := d.jobs[0].Release, d.jobs[len(d.jobs)-1].Release, 0.0
	for i := range d.jobs {
		longest = max(longest, d.jobs[i].Shortest)
	}
	for _, h := range d.hard {
		if !math.IsInf(h, 1) {
			most = max(most, h)
		}
	}
	for _, s := range d.softs {
		most = max(most, s.within)
	}
	last += most
	d.width = (last - first) / slots
	for k := range slots + 1 {
		d.edges = append(d.edges, first+float64(k)*d.width)
	}
	d.edges = append(d.edges, last+longest+d.width)
	d.prices, d.used = make([]float64, slots+1), make([]float64, slots+1)
	d.over, d.sums = make([]float64, len(d.softs)), make([]float64, len(d.means))
}

// patience is how many prices are tried without gain before the steps get shorter,
// and shortest the part of the first step at which it ends.
const (
	patience = 15
	shortest = 1e-3
)

// refutes reports whether no schedule keeps the conditions with so few jobs
// later than x as the percentile allows. False: it is not known.
func (d *dual) refutes(x float64) bool {
	kept := d.now()
	target := float64(d.more)
	aim := target*1.02 + 0.3
	way := make([]float64, slots+len(d.softs)+len(d.means))
	best, bestAt, pace := -math.MaxFloat64, 0, 1.0
	for step := 0; step < cmp.Or(d.p.Effort, DefaultEffort) && pace > shortest; step++ {
		q, wrong := d.value(x)
		switch {
		case q > target+wrong:
			return true
		case q > best+1e-3*(aim-best):
			best, bestAt = q, step
		case step-bestAt > patience:
			pace, bestAt = pace*0.6, step
		}
		d.climb(way, aim-q, pace)
	}
	d.prices, d.softs, d.means = kept.prices, kept.softs, kept.means
	return false
}

// now are the prices as they are: those that refuted something are a better
// beginning than those that did not.
func (d *dual) now() *dual {
	return &dual{prices: slices.Clone(d.prices), softs: slices.Clone(d.softs), means: slices.Clone(d.means)}
}

// climb changes the prices in the direction in which the value rises, mixed with
// where they went before, by as much as would reach the aim if it went on like
// that (Polyak 1969; Camerini, Fratta and Maffioli 1975).
func (d *dual) climb(way []float64, lacks, pace float64) {
	n := slots
	square := 0.0
	set := func(i int, price, slope float64) {
		if way[i] = slope + 0.7*way[i]; price <= 0 && way[i] < 0 {
			way[i] = 0 // there it cannot go
		}
		square += way[i] * way[i]
	}
	for k := range n {
		whole := d.p.GPUs * d.width
		set(k, d.prices[k], d.used[k]/whole-1)
	}
	for i := range d.softs {
		set(n+i, d.softs[i].price, d.over[i]-float64(d.softs[i].more))
	}
	for i := range d.means {
		set(n+len(d.softs)+i, d.means[i].price, 10*(d.sums[i]/d.means[i].limit-1))
	}
	if square < 1e-9 {
		return
	}
	by := pace * lacks / square
	for k := range n {
		d.prices[k] = max(0, d.prices[k]+by*way[k]/(d.p.GPUs*d.width))
	}
	for i := range d.softs {
		d.softs[i].price = max(0, d.softs[i].price+by*way[n+i])
	}
	for i := range d.means {
		d.means[i].price = max(0, d.means[i].price+by*10*way[n+len(d.softs)+i]/d.means[i].limit)
	}
}
