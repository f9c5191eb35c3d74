package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// How many nodes of a pool a gang needs is found out by placing it on so many nodes
// like those, and nothing else, by the same code that places it on real ones.

// fitKey is a question of how many nodes a job needs.
type fitKey struct {
	pool string
	job  *model.Job
}

// fit is its answer: 0 nodes are none, and why then says what is against it.
type fit struct {
	nodes int
	why   string
}

// maxFits bounds what is remembered, and maxFitTries how many numbers are tried for
// one gang.
const (
	maxFits     = 4096
	maxFitTries = 24
)

// nodesFor is the least number of a pool's nodes on which a job's gangs fit that
// wait, or why they do not fit on its quota.
func (c *cycle) nodesFor(pool *model.BuyPool, j *model.Job) fit {
	key := fitKey{pool.Name, j}
	if f, known := c.fits[key]; known {
		return f
	}
	if c.fits == nil || len(c.fits) >= maxFits {
		c.Prepared.fits = map[fitKey]fit{}
	}
	f := c.findNodesFor(pool, j)
	c.fits[key] = f
	return f
}

func (c *cycle) findNodesFor(pool *model.BuyPool, j *model.Job) fit {
	members, asked := 0, 0
	for i := range j.Groups {
		members += j.Groups[i].Count
		asked += j.Groups[i].Count * askedGPUs(&j.Groups[i])
	}
	each := len(pool.Node.GPUs)
	low := max(1, (asked+each-1)/each)
	high := min(pool.Quota, max(low, members))
	if low > high {
		return fit{why: fmt.Sprintf("it needs %d nodes at least, and the quota is %d (quota in the pools file)", low, pool.Quota)}
	}
	if why := c.misfit(pool, high, j); why != "" {
		return fit{why: why + poolKeys(pool, j)}
	}
	for range maxFitTries {
		if low >= high {
			break
		}
		mid := (low + high) / 2
		if c.misfit(pool, mid, j) == "" {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return fit{nodes: high}
}

// misfit says why jobs do not fit, all of them, on so many nodes of a pool; "" when
// they do.
func (c *cycle) misfit(pool *model.BuyPool, n int, jobs ...*model.Job) string {
	s := &model.Snapshot{Levels: c.levels, Now: c.now, Nodes: make([]model.Node, n)}
	for i := range s.Nodes {
		s.Nodes[i] = boughtLike(pool, i)
	}
	for _, j := range jobs {
		if region := s.Nodes[0].Levels[model.LevelRegion]; len(j.Regions) > 0 && !slices.Contains(j.Regions, region) {
			return fmt.Sprintf("it is in region %q, and caravan_regions names others: add it there", region)
		}
		alone := *j
		alone.State, alone.Members, alone.Hold, alone.RetryAfter, alone.Queue = model.StateQueued, nil, "", time.Time{}, ""
		alone.Moving, alone.Replace, alone.Regions, alone.PriorityClass, alone.Deadline = nil, nil, nil, "", time.Time{}
		alone.Burst = model.BurstAllow
		s.Jobs = append(s.Jobs, alone)
	}
	plan, err := Decide(s, Policy{Order: "fifo"})
	if err != nil {
		return err.Error()
	}
	for i := range plan.Decisions {
		if d := &plan.Decisions[i]; d.Action != model.ActionAdmit || len(d.Members) < d.Detail.MembersWanted {
			return d.Reason
		}
	}
	if len(plan.Decisions) != len(jobs) {
		return "nothing was decided on it"
	}
	return ""
}

// boughtLike is a node of a pool that is not there yet.
func boughtLike(pool *model.BuyPool, i int) model.Node {
	n := pool.Node
	n.ID = fmt.Sprintf("%s-%d", pool.Name, i)
	n.Name = n.ID
	n.GPUs = slices.Clone(n.GPUs)
	for k := range n.GPUs {
		n.GPUs[k].UUID = fmt.Sprintf("%s-%d", n.ID, k)
	}
	if pool.Near != "" {
		levels := map[string]string{pool.Near: pool.Name}
		for level, value := range n.Levels {
			levels[level] = value
		}
		n.Levels = levels
	}
	return n
}
