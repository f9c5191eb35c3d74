package trace

import (
	"cmp"
	"math"
	"slices"
)

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
	// DurationError is by what part of them P50 and P99 may be wrong; 0: they are exact.
	DurationError float64 `json:"duration_quantile_error,omitempty"`
	// Sizes are by number of GPUs, the smallest first.
	Sizes  []Size `json:"sizes"`
	Queues int    `json:"queues"`
	// QueuesError is the standard error of Queues, as a part of it; 0: it is exact.
	QueuesError float64 `json:"queues_error,omitempty"`
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

// Describer sums a trace up job by job. Its memory does not grow with the trace.
type Describer struct {
	sum         Summary
	first, last float64
	total       float64 // of durations
	durations   quantiles
	sizes       map[int]*Size
	queues      distinct
}

// NewDescriber is one that has seen no job.
func NewDescriber() *Describer {
	return &Describer{first: math.Inf(1), last: math.Inf(-1), sizes: map[int]*Size{}, queues: distinct{seen: map[uint64]struct{}{}}}
}

// Add adds a job.
func (d *Describer) Add(j *Job) {
	s := &d.sum
	s.Jobs++
	d.first, d.last = min(d.first, j.Submit), max(d.last, j.Submit)
	d.total += j.Duration
	d.durations.add(j.Duration)
	s.GPUHours += j.Work() / 3600
	s.MaxGPUs = max(s.MaxGPUs, j.GPUs)
	size := d.sizes[j.GPUs]
	if size == nil {
		size = &Size{GPUs: j.GPUs}
		d.sizes[j.GPUs] = size
	}
	size.Jobs++
	size.GPUHours += j.Work() / 3600
	d.queues.add(j.Queue)
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

// Summary is what the jobs added so far are like.
func (d *Describer) Summary() Summary {
	s := d.sum
	for _, size := range d.sizes {
		s.Sizes = append(s.Sizes, *size)
	}
	slices.SortFunc(s.Sizes, func(a, b Size) int { return cmp.Compare(a.GPUs, b.GPUs) })
	s.Queues, s.QueuesError = d.queues.count()
	if s.Jobs == 0 {
		return s
	}
	s.DurationMean = d.total / float64(s.Jobs)
	s.DurationP50, s.DurationP99, s.DurationError = d.durations.at(0.5), d.durations.at(0.99), d.durations.wrong()
	s.Days = (d.last - d.first) / day
	if d.last > d.first {
		s.MeanGPUs = s.GPUHours * 3600 / (d.last - d.first)
	}
	return s
}
