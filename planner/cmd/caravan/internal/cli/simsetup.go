package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/report"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// simSetup is what was simulated.
type simSetup struct {
	// File is the trace's name, "-" for standard input, and Form what form it was read as.
	File        string     `json:"trace_file"`
	Form        string     `json:"trace_format"`
	Trace       trace.Kept `json:"trace"`
	GPUs        int        `json:"gpus"`
	GPUsPerNode int        `json:"gpus_per_node"`
	// Warnings are what makes one doubt the trace's times, or says of what nothing is known.
	Warnings []string `json:"warnings,omitempty"`
	// Load is what was asked for or, Unscaled, what the submissions come to as they are,
	// on average over the seeds.
	Load     float64 `json:"load"`
	Unscaled bool    `json:"unscaled,omitempty"`
	// Factors are by what submissions were moved to reach the load, by seed.
	Factors []float64 `json:"arrival_factors"`
	// TooLarge counts the jobs that are larger than the cluster, by seed; FirstTooLarge
	// is the name of the first, and tooLarge says it all.
	TooLarge      []int  `json:"too_large"`
	FirstTooLarge string `json:"first_too_large,omitempty"`
	tooLarge      string
	// GPUModels is what was made of the GPU models that jobs of the trace name, nil where
	// none does.
	GPUModels *sim.Fitting `json:"gpu_models,omitempty"`
	Estimates float64      `json:"estimate_sigma"`
	Elastic   float64      `json:"elastic"`
	IntervalS float64      `json:"interval_s"`
	// ElasticSpeed is how much faster elastic jobs are with more nodes.
	ElasticSpeed string `json:"elastic_speed"`
	// Bootstrap: days of the trace were drawn, for each seed others.
	Bootstrap bool `json:"bootstrap"`
	// SpeedByPlace: jobs are slower where their GPUs are far apart.
	SpeedByPlace bool `json:"speed_by_place"`
	// Oversubscription is that above racks and above blocks, where speed is by place.
	Oversubscription []float64 `json:"oversubscription,omitempty"`
	// Failures are of each node in a day, and RepairS how long it is away.
	Failures     float64 `json:"failures_per_node_day"`
	RepairS      float64 `json:"repair_s"`
	DivideS      float64 `json:"divide_s"`
	Interference float64 `json:"interference"`
	// BurstWaitS is after what wait nodes are bought; 0 is never.
	BurstWaitS float64 `json:"burst_wait_s"`
	// Cluster, Queues and Pools are the names of the files, "" where there is none.
	Cluster string `json:"cluster,omitempty"`
	Queues  string `json:"queues,omitempty"`
	Pools   string `json:"pools,omitempty"`
}

// loadSaid is the load, and by what submissions were moved for it.
func (s *simSetup) loadSaid() string {
	if s.Unscaled {
		return fmt.Sprintf("%.3g, as submitted", s.Load)
	}
	return fmt.Sprintf("%g; submissions moved by × %.3g on average", s.Load, sim.Of(s.Factors).Mean)
}

// omitted says which rows of the trace are not played, and why; nothing if all are.
func (s *simSetup) omitted() []string {
	lines := keptSaid(&s.Trace)
	if f := s.GPUModels; f != nil && f.Without > 0 {
		lines = append(lines, modelsSaid(f))
	}
	if s.tooLarge != "" {
		lines = append(lines, s.tooLarge)
	}
	return lines
}

// modelsSaid is what is to be said of the GPU models that jobs name; "": nothing.
func modelsSaid(f *sim.Fitting) string {
	switch {
	case f.Ignored:
		return fmt.Sprintf("%d jobs name GPU models that they may run on, which counts for nothing: the cluster has one model; describe yours with --cluster FILE", f.Named)
	case f.Lacking == 0 && f.Without == 0:
		return ""
	}
	text := fmt.Sprintf("%d of %d jobs that name GPU models name some that the cluster has not (%s)", f.Lacking, f.Named, strings.Join(f.Models, ", "))
	if f.Without > 0 {
		text += fmt.Sprintf("; %d of them name no other one, and are left out: the first is %s", f.Without, f.First)
	}
	return text
}

// setup is what the flags say is simulated.
func (f *simFlags) setup(c *sim.Comparison, kept trace.Kept) simSetup {
	name := func(file string) string {
		if file == "" {
			return ""
		}
		return filepath.Base(file)
	}
	out := simSetup{
		File: name(f.trace.file), Form: f.trace.format, Trace: kept, GPUs: c.Cluster.GPUs, GPUsPerNode: c.Cluster.PerNode, Load: f.load, Unscaled: f.unscaled, Estimates: f.sigma, Elastic: f.elastic, ElasticSpeed: f.elasticSpeed, IntervalS: f.interval,
		Bootstrap: !f.replay, SpeedByPlace: !f.even, Failures: f.perNodeDay, RepairS: f.repairs, DivideS: f.divide, Interference: f.interfere, BurstWaitS: f.burstWait.Seconds(),
		Cluster: name(f.cluster), Queues: name(f.queues), Pools: name(f.pools),
	}
	if !f.even {
		out.Oversubscription = f.oversubscribed
	}
	return out
}

// reportInput is what a report is made of: all that the results depend on is said.
func (f *simFlags) reportInput(out *simulated) report.Input {
	s := &out.Setup
	in := report.Input{Title: "Simulation of " + filepath.Base(f.trace.file), Policies: f.policies, Results: out.Results, GPUs: s.GPUs}
	add := func(name, format string, args ...any) {
		in.Setup = append(in.Setup, [2]string{name, fmt.Sprintf(format, args...)})
	}
	add("Trace", "%s (%s), %d jobs of %d rows", filepath.Base(f.trace.file), f.trace.format, s.Trace.Jobs, s.Trace.Rows)
	if s.Cluster == "" {
		add("Cluster", "%d GPUs, %d per node", s.GPUs, s.GPUsPerNode)
	} else {
		add("Cluster", "%s: %d GPUs, at most %d whole ones on a node", s.Cluster, s.GPUs, s.GPUsPerNode)
	}
	add("Load", "%s", s.loadSaid())
	if s.Bootstrap {
		add("Seeds", "%d, each with days drawn from the trace", f.seeds)
	} else {
		add("Seeds", "%d, each with the trace as it is, so that intervals are of what else is drawn", f.seeds)
	}
	for _, line := range s.omitted() {
		add("Not played", "%s", line)
	}
	for _, line := range out.failed {
		add("No result", "%s", line)
	}
	for _, line := range s.Warnings {
		add("Warning", "%s", line)
	}
	if s.GPUModels != nil && s.GPUModels.Ignored {
		add("GPU models", "%s", modelsSaid(s.GPUModels))
	}
	switch {
	case f.sigma < 0:
		add("Estimates", "none")
	case f.sigma == 0:
		add("Estimates", "exact")
	default:
		add("Estimates", "error sigma %g", f.sigma)
	}
	add("Decisions", "at most one every %g s", f.interval)
	f.addModelled(s, add)
	if s.Load >= 1 {
		add("Note", "at this load the queue grows for as long as jobs come: there is no steady state")
	}
	return in
}

// addModelled says what is modelled beside jobs and GPUs.
func (f *simFlags) addModelled(s *simSetup, add func(name, format string, args ...any)) {
	if s.SpeedByPlace {
		add("Speed", "by place; oversubscribed by %g above racks, by %g above blocks", s.Oversubscription[0], s.Oversubscription[1])
	} else {
		add("Speed", "the same everywhere (--even-speed)")
	}
	if s.Failures > 0 {
		add("Failures", "%g of each node in a day, away for %g s on average", s.Failures, s.RepairS)
	} else {
		add("Failures", "none")
	}
	if s.Elastic > 0 {
		add("Elastic", "%g of the whole-node jobs", s.Elastic)
	}
	if s.ElasticSpeed == elasticModel {
		add("Elastic speed", "by the model of speed by place")
	}
	if s.Cluster != "" {
		add("Parts of GPUs", "dividing takes %g s; interference %g", s.DivideS, s.Interference)
	}
	if s.Queues != "" {
		add("Queues", "%s", s.Queues)
	}
	switch {
	case s.Pools != "" && s.BurstWaitS > 0:
		add("Bought nodes", "%s; by deadlines, and for who waits for longer than %s", s.Pools, f.burstWait)
	case s.Pools != "":
		add("Bought nodes", "%s; by deadlines", s.Pools)
	}
}
