package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// made is how room is made for a gang.
type made struct {
	result place.Result
	// group is that for which it is made, "" where a job is one gang.
	group string
	// now are gangs that this plan stops, later those that stop when some of
	// them have, and going the jobs that are stopping already and in its place.
	now, later []int
	going      []jobKey
	cost       model.Cost
	// moves says where those start again that are moved, by their last part.
	moves map[int]destination
	// saves is what the moves save, and how much waiting, if that is why they are
	// made; basis says what that rests on.
	saves  int64
	sooner time.Duration
	basis  string
}

// makeRoom finds out who has to stop, besides what is stopping anyway, so that
// a gang fits, and keeps for it the place that it will have. It is false if
// nobody may be displaced who would be of use.
func (c *cycle) makeRoom(j *model.Job, g *gang) (made, bool) {
	if len(c.placedNow) > 0 {
		at := g.at
		c.prepare(j, g) // others of its job have got places since
		g.use(at)
	}
	if c.asksTooMuch(j, g) {
		return c.noRoom(j, g)
	}
	y, now := c.yield, c.views[viewNow]
	defer c.lookFor(g, viewAhead)()
	mark := now.State.Mark()
	c.shun(g)
	// What others have displaced is theirs first.
	for _, others := range []bool{false, true} {
		for _, l := range y.leaving {
			if others == (l.to != jobKey{} && l.to != keyOf(j)) {
				c.yields(l.hold, g.queue)
			}
		}
		if r, ok := now.Place(g.unit); ok {
			c.unsure = true
			now.State.Revert(mark)
			c.promise(j, g, r)
			return made{result: r, going: y.goingFrom(r)}, true
		}
	}
	if c.outOfTurn(j, g) {
		now.State.Revert(mark)
		return made{}, false
	}
	y.searches--
	m, ok := c.displace(j, g)
	if !ok {
		c.noteHeldBack(j, g)
	}
	now.State.Revert(mark)
	if c.policy.Defrag.Enabled && g.grown == 0 {
		// Who is moved keeps running: that comes first where it costs no more.
		switch moved, can := c.compact(j, g); {
		case can && (!ok || moved.cost.Total() <= m.cost.Total()):
			m, ok = moved, true
		case can:
			c.compaction.letStay(moved, m.cost, c.considered)
		}
	}
	if !ok {
		c.noteVain(g, c.rankOf(j))
		return made{}, false
	}
	c.promise(j, g, m.result)
	m.group = groupFor(j, g)
	c.stop(j, &m)
	c.forgetVain() // what they leave behind may be of use to others
	return m, true
}

// noRoom notes that there is none for a gang that asks for too much.
func (c *cycle) noRoom(j *model.Job, g *gang) (made, bool) {
	if c.outOfTurn(j, g) {
		return made{}, false
	}
	c.yield.searches--
	c.noteHeldBack(j, g)
	c.noteVain(g, c.rankOf(j))
	return made{}, false
}

// goingFrom lists the jobs that are leaving the nodes of a placement.
func (y *yield) goingFrom(r place.Result) []jobKey {
	var out []jobKey
	for _, l := range y.leaving {
		if !slices.Contains(out, l.job) && slices.ContainsFunc(r.Placed, func(p place.Placed) bool { return p.Node == l.hold.Node }) {
			out = append(out, l.job)
		}
	}
	return out
}

// yields gives back what somebody holds who leaves, but for what is promised, or
// kept for others than a queue.
func (c *cycle) yields(h preempt.Hold, queue string) {
	c.views[viewNow].State.Give(h.Node, c.leftOf(&h, queue))
}

// displace finds the cheapest gangs to stop. What is free in the state is
// undone by the caller.
func (c *cycle) displace(j *model.Job, g *gang) (made, bool) {
	y := c.yield
	if c.goesBeforeNone(j) {
		return made{}, false
	}
	problem := preempt.Problem{State: c.views[viewNow].State, GPUs: g.gpus}
	var of []int
	if problem.Victims, of = c.victims(j, g); len(of) == 0 {
		return made{}, false
	}
	fits := c.scratch.fits[:0]
	problem.Places = c.scratch.places[:0]
	forbidden, held := g.forbidden(), problem.Held()
	c.eachDomain(g, func(f domainFit) {
		if f.domain >= 0 || held[f.node] && !forbidden[f.node] {
			problem.Places = append(problem.Places, preempt.Place{ID: len(fits), Lo: f.lo, Hi: f.hi})
			fits = append(fits, f)
		}
	})
	c.scratch.fits, c.scratch.places = fits, problem.Places
	problem.Fits = func(p preempt.Place) bool { return c.fitsInto(g, fits[p.ID]) }
	switch {
	case !g.countable():
		problem.Budget = oddBudget
	case g.unit.Parts[0].Slices.Size == 0 && g.unit.Only == nil:
		c.countInto(g, fits, &problem)
	}
	solution, ok := preempt.Solve(problem)
	// Somebody else may be cheaper later.
	c.unsure = c.unsure || ok || !solution.Proved
	if !ok || y.waive == waiveNothing && c.beyondLimits(solution.Victims, of) {
		return made{}, false
	}
	var m made
	for _, v := range solution.Victims {
		for _, h := range c.unshared(y.gangs[of[v]].holds, g.queue) {
			c.yields(h, g.queue)
		}
		m.now = append(m.now, of[v])
		m.cost = m.cost.Plus(y.gangs[of[v]].cost)
	}
	// As it will be found when they have stopped, though the gang of a victim may
	// leave more than one place.
	m.result, ok = c.views[viewNow].Place(g.unit)
	return m, ok
}

// victims are those who may be stopped for a gang of a job, with the gang of each.
func (c *cycle) victims(j *model.Job, g *gang) (victims []preempt.Victim, of []int) {
	y := c.yield
	of = make([]int, 0, len(y.gangs))
	at := make(map[int]int, len(y.gangs)/8) // those after which others go
	victims = make([]preempt.Victim, 0, len(y.gangs))
	for i := range y.gangs {
		v := &y.gangs[i]
		if y.taken[i] || !c.mayTake(j, g, v) || !y.hasAfter(v, at) {
			continue
		}
		victim := preempt.Victim{Cost: v.price(), After: -1}
		if v.whole && c.standing(v.job).InTurn {
			victim.Cost += int64(v.gpus) * int64(onward/time.Second)
		}
		if y.waive != waiveNothing {
			victim.Cost = c.untilFree(j, v)
		}
		if v.after >= 0 {
			victim.After = at[v.after]
		}
		victim.Holds = c.unshared(c.unpromised(v.holds, g.queue), g.queue)
		if i+1 < len(y.gangs) && y.gangs[i+1].after == i {
			at[i] = len(of)
		}
		of, victims = append(of, i), append(victims, victim)
	}
	return victims, of
}

// goesBeforeNone reports whether a job has no right to the room of anybody, whatever else
// is asked of those who give way, so that nobody needs to be looked at.
func (c *cycle) goesBeforeNone(j *model.Job) bool {
	y := c.yield
	if _, plain := y.rights.(preempt.ByPriority); !plain || c.asked != nil || c.policy.Interactive.Is(j) || c.policy.Backfill.Reclaim || y.surplus {
		return false
	}
	if y.rights.(preempt.ByPriority).Beyond(j.Priority, y.lowest) {
		return false
	}
	return c.stands == nil || !c.policy.Preemptive() || c.standing(j).Class >= y.highest
}

// unpromised are holds without what somebody else is to have of them, or is kept
// for others than a queue. They may be the same list.
func (c *cycle) unpromised(holds []preempt.Hold, queue string) []preempt.Hold {
	out := holds
	for i := range holds {
		h := &holds[i]
		if !c.yield.pledged[h.Node] && len(c.queuesApart) == 0 {
			continue
		}
		if gone := h.Claim.GPUs & (c.yield.promised[h.Node].GPUs | c.keptFrom(h.Node, queue)); gone != 0 {
			if &out[0] == &holds[0] {
				out = slices.Clone(holds)
			}
			out[i].Claim.GPUs &^= gone
		}
	}
	return out
}

// hasAfter reports whether what goes before a part of a gang may give way, or has
// nothing that does.
func (y *yield) hasAfter(v *yielder, at map[int]int) bool {
	_, ok := at[v.after]
	return ok || v.after < 0
}

// oddBudget bounds the search for gangs that take long to place: those of
// unequal members, or told apart by property.
const oddBudget = 300

// mayDisplace reports whether one job may take another's room, who is one of those
// that may give way.
func (c *cycle) mayDisplace(j, victim *model.Job) bool {
	policy, may := c.goesBefore(j, victim)
	if !may {
		return false
	}
	if c.yield.waive != waiveNothing {
		return c.yield.waive == waiveAll || !policy.Stays(j, victim)
	}
	return !c.spent(victim) && !policy.Exempts(j, victim, c.now)
}

// goesBefore reports whether one job has a right to another's room, though that may
// be exempt, by which policy.
func (c *cycle) goesBefore(j, victim *model.Job) (policy preempt.Policy, may bool) {
	if victim == j {
		return policy, false
	}
	policy = c.yield.policy
	if !c.yield.rights.MayDisplace(j, victim) {
		if may, _ := c.overstays(j, victim); !may {
			if !c.outranks(j, victim) {
				return policy, false
			}
			if policy = c.byClass(policy); c.claimsReserve(j) {
				policy.MinRunTime = 0
			}
		}
	}
	return policy, keyOf(victim) != keyOf(j) && !c.yield.given[keyOf(victim)]
}

// promise keeps a place for a gang from all who come later.
func (c *cycle) promise(j *model.Job, g *gang, r place.Result) {
	c.beginHolding()
	c.noteClaim(j, g)
	c.views[viewNow].Take(g.unit, r.Placed)
	c.starts = append(c.starts, start{keyOf(j), c.claimsOf(g.unit, r.Placed), eternity})
	for i := range r.Placed {
		p := &r.Placed[i]
		c.yield.keepFrom(p.Node, maskOf(p.GPUs), g.unit.Parts[p.Part].Request.Ports)
		c.placedNow = append(c.placedNow, other{node: p.Node, group: g.groups[p.Part].Name})
	}
	c.holds = append(c.holds, hold{job: keyOf(j)})
	c.epoch++
}

// stop puts those who give way into the plan, as many gangs as may stop at once.
// The others follow when these have stopped.
func (c *cycle) stop(j *model.Job, m *made) {
	y := c.yield
	var now []int
	for _, parts := range y.byGang(m.now) {
		for _, v := range parts {
			y.taken[v] = true
		}
		if !y.returned(parts) && !c.mayStop(parts) {
			m.later = append(m.later, parts...)
			continue
		}
		now = append(now, parts...)
		c.stopGang(j, parts, m)
	}
	m.now = now
}

// byGang divides victims into those of one gang each, in its parts' order.
func (y *yield) byGang(victims []int) [][]int {
	at := map[int]int{} // by the last part so far
	var out [][]int
	for _, v := range victims {
		i, ok := at[y.gangs[v].after]
		if !ok || y.gangs[v].after < 0 {
			i = len(out)
			out = append(out, nil)
		}
		out[i] = append(out[i], v)
		at[v] = i
	}
	return out
}

// stopGang puts one gang into the plan, or the members that it can do without.
func (c *cycle) stopGang(j *model.Job, parts []int, m *made) {
	y := c.yield
	last := &y.gangs[parts[len(parts)-1]]
	p := model.Preemption{
		Namespace: last.job.Namespace, Job: last.job.ID, Action: model.ActionShrink,
		For: model.JobName{Namespace: j.Namespace, ID: j.ID}, ForGroup: m.group, Returned: y.returned(parts), Benefit: m.saves,
	}
	for _, v := range parts {
		part := &y.gangs[v]
		for _, h := range part.holds {
			y.leaving = append(y.leaving, leaver{job: keyOf(part.job), to: keyOf(j), hold: h})
		}
		p.Members, p.Cost = append(p.Members, part.members...), p.Cost.Plus(part.cost)
	}
	slices.SortStableFunc(p.Members, func(a, b model.Member) int { return cmp.Compare(a.Rank, b.Rank) })
	if to, ok := m.moves[parts[len(parts)-1]]; ok && last.whole {
		p.Action, p.Moves, p.To, p.Cost = model.ActionMove, to.name(), c.keepDestination(to), to.cost
	}
	y.plan = append(y.plan, c.tellStop(j, last, p, m))
	y.last = append(y.last, parts[len(parts)-1])
	y.notes[keyOf(last.job)] = y.plan[len(y.plan)-1].Reason
}

// tellStop says why a gang stops, or members of it.
func (c *cycle) tellStop(j *model.Job, last *yielder, p model.Preemption, m *made) model.Preemption {
	if m.saves > 0 {
		p.Reason = fmt.Sprintf("moves to %s, so that %s can start in %s: %s are lost; %s",
			p.Moves, jobName(keyOf(j)), domainName(m.result.Level, m.result.Domain), costText(p.Cost, last.sinceWhat()), m.benefit())
		return p
	}
	why := c.mayBecause(j, last.job)
	p.Reason = fmt.Sprintf("gives way to %s (%s): %s are lost", jobName(keyOf(j)), why, costText(p.Cost, last.sinceWhat()))
	switch {
	case p.Returned:
		p.Reason = c.returnedReason(&p)
	case !last.whole:
		p.Reason = fmt.Sprintf("gives %s to %s (%s) and runs on with the others: %s are lost", plural(len(p.Members), "member"), jobName(keyOf(j)), why, costText(p.Cost, last.sinceWhat()))
	default:
		p.Reason += queuedAgain
		p.Action = model.ActionPreempt
	}
	return p
}

// queuedAgain ends the reason of a gang that has nowhere else to go at once.
const queuedAgain = "; it is queued again"
