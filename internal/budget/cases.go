// Package budget measures how fast the planner decides, on drawn clusters that
// are fragmented and half full, and compares that with what it may cost.
package budget

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/internal/budget/drawn"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Case is one thing that is measured.
type Case struct {
	// Name is that of its benchmark, What the same in words.
	Name, What string
	// Budget is what it may cost on the reference machine; 0 is no budget.
	Budget time.Duration
	// Times is how often it is done in one measurement at least, where that is
	// more than once because it does not cost the same every time.
	Times int
	// Setup makes what is measured: op does it once.
	Setup func() (op func() error, err error)
}

// Cases are all that is measured, a cycle for every order there is.
func Cases() []Case {
	out := []Case{
		gang(512, 128, model.Topology{}, 500*time.Microsecond),
		gang(16384, 512, model.Topology{}, 3*time.Millisecond),
		gang(16384, 200, model.Topology{Mode: model.TopologyRequire, Level: model.LevelBlock}, 3*time.Millisecond),
		event(256, busy, core.Policy{}, 200*time.Microsecond),
		event(256, crowded, core.Policy{}, 200*time.Microsecond),
		event(256, crowded, core.Policy{Order: queue.OrderCaravan, Preempt: preempt.Policy{Enabled: true}}, 200*time.Microsecond),
		event(2048, busy, core.Policy{}, 0),
		kept("one-GPU jobs", 16384, 10000, 0, core.Policy{}, drawn.Singles),
		kept("jobs of all sizes", 16384, 10000, 200, core.Policy{}, drawn.Mixed),
		kept("jobs of all sizes", 16384, 10000, 200, core.Policy{Order: queue.OrderCaravan, Preempt: preempt.Policy{Enabled: true}}, drawn.Mixed),
	}
	for _, order := range queue.Orders() {
		out = append(out, cycles(core.Policy{Order: order})...)
	}
	return append(out, preempts()...)
}

// cycles are whole decisions, from snapshot to plan, of one order.
func cycles(policy core.Policy) []Case {
	small, large := 4*time.Millisecond, 250*time.Millisecond
	return []Case{
		cycle("one-GPU jobs", 100, 500, 0, policy, small, drawn.Cluster, drawn.Singles),
		cycle("one-GPU jobs", 16384, 10000, 0, policy, large, drawn.Cluster, drawn.Singles),
		cycle("one-GPU jobs", 16384, 10000, 200, policy, large, drawn.Cluster, drawn.Singles),
		cycle("jobs of all sizes", 16384, 10000, 200, policy, large, drawn.Contest, drawn.Mixed),
	}
}

// preempts are decisions where jobs give way to others.
func preempts() []Case {
	policy := core.Policy{Preempt: preempt.Policy{Enabled: true}}
	many := policy
	many.Preempt.MaxAtOnce, many.Preempt.MaxPerHour = 1000, 1000
	large := 250 * time.Millisecond
	rack, block := model.Topology{Mode: model.TopologyRequire, Level: model.LevelRack}, model.Topology{Mode: model.TopologyRequire, Level: model.LevelBlock}
	return []Case{
		victims(512, 16, rack, many),
		victims(16384, 16, rack, many),
		victims(16384, 200, block, many),
		cycle("jobs of all sizes", 16384, 10000, 0, policy, large, drawn.Contest, drawn.Mixed),
		cycle("jobs of all sizes", 16384, 10000, 200, policy, large, drawn.Contest, drawn.Mixed),
		cycle("jobs of all sizes on a full cluster", 16384, 10000, 0, policy, large, drawn.Full, drawn.Mixed),
	}
}

// gang is the decision on one gang of whole nodes; the cluster is ready.
func gang(nodes, members int, t model.Topology, budget time.Duration) Case {
	c := Case{
		Name:   fmt.Sprintf("gang=%d/nodes=%d", members, nodes),
		What:   fmt.Sprintf("a gang of %d whole nodes placed on %d GPUs", members, nodes*8),
		Budget: budget,
	}
	want := model.ActionAdmit
	if t.Mode == model.TopologyRequire {
		want = model.ActionWait
		c.Name = "refused/" + c.Name
		c.What = fmt.Sprintf("a gang of %d whole nodes refused on %d GPUs with its reason: enough are free, but not in one %s", members, nodes*8, t.Level)
	}
	c.Setup = func() (func() error, error) {
		s := drawn.Cluster(nodes)
		s.Jobs = []model.Job{drawn.Job(0, members, 8, t)}
		p, err := core.Prepare(s, core.Policy{})
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", c.Name, err)
		}
		return func() error {
			if d := &p.Decide(s.Now).Decisions[0]; d.Action != want {
				return fmt.Errorf("decide on %s: %s (%s), want %s", c.Name, d.Action, d.Reason, want)
			}
			return nil
		}, nil
	}
	return c
}

// event is an arrival, an end or who has given way, in a long run.
func event(nodes int, load float64, policy core.Policy, budget time.Duration) Case {
	c := Case{
		Name: fmt.Sprintf("event/gpus=%d", nodes*8), Budget: budget, Times: 2500,
		What: fmt.Sprintf("one that comes, ends or has given way in a long run on %d GPUs, %.0f %% asked for, applied and decided on", nodes*8, 100*load),
	}
	if load != busy {
		c.Name += fmt.Sprintf("/load=%.0f", 100*load)
	}
	c.vary("one-GPU jobs", 0, policy)
	c.Setup = func() (func() error, error) {
		r, err := newLongRun(nodes, load, policy)
		if err != nil {
			return nil, err
		}
		return func() error { _, err := r.step(); return err }, nil
	}
	return c
}

// kept is a planner's look at a cluster of which little has changed.
func kept(what string, nodes, jobs, queues int, policy core.Policy, add func(*model.Snapshot, int)) Case {
	c := Case{
		Name: fmt.Sprintf("kept/nodes=%d/jobs=%d", nodes, jobs), Budget: 250 * time.Millisecond,
		What: fmt.Sprintf("the next look at %d GPUs and %d pending %s when an allocation has ended: what changed is found out, applied and decided on", nodes*8, jobs, what),
	}
	c.vary(what, queues, policy)
	c.Setup = func() (func() error, error) {
		s := drawn.Contest(nodes)
		add(s, jobs)
		drawn.AddQueues(s, queues)
		var k core.Kept
		if _, err := k.Decide(s, policy); err != nil {
			return nil, fmt.Errorf("decide on %d nodes: %w", nodes, err)
		}
		i := 0
		return func() error {
			next := *s
			next.Allocs = append(s.Allocs[:i:i], s.Allocs[i+1:]...)
			i = (i + 1) % len(s.Allocs)
			_, err := k.Decide(&next, policy)
			return err
		}, nil
	}
	return c
}

// vary names what is special about a case.
func (c *Case) vary(what string, queues int, policy core.Policy) {
	if policy.Order != "" {
		c.Name += "/" + policy.Order
		c.What += ", " + policy.Order
	}
	if what != "one-GPU jobs" {
		c.Name += "/mixed"
	}
	if queues > 0 {
		c.Name += fmt.Sprintf("/queues=%d", queues)
		c.What += fmt.Sprintf(", %d queues", queues)
	}
	if policy.Preempt.Enabled {
		c.Name += "/preempt"
		c.What += ", preemption on"
	}
	if what == "jobs of all sizes on a full cluster" {
		c.Name += "/full"
	}
}

// cycle is a whole decision, from snapshot to plan.
func cycle(what string, nodes, jobs, queues int, policy core.Policy, budget time.Duration, cluster func(int) *model.Snapshot, add func(*model.Snapshot, int)) Case {
	c := Case{
		Name:   fmt.Sprintf("cycle/nodes=%d/jobs=%d", nodes, jobs),
		What:   fmt.Sprintf("a full cycle on %d GPUs with %d pending %s", nodes*8, jobs, what),
		Budget: budget,
	}
	named := policy
	if named.Order == "" {
		named.Order = queue.OrderFIFO
	}
	c.vary(what, queues, named)
	c.Setup = func() (func() error, error) {
		s := cluster(nodes)
		add(s, jobs)
		drawn.AddQueues(s, queues)
		return func() error {
			_, err := core.Decide(s, policy)
			return err
		}, nil
	}
	return c
}

// victims is the decision on one gang for which others give way.
func victims(nodes, members int, t model.Topology, policy core.Policy) Case {
	c := Case{
		Name: fmt.Sprintf("victims/gang=%d/nodes=%d", members, nodes), Budget: 0,
		What: fmt.Sprintf("the cheapest jobs found that give way to a gang of %d whole nodes in one %s on %d GPUs", members, t.Level, nodes*8),
	}
	c.Setup = func() (func() error, error) {
		s := drawn.Full(nodes)
		s.Jobs = append(s.Jobs, drawn.Job(0, members, 8, t))
		p, err := core.Prepare(s, policy)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", c.Name, err)
		}
		return func() error {
			if plan := p.Decide(s.Now); len(plan.Preemptions) == 0 {
				return fmt.Errorf("decide on %s: nobody gives way: %s", c.Name, plan.Decisions[0].Reason)
			}
			return nil
		}, nil
	}
	return c
}
