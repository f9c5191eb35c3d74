package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// evict stops what still runs when a maintenance has begun that says so: whole
// gangs, with a checkpoint, as many at once as may. They start again elsewhere, or
// are queued again.
func (c *cycle) evict() {
	for _, r := range c.evicting {
		if c.yield == nil {
			c.yield = c.newYield()
		}
		y := c.yield
		nodes := c.nodesApart(slices.IndexFunc(c.apart, func(o model.Reservation) bool { return o.Name == r.Name }))
		for v := range y.gangs {
			if !y.gangs[v].whole || y.gangs[v].job.Preempt == model.PreemptNever {
				continue
			}
			parts := y.chain(v)
			there := slices.ContainsFunc(parts, func(part int) bool {
				if y.taken[part] {
					return false
				}
				return slices.ContainsFunc(y.gangs[part].holds, func(h preempt.Hold) bool {
					_, in := slices.BinarySearch(nodes, h.Node)
					return in
				})
			})
			if !there || y.perHour <= 0 || c.givenTo[keyOf(y.gangs[v].job)] || !c.mayStop(parts) {
				continue
			}
			c.evictGang(r, parts)
		}
	}
}

// chain are the parts of a gang up to its last, in the order in which they go.
func (y *yield) chain(last int) (parts []int) {
	for v := last; v >= 0; v = y.gangs[v].after {
		parts = append(parts, v)
	}
	slices.Reverse(parts)
	return parts
}

// evictGang puts one gang into the plan.
func (c *cycle) evictGang(r *model.Reservation, parts []int) {
	y := c.yield
	last := &y.gangs[parts[len(parts)-1]]
	p := model.Preemption{
		Namespace: last.job.Namespace, Job: last.job.ID, Action: model.ActionPreempt,
		For: model.JobName{ID: "maintenance " + r.Name},
	}
	for _, v := range parts {
		y.taken[v] = true
		part := &y.gangs[v]
		for _, h := range part.holds {
			y.leaving = append(y.leaving, leaver{job: keyOf(part.job), hold: h})
		}
		p.Members, p.Cost = append(p.Members, part.members...), p.Cost.Plus(part.cost)
	}
	slices.SortStableFunc(p.Members, func(a, b model.Member) int { return cmp.Compare(a.Rank, b.Rank) })
	p.Reason = fmt.Sprintf("leaves its nodes for maintenance %s, which has begun: %s are lost%s", r.Name, costText(p.Cost, last.sinceWhat()), queuedAgain)
	y.notes[keyOf(last.job)] = p.Reason
	y.plan, y.last = append(y.plan, p), append(y.last, parts[len(parts)-1])
}
