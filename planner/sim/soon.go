package sim

import "github.com/caravan-sched/caravan/planner/sim/bound"

// Soon is what it takes that interactive jobs start soon where nobody is stopped for
// them; docs/simulator.md derives it.
type Soon struct {
	// Jobs are the cohort's interactive ones, and Used how many GPUs all such jobs have
	// on average if each starts at once.
	Jobs int     `json:"jobs"`
	Used float64 `json:"gpus_used"`
	// AtOnce is how many GPUs they have at one moment at least in every schedule that starts
	// soonPart of the cohort's in time and stops none.
	AtOnce int `json:"gpus_at_once"`
	// Kept is the utilisation that no schedule exceeds that keeps so many from others all
	// the time.
	Kept float64 `json:"utilisation_kept"`
	// Planned is the utilisation of a schedule that knows when they come, and PlannedP95
	// within what time it starts soonPart of them.
	Planned    float64 `json:"utilisation_planned"`
	PlannedP95 float64 `json:"start_p95_planned_s"`
}

// soonPart is the part of the interactive jobs that a percentile of their starts is of.
const soonPart = 0.95

// Soon says what it takes that this run's interactive jobs start within some seconds.
func (o *Outcome) Soon(within float64) Soon {
	p := bound.Problem{GPUs: float64(o.cluster.most()), Part: soonPart}
	in := map[*job]bool{}
	for _, j := range o.cohort() {
		in[j] = true
	}
	var s Soon
	var others, soon []*job
	for i := range o.jobs {
		j := &o.jobs[i]
		kind := &others
		if j.interactive() {
			kind = &soon
			if in[j] {
				s.Jobs++
			}
		}
		*kind = append(*kind, j)
		p.Jobs = append(p.Jobs, bound.Job{Release: j.Submit, Shortest: j.shortest(), Width: j.width(), Counted: in[j] && j.interactive()})
	}
	gpus, horizon := float64(o.meter.gpus), o.meter.horizon
	s.Used = part(mostWork(soon, gpus, horizon, 0), horizon)
	s.AtOnce = min(p.AtOnce(within), o.meter.gpus)
	s.Kept = part(min(mostWork(others, gpus-float64(s.AtOnce), horizon, 0)+mostWork(soon, gpus, horizon, 0), o.bound()), gpus*horizon)
	var waits []float64
	work := 0.0
	for i, start := range p.Planned(func(i int) bool { return o.jobs[i].interactive() }) {
		j := &p.Jobs[i]
		work += j.Width * max(0, min(start+j.Shortest, horizon)-start)
		if j.Counted {
			waits = append(waits, start-j.Release)
		}
	}
	if s.Planned = part(work, gpus*horizon); len(waits) > 0 {
		s.PlannedP95 = Quantile(waits, soonPart)
	}
	return s
}

// StartedWithin is the part of the cohort's interactive jobs that started within some
// seconds.
func (o *Outcome) StartedWithin(within float64) float64 {
	started, all := 0, 0
	for _, j := range o.cohort() {
		if j.interactive() {
			if all++; j.first-j.Submit <= within {
				started++
			}
		}
	}
	return part(float64(started), float64(all))
}
