package study

import (
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/bound"
)

// conditionSlack is by how much a policy may be worse than backfill on P99.9, the
// longest and the mean by GPU time: the conditions under which its P99 counts.
const conditionSlack = 1.05

// least bounds the 99th percentile in each seed, by what backfill comes to there.
func least(results []sim.Result, workers int) []sim.LeastP99 {
	var runs []*sim.Outcome
	for i := range results {
		if results[i].Policy == backfill {
			runs = append(runs, results[i].Outcome)
		}
	}
	out := make([]sim.LeastP99, len(runs))
	var g errgroup.Group
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	g.SetLimit(workers)
	for i, run := range runs {
		g.Go(func() error {
			out[i] = run.LeastP99(conditionSlack)
			return nil
		})
	}
	_ = g.Wait() // none of them can fail
	return out
}

// leastOf is the mean of one of the bounds over the seeds; without any it is that of
// the run times and of the work alone.
func (p *Played) leastOf(of func(sim.LeastP99) float64) float64 {
	var list []float64
	for _, b := range p.LeastP99 {
		list = append(list, of(b))
	}
	if len(list) == 0 {
		return p.mean(p.Cell.Policies[0], "jct_p99_bound_s")
	}
	return sim.Of(list).Mean
}

// The bounds, as leastOf takes them.
func alone(b sim.LeastP99) float64     { return b.Alone }
func limited(b sim.LeastP99) float64   { return b.Limited }
func unstopped(b sim.LeastP99) float64 { return b.Unstopped }
func fair(b sim.LeastP99) float64      { return b.Fair }
func found(b sim.LeastP99) float64     { return b.Found }

// leastFor is the bound for a policy under the conditions.
func (p *Played) leastFor(policy string) float64 {
	if policy == staying {
		return p.leastOf(unstopped)
	}
	return p.leastOf(limited)
}

// baselines are the policies that Caravan's are compared with.
func (p *Played) baselines() []string {
	return slices.DeleteFunc(slices.Clone(p.Cell.Policies), func(name string) bool {
		return slices.Contains(ours, name) || !slices.Contains(compared, name)
	})
}

// bestP99 is the best baseline's 99th percentile.
func (p *Played) bestP99() float64 {
	best := math.Inf(1)
	for _, other := range p.baselines() {
		best = min(best, p.mean(other, "jct_p99_s"))
	}
	return best
}

// bounded shows P99 beside what no schedule can go below.
func (p *page) bounded(cells []Played) {
	p.say("### P99 and its bounds\n")
	p.say(`Under the conditions that P99.9, the longest and the mean by GPU time are at most %g times
backfill's in the same seed, no schedule has a smaller P99 than the bounds, whether it knows
all run times and all that will come or not. *Alone* is without these conditions; *may stop* is
for schedules that may stop who runs, *stop nobody* for those that may not; *for all* is with the
conditions, and P99, for all jobs of the window together too: nobody knows where the cohort
begins and ends, but these bounds do, and let all others wait for ever. Jobs are divided at will
in them, or overlap where others are, so that no schedule need come as low. *In hindsight* is what
one comes to that keeps the conditions: the best of %d that know all run times, only
count GPUs, and stop and start for nothing. How all are derived is in [the simulator's
page](simulator.md#bounds-of-completion-times).
`, conditionSlack, bound.Rules())
	rows := [][]string{{"comparison", "best baseline", caravan, oracle, staying, "in hindsight", "alone", "may stop", "stop nobody", "for all"}}
	for i := range cells {
		c := &cells[i]
		row := []string{c.Cell.name(), span(c.bestP99())}
		for _, policy := range []string{caravan, oracle, staying} {
			if !slices.Contains(c.Cell.Policies, policy) {
				row = append(row, "")
				continue
			}
			row = append(row, span(c.mean(policy, "jct_p99_s")))
		}
		for _, of := range []func(sim.LeastP99) float64{found, alone, limited, unstopped, fair} {
			row = append(row, span(c.leastOf(of)))
		}
		rows = append(rows, row)
	}
	p.table(rows)
	p.inHindsight(cells)
}

// inHindsight says how much of the gap to the bounds the best schedule found closes.
func (p *page) inHindsight(cells []Played) {
	best, n := over(cells, func(c *Played) (float64, bool) { return c.closes(caravan, c.leastOf(found)) })
	if n == 0 {
		return
	}
	p.say("In hindsight %s (%s to %s; %s) of the gap to *may stop* is closed, where %s closes %s.\n", percent(best.Mean), percent(best.Low), percent(best.High), count(n, "comparison"), caravan, percent(meanClosed(cells, caravan)))
}

func meanClosed(cells []Played, policy string) float64 {
	m, _ := over(cells, func(c *Played) (float64, bool) { return closed(c, policy) })
	return m.Mean
}
