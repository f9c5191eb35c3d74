package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// When a gang fits is found without moving a state through time: for each node
// it is looked up once what it takes, at each time at which that changes; what a
// domain takes is the sum. That work is done once for all gangs that ask for the
// same, but for the nodes of whose time something is given away.

// jump is by how much what a node takes changes at a time.
type jump struct {
	at   time.Duration
	node int32
	more int32
}

type curveKey struct {
	request *place.Request
	island  bool
	within  int32
	// odd: its gang has members that differ. Then whatever becomes free counts: each
	// of them may have had room before, but not all of them together.
	odd bool
}

// curve is what all nodes take, if nobody had given away any of their time: now,
// and the jumps in the order of time.
type curve struct{ now, jumps []jump }

// takes is how many members a node takes, with row free.
func (a *ahead) takes(k curveKey, node int32, row *topo.Row) int32 {
	a.work--
	f := a.c.views[viewTrue].Takes(k.request, node, row)
	return k.of(&f)
}

func (k curveKey) of(f *topo.Fit) int32 {
	if k.island {
		return f.Island
	}
	return f.Members
}

// curveOf is what the nodes within a domain take as what runs ends.
func (a *ahead) curveOf(k curveKey) *curve {
	if known := a.curves[k]; known != nil {
		return known
	}
	out, within := a.newCurve(), a.c.tree.Domains[k.within]
	now, known := a.c.views[viewTrue].Summary(k.request), a.takenOf(k)
	for node := within.Lo; node < within.Hi; node++ {
		if a.booked[node] || !k.request.Verdicts.Eligible(int(node)) {
			continue // what is booked stays so
		}
		before := k.of(now.Fit(node))
		if before > 0 {
			out.now = append(out.now, jump{0, node, before})
		}
		if !a.c.ending[node] {
			continue
		}
		steps := a.steps(node)
		for i, n := range a.takenAt(k, known, node, steps) {
			if n != before || k.odd {
				out.jumps = append(out.jumps, jump{steps[1+i].at, node, n - before})
				before = n
			}
		}
	}
	slices.SortFunc(out.jumps, func(a, b jump) int { return cmp.Compare(a.at, b.at) })
	a.curves[k] = out
	return out
}

// newCurve is an empty one.
func (a *ahead) newCurve() *curve {
	n := len(a.used)
	if n == 0 {
		return &curve{}
	}
	out := a.used[n-1]
	a.used = a.used[:n-1]
	out.now, out.jumps = out.now[:0], out.jumps[:0]
	return out
}

// partCurve walks the jumps of one part in the order of time. What is booked has
// jumps of its own.
type partCurve struct {
	curve
	booked []bool
	// first are those of now, special those later, a heap by time.
	first   []jump
	special []jump
}

// open puts special in order.
func (p *partCurve) open() {
	now := 0
	for i := range p.special {
		if p.special[i].at == 0 {
			p.special[now], p.special[i] = p.special[i], p.special[now]
			now++
		}
	}
	p.first, p.special = p.special[:now], p.special[now:]
	for i := len(p.special)/2 - 1; i >= 0; i-- {
		p.sink(i)
	}
}

// sink moves an element of the heap down to where it belongs.
func (p *partCurve) sink(i int) {
	h := p.special
	for {
		least := 2*i + 1
		if least >= len(h) {
			return
		}
		if right := least + 1; right < len(h) && h[right].at < h[least].at {
			least = right
		}
		if h[i].at <= h[least].at {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// next is when the next jump is, eternity if there is none.
func (p *partCurve) next() time.Duration {
	if len(p.first)+len(p.now) > 0 {
		return 0
	}
	for len(p.jumps) > 0 && p.booked[p.jumps[0].node] {
		p.jumps = p.jumps[1:]
	}
	at := eternity
	if len(p.jumps) > 0 {
		at = p.jumps[0].at
	}
	if len(p.special) > 0 {
		at = min(at, p.special[0].at)
	}
	return at
}

// pass walks past a time.
func (p *partCurve) pass(at time.Duration, yield func(jump)) {
	if at == 0 {
		for _, j := range p.now {
			if !p.booked[j.node] {
				yield(j)
			}
		}
		for _, j := range p.first {
			yield(j)
		}
		p.now, p.first = nil, nil
	}
	for p.next() == at {
		if len(p.jumps) > 0 && p.jumps[0].at == at {
			yield(p.jumps[0])
			p.jumps = p.jumps[1:]
			continue
		}
		yield(p.special[0])
		last := len(p.special) - 1
		p.special[0], p.special = p.special[last], p.special[:last]
		p.sink(0)
	}
}

// places says in what a gang has to be: domains of a level, single nodes, or one
// domain.
type places struct {
	island bool
	node   bool
	level  int
	within int32
}

func (c *cycle) placesOf(g *gang) places {
	t := g.unit.Topology
	p := places{level: -1, within: g.unit.Within}
	switch {
	case t.Mode != model.TopologyRequire:
	case t.Level == model.LevelIsland:
		p.node, p.island = true, true
	case t.Level == model.LevelNode:
		p.node = true
	default:
		p.level = c.tree.LevelIndex(t.Level)
	}
	return p
}

// of is the place that a node is in, -1 if it is in none.
func (p places) of(c *cycle, node int32) int32 {
	switch {
	case p.node:
		return node
	case p.level < 0:
		return p.within
	default:
		return c.tree.DomainAt(node, p.level)
	}
}

// fit makes a place a domainFit.
func (p places) fit(c *cycle, at int32) domainFit {
	if p.node {
		return domainFit{domain: -1, node: at, lo: at, hi: at + 1, level: model.LevelNode, path: c.nodePath(at)}
	}
	d := &c.tree.Domains[at]
	f := domainFit{domain: at, lo: d.Lo, hi: d.Hi, path: d.Path}
	if d.Level >= 0 {
		f.level = c.tree.Levels[d.Level]
	}
	return f
}

// onNode is what each node takes by now, for a gang of one part.
func (a *ahead) onNode(onePart bool) []int32 {
	if !onePart {
		return nil
	}
	if a.members == nil {
		a.members = make([]int32, len(a.c.tree.Nodes))
	}
	clear(a.members)
	return a.members
}

// rooms is a number for each part in each place, all 0.
func (a *ahead) rooms(parts int) []int {
	n := parts * max(len(a.c.tree.Nodes), len(a.c.tree.Domains))
	a.room = slices.Grow(a.room[:0], n)[:n]
	clear(a.room)
	return a.room
}

// eachTime calls yield with the times at which a place takes every part of a gang
// by itself, and the places, until it returns false. What fits at a time is told
// at that time only, unless more comes.
func (a *ahead) eachTime(g *gang, runs time.Duration, w who, yield func(at time.Duration, where []domainFit) bool) {
	p := a.c.placesOf(g)
	parts, curves := a.partCurves(g, p, runs, w)
	onNode := a.onNode(len(parts) == 1)
	room := a.rooms(len(parts))
	var touched []int32
	for {
		at := eternity
		for i := range curves {
			at = min(at, curves[i].next())
		}
		if at == eternity {
			return
		}
		touched = touched[:0]
		for i := range curves {
			curves[i].pass(at, func(j jump) {
				if onNode != nil {
					onNode[j.node] += j.more
				}
				if in := p.of(a.c, j.node); in >= 0 {
					room[int(in)*len(parts)+i] += int(j.more)
					touched = append(touched, in)
				}
			})
		}
		slices.Sort(touched)
		var where []domainFit
		for _, in := range slices.Compact(touched) {
			fits, spare := true, 0
			for i, part := range parts {
				has := room[int(in)*len(parts)+i]
				fits = fits && has >= g.unit.Parts[part].Count
				spare += has
			}
			if fits {
				f := p.fit(a.c, in)
				f.fit = spare
				where = append(where, f)
			}
		}
		slices.SortStableFunc(where, func(a, b domainFit) int { return cmp.Compare(a.fit, b.fit) })
		if len(where) > 0 && !yield(at, where) {
			return
		}
	}
}

// partCurves are what nodes take by and by of each part of a gang that has members,
// and which parts those are.
func (a *ahead) partCurves(g *gang, p places, runs time.Duration, w who) (parts []int, curves []partCurve) {
	within := a.c.tree.Domains[p.within]
	odd := len(slices.DeleteFunc(slices.Clone(g.unit.Parts), func(p place.Part) bool { return p.Count == 0 })) > 1
	for i, part := range g.unit.Parts {
		if part.Count == 0 {
			continue
		}
		k := curveKey{part.Request, p.island, p.within, odd}
		pc := partCurve{curve: *a.curveOf(k), booked: a.booked}
		if len(parts) == 0 {
			pc.special = a.special[:0]
		}
		known := a.remembered(k, w)
		for _, node := range a.given {
			if within.Lo <= node && node < within.Hi && part.Request.Verdicts.Eligible(int(node)) {
				pc.special = a.jumpsOf(k, known, node, runs, w, pc.special)
			}
		}
		if len(parts) == 0 {
			a.special = pc.special
		}
		pc.open()
		parts, curves = append(parts, i), append(curves, pc)
	}
	return parts, curves
}
