package sim

import "github.com/caravan-sched/caravan/planner/sim/bound"

// LeastP99 are times below which no schedule brings the cohort's 99th percentile of
// completion times, in seconds; docs/simulator.md derives them.
type LeastP99 struct {
	// Alone is whatever else becomes of the jobs.
	Alone float64 `json:"alone_s"`
	// Limited is where the cohort's P99.9, its longest and its mean by GPU time are
	// what this run's are at most, times a slack.
	Limited float64 `json:"limited_s"`
	// Unstopped is the same where nobody who runs is stopped.
	Unstopped float64 `json:"unstopped_s"`
	// Fair is Limited where the same, and P99, also holds for all jobs together.
	Fair float64 `json:"fair_s"`
	// Found is what a schedule comes to that keeps the conditions of Limited, where GPUs
	// are only counted and nobody pays for being stopped: the best of those tried.
	Found float64 `json:"found_s"`
}

// hardly: where a run is so near to the bound of run times and work alone no better
// one is looked for.
const hardly = 1.02

// Of more than manyJobs fewer prices are tried, leastTries at least.
const (
	manyJobs   = 2000
	leastTries = 40
)

// LeastP99 bounds the 99th percentile of all schedules of this run's jobs that are
// no worse than it elsewhere, by a factor.
func (o *Outcome) LeastP99(slack float64) LeastP99 {
	p := bound.Problem{GPUs: float64(o.cluster.most()), Part: 0.99, Effort: max(leastTries, min(bound.DefaultEffort, bound.DefaultEffort*manyJobs/max(1, len(o.jobs))))}
	cohort := o.cohort()
	if len(cohort) == 0 {
		return LeastP99{}
	}
	all := make([]*job, len(o.jobs))
	counted := map[*job]bool{}
	for _, j := range cohort {
		counted[j] = true
	}
	for i := range o.jobs {
		j := &o.jobs[i]
		all[i] = j
		p.Jobs = append(p.Jobs, bound.Job{Release: j.Submit, Shortest: j.shortest(), Width: j.width(), Counted: counted[j]})
	}
	limits := limitsOf(cohort, slack)
	own := limits.Parts[0].Within / slack
	limits.Parts = limits.Parts[1:]
	simple := boundsOf(cohort, o.cluster.most()).p99
	if own <= hardly*simple {
		return LeastP99{simple, simple, simple, simple, own}
	}
	out := LeastP99{Alone: p.Least(simple, own)}
	p.Counted = limits
	out.Limited = p.Least(out.Alone, own)
	out.Found = p.Found(out.Alone, own)
	p.Whole = true
	out.Unstopped = p.Least(out.Limited, own)
	p.Whole, p.All = false, limitsOf(all, slack)
	out.Fair = p.Least(out.Limited, own)
	return out
}

// limitsOf are P99, P99.9, the longest, and the mean by GPU time of some jobs, times
// a slack.
func limitsOf(list []*job, slack float64) bound.Limits {
	var jct []float64
	work, weighted := 0.0, 0.0
	for _, j := range list {
		took := j.ended - j.Submit
		jct = append(jct, took)
		work += j.Work()
		weighted += took * j.Work()
	}
	out := bound.Limits{Weighted: slack * weighted / work}
	for _, part := range []float64{0.99, 0.999, 1} {
		out.Parts = append(out.Parts, bound.Limit{Part: part, Within: slack * Quantile(jct, part)})
	}
	return out
}
