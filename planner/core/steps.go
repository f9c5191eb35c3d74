package core

import (
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// What becomes free on a node as what runs there ends is the same from one decision
// to the next, as long as nobody comes or goes and they end in the same order: only
// the times are others. So what is free, and what that suffices for, is kept.

// step is what is free on a node from a time on.
type step struct {
	at  time.Duration
	row topo.Row
}

// nodeSteps are a node's.
type nodeSteps struct {
	steps []step
	// last is, by holder, the step at which he has gone, the number of steps if he
	// never has.
	last []int32
	// holders is the version of those who hold something of the node, made the number
	// of what was made.
	holders uint32
	made    uint64
	// asOf is for when the steps' times were found out, since the beginning; steady:
	// as time passes they come nearer, until the first is there, and nothing else.
	asOf   time.Duration
	steady bool
}

// steps are what is free on a node as what runs now ends.
func (a *ahead) steps(node int32) []step {
	b := &a.base[node]
	if a.seen[node] == a.cycle {
		return b.steps
	}
	a.seen[node] = a.cycle
	if b.pass(a.c.turned[node], a.since) {
		return b.steps
	}
	held := a.c.held[node]
	times, gone := append(a.ending[:0], 0), a.gone[:0]
	b.asOf, b.steady = a.since, true
	for i := range held {
		b.steady = b.steady && a.steady(&held[i])
		at := a.leaves(&held[i])
		if gone = append(gone, at); at < eternity {
			times = append(times, at)
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	a.ending, a.gone = times, gone
	if b.made > 0 && b.holders == a.c.turned[node] && b.alike(times, gone) {
		for k, at := range times {
			b.steps[k].at = at
		}
		return b.steps
	}
	a.made++
	b.holders, b.made = a.c.turned[node], a.made
	b.steps, b.last = slices.Grow(b.steps[:0], len(times))[:len(times)], b.last[:0]
	for _, at := range gone {
		k, _ := slices.BinarySearch(times, at)
		b.last = append(b.last, int32(k))
	}
	for k, at := range times {
		s := &b.steps[k]
		s.at, s.row = at, a.c.emptyRow(node)
		for i := range held {
			if int(b.last[i]) > k {
				take(&s.row, &held[i])
			}
		}
	}
	return b.steps
}

// pass lets the time pass up to another one; false if that alone is not what has
// changed.
func (b *nodeSteps) pass(holders uint32, to time.Duration) bool {
	passed := to - b.asOf
	if b.made == 0 || b.holders != holders || !b.steady || passed < 0 || len(b.steps) > 1 && b.steps[1].at <= passed {
		return false
	}
	for k := range b.steps[1:] {
		b.steps[1+k].at -= passed
	}
	b.asOf = to
	return true
}

// steady reports whether all that changes of when somebody has gone is that it comes
// nearer, until then. Policy, sizes and limits do not matter to him.
func (a *ahead) steady(h *holder) bool {
	j := h.of
	switch {
	case h.on != nil && h.on.Lost:
		return true
	case isLeaving(j, h):
		return false
	case j == nil || h.stays:
		return true
	case j.Type == typeService || j.Duration+j.Estimate <= 0 || elastic(j):
		return false
	}
	begun := j.Started
	if begun.IsZero() {
		begun = j.Submitted
	}
	return !begun.IsZero() && !begun.After(a.c.now)
}

// alike reports whether holders leave in the order of before.
func (b *nodeSteps) alike(times, gone []time.Duration) bool {
	if len(times) != len(b.steps) || len(gone) != len(b.last) {
		return false
	}
	for i, k := range b.last {
		if int(k) == len(times) && gone[i] < eternity || int(k) < len(times) && times[k] != gone[i] {
			return false
		}
	}
	return true
}

// baseAt is what is free at a time as what runs now ends.
func (a *ahead) baseAt(node int32, at time.Duration) *topo.Row {
	steps := a.steps(node)
	k := len(steps) - 1
	for steps[k].at > at {
		k--
	}
	return &steps[k].row
}

// takenKey is what it is kept for what nodes take.
type takenKey struct {
	request *place.Request
	island  bool
}

// nodeTaken is what a node takes at each of its steps but that of now.
type nodeTaken struct {
	// made is the number of the steps, work what it cost to look it up.
	made    uint64
	work    int
	members []int32
}

// takenOf is what nodes take at their steps, as far as it is known.
func (a *ahead) takenOf(k curveKey) []nodeTaken {
	key := takenKey{k.request, k.island}
	if a.taken[key] == nil {
		a.taken[key] = make([]nodeTaken, len(a.c.tree.Nodes))
	}
	return a.taken[key]
}

// takenAt is what a node takes at each of its steps but that of now. What was known
// counts as work too, so that a decision is the same whoever made the one before.
func (a *ahead) takenAt(k curveKey, known []nodeTaken, node int32, steps []step) []int32 {
	t := &known[node]
	if t.made == a.base[node].made {
		a.work -= t.work
		return t.members
	}
	before := a.work
	t.members = t.members[:0]
	for i := range steps[1:] {
		t.members = append(t.members, a.takesOf(k, node, &steps[1+i].row))
	}
	t.made, t.work = a.base[node].made, before-a.work
	return t.members
}
