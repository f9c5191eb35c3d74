package study

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/sim"
)

// figure is a metric as the document shows it.
type figure struct {
	key, name string
	text      func(float64) string
	// more: more is better.
	more bool
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" }

func whole(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }

func ratio(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

// span writes seconds for people.
func span(s float64) string {
	switch d := time.Duration(s * float64(time.Second)); {
	case s < 100:
		return whole(s) + " s"
	case s < 6000:
		return whole(d.Minutes()) + " min"
	default:
		return strconv.FormatFloat(d.Hours(), 'f', 1, 64) + " h"
	}
}

var figures = []figure{
	{"utilisation_productive", "productive", percent, true},
	{"jct_mean_s", "JCT mean", span, false},
	{"jct_p50_s", "P50", span, false},
	{"jct_p99_s", "P99", span, false},
	{"jct_p999_s", "P99.9", span, false},
	{"jct_max_s", "max", span, false},
	{"jct_gpu_weighted_s", "by GPU time", span, false},
	{"queue_p95_s", "wait P95", span, false},
	{"interactive_start_p95_s", "interactive P95", span, false},
	{stranded, "stranded", percent, false},
	{"free_fgd", "FGD", percent, false},
	{"finish_time_fairness_p99", "ρ P99", ratio, false},
	{"cost_per_run", "GPU-h owned per job", whole, false},
	{"cost_per_run_busy", "GPU-h used per job", whole, false},
	{"preemptions", "preempted", whole, false},
	{"decide_mean_us", "decision", func(x float64) string { return whole(x) + " µs" }, false},
}

// boundOf are the metrics that bound others.
var boundOf = map[string]string{
	"utilisation_productive": "utilisation_bound", "jct_mean_s": "jct_mean_bound_s", "jct_p50_s": "jct_p50_bound_s", "jct_p99_s": "jct_p99_bound_s",
	"jct_p999_s": "jct_p999_bound_s", "jct_max_s": "jct_max_bound_s", "jct_gpu_weighted_s": "jct_gpu_weighted_bound_s",
}

// stranded is fillable and fragmented together; it is no metric of its own.
const stranded = "stranded"

func figureOf(key string) figure {
	for _, f := range figures {
		if f.key == key {
			return f
		}
	}
	if key == "utilisation_bound" {
		return figure{key, "bound", percent, true}
	}
	return figure{key: key, name: key, text: ratio}
}

// values are a metric's by seed.
func (p *Played) values(policy, key string) []float64 {
	var out []float64
	for i := range p.Results {
		r := &p.Results[i]
		switch {
		case r.Policy != policy:
		case key == stranded:
			out = append(out, r.Metrics.FreeFillable+r.Metrics.FreeFragmented)
		default:
			out = append(out, r.Metrics.Number(key))
		}
	}
	return out
}

func (p *Played) mean(policy, key string) float64 { return sim.Of(p.values(policy, key)).Mean }

// against is the paired difference of two policies, as a part of the other's mean.
func (p *Played) against(policy, other, key string) (sim.Interval, bool) {
	base := p.mean(other, key)
	if base == 0 {
		return sim.Interval{}, false
	}
	d := sim.Paired(p.values(policy, key), p.values(other, key))
	return sim.Interval{Mean: d.Mean / base, Low: d.Low / base, High: d.High / base}, true
}

// change writes such a difference.
func (p *Played) change(policy, other, key string) string {
	d, ok := p.against(policy, other, key)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", 100*d.Mean, 100*d.Low, 100*d.High)
}

// over is a mean over cells of what each gives, with its interval.
func over(list []Played, of func(*Played) (float64, bool)) (sim.Interval, int) {
	var values []float64
	for i := range list {
		if x, ok := of(&list[i]); ok && !math.IsNaN(x) && !math.IsInf(x, 0) {
			values = append(values, x)
		}
	}
	return sim.Of(values), len(values)
}

// bySeed is a cell for each of its seeds.
func (p *Played) bySeed() []Played {
	out := make([]Played, p.Cell.Seeds)
	for i := range p.Results {
		r := &p.Results[i]
		one := &out[r.Seed-1]
		one.Cell, one.Results = p.Cell, append(one.Results, *r)
	}
	return out
}

// count is a number of things in words.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// kind are the cells of some kinds.
func kind(all []Played, kinds ...string) []Played {
	var out []Played
	for _, p := range all {
		for _, k := range kinds {
			if p.Cell.Kind == k {
				out = append(out, p)
			}
		}
	}
	return out
}

// page is a document being written.
type page struct{ strings.Builder }

func (p *page) say(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// table writes a table; the first row is its head.
func (p *page) table(rows [][]string) {
	for i, row := range rows {
		p.say("| %s |", strings.Join(row, " | "))
		if i == 0 {
			p.say("|%s", strings.Repeat("---|", len(row)))
		}
	}
	p.say("")
}

// name is how the document calls a cell.
func (c *Cell) name() string {
	if c.Trace == synthetic {
		return fmt.Sprintf("%d GPUs, synthetic gangs", c.GPUs)
	}
	if c.Trace == "itp" {
		return fmt.Sprintf("%d GPUs, all ITP clusters", c.GPUs)
	}
	return fmt.Sprintf("%d GPUs, ITP %s", c.GPUs, c.Trace)
}
