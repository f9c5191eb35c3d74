package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// Synthetic says how to make up a trace of foundation-model training, of which
// public traces have little: gangs of whole nodes, few of them large, whose run
// times have a heavy tail.
type Synthetic struct {
	Jobs int
	// Days is over how long they are submitted.
	Days float64
	// GPUsPerNode and MaxNodes bound the gangs. A gang of 2n nodes is half as
	// frequent as one of n (Hu et al., Characterization of Large Language Model
	// Development in the Datacenter, NSDI'24, section 3: few large jobs have most
	// of the GPU time).
	GPUsPerNode, MaxNodes int
	// Small is the part of jobs that are smaller than a node: fine-tuning, sweeps
	// and interactive work.
	Small float64
	Seed  uint64
}

// maxSynthetic bounds the jobs that are made up, and MaxDays how many days of a
// trace can be named: 273 years.
const (
	maxSynthetic = 10_000_000
	MaxDays      = 100_000
)

// Make makes the trace up. Arrivals are a Poisson process whose rate is highest
// in the afternoon; run times are lognormal, of a median that grows with the
// square root of the gang's size.
func (s Synthetic) Make() ([]Job, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(s.Seed, 0x5e17))
	jobs := make([]Job, s.Jobs)
	for i := range jobs {
		jobs[i] = s.one(rng)
		jobs[i].ID = fmt.Sprintf("synth-%06d", i+1)
	}
	Sort(jobs)
	return Shift(jobs), nil
}

// check reports every fault.
func (s Synthetic) check() error {
	var faults []string
	want := func(holds bool, key string, value any, allowed string) {
		if !holds {
			faults = append(faults, fmt.Sprintf("%s %v: want %s", key, value, allowed))
		}
	}
	want(s.Jobs >= 1 && s.Jobs <= maxSynthetic, "jobs", s.Jobs, fmt.Sprintf("1 to %d", maxSynthetic))
	want(s.Days > 0 && s.Days <= MaxDays, "days", s.Days, fmt.Sprintf("more than 0, at most %d", MaxDays))
	want(s.GPUsPerNode >= 1 && s.GPUsPerNode <= 64, "gpus-per-node", s.GPUsPerNode, "1 to 64")
	want(s.MaxNodes >= 1 && s.MaxNodes <= maxGPUs/64, "max-nodes", s.MaxNodes, fmt.Sprintf("1 to %d", maxGPUs/64))
	want(s.Small >= 0 && s.Small <= 1, "small", s.Small, "a part from 0 to 1")
	if len(faults) > 0 {
		return fmt.Errorf("%w: make up jobs: %s", ErrTrace, strings.Join(faults, "; "))
	}
	return nil
}

func (s Synthetic) one(rng *rand.Rand) Job {
	j := Job{Submit: s.arrival(rng)}
	if rng.Float64() < s.Small {
		return s.small(rng, j)
	}
	nodes := 1
	for nodes*2 <= s.MaxNodes && rng.Float64() < 0.5 {
		nodes *= 2
	}
	j.GPUs, j.Class = nodes*s.GPUsPerNode, ClassFoundation
	j.Duration = lognormal(rng, 4*3600*math.Sqrt(float64(nodes)), 1.2)
	j.Duration = min(j.Duration, 30*day)
	return j
}

func (s Synthetic) small(rng *rand.Rand, j Job) Job {
	switch p := rng.Float64(); {
	case p < 0.3:
		j.GPUs, j.Class, j.Duration = 1, ClassInteractive, lognormal(rng, 1800, 1)
	case p < 0.7:
		j.GPUs, j.Class, j.Duration = 1, ClassSweep, lognormal(rng, 3600, 1.3)
	default:
		j.GPUs, j.Class, j.Duration = min(s.GPUsPerNode, 1<<rng.IntN(4)), ClassFineTune, lognormal(rng, 2*3600, 1.2)
	}
	j.Duration = min(j.Duration, 7*day)
	return j
}

// arrival draws a time by thinning: twice as many jobs come at three in the
// afternoon as at three at night.
func (s Synthetic) arrival(rng *rand.Rand) float64 {
	for {
		at := rng.Float64() * s.Days * day
		rate := 1.5 - 0.5*math.Cos(2*math.Pi*(at/day-3.0/24))
		if rng.Float64()*2 < rate {
			return at
		}
	}
}

func lognormal(rng *rand.Rand, median, sigma float64) float64 {
	return median * math.Exp(sigma*rng.NormFloat64())
}
