package trace

import (
	"cmp"
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
		return nil, 0, fmt.Errorf("%w: scale %d jobs to load %g: want jobs that are submitted at different times", ErrTrace, len(jobs), load)
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

// Window are the jobs submitted in [from, from+length).
func Window(jobs []Job, from, length float64) []Job {
	var out []Job
	for i := range jobs {
		if at := jobs[i].Submit; from <= at && at < from+length {
			out = append(out, jobs[i])
		}
	}
	return out
}

// Fit divides the jobs into those whose number of GPUs a cluster can hold, and
// those that it can never run.
func Fit(jobs []Job, holds func(gpus int) bool) (fit, tooLarge []Job) {
	return FitJobs(jobs, func(j *Job) bool { return holds(j.GPUs) })
}

// FitJobs is Fit by more than the number of GPUs.
func FitJobs(jobs []Job, holds func(*Job) bool) (fit, tooLarge []Job) {
	for i := range jobs {
		if holds(&jobs[i]) {
			fit = append(fit, jobs[i])
		} else {
			tooLarge = append(tooLarge, jobs[i])
		}
	}
	return fit, tooLarge
}

// Bootstrap draws whole days with replacement, as many as the trace has, so that
// what belongs together within a day stays together (block bootstrap: Künsch,
// The Jackknife and the Bootstrap for General Stationary Observations, Annals of
// Statistics 17, 1989). The jobs get new IDs.
func Bootstrap(jobs []Job, seed uint64) []Job { return Draw(jobs, 0, seed) }

// Draw is Bootstrap with another number of days than the trace has: a window of
// it, made of whole days from anywhere (as SWIM samples windows: Chen et al., The
// Case for Evaluating MapReduce Performance Using Workload Suites, MASCOTS'11). 0
// is as many as it has.
func Draw(jobs []Job, days int, seed uint64) []Job {
	rng := rand.New(rand.NewPCG(seed, 0xb007))
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
	for to := range days {
		from := rng.IntN(len(blocks))
		move := float64(to-from) * day
		for _, i := range blocks[from] {
			j := jobs[i]
			j.ID = fmt.Sprintf("%s.%d", j.ID, to)
			j.Submit += move
			if j.Deadline != 0 {
				j.Deadline += move
			}
			out = append(out, j)
		}
	}
	Sort(out)
	return Shift(out)
}

// Summary is what a trace is like.
type Summary struct {
	Jobs     int     `json:"jobs"`
	Days     float64 `json:"days"`
	GPUHours float64 `json:"gpu_hours"`
	// MeanGPUs is how many GPUs the jobs keep busy on average.
	MeanGPUs float64 `json:"mean_gpus"`
	MaxGPUs  int     `json:"max_gpus"`
	// DurationP50, DurationP99 and DurationMean are in seconds.
	DurationMean float64 `json:"duration_mean_s"`
	DurationP50  float64 `json:"duration_p50_s"`
	DurationP99  float64 `json:"duration_p99_s"`
	// Sizes are by number of GPUs, the smallest first.
	Sizes  []Size `json:"sizes"`
	Queues int    `json:"queues"`
	// Elastic counts the elastic jobs, Deadlines those with one.
	Elastic   int `json:"elastic"`
	Deadlines int `json:"deadlines"`
	// Parts counts those that need a part of a GPU.
	Parts int `json:"parts,omitempty"`
}

// Size are the jobs of one number of GPUs.
type Size struct {
	GPUs     int     `json:"gpus"`
	Jobs     int     `json:"jobs"`
	GPUHours float64 `json:"gpu_hours"`
}

// Describe sums a trace up.
func Describe(jobs []Job) Summary {
	s := Summary{Jobs: len(jobs)}
	first, last := Span(jobs)
	s.Days = (last - first) / day
	durations, sizes, queues := make([]float64, len(jobs)), map[int]*Size{}, map[string]bool{}
	total := 0.0
	for i := range jobs {
		j := &jobs[i]
		durations[i] = j.Duration
		total += j.Duration
		s.GPUHours += j.Work() / 3600
		s.MaxGPUs = max(s.MaxGPUs, j.GPUs)
		if sizes[j.GPUs] == nil {
			sizes[j.GPUs] = &Size{GPUs: j.GPUs}
		}
		sizes[j.GPUs].Jobs++
		sizes[j.GPUs].GPUHours += j.Work() / 3600
		queues[j.Queue] = true
		if j.Max > 0 {
			s.Elastic++
		}
		if j.Deadline != 0 {
			s.Deadlines++
		}
		if j.Share > 0 || j.Profile != "" {
			s.Parts++
		}
	}
	for _, size := range sizes {
		s.Sizes = append(s.Sizes, *size)
	}
	slices.SortFunc(s.Sizes, func(a, b Size) int { return cmp.Compare(a.GPUs, b.GPUs) })
	s.Queues = len(queues)
	if len(jobs) == 0 {
		return s
	}
	slices.Sort(durations)
	s.DurationMean = total / float64(len(jobs))
	s.DurationP50, s.DurationP99 = quantile(durations, 0.5), quantile(durations, 0.99)
	if last > first {
		s.MeanGPUs = s.GPUHours * 3600 / (last - first)
	}
	return s
}

// quantile is the smallest of sorted values that at least a part of them does
// not exceed.
func quantile(sorted []float64, part float64) float64 {
	at := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(0, min(at, len(sorted)-1))]
}
