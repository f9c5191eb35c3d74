package queue

import (
	"fmt"
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
	if len(s.Demands) < minDemands {
		for i := range out {
			out[i].Why += fmt.Sprintf("; %d jobs have ended so far, and %d are needed to tell how long others run", len(s.Demands), minDemands)
		}
		return out
	}
	past, known := newDemands(s.Demands), map[float64]float64{}
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
			out[i].Why += fmt.Sprintf("; none of %d jobs that have ended needed so much", len(s.Demands))
			continue
		}
		out[i].Why += fmt.Sprintf("; by the %d of %d ended jobs that needed more, one like it ends for each %s", past.beyond(had), len(s.Demands), gpuTime(1/index))
	}
	return out
}

// demands are what jobs of the past have needed.
type demands struct {
	// sorted are in rising order, and sums[i] is the sum of those before i.
	sorted, sums []float64
}

func newDemands(past []float64) *demands {
	d := &demands{sorted: slices.Sorted(slices.Values(past)), sums: make([]float64, len(past)+1)}
	for i, s := range d.sorted {
		d.sums[i+1] = d.sums[i] + s
	}
	return d
}

// after is the first that is greater.
func (d *demands) after(had float64) int {
	at, exact := slices.BinarySearch(d.sorted, had)
	for exact && at < len(d.sorted) && d.sorted[at] == had {
		at++
	}
	return at
}

func (d *demands) beyond(had float64) int { return len(d.sorted) - d.after(had) }

// index is G(had) in jobs per GPU-second, 0 beyond all that is known. The best d
// ends with one of the demands: between two of them the chance to be through
// stays, and what it takes grows.
func (d *demands) index(had float64) float64 {
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
