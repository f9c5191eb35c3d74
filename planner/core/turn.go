package core

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// turn is one job's turn. Where queues are limited it comes in stages: first
// what all queues are guaranteed, then what they borrow.
type turn struct {
	job   *model.Job
	home  queue.Home
	gangs []gang
	// rest are the gangs that are still to be looked at.
	rest      []*gang
	placed    int
	last      place.Result
	placedNow []other
	waits     []wait
	// took is what those placed are served from, where the job names models.
	took []served
	// mixed says on which models a gang is that names none and got several.
	mixed []string
	d     model.Decision
	// short says that a gang has fewer members than it asks for.
	short string
}

// work decides on jobs, which are in their order.
func (c *cycle) work(jobs []*model.Job, plan *model.Plan) {
	if c.ledger == nil {
		var t turn
		for i, j := range jobs {
			if c.leavesBehind && c.blocked != "" {
				return
			}
			if c.passesAlike && c.waitsLike(i, j) || c.waitsBehind(j, plan) {
				continue
			}
			c.begin(&t, j)
			c.serve(&t, 0)
			plan.Decisions = append(plan.Decisions, c.end(&t))
			if c.passesAlike {
				c.asksAgain(&t)
			}
		}
		return
	}
	homes, asks := make([]queue.Home, len(jobs)), make([]queue.Vector, len(jobs))
	for i, j := range jobs {
		homes[i], asks[i] = c.accounts.tree.HomeOf(j), c.accounts.asks(j)
	}
	turns, over := make([]*turn, len(jobs)), new(turn)
	var free []*turn // most end at once
	waiting := make([]int, len(jobs))
	for i := range waiting {
		waiting[i] = i
	}
	for stage := c.firstStage(); len(waiting) > 0; stage++ {
		inLine, askLine := make([]queue.Home, len(waiting)), make([]queue.Vector, len(waiting))
		for i, k := range waiting {
			inLine[i], askLine[i] = homes[k], asks[k]
		}
		line := c.policy.NewLine(c.ledger, c.accounts.capacity, inLine, askLine)
		for i, ok := line.Next(); ok; i, ok = line.Next() {
			k := waiting[i]
			if turns[k] == nil {
				if n := len(free); n > 0 {
					turns[k], free = free[n-1], free[:n-1]
				} else {
					turns[k] = new(turn)
				}
				c.begin(turns[k], jobs[k])
				turns[k].home = homes[k]
			}
			if c.serve(turns[k], stage) {
				line.Charged()
			}
			if len(turns[k].rest) == 0 {
				plan.Decisions = append(plan.Decisions, c.end(turns[k]))
				turns[k], free = over, append(free, turns[k])
			}
		}
		waiting = slices.DeleteFunc(waiting, func(k int) bool { return turns[k] == over })
	}
}

// firstStage is the only one where nothing is limited.
func (c *cycle) firstStage() int {
	if !c.accounts.tree.Limited {
		return c.accounts.tree.Beyond()
	}
	return 0
}

// serve places those of a job's gangs that its queue has a right to by now, one
// after the other, and says of each that is not placed what it waits for. Of
// members alike that start by themselves only the first is looked at: the
// others do not fit either. It reports whether anything was placed.
func (c *cycle) serve(t *turn, stage int) bool {
	c.placedNow = t.placedNow
	failed, later := c.failed[:0], t.rest[:0]
	before := t.placed
	own := c.openOwn(t.job)
	defer func() { c.closeOwn(t.job, own) }()
	for _, g := range t.rest {
		if n := len(failed); n > 0 && gangOf(t.job) == model.GangNone && failed[n-1].groups[0] == g.groups[0] {
			continue
		}
		c.prepare(t.job, g)
		result, answer := c.ask(t, g, stage)
		switch answer {
		case askLater:
			later = append(later, g)
		case askNo:
			failed = append(failed, g)
		default:
			t.last = result
			t.placed++
			c.servedBy(t, g, result)
			c.admitted(t.job, g, result, &t.d)
		}
	}
	t.rest, t.placedNow, c.failed = later, c.placedNow, failed
	c.serving, c.stage = t, stage
	defer func() { c.serving = nil }()
	for _, g := range failed {
		placed := t.placed
		w := c.waitFor(t, g)
		if t.placed > placed {
			continue // with fewer members
		}
		w.reason += g.modelsWanted() + g.regionsWanted() + c.sharedWanted(g) + c.outOfTurnReason(t.job, g) + c.heldBackReason(t.job, g, &w)
		if !w.divided && !c.leavesBehind {
			c.foretell(t.job, g, &w)
		}
		t.waits = append(t.waits, w)
		if c.policy.Strict && w.forRoom {
			c.blocked = "job " + jobName(keyOf(t.job))
		}
	}
	return t.placed > before
}

// end ends a turn: all that was looked at is told.
func (c *cycle) end(t *turn) model.Decision {
	d := &t.d
	if d.Reason == "" {
		d.Detail.MembersFit = len(d.Members)
		if t.placed > 0 {
			if t.placed > 1 {
				t.last.Level, t.last.Domain = c.around(t.placedNow)
			}
			d.Action = model.ActionAdmit
			d.Detail.Code = codePlaced
			d.Detail.Level, d.Detail.Domain = t.last.Level, t.last.Domain
			d.Reason = c.placedReason(t.job, d, t.last) + t.boughtPlaced() + t.modelsPlaced() + c.sharedPlaced(t.job, d.Members) + t.regionPlaced() + c.slicesPlaced(t.job, d.Members) + c.borrowedReason(t) + c.backfillReason(d.Backfill)
		}
		borrowed := d.Detail.BorrowedGPUs
		if len(t.waits) > 0 {
			c.tellAll(t.job, t.waits, d)
		}
		d.Detail.BorrowedGPUs = borrowed
		if t.short != "" {
			d.Reason = t.short + d.Reason
		} else {
			d.Reason = growthReason(t.gangs, d.Action) + d.Reason
		}
		d.Reason += c.dataNowhere(t.job)
	}
	if n := len(c.spares); n > 0 && (d.Detail.Code == codeNoCapacity || d.Detail.Code == codeNoDomain) {
		d.Reason += fmt.Sprintf("; %s kept as spares for members whose nodes fail", plural(n, "idle node"))
	}
	c.nameQueue(t)
	c.tellStanding(t.job, d)
	if d.Action == model.ActionWait {
		d.Detail.Ahead = c.waiting
		c.waiting++
	}
	return *d
}
