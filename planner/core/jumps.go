package core

import (
	"slices"
	"time"
)

// jumpsOf are a node's, for who runs for so long. known is what is remembered of
// nodes (see remembered).
func (a *ahead) jumpsOf(k curveKey, known []nodeJumps, node int32, runs time.Duration, w who, out []jump) []jump {
	l := a.lineOf(node, w)
	switch {
	case l == nil:
		return a.oddJumps(k, node, runs, w, out)
	case len(l.begins) > 0 && l.begins[len(l.begins)-1] >= runs:
		a.times = l.changes(runs, a.times[:0])
		return a.lineJumps(k, node, l, runs, out)
	}
	// Whatever begins later would run into it, however long it runs.
	of := &known[node]
	if of.stamp != l.stamp {
		a.times = l.changes(eternity, a.times[:0])
		of.stamp, of.jumps = l.stamp, a.lineJumps(k, node, l, eternity, of.jumps[:0])
	}
	return append(out, of.jumps...)
}

// remembered is what nodes take of a request, for who runs for long.
func (a *ahead) remembered(k curveKey, w who) []nodeJumps {
	if a.jumps[k] == nil {
		a.jumps[k] = &[2][]nodeJumps{}
	}
	list := &a.jumps[k][0]
	if w.foreseen {
		list = &a.jumps[k][1]
	}
	if *list == nil {
		*list = make([]nodeJumps, len(a.c.tree.Nodes))
	}
	return *list
}

// nodeJumps are a node's, for who runs for long, as of a stamp.
type nodeJumps struct {
	stamp uint64
	jumps []jump
}

// lineJumps are those at a.times.
func (a *ahead) lineJumps(k curveKey, node int32, l *line, runs time.Duration, out []jump) []jump {
	before, first := int32(0), 0
	for _, at := range a.times {
		for first+1 < len(l.periods) && l.periods[first+1].from <= at {
			first++
		}
		n, until := int32(0), ending(at, runs)
		if l.hasGPUs(first, until, k.request.GPUs) {
			row := l.row(first, until)
			n = a.takesOf(k, node, &row)
		}
		if n != before || k.odd {
			out = append(out, jump{at, node, n - before})
			before = n
		}
	}
	return out
}

// oddJumps are a node's whose time is another one for each who asks.
func (a *ahead) oddJumps(k curveKey, node int32, runs time.Duration, w who, out []jump) []jump {
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
