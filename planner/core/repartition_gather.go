package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Where it is not known when GPUs will be idle, who needs several keeps those that are
// until there are enough.

// gather keeps GPUs and instances that are idle for a gang that needs more of them than
// there are.
func (c *cycle) gather(j *model.Job, g *gang) (kept, bool) {
	d := c.openDivider()
	if !c.mayHold(j) {
		return kept{}, false
	}
	claims, names := d.idleFor(j, g)
	if len(claims) == 0 {
		return kept{}, false
	}
	c.beginHolding()
	for _, on := range claims {
		c.views[viewNow].State.Take(on.node, on.claim)
	}
	if c.looksAhead() {
		c.starts = append(c.starts, start{keyOf(j), claims, eternity})
	}
	return d.noteHold(j, g, kept{divides: true, gpus: names + " kept until there are enough"}, claims), true
}

// idleFor is what is idle of what a gang needs that can start once GPUs are divided
// otherwise.
func (d *divider) idleFor(j *model.Job, g *gang) (claims []claimOn, names string) {
	if a, ok := d.wholeOf(g); ok {
		for _, s := range d.chooseSeats(g, d.seatsFor(j, g, a)) {
			if idle := s.mask & d.views[viewNow].State.Row(s.node).GPUs; idle != 0 {
				claims = append(claims, claimOn{s.node, topo.Claim{GPUs: idle}})
			}
		}
		return claims, "the idle GPUs and instances among those that are to be whole are"
	}
	if d.later(g) == 0 {
		return nil, ""
	}
	if d.wanted == nil {
		d.noteWaiting()
	}
	before, mark := d.keep(), d.views[viewNow].State.Mark()
	d.serving, d.claims, d.turn = nil, nil, true
	for part, group := range g.groups {
		if len(g.indexes[part]) > 0 {
			d.servePart(j, g, part, group)
		}
	}
	claims, names, d.turn = d.claims, d.servingNames(), false
	d.restore(before)
	d.views[viewNow].State.Revert(mark)
	return claims, names
}

// wholeOf is what a gang asks for that wants whole GPUs.
func (d *divider) wholeOf(g *gang) (asked, bool) {
	for _, whole := range d.models() {
		if a, ok := d.asked(g.groups[0], whole); ok && a.profile == "" && len(g.groups) == 1 {
			return a, true
		}
	}
	return asked{}, false
}
