package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// An elastic gang that does not fit at its count, and for which nobody makes room,
// starts with as many members as fit, but no fewer than its caravan_min, and gets
// the others when there is room. (Such jobs are malleable in the terms of Feitelson
// and Rudolph, Toward Convergence in Job Schedulers for Parallel Supercomputers,
// JSSPP'96.) One that runs below its count grows by what fits in the same way, but
// not more often than gangs get another size. Its caravan_min is its author's consent.

// shorter is how a gang can have fewer members than it asks for.
type shorter struct {
	// part is the part that has fewer, and least how few.
	part, least int
}

// mayBeShort says how a gang can have fewer members; false if it cannot. Only
// members that have their nodes whole and to themselves can be joined by others
// later without starting anew.
func (c *cycle) mayBeShort(j *model.Job, g *gang) (s shorter, ok bool) {
	policy := c.policy.Elastic.WithDefaults()
	if policy.Disabled || g.landing != nil || g.replaces || g.nowhere != "" || gangOf(j) == model.GangNone {
		return s, false
	}
	s.part = -1
	for i, group := range g.groups {
		most, least := len(g.indexes[i]), max(1, group.Min)
		if g.grown > 0 {
			least = 1
		}
		switch {
		case group.Max == 0 || least >= most:
		case s.part >= 0: // which of them were to give?
			return s, false
		default:
			s = shorter{part: i, least: least}
		}
	}
	if s.part < 0 || !takesOneList(g.groups[s.part]) {
		return s, false
	}
	return s, g.grown == 0 || c.settled(j, policy)
}

// triesShort reports whether a gang is placed with fewer members if it can be.
func (c *cycle) triesShort(j *model.Job, g *gang) bool {
	_, ok := c.mayBeShort(j, g)
	return ok && c.serving != nil
}

// takesOneList reports whether a member's GPUs are all those of one device request.
func takesOneList(group *model.TaskGroup) bool {
	asks := 0
	for _, d := range group.Devices {
		if d.Count > 0 {
			asks++
		}
	}
	return asks == 1 && group.Slice.Size == 0
}

// startShort places a gang that waits with as many members as fit, at the stage of
// the turn that is being served; false if even the fewest do not.
func (c *cycle) startShort(j *model.Job, g *gang) bool {
	s, ok := c.mayBeShort(j, g)
	if !ok || c.serving == nil {
		return false
	}
	all, refused, outlook := g.indexes[s.part], g.refused, g.outlook
	most := len(all) - 1
	g.short = &s
	best := 0
	if c.fitsShort(j, g, all, s.least) {
		best = s.least
		for low, high := s.least+1, most; low <= high; {
			if n := (low + high) / 2; c.fitsShort(j, g, all, n) {
				best, low = n, n+1
			} else {
				high = n - 1
			}
		}
	}
	if best > 0 {
		g.take(s.part, all[:best])
		c.prepare(j, g)
		if r, answer := c.ask(c.serving, g, c.stage); answer == askYes {
			c.beginShort(j, g, r, len(all))
			return true
		}
	}
	g.short, g.refused, g.outlook, g.lent = nil, refused, outlook, false
	g.take(s.part, all)
	c.prepare(j, g)
	c.settle(g)
	return false
}

// fitsShort reports whether a gang can start now with the first of its members.
func (c *cycle) fitsShort(j *model.Job, g *gang, all []int, n int) bool {
	g.take(g.short.part, all[:n])
	g.lent = false
	c.prepare(j, g)
	t, state := c.serving, c.views[viewNow].State
	mark, borrowed := state.Mark(), t.d.Detail.BorrowedGPUs
	r, answer := c.ask(t, g, c.stage)
	if answer != askYes {
		return false
	}
	if c.ledger != nil {
		c.ledger.Discharge(t.home, c.amountOf(g, r), t.never())
	}
	t.d.Detail.BorrowedGPUs = borrowed
	state.Revert(mark)
	return true
}

// take makes a part of a gang of some of its members.
func (g *gang) take(part int, indexes []int) {
	each := 0
	for _, d := range g.groups[part].Devices {
		each += d.Count
	}
	n := len(indexes) - len(g.indexes[part])
	g.indexes = slices.Clone(g.indexes)
	g.indexes[part] = indexes
	g.members += n
	g.gpus += n * each
}

// beginShort takes note of a gang that starts with fewer members, or grows by
// fewer, than it asked for.
func (c *cycle) beginShort(j *model.Job, g *gang, r place.Result, asked int) {
	t, group := c.serving, g.groups[g.short.part]
	has, most := len(g.indexes[g.short.part]), asked
	if g.grown > 0 {
		has, most = has+inForce(j, group.Name), asked+inForce(j, group.Name)
		t.short = fmt.Sprintf("grows to %d of its %s for now, since all %d do not fit; the others follow when there is room: ", has, plural(most, "member"), most)
	} else {
		t.short = fmt.Sprintf("starts with %d of its %s for now, since all %d do not fit and it may run with %d (caravan_min); the others follow when there is room: ", has, plural(most, "member"), most, group.Min)
	}
	t.last = r
	t.placed++
	c.servedBy(t, g, r)
	c.admitted(j, g, r, &t.d)
	t.placedNow = c.placedNow
}

// keepWhole leaves to members that others are to join later the nodes that they
// take whole.
func (c *cycle) keepWhole(g *gang) {
	u, at := g.unit, g.short.part
	larger := c.largerThan(u.Parts[at].Request.GPUs)
	if len(larger) == 0 {
		return
	}
	if u.TakenByPart == nil {
		u.TakenByPart = make([][]int32, len(u.Parts))
	}
	u.TakenByPart[at] = slices.Concat(u.TakenByPart[at], larger)
}

// atSize is how long a gang runs with fewer members than it asks for, if it would
// run for so long with all: by what is known of its speed, else as if each GPU did
// the same.
func (c *cycle) atSize(j *model.Job, runs time.Duration, members, gpus int) time.Duration {
	count, all := 0, 0
	for i := range j.Groups {
		g := &j.Groups[i]
		count += g.Count
		for _, d := range g.Devices {
			all += g.Count * d.Count
		}
	}
	if members <= 0 || members >= count || runs >= eternity || gangOf(j) == model.GangNone {
		return runs
	}
	curve := c.speedOf(j)
	whole, part := curve.Goodput(curve.Sized(count, all)).Rate, curve.Goodput(curve.Sized(members, gpus)).Rate
	if slower := whole / part; slower > 1 && slower < float64(eternity/2)/float64(runs) {
		return time.Duration(float64(runs) * slower)
	}
	return runs
}

// sizedRun is how long a job that runs does so at its present size.
func (c *cycle) sizedRun(j *model.Job, runs time.Duration) time.Duration {
	if !slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool { return g.Max > 0 }) {
		return runs
	}
	gpus := 0
	for i := range j.Members {
		gpus += len(j.Members[i].GPUs)
	}
	return c.atSize(j, runs, inForce(j, ""), gpus)
}
