package trace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// day is how long a block of the bootstrap is, in seconds.
const day = 86400.0

// Span is when the first and the last job are submitted, in seconds.
func Span(jobs []Job) (first, last float64) {
	if len(jobs) == 0 {
		return 0, 0
	}
	first, last = math.Inf(1), math.Inf(-1)
	for i := range jobs {
		first, last = min(first, jobs[i].Submit), max(last, jobs[i].Submit)
	}
	return first, last
}

// Shift moves a trace so that its first job is submitted at 0.
func Shift(jobs []Job) []Job {
	first, _ := Span(jobs)
	out := slices.Clone(jobs)
	for i := range out {
		out[i].Submit -= first
		if out[i].Deadline != 0 {
			out[i].Deadline -= first
		}
	}
	return out
}

// Load is what the jobs ask for, by what a cluster of so many GPUs has until
// the last of them is submitted. The first is submitted at 0.
func Load(jobs []Job, gpus int) float64 {
	_, last := Span(jobs)
	work := 0.0
	for i := range jobs {
		work += jobs[i].Work()
	}
	if last <= 0 || gpus <= 0 {
		return math.Inf(1)
	}
	return work / (float64(gpus) * last)
}

// MinLoad and MaxLoad bound the loads to which a trace is moved.
const MinLoad, MaxLoad = 1e-4, 100.0

// CheckScale reports whether ScaleTo can move jobs to this load of a cluster of so
// many GPUs; every fault is in the error.
func CheckScale(gpus int, load float64) error {
	var faults []string
	if gpus < 1 || gpus > maxGPUs {
		faults = append(faults, fmt.Sprintf("gpus %d: want 1 to %d", gpus, maxGPUs))
	}
	if !(load >= MinLoad && load <= MaxLoad) {
		faults = append(faults, fmt.Sprintf("load %g: want %g to %g", load, MinLoad, MaxLoad))
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %s", ErrTrace, strings.Join(faults, "; "))
	}
	return nil
}

// ScaleTo moves the submissions closer or further apart, all by one factor, so
// that the load on a cluster is the one wanted. Durations stay; deadlines keep
// their distance from the submission.
func ScaleTo(jobs []Job, gpus int, load float64) (scaled []Job, factor float64, err error) {
	have := Load(jobs, gpus)
	if err := CheckScale(gpus, load); err != nil {
		return nil, 0, err
	}
	if len(jobs) == 0 || math.IsInf(have, 0) {
		return nil, 0, noLoad(len(jobs), load)
	}
	factor = have / load
	out := slices.Clone(jobs)
	for i := range out {
		to := out[i].Submit * factor
		if out[i].Deadline != 0 {
			out[i].Deadline += to - out[i].Submit
		}
		out[i].Submit = to
	}
	return out, factor, nil
}

// noLoad is why jobs cannot be moved to a load.
func noLoad(jobs int, load float64) error {
	return fmt.Errorf("%w: scale %d jobs to load %g: want jobs that are submitted at different times: a load is by the time until the last of them", ErrTrace, jobs, load)
}

// Fit divides the jobs into those whose number of GPUs a cluster can hold, and
// those that it can never run.
func Fit(jobs []Job, holds func(gpus int) bool) (fit, tooLarge []Job) {
	return FitJobs(jobs, func(j *Job) bool { return holds(j.GPUs) })
}

// FitJobs is Fit by more than the number of GPUs.
func FitJobs(jobs []Job, holds func(*Job) bool) (fit, tooLarge []Job) {
	fit = make([]Job, 0, len(jobs))
	for i := range jobs {
		if holds(&jobs[i]) {
			fit = append(fit, jobs[i])
		} else {
			tooLarge = append(tooLarge, jobs[i])
		}
	}
	return fit, tooLarge
}

// Draw draws whole days with replacement, so that what belongs together within a day
// stays together (block bootstrap: Künsch, The Jackknife and the Bootstrap for General
// Stationary Observations, Annals of Statistics 17, 1989). The jobs get new IDs. It
// draws so many days, a window of the trace made of days from anywhere (as SWIM samples
// windows: Chen et al., The Case for Evaluating MapReduce Performance Using Workload
// Suites, MASCOTS'11); 0 is as many as it has.
func Draw(jobs []Job, days int, seed uint64) []Job {
	_, last := Span(jobs)
	blocks := make([][]int, int(last/day)+1)
	for i := range jobs {
		at := int(jobs[i].Submit / day)
		blocks[at] = append(blocks[at], i)
	}
	if days <= 0 {
		days = len(blocks)
	}
	var out []Job
	for to, from := range drawDays(days, len(blocks), seed) {
		for _, i := range blocks[from] {
			out = append(out, jobs[i].asDrawn(from, to))
		}
	}
	Sort(out)
	return Shift(out)
}

// drawDays draws so many of a trace's days, with replacement.
func drawDays(days, of int, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 0xb007))
	out := make([]int, days)
	for to := range out {
		out[to] = rng.IntN(of)
	}
	return out
}

// asDrawn is a job of one day when that day is put in the place of another.
func (j Job) asDrawn(from, to int) Job {
	j.ID = fmt.Sprintf("%s.%d", j.ID, to)
	return j.later(float64(to-from) * day)
}

// later is a job that is submitted so many seconds later, and has to end as much later.
func (j Job) later(seconds float64) Job {
	j.Submit += seconds
	if j.Deadline != 0 {
		j.Deadline += seconds
	}
	return j
}
