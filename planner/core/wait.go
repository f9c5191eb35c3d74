package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// wait is why a gang is not placed.
type wait struct {
	// forRoom: it waits for room that others hold, so it may keep nodes, and in
	// a strict queue nobody passes it.
	forRoom bool
	// postponed: what it keeps is found out when somebody wants to know.
	postponed bool
	// divided: GPUs are divided for it now.
	divided bool
	detail  model.Detail
	reason  string
}

// never reports whether it does not help to wait.
func (w *wait) never() bool {
	return w.detail.Code == codeNoNode || w.detail.Code == codeTooLarge
}

// maxTold is how many of a job's gangs a sentence tells of.
const maxTold = 3

// tellAll says why gangs of a job are not placed. What is said first, and with
// numbers, is what can still change.
func (c *cycle) tellAll(j *model.Job, waits []wait, d *model.Decision) {
	main, forRoom := 0, false
	var held []string
	var victims []model.JobName
	var cost model.Cost
	for i := range waits {
		forRoom = forRoom || waits[i].forRoom
		held = append(held, waits[i].detail.Held...)
		victims = append(victims, waits[i].detail.Victims...)
		cost = cost.Plus(waits[i].detail.Cost)
		if w := &waits[main]; waits[i].forRoom && !w.forRoom || w.never() && !waits[i].never() {
			main = i
		}
	}
	if c.policy.Strict && forRoom {
		c.blocked = "job " + jobName(keyOf(j))
	}
	told := []string{waits[main].reason}
	for i := range waits {
		if i != main && len(told) < maxTold {
			told = append(told, waits[i].reason)
		}
	}
	if more := len(waits) - len(told); more > 0 {
		told = append(told, plural(more, "group")+" more do not fit")
	}
	reason := strings.Join(told, "; besides, ")
	detail := &waits[main].detail
	if len(waits) > 1 {
		slices.Sort(held)
		held = slices.Compact(held)
	}
	if d.Action == model.ActionAdmit {
		d.Reason += fmt.Sprintf("; %d more wait: %s", d.Detail.MembersWanted-len(d.Members), reason)
		d.Detail.Filtered, d.Detail.Held = detail.Filtered, held
		d.Detail.Victims, d.Detail.Cost = victims, cost
		return
	}
	ahead, wanted, gpus := d.Detail.Ahead, d.Detail.MembersWanted, d.Detail.WantedGPUs
	d.Detail, d.Reason = *detail, reason
	d.Detail.Ahead, d.Detail.MembersWanted, d.Detail.WantedGPUs, d.Detail.Held = ahead, wanted, gpus, held
	d.Detail.Victims, d.Detail.Cost = victims, cost
}

// explain says why a gang does not fit, and keeps nodes for it. What was said
// of another gang alike holds still if nothing has changed since.
func (c *cycle) explain(j *model.Job, g *gang) wait {
	c.settle(g)
	a := c.answersOf(g)
	plain := a != nil && len(g.unit.Parts) == 1 && !g.named // else the reason names groups
	plain = plain && !c.mayPreempt(j, g) && !c.triesShort(j, g)
	beside := c.notBefore(g)
	key, _ := keyOfGang(g)
	if plain && a.known && a.epoch == c.epoch && a.beside == beside {
		c.postponeToo(j, g, key, a)
		return a.wait
	}
	if len(c.postponed) == 0 && plain {
		if s, ok := c.shareAnswer(key); ok {
			return s
		}
	}
	epoch, alone := c.epoch, len(c.holds)+len(c.postponed) == 0
	w := c.explainAnew(j, g)
	plain = plain && !w.divided
	if plain && w.postponed {
		last := &c.postponed[len(c.postponed)-1]
		last.plain, last.key, last.wait = true, key, w
	}
	switch {
	case !plain:
	case w.postponed && alone: // those behind it are told that somebody is ahead
	case w.detail.Held == nil:
		a.waitAnswer = waitAnswer{epoch: c.epoch, known: true, wait: w, beside: beside}
	case epoch == c.epoch: // it shares what is kept already
		c.shares[key] = sharedWait{waitAnswer{epoch: epoch, known: true, wait: w}, c.claims[key].node}
	}
	return w
}

// shareAnswer is what a member is told that shares what its like keeps already, if
// there is a part of it left.
func (c *cycle) shareAnswer(key possibleKey) (wait, bool) {
	s, cl := c.shares[key], c.claims[key]
	if !s.known || s.epoch != c.epoch || s.node != cl.node || cl.left <= 0 {
		return wait{}, false
	}
	cl.left--
	c.claims[key] = cl
	return s.wait, true
}

func (c *cycle) explainAnew(j *model.Job, g *gang) (w wait) {
	truth := c.truth()
	var why possibility
	switch {
	case g.nowhere != "":
		why = possibility{code: codeNoNode, reason: g.nowhere}
	case g.astray:
		why = possibility{code: codeNoDomain, reason: g.astrayReason()}
	default:
		why = c.possibility(g)
	}
	part := why.part
	if !why.never() {
		part = g.blocker(truth)
	}
	if !c.terse {
		w.detail.Filtered = truth.Filtered(g.unit.Parts[part].Request)
		w.detail.FreeGPUs = c.freeGPUs(truth, g)
	}
	if why.code != "" && !g.astray && c.startShort(j, g) {
		return wait{}
	}
	if c.mayDivide(g) && c.serving != nil {
		w.divided = c.divideInTurn(c.serving, g)
	}
	if why.never() || g.astray {
		w.detail.Code, w.reason = why.code, why.reason
		w.detail.Level, w.detail.Domain, w.detail.MembersFit = why.level, why.domain, why.fit
		c.tellDivided(j, g, &w)
		return w
	}
	// Who runs already lets others pass.
	w.forRoom = why.code == "" && g.grown == 0
	if w.divided {
		w.forRoom, w.detail.Code = true, codeNoCapacity
		w.reason = c.waitReason(j, g, w.detail.Code, c.bestDomain(c.truth(), g), kept{}, why)
		return w
	}
	if why.code == "" && c.mayPreempt(j, g) {
		if made, ok := c.makeRoomOnAny(j, g); ok {
			c.tellMade(g, made, &w)
			return w
		}
	}
	if why.code == "" && c.startShort(j, g) {
		return wait{}
	}
	return c.explainRoom(j, g, why, w)
}

// explainRoom says what a gang waits for that others have, or that is kept, and keeps
// what is to be its own.
func (c *cycle) explainRoom(j *model.Job, g *gang, why possibility, w wait) wait {
	truth := c.truth()
	if text := c.notBefore(g); text != "" && (why.code == codeBehind || c.placeable(truth, g)) {
		w.detail.Code = codeBehind
		c.tellBefore(g, &w, text, why.code == codeBehind, truth)
		// What is kept for other queues it does not keep from them; what a maintenance
		// will close would lie idle.
		if w.forRoom && (c.policy.Backfills() || len(c.queuesApart) > 0 && !c.ahead.overlooks(g.runs)) {
			w.detail.Held = c.nodeIDs(c.keep(j, g, why).nodes)
		}
		return w
	}
	if c.behind(g) {
		w.detail.Code, w.reason, w.forRoom = codeBehind, c.behindReason(g), g.grown == 0
		if c.policy.Backfills() {
			kept := c.keep(j, g, why)
			w.detail.Held, w.postponed = c.nodeIDs(kept.nodes), kept.postponed
		}
		return w
	}
	w.detail.Code = codeNoCapacity
	if c.fitsApart(c.truth(), g) {
		w.detail.Code = codeNoDomain
	}
	if w.forRoom {
		c.findUnblock(j, g)
	}
	kept := kept{}
	if !c.leavesBehind || !w.forRoom { // else nobody is to be kept from anything
		kept = c.keep(j, g, why)
	}
	w.detail.Held, w.postponed = c.nodeIDs(kept.nodes), kept.postponed
	if c.terse {
		return w
	}
	best := kept.in
	if best.hi == 0 {
		best = c.bestDomain(c.truth(), g)
	}
	if w.forRoom && len(kept.nodes) == 0 && !kept.postponed {
		kept.busy = c.wouldKeep(j, g, why)
	}
	c.refine(c.truth(), g, &best)
	w.detail.MembersFit, w.detail.Level, w.detail.Domain = best.fit, best.level, best.path
	w.reason = c.waitReason(j, g, w.detail.Code, best, kept, why)
	return w
}

// nodeIDs are the IDs of nodes.
func (c *cycle) nodeIDs(nodes []int32) (ids []string) {
	for _, node := range nodes {
		ids = append(ids, c.tree.Nodes[node].Model.ID)
	}
	return ids
}

// blocker is the part that fits least, the largest of them.
func (g *gang) blocker(e *place.Engine) int {
	part, short := -1, false
	for i, p := range g.unit.Parts {
		if p.Count == 0 {
			continue
		}
		lacks := e.Summary(p.Request).Members(topo.Root) < p.Count
		larger := part < 0 || p.Request.GPUs > g.unit.Parts[part].Request.GPUs
		if part < 0 || lacks && !short || lacks == short && larger {
			part, short = i, lacks
		}
	}
	return part
}

// truth is the view without what is kept for those who wait.
func (c *cycle) truth() *place.Engine {
	if !c.truthful {
		return c.views[viewNow]
	}
	return c.views[viewTrue]
}

// freeGPUs counts the free GPUs that some member of the gang could use.
func (c *cycle) freeGPUs(e *place.Engine, g *gang) int {
	var requests []*place.Request
	for _, part := range g.unit.Parts {
		if part.Count > 0 {
			requests = append(requests, part.Request)
		}
	}
	if len(requests) == 1 {
		return e.Summary(requests[0]).GPUs(topo.Root)
	}
	return e.FreeGPUs(requests)
}

// fitsApart reports whether the gang would fit if it did not have to be in one
// domain.
func (c *cycle) fitsApart(e *place.Engine, g *gang) bool {
	if g.unit.Topology.Mode != model.TopologyRequire && !g.sliced() {
		return false
	}
	loose, unit := *g, *g.unit
	unit.Topology, unit.Within, unit.Only = model.Topology{}, g.home(), nil
	unit.Parts = slices.Clone(unit.Parts)
	for i := range unit.Parts {
		unit.Parts[i].Slices = place.Slices{}
	}
	loose.unit = &unit
	return c.placeable(e, &loose)
}
