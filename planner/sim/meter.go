package sim

import (
	"math"
	"slices"
	"time"
)

// meter counts what happens while it happens.
type meter struct {
	gpus int
	// horizon is when the last job is submitted: T. What is averaged over time is
	// averaged over [0, T].
	horizon float64
	// allocated, busy and the three below are integrals over time, in GPU-seconds.
	allocated, busy                   float64
	fillable, fragmented, indivisible float64
	// productive is the work done by T, in GPU-seconds at full speed.
	productive float64
	passed     bool

	decisions int
	deciding  time.Duration
}

// pass counts the time up to another one, during which nothing changed.
func (m *meter) pass(r *run, to float64) {
	if span := min(to, m.horizon) - r.now; span > 0 {
		m.allocated += float64(r.allocated) * span
		m.busy += float64(r.busy) * span
		fillable, fragmented, indivisible := r.ledger.split()
		m.fillable += float64(fillable) * span
		m.fragmented += float64(fragmented) * span
		m.indivisible += float64(indivisible) * span
	}
	if to >= m.horizon && !m.passed {
		m.passed = true
		for i := range r.jobs {
			j := r.jobs[i] // a copy: it is only looked at
			j.advance(m.horizon)
			m.productive += (j.Duration - j.left) * float64(j.GPUs)
		}
	}
}

func (m *meter) decided(took time.Duration) {
	m.decisions++
	m.deciding += took
}

// Metrics is what came of a run. Times are in seconds, parts between 0 and 1;
// docs/simulator.md says how they are measured.
type Metrics struct {
	UtilisationAllocated  float64  `json:"utilisation_allocated"`
	UtilisationBusy       float64  `json:"utilisation_busy"`
	UtilisationProductive float64  `json:"utilisation_productive"`
	UtilisationBound      float64  `json:"utilisation_bound"`
	JCTMean               float64  `json:"jct_mean_s"`
	JCTP50                float64  `json:"jct_p50_s"`
	JCTP99                float64  `json:"jct_p99_s"`
	JCTP999               float64  `json:"jct_p999_s"`
	JCTMax                float64  `json:"jct_max_s"`
	JCTWeighted           float64  `json:"jct_gpu_weighted_s"`
	JCTP99Bound           float64  `json:"jct_p99_bound_s"`
	QueueMean             float64  `json:"queue_mean_s"`
	QueueP95              float64  `json:"queue_p95_s"`
	RequeueMean           float64  `json:"requeue_mean_s"`
	InteractiveP95        float64  `json:"interactive_start_p95_s"`
	FreeFillable          float64  `json:"free_fillable"`
	FreeFragmented        float64  `json:"free_fragmented"`
	FreeIndivisible       float64  `json:"free_indivisible"`
	CostPerRun            float64  `json:"cost_per_run"`
	CostPerRunBusy        float64  `json:"cost_per_run_busy"`
	FairnessP99           float64  `json:"finish_time_fairness_p99"`
	Preemptions           int      `json:"preemptions"`
	GPUHoursLost          float64  `json:"gpu_hours_lost"`
	Unfinished            int      `json:"unfinished"`
	Jobs                  int      `json:"jobs"`
	Cohort                int      `json:"cohort"`
	MakespanS             float64  `json:"makespan_s"`
	DecideMean            float64  `json:"decide_mean_us"`
	Decisions             int      `json:"decisions"`
	Sizes                 []BySize `json:"by_size"`
}

// BySize are the jobs of the cohort that ask for a range of GPUs.
type BySize struct {
	// Class is "1", "2-8", "9-64" or "65+".
	Class    string  `json:"class"`
	Jobs     int     `json:"jobs"`
	JCTMean  float64 `json:"jct_mean_s"`
	JCTP99   float64 `json:"jct_p99_s"`
	QueueP95 float64 `json:"queue_p95_s"`
}

// sizeClasses are the upper bounds of the size classes.
var sizeClasses = []struct {
	name string
	most int
}{{"1", 1}, {"2-8", 8}, {"9-64", 64}, {"65+", math.MaxInt}}

// Outcome is one run, ended.
type Outcome struct {
	jobs    []job
	meter   meter
	cluster Cluster
	end     float64
	samples []Sample
	spans   []Span
}

// cohort are the jobs whose completion times count: those submitted in the
// middle half of [0, T], when the cluster is neither filling nor draining.
func (o *Outcome) cohort() []*job {
	var out []*job
	for i := range o.jobs {
		if at := o.jobs[i].Submit; 0.25*o.meter.horizon <= at && at <= 0.75*o.meter.horizon {
			out = append(out, &o.jobs[i])
		}
	}
	return out
}

// gpuHour is the price of an owned GPU for an hour; only ratios to it count.
const gpuHour = 1.0

// Metrics computes all of them.
func (o *Outcome) Metrics() Metrics {
	m := &o.meter
	whole := float64(m.gpus) * m.horizon
	out := Metrics{
		UtilisationAllocated: part(m.allocated, whole), UtilisationBusy: part(m.busy, whole), UtilisationProductive: part(m.productive, whole),
		UtilisationBound: part(o.bound(), whole),
		FreeFillable:     part(m.fillable, whole), FreeFragmented: part(m.fragmented, whole), FreeIndivisible: part(m.indivisible, whole),
		Jobs: len(o.jobs), MakespanS: o.end, Decisions: m.decisions,
	}
	if m.decisions > 0 {
		out.DecideMean = float64(m.deciding.Microseconds()) / float64(m.decisions)
	}
	held := 0.0
	for i := range o.jobs {
		j := &o.jobs[i]
		out.Preemptions += j.stops
		out.GPUHoursLost += j.lost / 3600
		held += j.held
		if j.phase != done {
			out.Unfinished++
		}
	}
	// The fleet is owned for as long as the jobs need, or used by the hour.
	out.CostPerRun = gpuHour * float64(m.gpus) * o.end / 3600 / float64(len(o.jobs))
	out.CostPerRunBusy = gpuHour * held / 3600 / float64(len(o.jobs))
	o.times(&out)
	return out
}

// times fills in what is known of the cohort's jobs one by one.
func (o *Outcome) times(out *Metrics) {
	cohort := o.cohort()
	out.Cohort = len(cohort)
	var jct, queue, interactive, fairness, durations []float64
	work, weighted, again := 0.0, 0.0, 0.0
	for _, j := range cohort {
		took := j.ended - j.Submit
		jct, queue, durations = append(jct, took), append(queue, j.first-j.Submit), append(durations, j.Duration)
		work += j.Work()
		weighted += took * j.Work()
		again += j.again
		fairness = append(fairness, took/j.Duration)
		if j.GPUs == 1 && (j.Class == "interactive" || j.Class == "" && j.Duration <= interactiveMost) {
			interactive = append(interactive, j.first-j.Submit)
		}
	}
	if len(cohort) == 0 {
		return
	}
	out.JCTMean, out.QueueMean = mean(jct), mean(queue)
	out.JCTWeighted = weighted / work
	out.RequeueMean = again / float64(len(cohort))
	out.JCTP50, out.JCTP99, out.JCTP999, out.JCTMax = Quantile(jct, 0.5), Quantile(jct, 0.99), Quantile(jct, 0.999), Quantile(jct, 1)
	out.QueueP95, out.JCTP99Bound, out.FairnessP99 = Quantile(queue, 0.95), Quantile(durations, 0.99), Quantile(fairness, 0.99)
	if len(interactive) > 0 {
		out.InteractiveP95 = Quantile(interactive, 0.95)
	}
	out.Sizes = bySize(cohort)
}

// interactiveMost is up to how long a job of one GPU counts as interactive where
// its trace says no class, in seconds.
const interactiveMost = 3600

func bySize(cohort []*job) []BySize {
	var out []BySize
	least := 0
	for _, class := range sizeClasses {
		var jct, queue []float64
		for _, j := range cohort {
			if least < j.GPUs && j.GPUs <= class.most {
				jct, queue = append(jct, j.ended-j.Submit), append(queue, j.first-j.Submit)
			}
		}
		least = class.most
		if len(jct) > 0 {
			out = append(out, BySize{Class: class.name, Jobs: len(jct), JCTMean: mean(jct), JCTP99: Quantile(jct, 0.99), QueueP95: Quantile(queue, 0.95)})
		}
	}
	return out
}

// bound is the most work that any schedule can have done by T, in GPU-seconds: up
// to any time s no more than what the jobs let be done if each had its GPUs from
// the start, and after s no more than the cluster can do.
func (o *Outcome) bound() float64 {
	type change struct{ at, rate float64 }
	changes := make([]change, 0, 2*len(o.jobs))
	for i := range o.jobs {
		j := &o.jobs[i]
		changes = append(changes, change{j.Submit, float64(j.GPUs)}, change{j.Submit + j.Duration, -float64(j.GPUs)})
	}
	slices.SortFunc(changes, func(a, b change) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	gpus, horizon := float64(o.meter.gpus), o.meter.horizon
	best := gpus * horizon
	done, rate, at := 0.0, 0.0, 0.0
	for _, c := range changes {
		to := min(c.at, horizon)
		done += rate * (to - at)
		at = to
		best = min(best, done+gpus*(horizon-at))
		rate += c.rate
		if c.at >= horizon {
			break
		}
	}
	return min(best, done+rate*(horizon-at))
}

func part(a, of float64) float64 {
	if of <= 0 {
		return 0
	}
	return a / of
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// Quantile is the smallest value of a list that at least that part of it does
// not exceed.
func Quantile(list []float64, part float64) float64 {
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	at := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(0, min(at, len(sorted)-1))]
}
