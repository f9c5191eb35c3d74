package study

import (
	"fmt"
	"math"
	"strings"

	"github.com/caravan-sched/caravan/planner/sim"
)

// claim compares with the figures that are published for this kind of
// architecture.
func (p *page) claim(all []Played) {
	cells := kind(all, KindHeadline)
	p.say("## The published claim\n")
	p.say("For this kind of architecture, from 64 to 4,096 GPUs, it is published that utilisation rose\nfrom 58 %% under a Kubernetes-default baseline to 87 %%, P99 JCT fell by 62 %%, cost per training\nrun fell by 6 %% against on premises only, and stranded GPUs from 34 %% to 4 %%. Its definitions\nare not known beyond these words; the ones used here are named.\n")
	rows := [][]string{{"comparison", "utilisation: k8s-default", "caravan", "bound", "P99 JCT: k8s-default", "caravan", "lower by", "at most possible", "stranded: k8s-default", "caravan"}}
	for i := range cells {
		c := &cells[i]
		k, v, b := c.mean(sim.PolicyKube, "jct_p99_s"), c.mean(caravan, "jct_p99_s"), c.mean(caravan, "jct_p99_bound_s")
		rows = append(rows, []string{
			c.Cell.name(), percent(c.mean(sim.PolicyKube, "utilisation_productive")), percent(c.mean(caravan, "utilisation_productive")), percent(c.mean(caravan, "utilisation_bound")),
			span(k), span(v), percent(1 - v/k), percent(1 - b/k), percent(c.mean(sim.PolicyKube, stranded)), percent(c.mean(caravan, stranded)),
		})
	}
	p.table(rows)
	p.say("- **Utilisation 87 %%** (productive, over [0, T]): %s The baseline's 58 %% is not found: at this load Kubernetes, which lets whatever fits pass, keeps %s busy with work that counts.", verdict(cells, func(c *Played) (float64, float64, bool) {
		return c.mean(caravan, "utilisation_productive"), c.mean(caravan, "utilisation_bound"), true
	}, 0.87, percent), percent(meanOf(cells, sim.PolicyKube, "utilisation_productive")))
	p.say("- **P99 JCT 62 %% lower** (cohort, against k8s-default): %s", verdict(cells, func(c *Played) (float64, float64, bool) {
		k := c.mean(sim.PolicyKube, "jct_p99_s")
		return 1 - c.mean(caravan, "jct_p99_s")/k, 1 - c.mean(caravan, "jct_p99_bound_s")/k, k > 0
	}, 0.62, percent))
	owned, n := over(cells, func(c *Played) (float64, bool) {
		d, ok := c.against(caravan, sim.PolicyKube, "cost_per_run")
		return d.Mean, ok
	})
	p.say("- **Cost per run 6 %% lower**: not reached by scheduling alone, nor was it claimed to be: the fleet is owned whether it works or not, so all hours owned until the last job ends, by the jobs, change by %+.1f %% (mean of %d comparisons). Renting is not part of these runs.", 100*owned.Mean, n)
	p.say("- **Stranded GPUs 4 %%** (fillable and fragmented, while a job waits): %s The baseline's 34 %% is not found either: it strands %s here.\n", verdict(cells, func(c *Played) (float64, float64, bool) {
		return -c.mean(caravan, stranded), 0, true
	}, -0.04, func(x float64) string { return percent(math.Abs(x)) }), percent(meanOf(cells, sim.PolicyKube, stranded)))
}

func meanOf(cells []Played, policy, key string) float64 {
	m, _ := over(cells, func(c *Played) (float64, bool) { return c.mean(policy, key), true })
	return m.Mean
}

// verdict says in words in how many comparisons a figure is at least what it is to
// be, and where it cannot be because its bound is lower.
func verdict(cells []Played, of func(*Played) (is, bound float64, ok bool), want float64, text func(float64) string) string {
	var reached, missed, barred []string
	n := 0
	for i := range cells {
		is, bound, ok := of(&cells[i])
		if !ok {
			continue
		}
		n++
		switch name := cells[i].Cell.name(); {
		case is >= want:
			reached = append(reached, name)
		case bound < want:
			barred = append(barred, fmt.Sprintf("%s, where the bound is %s and caravan has %s", name, text(bound), text(is)))
		default:
			missed = append(missed, fmt.Sprintf("%s (%s)", name, text(is)))
		}
	}
	var out []string
	if len(reached) == n && n > 0 {
		return fmt.Sprintf("reached in all %d comparisons.", n)
	}
	if len(reached) > 0 {
		out = append(out, "reached on "+strings.Join(reached, "; ")+".")
	}
	if len(missed) > 0 {
		out = append(out, "Not reached on "+strings.Join(missed, "; ")+".")
	}
	if len(barred) > 0 {
		out = append(out, "Not reachable by rigid jobs on "+strings.Join(barred, "; ")+".")
	}
	return strings.Join(out, " ")
}

// targets are those that the default policy was built for.
func (p *page) targets(all []Played) {
	p.say("## The targets\n")
	p.say("What the default policy is to reach with rigid jobs and noisy estimates, as means over the\ncomparisons, with their intervals over these.\n")
	cells := kind(all, KindHeadline, KindTraces)
	rows := [][]string{{"target", "is", "reached"}}
	add := func(name string, list []Played, text func(float64) string, good func(float64) bool, of func(*Played) (float64, bool)) {
		m, n := over(list, of)
		if n == 0 {
			rows = append(rows, []string{name, "no comparison", "-"})
			return
		}
		is := "no"
		if good(m.Mean) {
			is = "yes"
		}
		rows = append(rows, []string{name, fmt.Sprintf("%s (%s to %s; %d comparisons)", text(m.Mean), text(m.Low), text(m.High), n), is})
	}
	atMost := func(limit float64) func(float64) bool { return func(x float64) bool { return x <= limit } }
	atLeast := func(limit float64) func(float64) bool { return func(x float64) bool { return x >= limit } }
	add("productive utilisation ≥ 0.97 of the bound, at a load of 0.9 and above", loaded(all), ratio, atLeast(0.97), func(c *Played) (float64, bool) {
		return c.mean(caravan, "utilisation_productive") / c.mean(caravan, "utilisation_bound"), true
	})
	add("≥ 80 % of the gap between the best baseline and the bound closed on P99 JCT", cells, percent, atLeast(0.8), closed)
	for _, key := range []string{"jct_p999_s", "jct_max_s", "jct_gpu_weighted_s"} {
		add(figureOf(key).name+" JCT ≤ 1.05 × backfill's", cells, ratio, atMost(1.05), func(c *Played) (float64, bool) {
			return c.mean(caravan, key) / c.mean(backfill, key), c.mean(backfill, key) > 0
		})
	}
	add("stranded ≤ 2 %", cells, percent, atMost(0.02), func(c *Played) (float64, bool) { return c.mean(caravan, stranded), true })
	full := kind(all, KindLoad)
	for i := len(full) - 1; i >= 0; i-- {
		if full[i].Cell.Load != 1 {
			full = append(full[:i:i], full[i+1:]...)
		}
	}
	add("P95 start of interactive jobs of one GPU ≤ 60 s at a load of 1", full, span, atMost(60), func(c *Played) (float64, bool) { return c.mean(caravan, "interactive_start_p95_s"), true })
	worst := worstParts(cells)
	is := "yes"
	if len(worst) > 0 {
		is = "no"
	}
	rows = append(rows, []string{"no size class or tenant (100 jobs or more) above 1.05 × its mean JCT under backfill", fmt.Sprintf("%d above", len(worst)), is})
	p.table(rows)
	p.say("Cost per run against on premises only, and waits against boot times, need rented nodes and are\nnot part of these runs.\n")
}

// loaded are the comparisons of all four policies at a load of 0.9 and above.
func loaded(all []Played) []Played {
	var out []Played
	for _, c := range kind(all, KindHeadline, KindTraces, KindLoad) {
		if c.Cell.Load >= 0.9 {
			out = append(out, c)
		}
	}
	return out
}

// closed is how much of the gap between the best of the others and the bound is
// closed on the 99th percentile. Where there is hardly a gap there is no part of it.
func closed(c *Played) (float64, bool) {
	best := math.Inf(1)
	for _, policy := range c.Cell.Policies {
		if policy != caravan {
			best = min(best, c.mean(policy, "jct_p99_s"))
		}
	}
	bound := c.mean(caravan, "jct_p99_bound_s")
	return (best - c.mean(caravan, "jct_p99_s")) / (best - bound), best > 1.02*bound
}
