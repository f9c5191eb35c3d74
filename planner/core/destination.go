package core

import (
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// destination is where a gang that is moved starts again.
type destination struct {
	job    *model.Job
	gang   gang
	result place.Result
	// cost is what the move loses.
	cost model.Cost
}

func (d *destination) name() string { return domainName(d.result.Level, d.result.Domain) }

// settleMoves lets gangs that give way start again elsewhere, where there is room for
// them when everybody else has had his turn, and keeps their places. What else
// those leave who stop is not free yet: nobody may grow into it.
func (c *cycle) settleMoves() {
	y := c.yield
	if y == nil || len(y.plan) == 0 {
		return
	}
	state := c.views[viewNow].State
	mark := state.Mark()
	var kept []destination
	defer func() {
		state.Revert(mark)
		for i := range kept {
			c.views[viewNow].Take(kept[i].gang.unit, kept[i].result.Placed)
		}
	}()
	for _, l := range y.leaving {
		c.yields(l.hold, "")
	}
	order := make([]int, len(y.plan))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return queue.Compare(y.gangs[y.last[a]].job, y.gangs[y.last[b]].job) })
	for _, i := range order {
		p, old := &y.plan[i], &y.gangs[y.last[i]]
		if p.Action != model.ActionPreempt {
			continue
		}
		d, ok := c.elsewhere(old)
		if !ok {
			continue
		}
		kept = append(kept, d)
		p.Action, p.Moves, p.To = model.ActionMove, d.name(), c.membersAt(nil, d.job, &d.gang, d.result)
		p.Reason = strings.TrimSuffix(p.Reason, queuedAgain) + "; it starts again at once in " + p.Moves + ", which is kept for it"
	}
}

// elsewhere finds a place for a gang that stops, as the state is now, and takes
// it.
func (c *cycle) elsewhere(old *yielder) (destination, bool) {
	anew := *old.job
	if gangOf(&anew) == model.GangJob {
		anew.State, anew.Members = model.StateQueued, nil
	} else {
		anew.Members = slices.DeleteFunc(slices.Clone(anew.Members), func(m model.Member) bool {
			if gangOf(&anew) == model.GangGroup {
				return m.Group == old.members[0].Group
			}
			return m.Group == old.members[0].Group && m.Index == old.members[0].Index
		})
	}
	gangs := c.gangs(&anew)
	at := slices.IndexFunc(gangs, func(g gang) bool {
		return isGang(&anew, &g, old.members[0].Group, old.members[0].Index)
	})
	if at < 0 {
		return destination{}, false
	}
	d := destination{job: &anew, gang: gangs[at]}
	c.prepare(&anew, &d.gang)
	if d.gang.astray || d.gang.grown > 0 {
		return d, false
	}
	var ok bool
	state := c.views[viewNow].State
	mark := state.Mark()
	for i := range max(1, len(d.gang.options)) {
		d.gang.use(i)
		if d.result, ok = c.views[viewNow].Place(d.gang.unit); ok && c.chargesAlike(old, &d) {
			return d, true
		}
		state.Revert(mark)
	}
	return d, false
}

// chargesAlike reports whether a gang's queue may have what it takes elsewhere as
// surely as what it leaves: where models of GPUs are limited, they stay the same.
func (c *cycle) chargesAlike(old *yielder, d *destination) bool {
	if !c.limited() {
		return true
	}
	has := c.accounts.tree.Amount(0, 0, 0)
	for _, h := range old.holds {
		has.Add(c.amountOn(h.Node, h.Claim.GPUs, h.Claim.Resources))
	}
	return slices.Equal(c.accounts.tree.Models(has), c.accounts.tree.Models(c.amountOf(&d.gang, d.result)))
}

// keepDestination keeps a place for a gang that this plan stops.
func (c *cycle) keepDestination(d destination) []model.Member {
	c.views[viewNow].Take(d.gang.unit, d.result.Placed)
	if c.truthful {
		c.views[viewTrue].Take(d.gang.unit, d.result.Placed)
	} else {
		c.takers = append(c.takers, taker{d.gang.unit, d.result.Placed})
	}
	c.takesFromNow(d.job, &d.gang, d.result.Placed)
	for i := range d.result.Placed {
		p := &d.result.Placed[i]
		c.yield.keepFrom(p.Node, maskOf(p.GPUs), d.gang.unit.Parts[p.Part].Request.Ports)
	}
	c.epoch++
	return c.membersAt(nil, d.job, &d.gang, d.result)
}

// placeWorth is what a placement is worth that a gang has; see placementTime.
func (c *cycle) placeWorth(gpus, members int, holds []preempt.Hold) int64 {
	if members < 2 {
		return 0
	}
	return int64(max(1, gpus)) * int64(c.nearness(&yielder{holds: holds})) * int64(placementTime.Seconds()) / int64(len(c.tree.Levels)+1)
}
