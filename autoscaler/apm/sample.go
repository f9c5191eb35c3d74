package apm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// Planner is who is asked.
type Planner interface {
	Status(ctx context.Context) (httpapi.Status, error)
	Queue(ctx context.Context) ([]httpapi.Job, error)
	Queues(ctx context.Context) ([]model.QueueUse, error)
	Burst(ctx context.Context) (burstapi.Answer, error)
}

// sample is all metrics at one time.
type sample struct {
	at     time.Time
	values map[string]float64
}

// take asks the planner. It fails where the planner is not sure of what it says.
func take(ctx context.Context, p Planner, now time.Time) (sample, error) {
	status, err := p.Status(ctx)
	if err != nil {
		return sample{}, fmt.Errorf("ask planner for its status: %w", err)
	}
	queue, err := p.Queue(ctx)
	if err != nil {
		return sample{}, fmt.Errorf("ask planner for the queue: %w", err)
	}
	queues, err := p.Queues(ctx)
	if err != nil {
		return sample{}, fmt.Errorf("ask planner for queues: %w", err)
	}
	burst, err := p.Burst(ctx)
	if err != nil {
		return sample{}, fmt.Errorf("ask planner for pools: %w", err)
	}
	if !burst.Leader {
		return sample{}, fmt.Errorf("the planner is not sure of the cluster: %s", burst.Why)
	}
	s := sample{at: now, values: map[string]float64{}}
	s.cluster(status.Counts, queue)
	s.queues(queues, queue, burst.Now)
	for _, pool := range burst.Pools {
		s.pool(pool, burst.Now)
	}
	return s, nil
}

// cluster adds the figures of the whole. Stranded are the free GPUs that those who
// wait would take, in their order, if place did not matter.
func (s sample) cluster(c httpapi.Counts, queue []httpapi.Job) {
	s.values["gpus"] = float64(c.GPUs)
	s.values["gpus_free"] = float64(c.FreeGPUs)
	s.values["gpus_used"] = float64(c.UsedGPUs)
	s.values["running_jobs"] = float64(c.Running)
	s.values["gpu_utilisation"], s.values["stranded_share"] = 0, 0
	if c.GPUs == 0 {
		return
	}
	left := c.FreeGPUs
	for _, j := range queue {
		if j.GPUs <= left {
			left -= j.GPUs
		}
	}
	s.values["gpu_utilisation"] = float64(c.UsedGPUs) / float64(c.GPUs)
	s.values["stranded_share"] = float64(c.FreeGPUs-left) / float64(c.GPUs)
}

// queues adds who waits, in all and by queue; who waits in a queue counts for those
// above it. A queue in which nobody waits has zeros.
func (s sample) queues(paths []model.QueueUse, queue []httpapi.Job, now time.Time) {
	count := func(path string, jobs, gpus int, wait time.Duration) {
		s.values[key("queue_gangs", path)] += float64(jobs)
		s.values[key("queue_gpus", path)] += float64(gpus)
		longest := key("queue_wait_s", path)
		s.values[longest] = max(s.values[longest], wait.Seconds())
	}
	count("", 0, 0, 0)
	for _, q := range paths {
		count(q.Path, 0, 0, 0)
	}
	for _, j := range queue {
		wait := time.Duration(0)
		if !j.Submitted.IsZero() {
			wait = max(0, now.Sub(j.Submitted))
		}
		count("", 1, j.GPUs, wait)
		for path := j.Queue; path != ""; path = above(path) {
			count(path, 1, j.GPUs, wait)
		}
	}
}

// above is the queue above a queue; "" is none.
func above(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }

// pool adds what is wanted of a pool. The deadline is there while a purchase has one.
func (s sample) pool(p burstapi.Pool, now time.Time) {
	set := func(metric string, v float64) { s.values[key(metric, p.Name)] = v }
	set("nodes_wanted", float64(p.Wanted))
	set("nodes_present", float64(p.Present))
	set("nodes_coming", float64(p.Coming))
	set("nodes_giving_back", float64(len(p.GiveBack)))
	idle := 0
	for _, n := range p.Nodes {
		if n.Ready && n.Gang == "" {
			idle++
		}
	}
	set("nodes_idle", float64(idle))
	price := 0.0
	for _, b := range p.Purchases {
		if b.State == burstapi.Failed {
			continue
		}
		price += float64(len(b.Names)) * b.PricePerNodeHour
		if b.Deadline == nil || b.State == burstapi.GivingBack {
			continue
		}
		left := b.Deadline.Sub(now).Seconds()
		if known, there := s.values[key("deadline_s", p.Name)]; !there || left < known {
			set("deadline_s", left)
		}
	}
	set("price_per_hour", price)
}
