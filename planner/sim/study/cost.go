package study

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
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

// The rows of such a comparison: fleets.
const (
	rowPremises = "on premises only, smallest"
	rowFixed    = "on premises only, fixed"
	rowDemand   = "smaller, buys on demand"
	rowSpot     = "smaller, buys spot and on demand"
)

var costRows = []string{rowPremises, rowFixed, rowDemand, rowSpot, rowWait}

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
	// smaller is what a fleet that buys has of the fixed one, and most how many times
	// as large a fleet is tried.
	smaller = 0.75
	most    = 2
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
	policy, err := sim.PolicyOf(caravan)
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

// all plays the rows: those that buy, the fixed one, and the smallest that meets as
// many deadlines as the one that buys on demand, found by bisection.
func (f *fleets) all(ctx context.Context) ([]Cost, error) {
	fixed := f.cell.GPUs / perNode
	less := smallerNodes(f.cell.GPUs)
	demand, err := f.play(ctx, rowDemand, less, 0)
	if err != nil {
		return nil, err
	}
	spot, err := f.play(ctx, rowSpot, less, spotPart)
	if err != nil {
		return nil, err
	}
	wait, err := f.play(ctx, rowWait, less, 0)
	if err != nil {
		return nil, err
	}
	own, err := f.play(ctx, rowFixed, fixed, -1)
	if err != nil {
		return nil, err
	}
	tried := map[int]Cost{fixed: own}
	var fault error
	try := func(nodes int) Cost {
		if c, there := tried[nodes]; there || fault != nil {
			return c
		}
		tried[nodes], fault = f.play(ctx, rowPremises, nodes, -1)
		return tried[nodes]
	}
	nodes := less + sort.Search(most*fixed-less, func(k int) bool { return try(less+k).Met >= demand.Met })
	least := try(nodes)
	if fault != nil {
		return nil, fault
	}
	least.Row, least.Short = rowPremises, least.Met < demand.Met
	return []Cost{least, own, demand, spot, wait}, nil
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
			fixed[k] = sim.Result{Policy: caravan, Seed: k + 1, Metrics: f.first.Metrics()}
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
