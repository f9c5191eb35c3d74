package study

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// KindCost are comparisons of fleets, with and without bought nodes, under
// deadlines.
const KindCost = "cost"

// The rows of such a comparison: fleets. Those on premises only are the fixed one, and
// the smallest that meet as many deadlines as the one that buys on demand, as mostMet
// has it, and as the one that buys for long waits.
const (
	rowPremises     = "on premises only, smallest"
	rowPremisesMost = "on premises only, 99 % met"
	rowPremisesWait = "on premises only, as long waits"
	rowFixed        = "on premises only, fixed"
	rowDemand       = "smaller, buys on demand"
	rowSpot         = "smaller, buys spot and on demand"
)

var costRows = []string{rowPremises, rowPremisesMost, rowPremisesWait, rowFixed, rowDemand, rowSpot, rowWait}

// mostMet is what part of the deadlines a fleet is to meet that meets most of them.
const mostMet = 0.99

// priceRatios are prices of a bought GPU for an hour, on demand, by that of an owned
// one. Only sums of money depend on them: with one pool and no budget the price of
// both markets grows alike, and with it all that is compared.
var priceRatios = []float64{1.5, 2, 3}

// The pool and the fleets.
const (
	// spotPart is what spot costs by on demand, and spotLife how long such a node
	// lives on average.
	spotPart = 0.4
	spotLife = 24 * time.Hour
	bootTime = 6 * time.Minute
	// smaller is what a fleet that buys has of the fixed one: of the sizes that are tried
	// those of three quarters and of seven eighths cost least, nearly the same, and the
	// larger meets more deadlines. most is how many times as large a fleet is tried.
	smaller = 0.875
	most    = 4
)

// The deadlines: each job is to have ended within leastSlack to mostSlack times its
// run time after it was submitted, drawn evenly, and never within less than slackFloor
// seconds.
const (
	leastSlack, mostSlack = 1.5, 5
	slackFloor            = 3600
)

// Cost is what a fleet comes to in one seed.
type Cost struct {
	Row  string `json:"row"`
	Seed int    `json:"seed"`
	// GPUs are the owned ones. Owned are their hours until the last job has ended,
	// and Busy those in which a job had them.
	GPUs  int     `json:"gpus"`
	Owned float64 `json:"owned_gpu_hours"`
	Busy  float64 `json:"busy_gpu_hours"`
	// Bought is what was paid for bought nodes, were their GPUs on demand as dear as
	// owned ones.
	Bought float64 `json:"bought"`
	Jobs   int     `json:"jobs"`
	// Met is the part of the deadlines that was met.
	Met      float64 `json:"deadlines_met"`
	QueueP95 float64 `json:"queue_p95_s"`
	// Short: this row was to meet as many deadlines as one that buys, and no fleet
	// that was tried does.
	Short bool `json:"short,omitempty"`
	// Size: the row is one of several of its kind, that differ in what they own.
	Size bool `json:"size,omitempty"`
}

// perRun is the cost per job where bought hours have a price ratio; busy counts only
// the owned hours that somebody used.
func (c *Cost) perRun(ratio float64, busy bool) float64 {
	hours := c.Owned
	if busy {
		hours = c.Busy
	}
	return (hours + ratio*c.Bought) / float64(c.Jobs)
}

// withDeadlines gives every job a deadline.
func withDeadlines(jobs []trace.Job, seed int) []trace.Job {
	rng := rand.New(rand.NewPCG(uint64(seed), 0xdead))
	out := make([]trace.Job, len(jobs))
	for i, j := range jobs {
		slack := leastSlack + (mostSlack-leastSlack)*rng.Float64()
		j.Deadline = j.Submit + max(slackFloor, slack*j.Duration)
		out[i] = j
	}
	return out
}

// cloudOf is one pool, with as many nodes as the fixed fleet; spot 0 is a pool without.
func cloudOf(node model.Node, nodes int, spot float64) model.Burst {
	node.ID, node.Levels = "cloud", nil
	price := float64(len(node.GPUs))
	return model.Burst{Pools: []model.BuyPool{{
		Name: "cloud", Node: node, Quota: nodes, OnDemand: price, Spot: spot * price, SpotLifetime: spotLife,
		Boot: bootTime, Join: 15 * time.Minute, MinBilling: time.Minute, Period: time.Second,
	}}}
}

// fleets plays one seed of a cell on fleets of several sizes.
type fleets struct {
	cell      *Cell
	seed      int
	jobs      []trace.Job
	estimates []float64
	restart   sim.Restart
	// price is of on-demand nodes, by owned ones; tests change it.
	price float64
	first *sim.Outcome
}

// play plays a fleet of so many nodes; spot below 0 is one that buys nothing.
func (f *fleets) play(ctx context.Context, row string, nodes int, spot float64) (Cost, error) {
	cluster, err := sim.Regular(nodes*perNode, perNode)
	if err != nil {
		return Cost{}, err
	}
	policy, err := sim.PolicyOf(f.cell.Policies[0])
	if err != nil {
		return Cost{}, err
	}
	if spot >= 0 {
		b := cloudOf(cluster.Nodes[0], f.cell.GPUs/perNode, spot)
		b.Pools[0].OnDemand *= f.price
		b.Pools[0].Spot *= f.price
		if row == rowWait {
			b.Pools[0].Quota *= waitQuota
		}
		cluster = cluster.WithPools(b)
		policy.Burst = burst.Policy{Default: model.BurstAllow}
		if row == rowWait {
			policy.Burst.WaitOver = waitOver
		}
	}
	jobs := f.jobs
	if row == rowWait {
		jobs = withoutDeadlines(jobs)
	}
	planner, err := sim.NewPlanner(cluster, policy, nil)
	if err != nil {
		return Cost{}, err
	}
	out, err := sim.Run(ctx, sim.Setup{
		Cluster: cluster, Jobs: jobs, Estimates: f.estimates, Scheduler: planner, Interval: interval, Restart: f.restart,
		Checkpoints: sim.DefaultCheckpoints, Seed: uint64(f.seed), Spans: nodes * perNode, Speed: sim.NewSpeed(&cluster, sim.H100NDR(sim.DefaultOversubscription)),
	})
	if err != nil {
		return Cost{}, fmt.Errorf("%s, %d nodes, seed %d: %w", row, nodes, f.seed, err)
	}
	if row == rowFixed {
		f.first = out
	}
	m := out.Metrics()
	c := Cost{Row: row, Seed: f.seed, GPUs: nodes * perNode, Owned: float64(nodes*perNode) * out.End() / 3600, Bought: m.Bought / f.price, Jobs: m.Jobs, Met: m.DeadlinesMet, QueueP95: m.QueueP95}
	if row == rowWait {
		c.Met = met(out.Done(), f.jobs)
	}
	for _, s := range out.Spans() {
		c.Busy += (s.To - s.From) / 3600
	}
	return c, nil
}

// all plays the rows: those that buy, the fixed one, the smallest that buy nothing and
// meet as many deadlines, and those that buy and own more, or less.
func (f *fleets) all(ctx context.Context) ([]Cost, error) {
	less := smallerNodes(f.cell.GPUs)
	var buy []Cost
	for _, r := range buyers {
		c, err := f.play(ctx, r.row, less, r.spot)
		if err != nil {
			return nil, err
		}
		buy = append(buy, c)
	}
	own, err := f.play(ctx, rowFixed, f.cell.GPUs/perNode, -1)
	if err != nil {
		return nil, err
	}
	tried := map[int]Cost{own.GPUs / perNode: own}
	var out []Cost
	for _, least := range []struct {
		row string
		met float64
	}{{rowPremises, buy[0].Met}, {rowPremisesMost, mostMet}, {rowPremisesWait, buy[2].Met}} {
		c, err := f.smallest(ctx, tried, least.row, least.met)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	sizes, err := f.sizes(ctx, less)
	return slices.Concat(out, []Cost{own}, buy, sizes), err
}

// smallest is the smallest fleet that buys nothing and meets a part of the deadlines,
// found by bisection.
func (f *fleets) smallest(ctx context.Context, tried map[int]Cost, row string, met float64) (Cost, error) {
	var fault error
	try := func(nodes int) Cost {
		if c, there := tried[nodes]; there || fault != nil {
			return c
		}
		tried[nodes], fault = f.play(ctx, rowPremises, nodes, -1)
		return tried[nodes]
	}
	less := smallerNodes(f.cell.GPUs)
	c := try(less + sort.Search(most*f.cell.GPUs/perNode-less, func(k int) bool { return try(less+k).Met >= met }))
	c.Row, c.Short = row, c.Met < met
	return c, fault
}

func smallerNodes(gpus int) int { return max(1, int(smaller*float64(gpus/perNode))) }

// interval is how often is decided at most, in seconds.
const interval = sim.DefaultInterval

// playCosts plays all seeds of a cell, several at once.
func (o *Options) playCosts(ctx context.Context, p *Played, c *sim.Comparison) error {
	costs, fixed := make([][]Cost, p.Cell.Seeds), make([]sim.Result, p.Cell.Seeds)
	g, ctx := errgroup.WithContext(ctx)
	workers := o.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	g.SetLimit(workers)
	for k := range p.Cell.Seeds {
		g.Go(func() error {
			prepared, err := c.Prepare(k + 1)
			if err != nil {
				return err
			}
			jobs, _ := trace.Fit(withDeadlines(prepared.Jobs, k+1), func(gpus int) bool { return gpus <= smallerNodes(p.Cell.GPUs)*perNode })
			f := &fleets{cell: &p.Cell, seed: k + 1, jobs: jobs, restart: c.Restart, price: 1, estimates: sim.Estimates(jobs, p.Cell.Sigma, uint64(k+1))}
			if costs[k], err = f.all(ctx); err != nil {
				return err
			}
			fixed[k] = sim.Result{Policy: p.Cell.Policies[0], Seed: k + 1, Metrics: f.first.Metrics()}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	p.Version, p.Results = o.Version, fixed
	for _, list := range costs {
		p.Costs = append(p.Costs, list...)
	}
	return o.write(p)
}
