package audit

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// gpuHourPrice is the price of a GPU for an hour; only ratios to it count.
const gpuHourPrice = 1.0

// interactive is up to how many seconds a job of one GPU and no class counts as
// interactive.
const interactive = 3600

// measure computes the metrics, as docs/simulator.md defines them.
func (c *checker) measure() {
	k := &c.clock
	gpus := 0.0 // that are not bought
	for _, n := range c.nodes {
		if !n.Bought {
			gpus += float64(n.GPUs)
		}
	}
	whole := gpus*k.horizon + k.renting
	of := func(x float64) float64 {
		if whole <= 0 {
			return 0
		}
		return x / whole
	}
	m := map[string]float64{}
	c.report.Metrics = m
	productive, lost, stops, unfinished := 0.0, 0.0, 0, 0
	due, met := 0.0, 0.0
	for _, j := range c.order {
		if j.asks.Deadline > 0 {
			due++
			if j.state == ended && j.over <= j.asks.Deadline {
				met++
			}
		}
		productive += j.kept * j.asks.width()
		lost += j.lost * j.asks.width()
		stops += j.stops
		if j.state != ended {
			unfinished++
		}
	}
	m["utilisation_allocated"], m["utilisation_busy"], m["utilisation_productive"] = of(k.allocated), of(k.engaged), of(productive)
	m["utilisation_bound"] = of(most(c.order, gpus, k.horizon, k.renting))
	m["free_fillable"], m["free_fragmented"], m["free_indivisible"], m["free_fgd"] = of(k.parts[0]), of(k.parts[1]), of(k.parts[2]), of(k.useless)
	if k.loose > 0 {
		m["free_parts"] = of(k.loose)
	}
	jobs := float64(max(1, len(c.order)))
	m["cost_per_run"] = gpuHourPrice * gpus * c.now / 3600 / jobs
	m["cost_per_run_busy"] = gpuHourPrice * k.heldAlways / 3600 / jobs
	m["deadlines"], m["deadlines_met"] = due, met/max(1, due)
	m["preemptions"], m["gpu_hours_lost"], m["unfinished"] = float64(stops), lost/3600, float64(unfinished)
	m["jobs"], m["makespan_s"] = float64(len(c.order)), c.now
	c.cohort(m, gpus)
}

// cohort measures the jobs submitted in the middle half of [0, T].
func (c *checker) cohort(m map[string]float64, gpus float64) {
	var list []*tracked
	for _, j := range c.order {
		if from, to := 0.25*c.clock.horizon, 0.75*c.clock.horizon; from <= j.submitted && j.submitted <= to && j.state == ended {
			list = append(list, j)
		}
	}
	m["cohort"] = float64(len(list))
	columns := map[string][]float64{}
	add := func(name string, x float64) { columns[name] = append(columns[name], x) }
	work, weighted := 0.0, 0.0
	for _, j := range list {
		took, wait := j.over-j.submitted, j.started-j.submitted
		add("jct", took)
		add("queue", wait)
		add("apart", j.apart)
		add("booting", j.booting)
		add("again", j.again)
		if j.again > 0 {
			add("requeued", j.again)
		}
		if j.asks.GPUs == 1 && (j.Class == "interactive" || j.Class == "" && j.Duration <= interactive) {
			add("interactive", wait)
		}
		add("rho", j.rho(gpus))
		work += j.Duration * j.asks.width()
		weighted += took * j.Duration * j.asks.width()
	}
	for name, of := range map[string]struct {
		column string
		part   float64
	}{
		"jct_p50_s": {"jct", 0.5}, "jct_p99_s": {"jct", 0.99}, "jct_p999_s": {"jct", 0.999}, "jct_max_s": {"jct", 1}, "queue_p95_s": {"queue", 0.95},
		"requeue_p95_s": {"requeued", 0.95}, "interactive_start_p95_s": {"interactive", 0.95}, "finish_time_fairness_p99": {"rho", 0.99}, "finish_time_fairness_max": {"rho", 1},
	} {
		m[name] = atPart(columns[of.column], of.part)
	}
	m["jct_mean_s"], m["queue_mean_s"], m["requeue_mean_s"] = average(columns["jct"]), average(columns["queue"]), average(columns["again"])
	m["queue_fragmentation_mean_s"], m["queue_provisioning_mean_s"] = average(columns["apart"]), average(columns["booting"])
	m["queue_fair_share_mean_s"] = m["queue_mean_s"] - m["queue_fragmentation_mean_s"] - m["queue_provisioning_mean_s"]
	m["finish_time_fairness_mean"] = average(columns["rho"])
	m["interactive_jobs"] = float64(len(columns["interactive"]))
	m["jct_gpu_weighted_s"] = 0
	if work > 0 {
		m["jct_gpu_weighted_s"] = weighted / work
	}
	maps.Copy(m, least(list, float64(len(c.at))))
	c.report.Sizes, c.report.Queues = bySize(list), byQueue(list, gpus)
}

// rho is the finish-time fairness of a job that has ended: an equal part for each is
// one by the number of others.
func (j *tracked) rho(gpus float64) float64 {
	took := j.over - j.submitted
	if took <= 0 {
		return 0
	}
	return took / max(j.Duration, j.Duration*j.asks.width()*max(1, j.there/took)/gpus)
}

func average(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// atPart is the smallest of some values that a part of them does not exceed.
func atPart(list []float64, part float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

func bySize(list []*tracked) []Part {
	names := map[string][]*tracked{}
	for _, j := range list {
		name := "65+"
		switch n := j.asks.GPUs; {
		case j.Share > 0:
			name = "<1"
		case n == 1:
			name = "1"
		case n <= 8:
			name = "2-8"
		case n <= 64:
			name = "9-64"
		}
		names[name] = append(names[name], j)
	}
	out := []Part{}
	for _, name := range []string{"<1", "1", "2-8", "9-64", "65+"} {
		if len(names[name]) > 0 {
			out = append(out, partOf(name, names[name]))
		}
	}
	return out
}

// byQueue lists the queues, those with most jobs first, then by name.
func byQueue(list []*tracked, gpus float64) []Part {
	names := map[string][]*tracked{}
	for _, j := range list {
		if j.Queue != "" {
			names[j.Queue] = append(names[j.Queue], j)
		}
	}
	out := []Part{}
	for name, some := range names {
		p := partOf(name, some)
		for _, j := range some {
			p.QueueMean += (j.started - j.submitted) / float64(len(some))
			p.FairnessMean += j.rho(gpus) / float64(len(some))
			p.GPUHours += j.had / 3600
			p.Preemptions += j.stops
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Part) int { return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Name, b.Name)) })
	return out
}

func partOf(name string, list []*tracked) Part {
	var jct, queue []float64
	for _, j := range list {
		jct, queue = append(jct, j.over-j.submitted), append(queue, j.started-j.submitted)
	}
	return Part{Name: name, Jobs: len(list), JCTMean: average(jct), JCTP99: atPart(jct, 0.99), QueueP95: atPart(queue, 0.95)}
}
