package queue

import (
	"fmt"
	"math"
	"slices"
)

// Gittins index: where nobody knows how long a job runs, but how long jobs have
// run before is known, who is most likely to be through soon for what it will
// take until then goes first. With S what a job needs in all, drawn as those of
// the past were, the index of one that has had a is
//
//	G(a) = sup over d of P(S-a <= d | S > a) / E[min(S-a, d) | S > a]
//
// in GPU-seconds, GPUs times time (Gu et al., Tiresias, NSDI'19, section 3.2;
// Gittins, Bandit Processes and Dynamic Allocation Indices, Journal of the Royal
// Statistical Society B 41, 1979). As in the paper it orders jobs within the
// queues of las, which displace each other; who has had more than any job
// before comes last.

// minDemands is of how many jobs the past must be known for it to count.
const minDemands = 10

// gittins is the Discipline.
type gittins struct{ las }

func newGittins(p Policy) Discipline { return gittins{las{p.LAS.WithDefaults()}} }

// Stand implements Discipline.
func (g gittins) Stand(s Situation) []Standing {
	out := g.las.Stand(s)
	if s.Past.Jobs() < minDemands {
		for i := range out {
			out[i].Why += fmt.Sprintf("; %d jobs have ended so far, and %d are needed to tell how long others run", s.Past.Jobs(), minDemands)
		}
		return out
	}
	past, known := s.Past, map[float64]float64{}
	for i := range s.Jobs {
		had := s.Jobs[i].Attained - s.Jobs[i].Job.ForgottenGPUs
		if out[i].Forgets {
			had = 0
		}
		index, asked := known[had] // most that wait have had nothing yet
		if !asked {
			index = past.index(had)
			known[had] = index
		}
		out[i].Key = -index
		if index == 0 {
			out[i].Why += fmt.Sprintf("; none of %d jobs that have ended needed so much", s.Past.Jobs())
			continue
		}
		out[i].Why += fmt.Sprintf("; by the %d of %d ended jobs that needed more, one like it ends for each %s", past.beyond(had), s.Past.Jobs(), gpuTime(1/index))
	}
	return out
}

// Past is what jobs of the past have needed, in GPU-seconds; nil is nothing.
type Past struct {
	// sorted are in rising order, and sums[i] is the sum of those before i.
	sorted, sums []float64
}

// NewPast makes it of how many GPU-seconds each had in all, in any order. Where they
// are in order already they are not copied, and must not be changed afterwards.
func NewPast(demands []float64) *Past {
	if !slices.IsSorted(demands) {
		demands = slices.Sorted(slices.Values(demands))
	}
	d := &Past{sorted: demands, sums: make([]float64, len(demands)+1)}
	for i, s := range d.sorted {
		d.sums[i+1] = d.sums[i] + s
	}
	return d
}

// Jobs is of how many jobs it is known.
func (d *Past) Jobs() int {
	if d == nil {
		return 0
	}
	return len(d.sorted)
}

// upTo is how many GPU-seconds those have had less than who had this part of all
// together, rounded down in steps.
func (d *Past) upTo(part float64) float64 {
	all := d.sums[len(d.sorted)]
	at, exact := slices.BinarySearch(d.sums, part*all)
	if !exact {
		at--
	}
	if had := d.sorted[max(min(at, len(d.sorted)-1), 0)]; had > 0 {
		return math.Pow(2, math.Floor(2*math.Log2(had))/2)
	}
	return 0
}

// after is the first that is greater.
func (d *Past) after(had float64) int {
	at, exact := slices.BinarySearch(d.sorted, had)
	for exact && at < len(d.sorted) && d.sorted[at] == had {
		at++
	}
	return at
}

func (d *Past) beyond(had float64) int { return len(d.sorted) - d.after(had) }

// index is G(had) in jobs per GPU-second, 0 beyond all that is known. The best d
// ends with one of the demands: between two of them the chance to be through
// stays, and what it takes grows.
func (d *Past) index(had float64) float64 {
	first, n := d.after(had), len(d.sorted)
	best := 0.0
	for k := first; k < n; k++ {
		if k+1 < n && d.sorted[k+1] == d.sorted[k] {
			continue
		}
		through := float64(k + 1 - first)
		until := d.sorted[k] - had
		takes := d.sums[k+1] - d.sums[first] - through*had + float64(n-k-1)*until
		best = max(best, through/takes)
	}
	return best
}
