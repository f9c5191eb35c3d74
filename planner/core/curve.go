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

// curve is what all nodes take, if nobody had given away any of their time.
type curve struct{ jumps []jump }

func byTime(a, b jump) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.node, b.node)) }

// takes is how many members a node takes, with row free.
func (a *ahead) takes(k curveKey, node int32, row *topo.Row) int32 {
	a.work--
	f := a.c.views[viewTrue].FitRow(k.request, node, row)
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
	out, within := &curve{}, a.c.tree.Domains[k.within]
	now := a.c.views[viewTrue].Summary(k.request)
	for node := within.Lo; node < within.Hi; node++ {
		if a.booked[node] || !k.request.Verdicts.Eligible(int(node)) {
			continue // what is booked stays so
		}
		before := k.of(now.Fit(node))
		if before > 0 {
			out.jumps = append(out.jumps, jump{0, node, before})
		}
		if !a.c.ending[node] {
			continue
		}
		for i := range a.steps(node) {
			s := &a.base[node][i]
			if i == 0 {
				continue
			}
			if n := a.takes(k, node, &s.row); n != before || k.odd {
				out.jumps = append(out.jumps, jump{s.at, node, n - before})
				before = n
			}
		}
	}
	slices.SortFunc(out.jumps, byTime)
	a.curves[k] = out
	return out
}

// jumpsOf are a node's, for who runs for so long.
func (a *ahead) jumpsOf(k curveKey, node int32, runs time.Duration, w who, out []jump) []jump {
	times := make([]time.Duration, 0, 8)
	for _, s := range a.steps(node) {
		times = append(times, s.at)
	}
	for i := range a.on[node] {
		b := &a.on[node][i]
		if !w.minds(b) {
			continue
		}
		if b.until < eternity {
			times = append(times, max(0, b.until))
		}
		if b.from > 0 && runs < b.from {
			times = append(times, b.from-runs+1) // what starts then would run into it
		}
		if b.lead > 0 && runs == eternity && b.from > b.lead {
			times = append(times, b.from-b.lead)
		}
	}
	slices.Sort(times)
	before := int32(0)
	for _, at := range slices.Compact(times) {
		row := a.row(node, at, runs, w)
		n := a.takes(k, node, &row)
		if n != before || k.odd {
			out = append(out, jump{at, node, n - before})
		}
		before = n
	}
	return out
}

// partCurve walks the jumps of one part in the order of time.
type partCurve struct {
	base    []jump
	special []jump
	booked  []bool
}

// next is the next jump, false if there is none.
func (p *partCurve) next() (jump, bool) {
	for len(p.base) > 0 && p.booked[p.base[0].node] {
		p.base = p.base[1:]
	}
	switch {
	case len(p.base) == 0 && len(p.special) == 0:
		return jump{}, false
	case len(p.special) == 0 || len(p.base) > 0 && byTime(p.base[0], p.special[0]) < 0:
		return p.base[0], true
	default:
		return p.special[0], true
	}
}

func (p *partCurve) drop() {
	if len(p.special) == 0 || len(p.base) > 0 && byTime(p.base[0], p.special[0]) < 0 {
		p.base = p.base[1:]
		return
	}
	p.special = p.special[1:]
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

// eachTime calls yield with the times at which a place takes every part of a gang
// by itself, and the places, until it returns false. What fits at a time is told
// at that time only, unless more comes.
func (a *ahead) eachTime(g *gang, runs time.Duration, w who, yield func(at time.Duration, where []domainFit) bool) {
	p := a.c.placesOf(g)
	within := a.c.tree.Domains[p.within]
	var parts []int
	var curves []partCurve
	odd := len(slices.DeleteFunc(slices.Clone(g.unit.Parts), func(p place.Part) bool { return p.Count == 0 })) > 1
	for i, part := range g.unit.Parts {
		if part.Count == 0 {
			continue
		}
		k := curveKey{part.Request, p.island, p.within, odd}
		pc := partCurve{base: a.curveOf(k).jumps, booked: a.booked}
		for node := range a.on {
			if within.Lo <= node && node < within.Hi && part.Request.Verdicts.Eligible(int(node)) {
				pc.special = a.jumpsOf(k, node, runs, w, pc.special)
			}
		}
		slices.SortFunc(pc.special, byTime)
		parts, curves = append(parts, i), append(curves, pc)
	}
	onNode := a.onNode(len(parts) == 1)
	room := map[int32][]int{}
	var touched []int32
	for {
		at := eternity
		for i := range curves {
			if j, any := curves[i].next(); any {
				at = min(at, j.at)
			}
		}
		if at == eternity {
			return
		}
		touched = touched[:0]
		for i := range curves {
			for j, any := curves[i].next(); any && j.at == at; j, any = curves[i].next() {
				curves[i].drop()
				if onNode != nil {
					onNode[j.node] += j.more
				}
				if in := p.of(a.c, j.node); in >= 0 {
					if room[in] == nil {
						room[in] = make([]int, len(parts))
					}
					room[in][i] += int(j.more)
					touched = append(touched, in)
				}
			}
		}
		slices.Sort(touched)
		var where []domainFit
		for _, in := range slices.Compact(touched) {
			fits, spare := true, 0
			for i, part := range parts {
				fits = fits && room[in][i] >= g.unit.Parts[part].Count
				spare += room[in][i]
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
