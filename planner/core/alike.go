package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Where many wait most of them ask for the same as somebody before them that was refused
// a moment ago. Such a job is told the same, without being looked at: what it asks for is
// kept for as long as it waits.

// request is what a job asks for that waits and is one gang of equal members.
type request struct {
	gang gang
	key  possibleKey
	// told is where they find what they were answered who ask for the same.
	told *answered
}

// asksAgain notes what a job asks for that has had its turn, if another turn is decided by
// what others alike were told.
func (c *cycle) asksAgain(t *turn) {
	if !c.passesAlike || t.placed > 0 || len(t.gangs) != 1 || len(t.waits) != 1 {
		return
	}
	j, g := t.job, &t.gangs[0]
	if gangOf(j) != model.GangJob || j.State != model.StateQueued || j.Hold != "" || !j.RetryAfter.IsZero() || !j.Deadline.IsZero() || len(j.Data)+len(j.Models)+len(j.Regions)+len(g.options) > 0 {
		return
	}
	if g.named || g.nowhere != "" || g.astray || g.grown > 0 || !g.plain() || g.unit.Parts[0].Request.Shares() || c.triesShort(j, g) {
		return
	}
	if key, plain := keyOfGang(g); plain {
		a := &request{gang: *g, key: key, told: c.answersTo(key)}
		c.askings[j] = a
		if c.lasts && c.lasting.waiters[j] != nil {
			c.lasting.waiters[j].asks = a
		}
	}
}

// mayPassAlike reports whether nobody minds that those are not looked at who are told the
// same as others: nobody reads what they are told, no queue counts them, nobody is to be
// stopped for room before another one, and nothing is bought, divided or kept for some.
func (c *cycle) mayPassAlike() bool {
	if c.ledger != nil || c.policy.Strict {
		return false
	}
	return c.postponing || c.decidesPlainly() && !c.policy.Defrag.Enabled && len(c.jobsOf(someReplaced)) == 0
}

// waitsLike reports whether a job is refused as another one alike was since something was
// taken or kept last; false if it has to be looked at. What it asks for is handed over, nil
// if that is not known. Nobody reads that it waits, so the plan does not say it.
func (c *cycle) waitsLike(j *model.Job, a *request) bool {
	if a == nil || a.told.epoch != c.epoch || !a.told.known || a.told.beside != "" || c.mayEndInTime(a) {
		return false
	}
	if !c.postponing {
		// Others may give way to it though they do not to its like.
		if c.placedNow = nil; c.mayPreempt(j, &a.gang) {
			return false
		}
	}
	c.postponeToo(j, &a.gang, a.key, a.told)
	c.waiting++
	return true
}

// askingOf is what a job asks for that is so many places behind the first, nil if it is not
// known.
func (c *cycle) askingOf(place int, j *model.Job) *request {
	if line := c.scratch.inLine; c.lasts && place < len(line) && line[place].Job == j {
		return line[place].asks
	}
	return c.askings[j]
}

// forgetAskings forgets what jobs ask for and were answered.
func (p *Prepared) forgetAskings() {
	clear(p.askings)
	clear(p.scratch.waits)
	if p.lasting != nil {
		for _, w := range p.lasting.order {
			w.asks = nil
		}
	}
}

// mayEndInTime reports whether it is not known that a job does not end before others start
// who have reserved their places.
func (c *cycle) mayEndInTime(asks *request) bool {
	a := c.ahead
	if a == nil || len(a.bounds) == 0 || a.bounds[len(a.bounds)-1] < asks.gang.runs {
		return false
	}
	a.sync()
	return asks.told.failedIn != a.cycle || asks.gang.runs < asks.told.failed
}

// waitsBehind tells a job that waits behind another one in a strict queue no more than that;
// false if there is more to it. In plans that nobody reads it is not looked at.
func (c *cycle) waitsBehind(j *model.Job, plan *model.Plan) bool {
	if !c.terse || c.blocked == "" || c.yield != nil || len(c.landings) > 0 || j.State != model.StateQueued || gangOf(j) != model.GangJob || j.Hold != "" || !j.RetryAfter.IsZero() || elastic(j) || c.constraintFaults(j) != "" {
		return false
	}
	d := model.Decision{Namespace: j.Namespace, Job: j.ID, Action: model.ActionWait, Members: []model.Member{}}
	for i := range j.Groups {
		d.Detail.MembersWanted += max(0, j.Groups[i].Count)
		d.Detail.WantedGPUs += max(0, j.Groups[i].Count) * askedGPUs(&j.Groups[i])
	}
	if d.Detail.MembersWanted == 0 {
		return false
	}
	d.Reason, d.Detail.Code, d.Detail.Ahead = c.blocked+" is ahead", codeBehind, c.waiting
	c.tellStanding(j, &d)
	c.waiting++
	plan.Decisions = append(plan.Decisions, d)
	return true
}
