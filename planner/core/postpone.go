package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// What a gang keeps that waits is of interest to those behind it: they may use what
// is left. Where nobody reads when gangs start and what they keep, that is found out
// only once somebody behind them could be placed without it. Whoever cannot be
// placed while the first of them keep their share cannot be placed when the others
// do, too. Most events find no room for anybody behind those who wait, so that most
// reservations are never made.

// postponed is a gang that has not kept yet what it is to keep.
type postponed struct {
	job  *model.Job
	gang *gang
	*toldLate
}

// toldLate is what gangs alike were told that have postponed it.
type toldLate struct {
	why possibility
	// plain: gangs with its key are told the same. wait is that, but for what it keeps.
	plain bool
	key   possibleKey
	wait  wait
}

// mayPostpone reports whether what is kept is for nobody but those behind who wait
// too: nothing is lent, bought, divided, resized or set apart.
func (c *cycle) mayPostpone() bool {
	return c.policy.Backfills() && c.decidesPlainly() && !c.displaces()
}

// decidesPlainly reports whether nobody reads what those are told who wait, and nothing is
// lent, bought, divided, resized or set apart.
func (c *cycle) decidesPlainly() bool {
	return c.terse && c.asked == nil && !c.limited() && len(c.policy.Interactive.Classes)+len(c.policy.Interactive.Queues) == 0 &&
		len(c.apart)+len(c.burst.Pools)+len(c.burst.Bought)+len(c.bought)+len(c.divides)+len(c.landings)+len(c.spares)+len(c.seats)+len(c.starts)+len(c.holds)+len(c.jobsOf(someElastic)) == 0 && !c.anySurplus()
}

// postponeToo does so for a gang that is told the same as one alike before it.
// Whether it is to keep something depends on what those before it do.
func (c *cycle) postponeToo(j *model.Job, g *gang, key possibleKey, told *answered) {
	if !told.wait.postponed && len(c.postponed) == 0 {
		return
	}
	if told.late == nil {
		told.late = &toldLate{why: c.possibility(g), plain: true, key: key, wait: told.wait}
	}
	if told.late.why.code == "" {
		c.postponed = append(c.postponed, postponed{j, g, told.late})
	}
}

// catchUp lets the first gangs that have postponed that keep what they are to keep.
func (c *cycle) catchUp(n int) {
	list := c.postponed[:min(n, len(c.postponed))]
	for i := range list {
		c.keepLate(&list[i])
	}
	c.postponed = c.postponed[len(list):]
}

// keepLate lets a gang keep what it is to keep, and finds out when it starts, as
// explain and foretell do.
func (c *cycle) keepLate(p *postponed) {
	c.late++
	p.gang.outlook = nil // it may have had one in another decision
	held := c.explainLate(p)
	o := p.gang.outlook
	if o == nil {
		o = c.guessStart(p.job, p.gang)
	}
	if o != nil && o.known {
		c.ahead.keptUntil(p.job, held, o.at)
	}
}

// explainLate returns the nodes that it keeps. One alike may have kept nothing a
// moment ago, or enough for both.
func (c *cycle) explainLate(p *postponed) []string {
	if a := c.waits[p.key]; p.plain && a != nil && a.known && a.epoch == c.epoch && !a.wait.postponed {
		return nil
	}
	if p.plain {
		if w, ok := c.shareAnswer(p.key); ok {
			return w.detail.Held
		}
	}
	epoch := c.epoch
	held := c.nodeIDs(c.keepNow(p.job, p.gang, p.why).nodes)
	answer := waitAnswer{epoch: c.epoch, known: true, wait: p.wait}
	answer.wait.detail.Held, answer.wait.postponed = held, false
	switch {
	case !p.plain:
	case held == nil:
		c.answersTo(p.key).waitAnswer = answer
	case epoch == c.epoch:
		c.shares[p.key] = sharedWait{answer, c.claims[p.key].node}
	}
	return held
}

// placeBehind places a gang behind others that have postponed what they are to keep. As
// many of them keep it as it takes until the gang has no place any more: most of those
// that it took the last time, then more and more.
func (c *cycle) placeBehind(g *gang) (place.Result, bool) {
	if !g.plain() {
		if c.hopeless(g) {
			return place.Result{}, false
		}
		c.catchUp(len(c.postponed))
	}
	state := c.views[viewNow].State
	mark := state.Mark()
	r, ok := c.placeAmong(g)
	if !ok || len(c.postponed) == 0 {
		return r, ok
	}
	key, plain := keyOfGang(g)
	n := 1
	if plain {
		n = max(1, (c.refusals[key]-c.late)*3/4)
	}
	for more := 1; ok && len(c.postponed) > 0; n, more = more, 2*more {
		state.Revert(mark)
		g.lent = false
		c.catchUp(n)
		mark = state.Mark()
		r, ok = c.placeAmong(g)
	}
	if plain && !ok {
		c.refusals[key] = c.late
	}
	return r, ok
}

// hopeless reports whether some part of a gang would not fit if nothing were kept.
func (c *cycle) hopeless(g *gang) bool {
	truth := c.truth()
	for _, part := range g.unit.Parts {
		if part.Count > 0 && truth.Summary(part.Request).Members(topo.Root) < part.Count {
			return true
		}
	}
	return false
}

// behind reports whether a gang waits behind others that keep something: it would
// fit otherwise.
func (c *cycle) behind(g *gang) bool {
	if len(c.holds)+len(c.postponed) == 0 || !c.placeable(c.truth(), g) {
		return false
	}
	for len(c.holds) == 0 && len(c.postponed) > 0 {
		c.catchUp(1)
	}
	return len(c.holds) > 0
}
