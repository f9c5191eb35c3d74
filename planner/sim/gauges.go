package sim

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// gauges count what is told of waiting jobs and of free GPUs beside the meter.
type gauges struct {
	// sizes are the GPUs that any job of the trace asks for, the smallest first.
	// scattered is for how long, by size, so many GPUs were free, but not where a
	// gang of that size fits.
	sizes     []int
	scattered []float64
	// larger is by number of GPUs what part of all members asks a node for more.
	larger []float64
	// useless is the integral of FGD's measure over [0, T], in GPU-seconds.
	useless float64
	// present counts the jobs that are submitted and not done, and presence is its
	// integral over time.
	present  int
	presence float64
	// rented counts the GPUs of bought nodes that are there, and renting is its
	// integral over [0, T].
	rented  int
	renting float64
}

func newGauges(jobs []trace.Job, perNode int) gauges {
	g := gauges{larger: make([]float64, perNode+1)}
	all := 0.0
	for i := range jobs {
		g.sizes = append(g.sizes, jobs[i].GPUs)
		whole, rest := members(jobs[i].GPUs, perNode)
		for f := range g.larger {
			if f < perNode {
				g.larger[f] += float64(whole)
			}
			if f < rest {
				g.larger[f]++
			}
		}
		all += float64(whole + min(rest, 1))
	}
	for f := range g.larger {
		g.larger[f] /= max(1, all)
	}
	slices.Sort(g.sizes)
	g.sizes = slices.Compact(g.sizes)
	g.scattered = make([]float64, len(g.sizes))
	return g
}

// pass counts the time up to another one, during which nothing changed.
func (g *gauges) pass(l *ledger, from, to, horizon float64) {
	span := to - from
	g.presence += float64(g.present) * span
	for k, gpus := range g.sizes {
		if gpus > l.total {
			break
		}
		if !l.fits(gpus) {
			g.scattered[k] += span
		}
	}
	if span = min(to, horizon) - from; span > 0 {
		g.renting += float64(g.rented) * span
		for f, nodes := range l.nodes {
			g.useless += float64(nodes*f) * g.larger[f] * span
		}
	}
}

// fits reports whether a gang of so many GPUs fits on what is free.
func (l *ledger) fits(gpus int) bool {
	whole, rest := members(gpus, l.perNode)
	if l.nodes[l.perNode] < whole || rest == 0 {
		return l.nodes[l.perNode] >= whole
	}
	for f := rest; f < l.perNode; f++ {
		if l.nodes[f] > 0 {
			return true
		}
	}
	return l.nodes[l.perNode] > whole
}

// apart is for how long a gang of a size could not be placed for no other reason
// than where the free GPUs are.
func (g *gauges) apart(gpus int) float64 {
	k, _ := slices.BinarySearch(g.sizes, gpus)
	return g.scattered[k]
}
