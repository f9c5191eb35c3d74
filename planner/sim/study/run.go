package study

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/trace"
	"github.com/caravan-sched/caravan/planner/sim/wholefile"
)

// Options say how a study is made.
type Options struct {
	// Traces is the directory of the ITP traces, clusterNN.csv.gz.
	Traces string
	// Out is the directory for what came of each cell, which is made. Cells that
	// are there already, of the same study and version, are not played again.
	Out   string
	Cells []Cell
	// Version is the program's: another one's results do not count.
	Version string
	Workers int
	// Progress is told how many jobs are done of how many, by one run at a time; nil:
	// nobody is.
	Progress func(done, total int)
}

// Played is what came of a cell.
type Played struct {
	Cell    Cell         `json:"cell"`
	Version string       `json:"version"`
	Results []sim.Result `json:"results"`
	// Jobs are how many were played and Factors by what their submissions were
	// moved, by seed.
	Jobs    []int     `json:"jobs"`
	Factors []float64 `json:"arrival_factors"`
	// Curves are of the first seed, by policy.
	Curves map[string]Curves `json:"curves,omitempty"`
	// LeastP99 are bounds of the 99th percentile, by seed, where the policies are
	// compared; see conditionSlack.
	LeastP99 []sim.LeastP99 `json:"least_p99,omitempty"`
	// Soon is what it takes that interactive jobs start soon, by seed, where the policies
	// are compared.
	Soon []Soon `json:"interactive,omitempty"`
	// Costs are of fleets, in a cell of KindCost.
	Costs []Cost `json:"costs,omitempty"`
}

// Curves are what a cell's plots show.
type Curves struct {
	// JCT are completion times in hours, at even parts of the cohort.
	JCT []float64 `json:"jct_h"`
	// Day, Busy, Stranded and Queue are over time: parts of all GPUs, and the
	// GPUs asked for by those who wait as a multiple of the cluster.
	Day      []float64 `json:"day"`
	Busy     []float64 `json:"busy"`
	Stranded []float64 `json:"stranded"`
	Queue    []float64 `json:"queue"`
}

// restartBase is what it takes to restart, before a cell's factor.
func (c *Cell) restart() sim.Restart {
	r := sim.DefaultRestart
	r.Base *= c.Restart
	return r
}

// comparison makes a cell's comparison.
func (c *Cell) comparison(jobs []trace.Job, workers int) (*sim.Comparison, error) {
	cluster, err := sim.Regular(c.GPUs, perNode)
	if err != nil {
		return nil, err
	}
	return &sim.Comparison{
		Cluster: cluster, Jobs: jobs, Policies: c.Policies, Load: c.Load, Seeds: c.Seeds, Days: c.Days,
		Sigma: c.Sigma, Interval: interval, Restart: c.restart(), Workers: workers,
	}, nil
}

// jobs reads or makes a cell's trace.
func (o *Options) jobs(c *Cell) ([]trace.Job, error) {
	if c.Trace == synthetic {
		return trace.Synthetic{Jobs: c.Jobs, Days: 20, GPUsPerNode: perNode, MaxNodes: max(2, c.GPUs/perNode/4), Small: 0.5, Seed: 1}.Make()
	}
	if c.Trace != "itp" {
		return readITP(filepath.Join(o.Traces, c.Trace+".csv.gz"), "")
	}
	files, err := filepath.Glob(filepath.Join(o.Traces, "cluster*.csv.gz"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("read traces: no cluster*.csv.gz in %q", o.Traces)
	}
	slices.Sort(files)
	var all []trace.Job
	for _, file := range files {
		jobs, err := readITP(file, strings.TrimSuffix(filepath.Base(file), ".csv.gz"))
		if err != nil {
			return nil, err
		}
		all = append(all, jobs...)
	}
	trace.Sort(all)
	return all, nil
}

func readITP(name, queue string) ([]trace.Job, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read traces: %w", err)
	}
	defer file.Close()
	jobs, _, err := trace.Read(file, trace.Options{Format: trace.FormatITP})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i := range jobs {
		jobs[i].Queue = queue
	}
	return jobs, nil
}

// Run plays all cells, one after the other, those that are not there yet.
func Run(ctx context.Context, o Options) ([]Played, error) {
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, fmt.Errorf("write study: %w", err)
	}
	out := make([]Played, len(o.Cells))
	made := make([]*sim.Comparison, len(o.Cells))
	total, done := 0, 0
	for i := range o.Cells {
		c := &o.Cells[i]
		found, err := o.load(c)
		if err != nil {
			return nil, err
		}
		if found != nil {
			out[i] = *found
			continue
		}
		jobs, err := o.jobs(c)
		if err != nil {
			return nil, err
		}
		if made[i], err = c.comparison(jobs, o.Workers); err != nil {
			return nil, err
		}
		if out[i], err = prepared(c, made[i]); err != nil {
			return nil, err
		}
		for _, n := range out[i].Jobs {
			total += n * len(c.Policies)
		}
	}
	for i, c := range made {
		if c == nil {
			continue
		}
		before := done
		if o.Progress != nil {
			var one sync.Mutex
			c.Progress = func(now int) {
				one.Lock()
				defer one.Unlock()
				o.Progress(before+now, total)
			}
		}
		if err := o.play(ctx, &out[i], c); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Cells[i].ID, err)
		}
		for _, n := range out[i].Jobs {
			done += n * len(o.Cells[i].Policies)
		}
	}
	return out, nil
}

// prepared is a cell that is not played yet.
func prepared(c *Cell, comparison *sim.Comparison) (Played, error) {
	p := Played{Cell: *c}
	for seed := range c.Seeds {
		jobs, err := comparison.Prepare(seed + 1)
		if err != nil {
			return p, fmt.Errorf("%s: %w", c.ID, err)
		}
		p.Jobs, p.Factors = append(p.Jobs, len(jobs.Jobs)), append(p.Factors, jobs.Factor)
	}
	return p, nil
}

// play plays a cell and writes down what came of it.
func (o *Options) play(ctx context.Context, p *Played, c *sim.Comparison) error {
	if p.Cell.Kind == KindCost {
		return o.playCosts(ctx, p, c)
	}
	results, err := c.Run(ctx)
	if err != nil {
		return err
	}
	p.Version = o.Version
	if p.Cell.Curves {
		p.Curves = map[string]Curves{}
		for i := range results {
			if r := &results[i]; r.Seed == 1 {
				p.Curves[r.Policy] = curvesOf(r.Outcome, float64(p.Cell.GPUs))
			}
		}
	}
	if p.Cell.Kind == KindHeadline || p.Cell.Kind == KindTraces {
		p.LeastP99 = least(results, o.Workers)
	}
	if slices.Contains(p.Cell.Policies, caravan) && slices.Contains(p.Cell.Policies, backfill) {
		p.Soon = soon(results)
	}
	for i := range results {
		results[i].Outcome = nil
	}
	p.Results = results
	return o.write(p)
}

// write keeps what came of a cell.
func (o *Options) write(p *Played) error {
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return fmt.Errorf("write study: %w", err)
	}
	if err := wholefile.Write(o.file(&p.Cell), data); err != nil {
		return fmt.Errorf("write study: %w", err)
	}
	return nil
}

func (o *Options) file(c *Cell) string { return filepath.Join(o.Out, c.ID+".json") }

// load reads what came of a cell; nil if that is not there, or of another one.
func (o *Options) load(c *Cell) (*Played, error) {
	data, err := os.ReadFile(o.file(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read study: %w", err)
	}
	var p Played
	if json.Unmarshal(data, &p) != nil || p.Version != o.Version || !reflect.DeepEqual(p.Cell, *c) {
		return nil, nil
	}
	return &p, nil
}

// points is how many points a curve has.
const points = 200

func curvesOf(o *sim.Outcome, gpus float64) Curves {
	var c Curves
	var times []float64
	for _, j := range o.Done() {
		if j.Cohort {
			times = append(times, max(j.Ended-j.Submit, 1)/3600)
		}
	}
	slices.Sort(times)
	for k := range points {
		if len(times) > 0 {
			c.JCT = append(c.JCT, times[(len(times)-1)*k/(points-1)])
		}
	}
	samples := o.Samples()
	until := 0
	for until < len(samples) && samples[until].At <= o.Horizon() {
		until++
	}
	step := max(1, until/points)
	for i := 0; i+step <= until; i += step {
		busy, stranded, queue := 0.0, 0.0, 0.0
		for _, s := range samples[i : i+step] {
			busy += float64(s.Busy)
			stranded += float64(s.Fillable + s.Fragmented)
			queue += float64(s.WaitingGPUs)
		}
		n := float64(step) * gpus
		c.Day, c.Busy, c.Stranded, c.Queue = append(c.Day, samples[i].At/86400), append(c.Busy, busy/n), append(c.Stranded, stranded/n), append(c.Queue, queue/n)
	}
	return c
}
