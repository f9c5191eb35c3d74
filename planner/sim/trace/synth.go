package trace

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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

// Make makes the trace up, the earliest job first; see Each.
func (s Synthetic) Make() ([]Job, error) {
	var jobs []Job
	err := s.Each(func(j Job) error {
		jobs = append(jobs, j)
		return nil
	})
	return jobs, err
}

// madeAtOnce is how many jobs Each keeps in memory, or a few more: some 50 megabytes.
const madeAtOnce = 1 << 20

// Each hands out the trace's jobs, the earliest first; its memory does not grow with
// them. Arrivals are a Poisson process whose rate is highest in the afternoon; run times
// are lognormal, of a median that grows with the square root of the gang's size.
func (s Synthetic) Each(each func(Job) error) error { return s.inParts(madeAtOnce, each) }

// made is a job that is made up, in as little memory as may be: its number, and all that
// is not of its class alone.
type made struct {
	submit, duration float64
	number, gpus     int32
	class            string
}

// inParts makes all jobs again for each part of the time, and keeps those of about so
// many that are submitted in it: which they are, the seed alone says.
func (s Synthetic) inParts(most int, each func(Job) error) error {
	if err := s.Check(); err != nil {
		return err
	}
	first, bounds := s.parts(most)
	kept := make([]made, 0, min(s.Jobs, most))
	for i := range bounds[1:] {
		kept = kept[:0]
		s.all(func(number int, j Job) {
			if bounds[i] <= j.Submit && j.Submit < bounds[i+1] {
				kept = append(kept, made{j.Submit, j.Duration, int32(number), int32(j.GPUs), j.Class})
			}
		})
		slices.SortFunc(kept, func(a, b made) int {
			if c := cmp.Compare(a.submit, b.submit); c != 0 {
				return c
			}
			return strings.Compare(name(a.number), name(b.number)) // as Sort has it
		})
		for _, m := range kept {
			j := Job{ID: name(m.number), Submit: m.submit - first, Duration: m.duration, GPUs: int(m.gpus), Class: m.class}
			if err := each(j); err != nil {
				return err
			}
		}
	}
	return nil
}

func name(number int32) string { return fmt.Sprintf("synth-%06d", number) }

// all makes every job, in the order of the numbers.
func (s Synthetic) all(each func(number int, j Job)) {
	rng := rand.New(rand.NewPCG(s.Seed, 0x5e17))
	for i := range s.Jobs {
		each(i+1, s.one(rng))
	}
}

// slots is into how many equal parts of the time the jobs are counted.
const slots = 1 << 12

// parts is when the first job is submitted, and what divides the time into parts of
// about so many jobs each.
func (s Synthetic) parts(most int) (first float64, bounds []float64) {
	first = math.Inf(1)
	length := s.Days * day / slots
	var counts [slots]int
	s.all(func(_ int, j Job) {
		first = min(first, j.Submit)
		counts[min(int(j.Submit/length), slots-1)]++
	})
	bounds = []float64{0}
	sum := 0
	for i, n := range counts {
		if sum > 0 && sum+n > most {
			bounds, sum = append(bounds, float64(i)*length), 0
		}
		sum += n
	}
	return first, append(bounds, math.Inf(1))
}

// Check reports every fault.
func (s Synthetic) Check() error {
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
