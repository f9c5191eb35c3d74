package study

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/sim"
)

// claim compares with the figures that are published for this kind of
// architecture.
func (p *page) claim(all []Played) {
	cells := kind(all, KindHeadline)
	p.say("## The published claim\n")
	p.say("For this kind of architecture, from 64 to 4,096 GPUs, it is published that utilisation rose\nfrom 58 %% under a Kubernetes-default baseline to 87 %%, P99 JCT fell by 62 %%, cost per training\nrun fell by 6 %% against on premises only, and stranded GPUs from 34 %% to 4 %%. Its definitions\nare not known beyond these words; the ones used here are named.\n")
	p.claimed(cells)
	p.say("The baseline's 58 %% is not found: at this load Kubernetes, which lets whatever fits pass, keeps\n%s busy with work that counts. Its 34 %% stranded is not found either: it strands %s here.\n", percent(meanOf(cells, sim.PolicyKube, "utilisation_productive")), percent(meanOf(cells, sim.PolicyKube, stranded)))
	for _, policy := range ours {
		p.verdicts(cells, policy)
	}
}

// claimed is the table of the figures that the claim names.
func (p *page) claimed(cells []Played) {
	head := append([]string{"comparison", "utilisation: k8s-default"}, ours...)
	head = append(append(head, "bound", "P99 JCT: k8s-default"), ours...)
	for _, policy := range ours {
		head = append(head, policy+" lower by")
	}
	rows := [][]string{append(append(head, "at most possible", "stranded: k8s-default"), ours...)}
	for i := range cells {
		c := &cells[i]
		row := []string{c.Cell.name()}
		add := func(key string, text func(float64) string) {
			for _, policy := range append([]string{sim.PolicyKube}, ours...) {
				row = append(row, text(c.mean(policy, key)))
			}
		}
		k := c.mean(sim.PolicyKube, "jct_p99_s")
		add("utilisation_productive", percent)
		row = append(row, percent(c.mean(caravan, "utilisation_bound")))
		add("jct_p99_s", span)
		for _, policy := range ours {
			row = append(row, percent(1-c.mean(policy, "jct_p99_s")/k))
		}
		row = append(row, percent(1-c.leastOf(alone)/k))
		add(stranded, percent)
		rows = append(rows, row)
	}
	p.table(rows)
}

// verdicts say which of the claim's figures a policy reaches.
func (p *page) verdicts(cells []Played, policy string) {
	p.say("`%s`:\n", policy)
	p.say("- **Utilisation 87 %%** (productive, over [0, T]): %s", verdict(cells, policy, func(c *Played) (float64, float64, bool) {
		return c.mean(policy, "utilisation_productive"), c.mean(policy, "utilisation_bound"), true
	}, 0.87, percent))
	p.say("- **P99 JCT 62 %% lower** (cohort, against k8s-default): %s", verdict(cells, policy, func(c *Played) (float64, float64, bool) {
		k := c.mean(sim.PolicyKube, "jct_p99_s")
		return 1 - c.mean(policy, "jct_p99_s")/k, 1 - c.leastOf(alone)/k, k > 0
	}, 0.62, percent))
	owned, n := over(cells, func(c *Played) (float64, bool) {
		d, ok := c.against(policy, sim.PolicyKube, "cost_per_run")
		return d.Mean, ok
	})
	p.say("- **Cost per run 6 %% lower**: not to be had by scheduling alone, nor was that claimed: the fleet is owned whether it works or not, so all hours owned until the last job ends, by the jobs, change by %+.1f %% (mean of %s). Renting is compared under *Cost and deadlines*.", 100*owned.Mean, count(n, "comparison"))
	p.say("- **Stranded GPUs 4 %%** (fillable and fragmented, while a job waits): %s\n", verdict(cells, policy, func(c *Played) (float64, float64, bool) {
		return -c.mean(policy, stranded), 0, true
	}, -0.04, func(x float64) string { return percent(math.Abs(x)) }))
}

func meanOf(cells []Played, policy, key string) float64 {
	m, _ := over(cells, func(c *Played) (float64, bool) { return c.mean(policy, key), true })
	return m.Mean
}

// verdict says in words in how many comparisons a figure is at least what it is to
// be, and where it cannot be because its bound is lower.
func verdict(cells []Played, policy string, of func(*Played) (is, bound float64, ok bool), want float64, text func(float64) string) string {
	var good, missed, barred []string
	n := 0
	for i := range cells {
		is, bound, ok := of(&cells[i])
		if !ok {
			continue
		}
		n++
		switch name := cells[i].Cell.name(); {
		case is >= want:
			good = append(good, name)
		case bound < want:
			barred = append(barred, fmt.Sprintf("%s, where the bound is %s and %s has %s", name, text(bound), policy, text(is)))
		default:
			missed = append(missed, fmt.Sprintf("%s (%s)", name, text(is)))
		}
	}
	var out []string
	if len(good) == n && n > 0 {
		return fmt.Sprintf("reached in all of %s.", count(n, "comparison"))
	}
	if len(good) > 0 {
		out = append(out, "reached on "+strings.Join(good, "; ")+".")
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
	p.say("What Caravan is to reach with rigid jobs and noisy estimates, as means over the comparisons,\nwith their intervals over these: by default, and where nobody is\nstopped for others. A target is reached, or not\nreached, if the whole interval says so.\n")
	for _, policy := range ours {
		p.table(targetRows(all, policy))
	}
	p.bounded(kind(all, KindHeadline, KindTraces))
	p.interactive(all)
	p.say("Cost per run against on premises only, and waits against boot times, are under *Cost and deadlines*.\n")
}

// The words for whether a target is reached.
const (
	reached    = "reached"
	notReached = "not reached"
	undecided  = "undecided: the interval includes the limit"
)

// judge says whether a figure is at least, or at most, what it is to be: the whole
// interval has to be on one side.
func judge(is sim.Interval, limit float64, atMost bool) string {
	low, high := is.Low-limit, is.High-limit
	if atMost {
		low, high = -high, -low
	}
	switch {
	case low >= 0:
		return reached
	case high < 0:
		return notReached
	}
	return undecided
}

// target is a figure of a policy and what it is to be.
type target struct {
	name   string
	text   func(float64) string
	limit  float64
	atMost bool
	// cells are those that count, each with its mean over the seeds; of a single one
	// the seeds count.
	cells []Played
	of    func(*Played) (float64, bool)
}

// row is a target and what is reached of it.
func (t *target) row() []string {
	m, n := over(t.cells, t.of)
	of := count(n, "comparison")
	switch {
	case n == 0:
		return []string{t.name, "no comparison", "-"}
	case n == 1 && len(t.cells) == 1:
		m, n = over(t.cells[0].bySeed(), t.of)
		of = count(n, "seed")
	}
	return []string{t.name, fmt.Sprintf("%s (%s to %s; %s)", t.text(m.Mean), t.text(m.Low), t.text(m.High), of), judge(m, t.limit, t.atMost)}
}

// targetRows are the targets and what a policy reaches of them.
func targetRows(all []Played, policy string) [][]string {
	cells := kind(all, KindHeadline, KindTraces)
	list := []target{
		{"productive utilisation ≥ 0.97 of the bound, at a load of 0.9 and above", ratio, usefulPart, false, loaded(all), func(c *Played) (float64, bool) {
			return c.mean(policy, "utilisation_productive") / c.mean(policy, "utilisation_bound"), true
		}},
		{"≥ 80 % of the gap between the best baseline and the bound closed on P99 JCT", percent, 0.8, false, cells, func(c *Played) (float64, bool) { return closed(c, policy) }},
	}
	for _, key := range []string{"jct_p999_s", "jct_max_s", "jct_gpu_weighted_s"} {
		list = append(list, target{figureOf(key).name + " JCT ≤ 1.05 × backfill's", ratio, conditionSlack, true, cells, func(c *Played) (float64, bool) {
			return c.mean(policy, key) / c.mean(backfill, key), c.mean(backfill, key) > 0
		}})
	}
	list = append(list,
		target{"stranded ≤ 2 %", percent, 0.02, true, cells, func(c *Played) (float64, bool) { return c.mean(policy, stranded), true }},
		target{"P95 start of interactive jobs of one GPU ≤ 60 s at a load of 1", span, soonWithin, true, fullLoad(all), func(c *Played) (float64, bool) { return c.mean(policy, "interactive_start_p95_s"), true }},
	)
	rows := [][]string{{"target", policy, "verdict"}}
	for i := range list {
		rows = append(rows, list[i].row())
	}
	return append(rows, worstRow(worstParts(cells, policy)))
}

// worstRow says how many classes are worse off: it is reached if none is, and not if the
// whole interval of one says so.
func worstRow(worst []worstPart) []string {
	is, text := reached, fmt.Sprintf("%d above", len(worst))
	for i, w := range worst {
		if i == 0 {
			is = undecided
		}
		if w.seeds.Low > worstSlack {
			is = notReached
		}
	}
	if len(worst) > 0 {
		most := slices.MaxFunc(worst, func(a, b worstPart) int { return cmp.Compare(a.ratio, b.ratio) })
		text += fmt.Sprintf(", × %.2f at most (%.2f to %.2f; %s)", most.ratio, most.seeds.Low, most.seeds.High, count(most.n, "seed"))
	}
	return []string{"no size class or tenant (100 jobs or more) above 1.05 × its mean JCT under backfill", text, is}
}

// fullLoad are the comparisons of all policies at a load of 1.
func fullLoad(all []Played) []Played {
	return slices.DeleteFunc(kind(all, KindLoad), func(c Played) bool { return c.Cell.Load != 1 })
}

// loaded are the comparisons of all policies at a load of 0.9 and above.
func loaded(all []Played) []Played {
	var out []Played
	for _, c := range kind(all, KindHeadline, KindTraces, KindLoad) {
		if c.Cell.Load >= 0.9 {
			out = append(out, c)
		}
	}
	return out
}

// closed is how much of the gap between the best baseline and the bound a policy
// closes on the 99th percentile. Where there is hardly a gap there is no part of it.
func closed(c *Played, policy string) (float64, bool) {
	return c.closes(policy, c.mean(policy, "jct_p99_s"))
}

// closes is closed of a percentile, with the bound for a policy.
func (p *Played) closes(policy string, is float64) (float64, bool) {
	best, bound := p.bestP99(), p.leastFor(policy)
	return (best - is) / (best - bound), best > 1.02*bound
}
