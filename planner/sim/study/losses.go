package study

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/sim"
)

// loss is where one of Caravan's policies is worse than a baseline.
type loss struct {
	cell, key, policy, other string
	is, was                  float64
	by                       sim.Interval
}

// because says why a policy can be worse on a metric, by default and
// where nobody gives way.
var because = map[string]map[string]string{
	caravan: {
		"utilisation_productive":  "who gives way loads its state again when it goes on, and that is no work that counts",
		"jct_mean_s":              "long jobs go by age among themselves, where the mean would have the shortest of them first, and who gives way loads its state again",
		"jct_p99_s":               "long jobs are passed by short ones, and give way to them while they run",
		"jct_p999_s":              "the very longest jobs are passed by short ones and by older ones, and give way to them while they run",
		"jct_max_s":               "one job decides it: the longest, or largest, is passed by short ones and by older ones, and gives way to them",
		"jct_gpu_weighted_s":      "large and long jobs, which it counts most, are passed by short ones, and give way to them",
		"queue_p95_s":             "long jobs wait until there are GPUs that nobody shorter or older has a right to",
		"interactive_start_p95_s": "a job of one GPU waits while those that are due or shorter have all GPUs, and until one that has run for five minutes gives way",
		stranded:                  "GPUs are free for up to ten seconds, until the next decision, each time somebody ends; and for who has waited for 12 hours nodes are kept, too",
	},
	staying: {
		"utilisation_productive":  "gangs that wait have their nodes reserved from when they are thought to start; what runs less long than estimated leaves gaps before it that nothing fits",
		"jct_mean_s":              "a policy that never keeps nodes for large gangs lets more small jobs through, whom the mean counts most, at the cost of the large ones",
		"jct_p99_s":               "long jobs are passed by short ones, and what is kept for them by estimates is seldom right",
		"jct_p999_s":              "the very longest jobs are passed by short ones and by all that are due before them",
		"jct_max_s":               "one job decides it: the longest, or largest, is passed by short ones and by those that are due before it",
		"jct_gpu_weighted_s":      "large and long jobs, which it counts most, are passed by short ones",
		"queue_p95_s":             "whoever waits longest waits for a reservation made by estimates that are off by a factor of e one time in three",
		"interactive_start_p95_s": "nobody is stopped for a job of one GPU: it starts when a GPU is free that no reservation needs",
		stranded:                  "nodes that are kept for a gang count as stranded while a smaller job that waits would fit on them",
	},
}

// losses lists them, the worst first.
func (p *page) losses(all []Played) {
	p.say("## Where Caravan loses, and why\n")
	var list []loss
	cells := kind(all, KindHeadline, KindTraces)
	for i := range cells {
		for _, policy := range ours {
			list = append(list, cells[i].losses(policy)...)
		}
	}
	if len(list) == 0 {
		p.say("Nowhere, by more than 2 %% and beyond the 95 %% interval of the paired difference.\n")
	} else {
		p.say("All metrics on which a baseline is better by more than 2 %% (of stranded GPUs and\nutilisation: half a point), beyond the 95 %% interval of the paired difference; the best one each time.\n")
		slices.SortStableFunc(list, func(a, b loss) int { return cmp.Compare(b.by.Mean, a.by.Mean) })
		rows := [][]string{{"comparison", "policy", "metric", "is", "better", "difference"}}
		lost := map[[2]string]bool{}
		for _, l := range list {
			f := figureOf(l.key)
			lost[[2]string{l.policy, l.key}] = true
			rows = append(rows, []string{l.cell, l.policy, f.name, f.text(l.is), fmt.Sprintf("%s: %s", l.other, f.text(l.was)), fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", 100*l.by.Mean, 100*l.by.Low, 100*l.by.High)})
		}
		p.table(rows)
		for _, policy := range ours {
			for _, f := range figures {
				if lost[[2]string{policy, f.key}] {
					p.say("- *%s*, `%s`: %s.", f.name, policy, because[policy][f.key])
				}
			}
		}
		p.say("")
	}
	for _, policy := range ours {
		worst := worstParts(cells, policy)
		if len(worst) == 0 {
			p.say("By `%s` no size class and no tenant with 100 jobs or more has a mean completion time above\n1.05 times its own under `backfill`.\n", policy)
			continue
		}
		told := make([]string, len(worst))
		for i := range worst {
			told[i] = worst[i].text()
		}
		p.say("Size classes and tenants with 100 jobs or more whose mean completion time by `%s` is above\n1.05 times their own under `backfill`: %s.\n", policy, strings.Join(told, "; "))
	}
}

// losses are a policy's in one comparison.
func (p *Played) losses(policy string) []loss {
	var out []loss
	for _, f := range figures {
		if because[policy][f.key] == "" {
			continue
		}
		var found loss
		for _, other := range p.baselines() {
			d := sim.Paired(p.values(policy, f.key), p.values(other, f.key))
			base := p.mean(other, f.key)
			if f.more {
				d = sim.Interval{Mean: -d.Mean, Low: -d.High, High: -d.Low}
			}
			least := 0.02 * base
			if f.more || f.key == stranded {
				least = 0.005
			}
			if base == 0 || d.Low <= 0 || d.Mean <= least {
				continue
			}
			if by := d.Mean / base; by > found.by.Mean {
				found = loss{p.Cell.name(), f.key, policy, other, p.mean(policy, f.key), base, sim.Interval{Mean: by, Low: d.Low / base, High: d.High / base}}
			}
		}
		if found.other != "" {
			out = append(out, found)
		}
	}
	return out
}

// share are the jobs of a size class or a tenant, over all seeds.
type share struct {
	jobs int
	sum  float64
}

// shares are a policy's, by size class or queue.
func (p *Played) shares(policy string) (names []string, out map[string]share) {
	out = map[string]share{}
	for i := range p.Results {
		r := &p.Results[i]
		if r.Policy != policy {
			continue
		}
		add := func(prefix string, list []sim.Part) {
			for _, one := range list {
				name := prefix + one.Name
				s, known := out[name]
				if !known {
					names = append(names, name)
				}
				s.jobs += one.Jobs
				s.sum += float64(one.Jobs) * one.JCTMean
				out[name] = s
			}
		}
		add("", r.Metrics.Sizes)
		add("tenant ", r.Metrics.Queues)
	}
	return names, out
}

// enough is how many jobs a class must have for its figure to count.
const enough = 100

// worstSlack is how much worse off than under backfill a class may be.
const worstSlack = 1.05

// worstPart is a class that is worse off, in all seeds together and by the mean of the
// seeds' ratios.
type worstPart struct {
	name  string
	ratio float64
	seeds sim.Interval
	n     int
}

// worstParts are the classes that are worse off by a policy than under backfill.
func worstParts(cells []Played, policy string) (out []worstPart) {
	for i := range cells {
		names, was := cells[i].shares(backfill)
		_, is := cells[i].shares(policy)
		for _, name := range names {
			by, ok := is[name].against(was[name])
			if !ok || was[name].jobs < enough || by <= worstSlack {
				continue
			}
			var seeds []float64
			for _, seed := range cells[i].bySeed() {
				_, was := seed.shares(backfill)
				_, is := seed.shares(policy)
				if by, ok := is[name].against(was[name]); ok {
					seeds = append(seeds, by)
				}
			}
			out = append(out, worstPart{cells[i].Cell.name() + ", " + className(name), by, sim.Of(seeds), len(seeds)})
		}
	}
	return out
}

// against is a class's mean by another one's.
func (s share) against(was share) (ratio float64, ok bool) {
	if s.jobs == 0 || was.jobs == 0 || was.sum == 0 {
		return 0, false
	}
	return s.sum / float64(s.jobs) / (was.sum / float64(was.jobs)), true
}

func (w *worstPart) text() string {
	return fmt.Sprintf("%s (× %.2f; %.2f to %.2f by %s)", w.name, w.ratio, w.seeds.Low, w.seeds.High, count(w.n, "seed"))
}

func className(name string) string {
	if strings.HasPrefix(name, "tenant ") {
		return name
	}
	return name + " GPUs"
}

// parts shows size classes and tenants.
func (p *page) parts(all []Played) {
	p.say("## By size of gang and by tenant\n")
	p.say("Mean completion time over all seeds, and its ratio to `backfill`'s; classes of fewer than %d jobs\nare left out.\n", enough)
	for _, c := range kind(all, KindHeadline) {
		names, base := c.shares(backfill)
		rows := [][]string{{c.Cell.name(), "jobs"}}
		rows[0] = append(rows[0], c.Cell.Policies...)
		for _, name := range names {
			was := base[name]
			if was.jobs < enough {
				continue
			}
			row := []string{className(name), fmt.Sprint(was.jobs)}
			for _, policy := range c.Cell.Policies {
				_, of := c.shares(policy)
				s := of[name]
				m := s.sum / float64(max(1, s.jobs))
				row = append(row, fmt.Sprintf("%s (× %.2f)", span(m), m/(was.sum/float64(was.jobs))))
			}
			rows = append(rows, row)
		}
		if len(rows) > 1 {
			p.table(rows)
		}
	}
}
