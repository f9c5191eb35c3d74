package sim

import (
	"math"
	"math/rand/v2"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// Estimates are how long jobs are thought to run: what they do run, times a
// lognormal error of that sigma (0 is exact) whose median is 1. A job's error
// depends on the seed and its number alone, so it is the same for every policy.
func Estimates(jobs []trace.Job, sigma float64, seed uint64) []float64 {
	rng := rand.New(rand.NewPCG(seed, 0xe571))
	out := make([]float64, len(jobs))
	for i := range jobs {
		out[i] = jobs[i].Duration * math.Exp(sigma*rng.NormFloat64())
	}
	return out
}
