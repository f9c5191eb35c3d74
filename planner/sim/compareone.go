package sim

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

func (c *Comparison) one(ctx context.Context, policy string, seed int, p *Prepared, finished *atomic.Int64) (*Outcome, error) {
	cluster, jobs := c.Cluster, p.Jobs
	switch row, _, err := c.variantOf(policy); {
	case err != nil:
	case row == PolicyKube || row == PolicyKubeQuota:
		if cluster.InParts() { // it gives nobody a part
			cluster, jobs = cluster.Plain(), asWhole(jobs)
		}
	case len(c.Pools.Pools) > 0:
		cluster = cluster.WithPools(c.Pools)
	}
	scheduler, err := c.scheduler(policy, jobs, cluster)
	if err != nil {
		return nil, err
	}
	s := Setup{
		Cluster: cluster, Jobs: jobs, Divide: c.Divide, Interference: c.Interference, Estimates: p.Estimates, Unsaved: p.Unsaved, Scheduler: scheduler, Interval: c.Interval,
		Restart: c.Restart, Checkpoints: DefaultCheckpoints, Failures: c.Failures, Seed: uint64(seed), Spans: c.Spans,
	}
	if !c.Even {
		speed := NewSpeed(&cluster, H100NDR(c.Oversubscription))
		s.Speed = speed
		if c.ElasticModel {
			s.Growth = speed.Grows
		}
		if p, asks := scheduler.(*planner); asks {
			p.growth = s.Growth
		}
	}
	if c.Log != nil {
		s.Log = c.Log(policy, seed)
	}
	if c.Progress != nil {
		before := 0
		s.Progress = func(done int) {
			c.Progress(int(finished.Add(int64(done - before))))
			before = done
		}
	}
	return Run(ctx, s)
}

// policyOf is the planner's policy of a name, an operator's own first.
func (c *Comparison) policyOf(name string) (core.Policy, error) {
	if own, known := c.Own[name]; known {
		return own, nil
	}
	return PolicyOf(name)
}

func (c *Comparison) scheduler(row string, jobs []trace.Job, cluster Cluster) (Scheduler, error) {
	policy, _, err := c.variantOf(row)
	if err != nil {
		return nil, err
	}
	switch policy {
	case PolicyKube:
		return NewKube(cluster, nil, nil), nil
	case PolicyKubeQuota:
	default:
		p, err := c.policyOf(policy)
		if err != nil {
			return nil, err
		}
		if len(cluster.Burst.Pools) > 0 {
			p.Burst = c.Burst
		}
		halfLife, own := c.HalfLives[policy]
		if !own {
			halfLife = config.DefaultHalfLife
		}
		return newPlanner(cluster, p, c.Queues, halfLife)
	}
	largest := map[string]int{}
	for i := range jobs {
		largest[jobs[i].Queue] = max(largest[jobs[i].Queue], jobs[i].GPUs)
	}
	var queues []string
	for q := range largest {
		queues = append(queues, q)
	}
	slices.Sort(queues)
	return NewKube(cluster, queues, largest), nil
}
