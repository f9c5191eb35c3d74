package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
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
	// forgotten is how often all answers had been forgotten when it was noted.
	forgotten int
}

// asksAgain notes what a job asks for that has had its turn and waits, if another turn is
// decided by what others alike were told.
func (c *cycle) asksAgain(t *turn) {
	j := t.job
	if gangOf(j) != model.GangJob || len(t.waits) == 0 || !j.RetryAfter.IsZero() || !j.Deadline.IsZero() {
		return
	}
	g := &t.gangs[0]
	if g.astray || !g.simple() {
		return
	}
	key, _ := keyOfGang(g)
	a := &request{gang: *g, key: key, told: c.answersTo(key), forgotten: c.scratch.forgotten}
	c.askings[j] = a
	if aged := c.agedOf[j]; aged != nil {
		aged.asks = a
	}
	if c.lasts {
		w := c.lasting.waiters[j]
		w.asks, w.told = a, a.told
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
// taken or kept last; false if it has to be looked at, or it is not known what it asks for.
// It is so many places behind the first. Nobody reads that it waits, so the plan does not say
// it.
func (c *cycle) waitsLike(place int, j *model.Job) bool {
	a, told, w := c.askingOf(place, j)
	if a == nil || c.mayEndInTime(a) || (told.epoch != c.epoch || !told.known) && !c.lacksRoom(a, told, w) {
		return false
	}
	if c.displaces() {
		var r rank
		if w != nil && c.stands != nil {
			r = w.rank // nobody is interactive
		} else {
			r = c.rankOf(j)
		}
		// Others may give way to it though they do not to its like.
		if !c.askedInVain(told, r) || c.yield != nil && len(c.yield.owed) > 0 {
			if c.placedNow = nil; c.mayPreempt(j, &a.gang) && !c.asksInVain(j, a) {
				return false
			}
		}
	}
	if c.postponing {
		c.postponeToo(j, &a.gang, a.key, told)
	}
	c.waiting++
	return true
}

// lacksRoom reports whether there is no room for a job that keeps nothing, though its like
// may not have been told so yet: whoever has not his turn in an order that is kept, where
// others give way, reserves nothing, so that he is told no more. That is counted once for all
// who ask for the same, as long as nothing is taken or kept.
func (c *cycle) lacksRoom(a *request, told *answered, w *waiter) bool {
	if w == nil || w.turned {
		return false
	}
	if told.roomless == c.epoch {
		return true
	}
	if a.forgotten != c.scratch.forgotten || c.stands == nil || !c.displaces() || !c.policy.Backfills() {
		return false
	}
	part := &a.gang.unit.Parts[0]
	if c.views[viewNow].Summary(part.Request).Members(topo.Root) >= part.Count {
		return false
	}
	told.roomless = c.epoch
	return true
}

// asksInVain reports whether nobody could make room for a job, and notes that it has asked
// for it.
func (c *cycle) asksInVain(j *model.Job, a *request) bool {
	if !c.asksTooMuch(j, &a.gang) || c.possibility(&a.gang).code != "" {
		return false
	}
	_, ok := c.noRoom(j, &a.gang)
	return !ok
}

// askingOf is what a job asks for that is so many places behind the first, nil if it is not
// known, and what its like were answered. In an order that is kept it is mostly there, with
// who waits, and need not be looked up.
func (c *cycle) askingOf(place int, j *model.Job) (a *request, told *answered, w *waiter) {
	if line := c.scratch.inLine; c.lasts && place < len(line) && line[place].Job == j { // else somebody before it has come back
		w = line[place]
		return w.asks, w.told, w
	}
	if line := c.scratch.line; !c.lasts && place < len(line) && line[place].of.job == j {
		a = line[place].of.asks
	} else {
		a = c.askings[j]
	}
	if a == nil {
		return nil, nil, nil
	}
	return a, a.told, nil
}

// forgetAnswers forgets what jobs were answered, so that all are looked at again: an answer
// that is not found any more is of no decision to come.
func (p *Prepared) forgetAnswers() {
	clear(p.scratch.waits)
	p.scratch.forgotten++
}

// mayEndInTime reports whether it is not known that a job does not end before others start
// who have reserved their places.
func (c *cycle) mayEndInTime(asks *request) bool {
	a := c.ahead
	if a == nil || len(a.bounds) == 0 || a.bounds[len(a.bounds)-1] < asks.gang.runs {
		return false
	}
	return asks.told.failedIn != a.cycle || asks.gang.runs < asks.told.failed
}

// waitsBehind tells a job that waits behind another one in a strict queue that it is behind;
// false if there is more to it. In plans that nobody reads it is not looked at.
func (c *cycle) waitsBehind(j *model.Job, plan *model.Plan) bool {
	if !c.terse || c.blocked == "" || !plainlyQueued(j) || c.lands(j) || c.constraintFaults(j) != "" {
		return false
	}
	d := model.Decision{Namespace: j.Namespace, Job: j.ID, Action: model.ActionWait, Members: []model.Member{}}
	d.Detail.MembersWanted = membersWanted(j)
	for i := range j.Groups {
		d.Detail.WantedGPUs += j.Groups[i].Count * askedGPUs(&j.Groups[i])
	}
	d.Detail.Code, d.Detail.Ahead = codeBehind, c.waiting
	c.tellStanding(j, &d)
	c.waiting++
	plan.Decisions = append(plan.Decisions, d)
	return true
}

// mayLeaveBehind reports whether all who wait behind another one in a strict queue are left
// out of the plan, without being looked at: they would be told no more than that they are
// behind, and nobody reads it. What the one ahead keeps, and when it starts, is nothing to
// them either.
func (c *cycle) mayLeaveBehind() bool {
	return c.policy.Strict && c.ledger == nil && c.decidesPlainly() && !c.policy.Defrag.Enabled && len(c.jobsOf(someReplaced))+len(c.jobsOf(someAside)) == 0
}
