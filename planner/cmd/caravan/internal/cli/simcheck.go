package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// comparison is what the flags ask for, but for the jobs, and how these are read. All
// faults are found before the trace is opened: one of ten million rows takes minutes to
// read, and so nobody is told of a wrong flag after it, or of one at a time.
func (a *app) comparison(cmd *cobra.Command, f *simFlags) (sim.Comparison, trace.Options, error) {
	c := sim.Comparison{
		Policies: f.policies, Load: f.load, Unscaled: f.unscaled, Seeds: f.seeds, Replay: f.replay, Sigma: f.sigma, Elastic: f.elastic, Interval: f.interval,
		Restart: sim.DefaultRestart, Failures: sim.Failures{PerNodeDay: f.perNodeDay, Repair: f.repairs}, Even: f.even, Workers: f.workers,
		Divide: f.divide, Interference: f.interfere, ElasticModel: f.elasticSpeed == elasticModel,
	}
	read, err := f.trace.options()
	faults := []error{err, f.clashes(cmd)}
	add := func(err error) { faults = append(faults, err) }
	if f.trace.file == "" {
		add(errNoTrace)
	}
	if f.events != "" && sameFile(f.events, f.trace.file) {
		add(usage("--events %s is the trace: want another file", f.events))
	}
	if f.maxJobs < 1 {
		add(usage("--max-jobs %d: want 1 or more", f.maxJobs))
	}
	if len(f.oversubscribed) == 2 {
		c.Oversubscription = sim.Oversubscription{Rack: f.oversubscribed[0], Block: f.oversubscribed[1]}
		if c.Oversubscription == (sim.Oversubscription{}) { // which stands for the default
			add(usage("--oversubscription 0 above racks, 0 above blocks: want 1 or more"))
		}
	} else {
		c.Oversubscription = sim.DefaultOversubscription
		add(usage("--oversubscription: %d numbers: want two, above racks and above blocks", len(f.oversubscribed)))
	}
	if f.elasticSpeed != elasticLinear && f.elasticSpeed != elasticModel {
		add(usage("--elastic-speed %q: want %s or %s", f.elasticSpeed, elasticLinear, elasticModel))
	}
	c.Cluster, err = a.simCluster(f)
	if add(err); err == nil {
		add(f.partsClashes(cmd, &c.Cluster))
	}
	add(a.ownPolicies(f, &c))
	add(a.simPools(f, &c))
	if err := c.Validate(); err != nil {
		add(usage("%w", err))
	}
	return c, read, together(faults...)
}

// sameFile reports whether two names are of one file.
func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// together are faults as one, of the command line as soon as one of them is.
func together(faults ...error) error {
	err := errors.Join(faults...)
	var of *exit
	if errors.As(err, &of) {
		return usage("%w", err)
	}
	return err
}

// elasticClash refuses to say how much faster elastic jobs are with more nodes where
// there are none.
func (f *simFlags) elasticClash(jobs []trace.Job) error {
	if f.elasticSpeed == elasticLinear || f.elastic > 0 {
		return nil
	}
	for _, row := range f.policies {
		if _, words, _ := strings.Cut(row, "@"); strings.Contains(words, "elastic") {
			return nil
		}
	}
	for i := range jobs {
		if jobs[i].Max > 0 {
			return nil
		}
	}
	return usage("--elastic-speed %s without elastic jobs: there are none in %s (min_gpus, max_gpus), and neither --elastic nor @elastic30 or @elastic100 behind a policy makes some", f.elasticSpeed, f.trace.file)
}

// simPools reads the pools file, if there is one: all jobs may have nodes bought.
func (a *app) simPools(f *simFlags, c *sim.Comparison) error {
	c.Burst = burst.Policy{Default: model.BurstAllow, WaitOver: f.burstWait}
	if err := c.Burst.Validate(); err != nil {
		return usage("%w", err)
	}
	if f.pools == "" {
		if f.burstWait > 0 {
			return usage("--burst-wait %s without --pools: there is nowhere to buy nodes", f.burstWait)
		}
		return nil
	}
	src, err := readFile(a.env, f.pools)
	if err != nil {
		return fmt.Errorf("read pools: %w", err)
	}
	pools, err := pool.Parse(src, f.pools)
	if err != nil {
		return err
	}
	if len(pools.Pools) == 0 {
		return fmt.Errorf("%s has no pool: want a block pool \"NAME\" { … } for each, or leave --pools out", f.pools)
	}
	c.Pools = (&config.Burst{Pools: pools}).BuyPools(c.Cluster.Levels)
	for i := range c.Pools.Pools {
		// What a job asks for besides GPUs is not simulated.
		c.Pools.Pools[i].Node.Levels, c.Pools.Pools[i].Near = nil, ""
	}
	return nil
}

// ownPolicies reads the files that the flags name.
func (a *app) ownPolicies(f *simFlags, c *sim.Comparison) error {
	var faults []error
	if f.queues != "" {
		src, err := readFile(a.env, f.queues)
		if err != nil {
			err = fmt.Errorf("read queues: %w", err)
		} else {
			c.Queues, err = config.ParseQueues(src, f.queues)
		}
		faults = append(faults, err)
	}
	c.Own, c.HalfLives = map[string]core.Policy{}, map[string]time.Duration{}
	for _, row := range f.policies {
		name, _, _ := strings.Cut(row, "@")
		if !strings.HasSuffix(name, ".hcl") {
			continue
		}
		c.Own[name] = core.Policy{} // of one with faults no more is said than these
		src, err := readFile(a.env, name)
		if err != nil {
			faults = append(faults, fmt.Errorf("read policy: %w", err))
			continue
		}
		p, err := config.ParsePolicy(src, name, config.Default().Levels)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		c.Own[name], c.HalfLives[name] = p.Policy, p.HalfLife
	}
	return errors.Join(faults...)
}

func (a *app) simCluster(f *simFlags) (sim.Cluster, error) {
	if f.cluster == "" {
		c, err := sim.Regular(f.gpus, f.perNode)
		if err != nil {
			return c, usage("%w", err)
		}
		return c, nil
	}
	src, err := readFile(a.env, f.cluster)
	if err != nil {
		return sim.Cluster{}, fmt.Errorf("read cluster: %w", err)
	}
	return sim.ParseCluster(src, f.cluster)
}
