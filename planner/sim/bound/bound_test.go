package bound

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Worked by hand: ten GPUs, and jobs that take all of them.
func TestByHand(t *testing.T) {
	job := func(release, takes float64) Job { return Job{release, takes, 10, true} }
	// a has 10 s of work at 0, b 30, and c 10 at 35.
	abc := []Job{job(0, 10), job(0, 30), job(35, 10)}
	for name, c := range map[string]struct {
		p    Problem
		want float64
	}{
		// One after the other, and none is late.
		"all": {Problem{Jobs: []Job{job(0, 10), job(0, 10)}, Part: 1}, 20},
		// b is stopped while c runs, or comes after it.
		"one late": {Problem{Jobs: abc, Part: 2.0 / 3}, 10},
		// b ends by 45: then a and b leave 5 s for c until then, and it ends at 50.
		"one late, but not very": {Problem{Jobs: abc, Part: 2.0 / 3, Counted: Limits{Parts: []Limit{{1, 45}}}}, 15},
		// The same if b does not count, and there is a limit for all.
		"others": {Problem{Jobs: []Job{abc[0], {0, 30, 10, false}, abc[2]}, Part: 1, All: Limits{Parts: []Limit{{1, 45}}}}, 15},
		// It may wait for ever where there is none.
		"others without limits": {Problem{Jobs: []Job{abc[0], {0, 30, 10, false}, abc[2]}, Part: 1}, 10},
		// b runs from 0 to 40 unless it waits for c, and that ends at 20.
		"in one piece": {Problem{Jobs: []Job{job(0, 40), job(10, 10)}, Part: 0.5, Counted: Limits{Parts: []Limit{{1, 50}}}, Whole: true}, 40},
		"stopped":      {Problem{Jobs: []Job{job(0, 40), job(10, 10)}, Part: 0.5, Counted: Limits{Parts: []Limit{{1, 50}}}}, 10},
	} {
		c.p.GPUs = 10
		if got := c.p.Least(0, 1.3*c.want); got > c.want*(1+1e-9) || got < c.want*0.97-0.1 {
			t.Errorf("%s: %.2f: want %g, or little less", name, got, c.want)
		}
	}
	if got := (&Problem{GPUs: 10, Part: 0.5}).Least(3, 9); got != 3 {
		t.Errorf("of no jobs %g: want what was known", got)
	}
}

// instance draws a few small jobs.
func instance(t *rapid.T, most int) Problem {
	p := Problem{GPUs: float64(rapid.IntRange(1, 3).Draw(t, "gpus")), Part: rapid.SampledFrom([]float64{0.5, 0.7, 1}).Draw(t, "part")}
	for range rapid.IntRange(1, most).Draw(t, "jobs") {
		p.Jobs = append(p.Jobs, Job{
			Release: float64(rapid.IntRange(0, 4).Draw(t, "release")), Shortest: float64(rapid.IntRange(1, 3).Draw(t, "takes")),
			Width: float64(rapid.IntRange(1, int(p.GPUs)).Draw(t, "width")), Counted: rapid.IntRange(0, 3).Draw(t, "counts") > 0,
		})
	}
	return p
}

// end is until when schedules are tried, and tries how many of them at most.
const (
	end   = 10
	tries = 3000
)

// every tries every way to run the jobs in slots of a second, in one piece or in
// several, and gives of each when the jobs are done; the first ones if there are
// very many.
func every(p *Problem) [][]float64 {
	var all [][]float64
	var free [end]float64
	for i := range free {
		free[i] = p.GPUs
	}
	done := make([]float64, len(p.Jobs))
	var place func(i, from int, left float64)
	next := func(i int) {
		if i == len(p.Jobs) {
			all = append(all, slices.Clone(done))
			return
		}
		place(i, int(p.Jobs[i].Release), p.Jobs[i].Shortest)
	}
	place = func(i, from int, left float64) {
		for at := from; at+int(left) <= end && len(all) < tries; at++ {
			if free[at] < p.Jobs[i].Width {
				if p.Whole && left < p.Jobs[i].Shortest {
					return
				}
				continue
			}
			free[at] -= p.Jobs[i].Width
			if left == 1 {
				done[i] = float64(at+1) - p.Jobs[i].Release
				next(i + 1)
			} else {
				place(i, at+1, left-1)
			}
			free[at] += p.Jobs[i].Width
			if p.Whole && left < p.Jobs[i].Shortest {
				return
			}
		}
	}
	next(0)
	return all
}

// at is a percentile of some jobs.
func at(p *Problem, done []float64, part float64, all bool) float64 {
	var list []float64
	for i := range done {
		if all || p.Jobs[i].Counted {
			list = append(list, done[i])
		}
	}
	slices.Sort(list)
	return list[len(list)-1-late(part, len(list))]
}

func weighted(p *Problem, done []float64) float64 {
	sum, work := 0.0, 0.0
	for i := range done {
		if p.Jobs[i].Counted {
			sum += done[i] * p.Jobs[i].work()
			work += p.Jobs[i].work()
		}
	}
	return sum / work
}

// No schedule is better than the bound, whatever its limits are: those of one that
// was drawn, and that must be allowed.
func TestNoScheduleBeatsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := instance(t, 4)
		p.Effort = 40
		if p.Whole = rapid.Bool().Draw(t, "whole"); !p.Whole {
			p.Jobs = p.Jobs[:min(len(p.Jobs), 3)]
		}
		if !slices.ContainsFunc(p.Jobs, func(j Job) bool { return j.Counted }) {
			p.Jobs[0].Counted = true
		}
		all := every(&p)
		if len(all) == 0 {
			return // there is no room for them
		}
		kept := all[rapid.IntRange(0, len(all)-1).Draw(t, "kept")]
		if rapid.Bool().Draw(t, "longest") {
			p.Counted.Parts = append(p.Counted.Parts, Limit{1, at(&p, kept, 1, false)})
		}
		if rapid.Bool().Draw(t, "middle") {
			p.Counted.Parts = append(p.Counted.Parts, Limit{0.8, at(&p, kept, 0.8, false)})
		}
		if rapid.Bool().Draw(t, "weighted") {
			p.Counted.Weighted = weighted(&p, kept)
		}
		if rapid.Bool().Draw(t, "others") {
			p.All.Parts = []Limit{{1, at(&p, kept, 1, true)}, {0.6, at(&p, kept, 0.6, true)}}
		}
		best := math.Inf(1)
		for _, done := range all {
			ok := p.Counted.Weighted == 0 || weighted(&p, done) <= p.Counted.Weighted+1e-9
			for _, l := range p.Counted.Parts {
				ok = ok && at(&p, done, l.Part, false) <= l.Within
			}
			for _, l := range p.All.Parts {
				ok = ok && at(&p, done, l.Part, true) <= l.Within
			}
			if ok {
				best = min(best, at(&p, done, p.Part, false))
			}
		}
		if got := p.Least(0, at(&p, kept, p.Part, false)); got > best+1e-9 {
			t.Errorf("bound %g, and a schedule has %g", got, best)
		}
	})
}

// The place of the least is found as by looking at all.
func TestRangeMin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0, 9), 1, 40).Draw(t, "values")
		from := rapid.IntRange(0, len(values)-1).Draw(t, "from")
		to := rapid.IntRange(from, len(values)-1).Draw(t, "to")
		r := newRangeMin(values)
		if got, want := values[r.of(from, to)], slices.Min(values[from:to+1]); got != want {
			t.Errorf("from %d to %d of %v: %g, want %g", from, to, values, got, want)
		}
	})
}
