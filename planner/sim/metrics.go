package sim

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Metrics is what came of a run. Times are in seconds, parts between 0 and 1;
// docs/simulator.md says how they are measured.
type Metrics struct {
	UtilisationAllocated  float64 `json:"utilisation_allocated"`
	UtilisationBusy       float64 `json:"utilisation_busy"`
	UtilisationProductive float64 `json:"utilisation_productive"`
	UtilisationBound      float64 `json:"utilisation_bound"`
	JCTMean               float64 `json:"jct_mean_s"`
	JCTP50                float64 `json:"jct_p50_s"`
	JCTP99                float64 `json:"jct_p99_s"`
	JCTP999               float64 `json:"jct_p999_s"`
	JCTMax                float64 `json:"jct_max_s"`
	JCTWeighted           float64 `json:"jct_gpu_weighted_s"`
	JCTMeanBound          float64 `json:"jct_mean_bound_s"`
	JCTP50Bound           float64 `json:"jct_p50_bound_s"`
	JCTP99Bound           float64 `json:"jct_p99_bound_s"`
	JCTP999Bound          float64 `json:"jct_p999_bound_s"`
	JCTMaxBound           float64 `json:"jct_max_bound_s"`
	JCTWeightedBound      float64 `json:"jct_gpu_weighted_bound_s"`
	QueueMean             float64 `json:"queue_mean_s"`
	QueueP95              float64 `json:"queue_p95_s"`
	// The three parts of QueueMean: others have, or were given, the GPUs; they are
	// free, but not together; nodes are being rented.
	QueueFairShare     float64 `json:"queue_fair_share_mean_s"`
	QueueFragmentation float64 `json:"queue_fragmentation_mean_s"`
	QueueProvisioning  float64 `json:"queue_provisioning_mean_s"`
	// RequeueMean is what a job waited after it had run, over all jobs of the
	// cohort, and RequeueP95 over those that did.
	RequeueMean     float64 `json:"requeue_mean_s"`
	RequeueP95      float64 `json:"requeue_p95_s"`
	InteractiveP95  float64 `json:"interactive_start_p95_s"`
	FreeFillable    float64 `json:"free_fillable"`
	FreeFragmented  float64 `json:"free_fragmented"`
	FreeIndivisible float64 `json:"free_indivisible"`
	// FreeFGD is the part of all GPUs that is free and of no use to a member drawn
	// from the trace (Weng et al., Beware of Fragmentation, ATC'23).
	FreeFGD float64 `json:"free_fgd"`
	// FreeParts is what is free of GPUs that are shared or divided while a job waits
	// that asks for a part of one.
	FreeParts      float64 `json:"free_parts,omitempty"`
	CostPerRun     float64 `json:"cost_per_run"`
	CostPerRunBusy float64 `json:"cost_per_run_busy"`
	// Bought is what bought nodes have cost, in the pools' currency, and BoughtPerRun
	// that for each job; what the cluster itself costs is not in it.
	Bought       float64 `json:"bought"`
	BoughtPerRun float64 `json:"bought_per_run"`
	// Deadlines counts the jobs that have one, and DeadlinesMet the part of them that
	// were done by then.
	Deadlines    int     `json:"deadlines"`
	DeadlinesMet float64 `json:"deadlines_met"`
	// Finish-time fairness is ρ (Mahajan et al., Themis, NSDI'20).
	FairnessMean float64 `json:"finish_time_fairness_mean"`
	FairnessP99  float64 `json:"finish_time_fairness_p99"`
	FairnessMax  float64 `json:"finish_time_fairness_max"`
	Preemptions  int     `json:"preemptions"`
	GPUHoursLost float64 `json:"gpu_hours_lost"`
	Unfinished   int     `json:"unfinished"`
	Jobs         int     `json:"jobs"`
	Cohort       int     `json:"cohort"`
	// Interactive is how many of the cohort are interactive, of one GPU.
	Interactive int     `json:"interactive_jobs"`
	MakespanS   float64 `json:"makespan_s"`
	DecideMean  float64 `json:"decide_mean_us"`
	Decisions   int     `json:"decisions"`
	// DecideEvent is the time that all decisions took together, by the events: jobs
	// submitted, started, resized, stopped and ended, and nodes that went or came.
	DecideEvent float64 `json:"decide_event_us"`
	Events      int     `json:"events"`
	Sizes       []Part  `json:"by_size"`
	Queues      []Part  `json:"by_queue"`
}

// Part are some jobs of the cohort.
type Part struct {
	// Name is of a range of GPUs, "<1", "1", "2-8", "9-64" or "65+", or of a queue.
	Name     string  `json:"name"`
	Jobs     int     `json:"jobs"`
	JCTMean  float64 `json:"jct_mean_s"`
	JCTP99   float64 `json:"jct_p99_s"`
	QueueP95 float64 `json:"queue_p95_s"`
	// Of a queue: the mean wait, the GPU-hours that its jobs have had, how often they
	// gave way, and the mean of their finish-time fairness.
	QueueMean    float64 `json:"queue_mean_s,omitempty"`
	GPUHours     float64 `json:"gpu_hours,omitempty"`
	Preemptions  int     `json:"preemptions,omitempty"`
	FairnessMean float64 `json:"finish_time_fairness_mean,omitempty"`
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
	useless float64
	// renting are the GPU-seconds of bought nodes until T.
	renting float64
	cluster Cluster
	end     float64
	samples []Sample
	spans   []Span
	// bought is what bought nodes have cost.
	bought float64
	// unfinished are the jobs that would wait for ever.
	unfinished []Unfinished
}

// Unfinished is a job that would wait for ever, and what the planner says of that.
type Unfinished struct {
	Job string `json:"job"`
	Why string `json:"why"`
}

// Unfinished are the jobs that would wait for ever, in the order of submission:
// they run on bought nodes only, and nothing is bought for them.
func (o *Outcome) Unfinished() []Unfinished { return o.unfinished }

// brief is what is left of it where nobody draws it.
func (o *Outcome) brief() *Outcome { return &Outcome{unfinished: o.unfinished} }

// cohort are the jobs whose completion times count: those submitted in the
// middle half of [0, T], when the cluster is neither filling nor draining.
func (o *Outcome) cohort() []*job {
	var out []*job
	for i := range o.jobs {
		if at := o.jobs[i].Submit; o.jobs[i].phase == done && 0.25*o.meter.horizon <= at && at <= 0.75*o.meter.horizon {
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
	whole := float64(m.gpus)*m.horizon + o.renting
	out := Metrics{
		UtilisationAllocated: part(m.allocated, whole), UtilisationBusy: part(m.busy, whole), UtilisationProductive: part(m.productive, whole),
		UtilisationBound: part(o.bound(), whole),
		FreeFillable:     part(m.fillable, whole), FreeFragmented: part(m.fragmented, whole), FreeIndivisible: part(m.indivisible, whole),
		FreeFGD: part(o.useless, whole), FreeParts: part(m.parts, whole), Jobs: len(o.jobs), MakespanS: o.end, Decisions: m.decisions, Events: m.events,
	}
	if m.decisions > 0 {
		out.DecideMean = float64(m.deciding.Microseconds()) / float64(m.decisions)
	}
	if m.events > 0 {
		out.DecideEvent = float64(m.deciding.Microseconds()) / float64(m.events)
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
		if j.Deadline > 0 {
			out.Deadlines++
			if j.phase == done && j.ended <= j.Deadline {
				out.DeadlinesMet++
			}
		}
	}
	out.DeadlinesMet = part(out.DeadlinesMet, float64(out.Deadlines))
	// The fleet is owned for as long as the jobs need, or used by the hour.
	out.CostPerRun = gpuHour * float64(m.gpus) * o.end / 3600 / float64(len(o.jobs))
	out.CostPerRunBusy = gpuHour * held / 3600 / float64(len(o.jobs))
	out.Bought = o.bought
	out.BoughtPerRun = part(o.bought, float64(len(o.jobs)))
	o.times(&out)
	return out
}

// times fills in what is known of the cohort's jobs one by one.
func (o *Outcome) times(out *Metrics) {
	cohort := o.cohort()
	out.Cohort, out.Sizes, out.Queues = len(cohort), []Part{}, []Part{}
	if len(cohort) == 0 {
		return
	}
	var jct, queue, apart, booting, again, interactive, fairness []float64
	work, weighted, requeued := 0.0, 0.0, 0.0
	for _, j := range cohort {
		took := j.ended - j.Submit
		jct, queue, apart = append(jct, took), append(queue, j.first-j.Submit), append(apart, j.apart)
		booting = append(booting, j.booting)
		work += j.Work()
		weighted += took * j.Work()
		requeued += j.again
		if j.again > 0 {
			again = append(again, j.again)
		}
		fairness = append(fairness, j.fairness(o.meter.gpus))
		if j.interactive() {
			interactive = append(interactive, j.first-j.Submit)
		}
	}
	n := float64(len(cohort))
	out.JCTMean, out.QueueMean, out.RequeueMean = mean(jct), mean(queue), requeued/n
	out.QueueFragmentation, out.QueueProvisioning = mean(apart), mean(booting)
	out.QueueFairShare = out.QueueMean - out.QueueFragmentation - out.QueueProvisioning
	out.JCTWeighted = weighted / work
	out.JCTP50, out.JCTP99, out.JCTP999, out.JCTMax = Quantile(jct, 0.5), Quantile(jct, 0.99), Quantile(jct, 0.999), Quantile(jct, 1)
	out.QueueP95 = Quantile(queue, 0.95)
	out.FairnessMean, out.FairnessP99, out.FairnessMax = mean(fairness), Quantile(fairness, 0.99), Quantile(fairness, 1)
	if len(again) > 0 {
		out.RequeueP95 = Quantile(again, 0.95)
	}
	out.Interactive = len(interactive)
	if len(interactive) > 0 {
		out.InteractiveP95 = Quantile(interactive, 0.95)
	}
	b := boundsOf(cohort, o.cluster.most())
	out.JCTMeanBound, out.JCTWeightedBound = b.mean, b.weighted
	out.JCTP50Bound, out.JCTP99Bound, out.JCTP999Bound, out.JCTMaxBound = b.p50, b.p99, b.p999, b.max
	out.Sizes, out.Queues = bySize(cohort), byQueue(cohort, o.meter.gpus)
}

// fairness is Themis's ρ: the time in the system, by what it would have been in a
// cluster of its own with an equal part of the GPUs, for as many jobs as were
// there on average meanwhile. What asks for more than that part takes the longer
// there.
func (j *job) fairness(gpus int) float64 {
	took := j.ended - j.Submit
	jobs := 1.0
	if took > 0 { // it may take less than what can be added to the time
		jobs = max(1, j.presence/took)
	}
	return took / (j.Duration * max(1, j.Width()*jobs/float64(gpus)))
}

// interactive reports whether somebody waits for a job's start.
func (j *job) interactive() bool {
	return j.GPUs == 1 && (j.Class == interactiveClass || j.Class == "" && j.Duration <= interactiveMost)
}

// interactiveMost is up to how long a job of one GPU counts as interactive where
// its trace says no class, in seconds.
const interactiveMost = 3600

func bySize(cohort []*job) []Part {
	var out []Part
	if some := filter(cohort, (*job).inParts); len(some) > 0 {
		out = append(out, partOf("<1", some))
	}
	least := 0
	for _, class := range sizeClasses {
		var some []*job
		for _, j := range cohort {
			if least < j.GPUs && j.GPUs <= class.most && !j.inParts() {
				some = append(some, j)
			}
		}
		least = class.most
		if len(some) > 0 {
			out = append(out, partOf(class.name, some))
		}
	}
	return out
}

func filter(list []*job, holds func(*job) bool) (out []*job) {
	for _, j := range list {
		if holds(j) {
			out = append(out, j)
		}
	}
	return out
}

// byQueue lists the queues, if the jobs have any, those with most jobs first.
func byQueue(cohort []*job, gpus int) []Part {
	queues := map[string][]*job{}
	for _, j := range cohort {
		if j.Queue != "" {
			queues[j.Queue] = append(queues[j.Queue], j)
		}
	}
	out := []Part{}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		out = append(out, tenantOf(name, queues[name], gpus))
	}
	slices.SortStableFunc(out, func(a, b Part) int { return cmp.Compare(b.Jobs, a.Jobs) })
	return out
}

func partOf(name string, list []*job) Part {
	var jct, queue []float64
	for _, j := range list {
		jct, queue = append(jct, j.ended-j.Submit), append(queue, j.first-j.Submit)
	}
	return Part{Name: name, Jobs: len(list), JCTMean: mean(jct), JCTP99: Quantile(jct, 0.99), QueueP95: Quantile(queue, 0.95)}
}

// tenantOf is partOf, with what is told of queues alone.
func tenantOf(name string, list []*job, gpus int) Part {
	p := partOf(name, list)
	var queue, fairness []float64
	for _, j := range list {
		queue, fairness = append(queue, j.first-j.Submit), append(fairness, j.fairness(gpus))
		p.GPUHours += j.held / 3600
		p.Preemptions += j.stops
	}
	p.QueueMean, p.FairnessMean = mean(queue), mean(fairness)
	return p
}

// bound is the most work that any schedule can have done by T, in GPU-seconds; bought
// nodes could do the rented part of it.
func (o *Outcome) bound() float64 {
	all := make([]*job, len(o.jobs))
	for i := range o.jobs {
		all[i] = &o.jobs[i]
	}
	return mostWork(all, float64(o.meter.gpus), o.meter.horizon, o.renting)
}

// mostWork is the most work of some jobs that can have been done by a time: up to any
// time s no more than what the jobs let be done if each had its GPUs from the start, and
// after s no more than the GPUs can do, and rented ones could in all.
func mostWork(list []*job, gpus, horizon, rented float64) float64 {
	type change struct{ at, rate float64 }
	changes := make([]change, 0, 2*len(list))
	for _, j := range list {
		rate := j.width()
		changes = append(changes, change{j.Submit, rate}, change{j.Submit + j.shortest(), -rate})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	best := gpus*horizon + rented
	done, rate, at := 0.0, 0.0, 0.0
	for _, c := range changes {
		to := min(c.at, horizon)
		done += rate * (to - at)
		at = to
		best = min(best, done+gpus*(horizon-at)+rented)
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
	return sorted[place(part, len(sorted))]
}

// place is where it stands among n sorted ones.
func place(part float64, n int) int { return max(0, min(int(math.Ceil(part*float64(n)))-1, n-1)) }
