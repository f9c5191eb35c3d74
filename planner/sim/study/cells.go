// Package study compares policies on many traces and clusters, and writes down
// what came of it: what docs/evaluation.md says is computed here, every sentence
// with a number included.
package study

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/sim"
)

// The kinds of cells: the parts of the document that they are of.
const (
	KindHeadline  = "headline"
	KindTraces    = "traces"
	KindRows      = "rows"
	KindLoad      = "load"
	KindEstimates = "estimates"
	KindRestart   = "restart"
	KindAblation  = "ablation"
	// KindInteractive: interactive jobs say that they are.
	KindInteractive = "interactive"
	// KindSaves: not all jobs save their work.
	KindSaves = "saves"
)

// Kinds are all of them, in the order in which they are played.
func Kinds() []string {
	return []string{KindHeadline, KindTraces, KindRows, KindLoad, KindEstimates, KindRestart, KindSaves, KindInteractive, KindAblation, KindCost}
}

// The names of policies that the document speaks of.
const (
	caravan  = "caravan"
	backfill = "backfill"
	// staying is caravan where nobody is stopped for others.
	staying = "caravan+no-preempt"
	// oracle is what the run times are worth: caravan, told them exactly.
	oracle = "caravan@oracle"
	// Where nobody is stopped, with GPUs kept for interactive jobs: as many as an operator
	// would keep, and about as many as nearly all of them need on these traces.
	reserving, reservingMost = staying + "+reserve", staying + "+reserve=30"
)

// Compared are the policies of the comparison: the baselines, and then Caravan's
// own, which are compared with these.
var (
	ours     = []string{caravan, staying}
	compared = append([]string{sim.PolicyKube, sim.PolicyGang, backfill}, ours...)
)

// Cell is one comparison: some policies on one trace and one cluster.
type Cell struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// Trace is a file of the ITP traces without its ending, "itp" for all of them
	// together, each as a queue, or "synthetic".
	Trace string `json:"trace"`
	GPUs  int    `json:"gpus"`
	// Days are drawn from the trace; of a synthetic one Jobs are made up.
	Days  int     `json:"days,omitempty"`
	Jobs  int     `json:"jobs,omitempty"`
	Load  float64 `json:"load"`
	Sigma float64 `json:"estimate_sigma"`
	// Restart multiplies what it takes to save and to load state.
	Restart  float64  `json:"restart_factor"`
	Policies []string `json:"policies"`
	Seeds    int      `json:"seeds"`
	// Curves: what the plots need is kept.
	Curves bool `json:"curves,omitempty"`
}

const (
	perNode   = 8
	synthetic = "synthetic"
	// headlineLoad is high enough for a queue, and not so high that it grows for
	// ever.
	headlineLoad = 0.9
)

// size is a cluster with its traces.
type size struct {
	gpus int
	// trace is the ITP trace whose own cluster was nearest in size; days are drawn
	// from it, as many as it takes for T to be long beside most run times. 0 is as
	// many as the trace has.
	trace string
	days  int
	// synth jobs are made up, of gangs that take a quarter of the cluster at most.
	synth int
}

// full takes about ten minutes on two cores, with all that belongs to it.
var full = []size{{64, "cluster06", 0, 1500}, {256, "cluster07", 30, 2500}, {1024, "cluster04", 30, 4000}, {4096, "itp", 20, 5000}}

// small are the sizes of a quick study.
var small = []size{{64, "cluster06", 30, 600}, {256, "cluster07", 20, 1000}, {1024, "cluster04", 20, 1500}, {4096, "itp", 20, 2000}}

// others are the ITP traces that no size has, on 256 GPUs. cluster10 has too few
// jobs by itself, and is part of "itp".
var others = []string{"cluster02", "cluster03", "cluster09"}

// Cells lists all comparisons. Quick ones are of fewer days and jobs, with two
// seeds: they show that all works, and roughly what comes of it.
func Cells(quick bool) []Cell {
	var out []Cell
	base := Cell{Load: headlineLoad, Sigma: 1, Restart: 1, Policies: compared, Seeds: 5}
	sizes, sensitive, days := full, 12, 30
	if quick {
		sizes, sensitive, days, base.Seeds = small, 10, 20, 2
	}
	add := func(kind, id string, change func(*Cell)) {
		c := base
		c.Kind, c.ID = kind, kind+"-"+id
		change(&c)
		out = append(out, c)
	}
	for _, s := range sizes {
		add(KindHeadline, fmt.Sprintf("%d-%s", s.gpus, s.trace), func(c *Cell) {
			c.GPUs, c.Trace, c.Days, c.Curves = s.gpus, s.trace, s.days, true
			c.withOracle()
		})
		add(KindHeadline, fmt.Sprintf("%d-%s", s.gpus, synthetic), func(c *Cell) {
			c.GPUs, c.Trace, c.Jobs = s.gpus, synthetic, s.synth
			c.withOracle()
		})
	}
	for _, trace := range others {
		add(KindTraces, trace, func(c *Cell) {
			c.GPUs, c.Trace, c.Days = 256, trace, days
			c.withOracle()
		})
	}
	addSensitive(add, sizes[1], sensitive)
	return append(out, costCells(quick)...)
}

// addSensitive adds the comparisons of a cluster in the middle, each with something
// else otherwise.
func addSensitive(add func(kind, id string, change func(*Cell)), size size, days int) {
	middle := func(c *Cell) { c.GPUs, c.Trace, c.Days = size.gpus, size.trace, days }
	add(KindRows, "256", func(c *Cell) {
		middle(c)
		c.Policies = []string{backfill, caravan, "backfill@oracle", oracle, "backfill@no-estimates", "caravan@no-estimates", "caravan@elastic30", "caravan@elastic100", "backfill@elastic100"}
	})
	for _, load := range []float64{0.7, 0.8, 0.9, 1, 1.1, 1.2} {
		add(KindLoad, fmt.Sprintf("%g", load), func(c *Cell) { middle(c); c.Load = load })
	}
	for _, sigma := range []float64{0, 0.5, 1, 2} {
		add(KindEstimates, fmt.Sprintf("%g", sigma), func(c *Cell) { middle(c); c.Sigma, c.Policies = sigma, []string{backfill, caravan, staying} })
	}
	for _, factor := range []float64{0, 1, 4} {
		add(KindRestart, fmt.Sprintf("%g", factor), func(c *Cell) {
			middle(c)
			c.Restart, c.Policies = factor, []string{backfill, caravan, staying, "las", "gittins"}
		})
	}
	add(KindSaves, "256", func(c *Cell) {
		middle(c)
		c.Policies = []string{backfill, caravan, "caravan@unsaved25", "caravan@unsaved50", "caravan@unsaved75", "caravan@unsaved100", staying, "caravan+unsaved@unsaved50"}
	})
	add(KindInteractive, "1", func(c *Cell) {
		middle(c)
		c.Load, c.Policies = 1, []string{backfill, caravan, "caravan+lend", "caravan+reserve", staying, reserving, reservingMost}
	})
	for _, trace := range []string{size.trace, synthetic} {
		add(KindAblation, trace, func(c *Cell) {
			middle(c)
			c.Policies = ablations()
			if trace == synthetic {
				c.Trace, c.Days, c.Jobs = synthetic, 0, size.synth
			}
		})
	}
}

// withOracle adds the row of known run times, where that is soon played.
func (c *Cell) withOracle() {
	if c.GPUs <= 256 {
		c.Policies = append(slices.Clone(c.Policies), oracle)
	}
}

// ablations are the default policy and what is left of it without one part.
func ablations() []string {
	return []string{caravan, staying, "caravan+no-size-delay", "caravan+no-backfill", "caravan+easy", "caravan+no-passing", "caravan+no-elastic", "caravan+defrag", staying + "+no-backfill", staying + "+easy", "fifo+conservative", "sjf+conservative", "caravan@no-estimates"}
}
