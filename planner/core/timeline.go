package core

import (
	"math/bits"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// What of a node is free all the while that somebody runs is asked again and again:
// at each time at which it changes, for each gang that waits. So a node's time is
// cut once into periods in which the same is free. It is cut anew when more of it
// is given away.

// period is a part of a node's time, until the next one.
type period struct {
	from time.Duration
	// frees: something becomes free at its beginning.
	frees bool
	row   topo.Row
}

// line is a node's time.
type line struct {
	// stamp is the node's when it was made.
	stamp uint64
	// odd: what is free of it depends on whose queue asks, or on whether it is known
	// how long he runs.
	odd bool
	// keeps: a gang that waits keeps something of it, and does not mind that itself.
	keeps   bool
	periods []period
	// begins are when something begins that is not there now, in order.
	begins []time.Duration
}

// lineOf is a node's time as somebody has it; nil if it has to be looked at for him
// alone.
func (a *ahead) lineOf(node int32, w who) *line {
	list := &a.lines[0]
	if w.foreseen {
		list = &a.lines[1]
	}
	if *list == nil {
		*list = make([]line, len(a.c.tree.Nodes))
	}
	l := &(*list)[node]
	if l.stamp != a.stamps[node] {
		a.cut(l, node, w.foreseen)
	}
	if l.odd || l.keeps && a.keepsFor(node, w.self) {
		return nil
	}
	return l
}

// keepsFor reports whether something of a node is kept for a job.
func (a *ahead) keepsFor(node int32, job jobKey) bool {
	for i := range a.on[node] {
		if b := &a.on[node][i]; b.kept && b.job == job {
			return true
		}
	}
	return false
}

// cut makes a node's line.
func (a *ahead) cut(l *line, node int32, foreseen bool) {
	*l = line{stamp: a.stamps[node], periods: l.periods[:0], begins: l.begins[:0]}
	times, list := a.times[:0], a.on[node]
	for i := range list {
		b := &list[i]
		if b.foreseen && !foreseen {
			continue
		}
		l.keeps = l.keeps || b.kept
		if b.queue != "" || b.lead > 0 || negative(b.claim.Resources) {
			l.odd = true
			return
		}
		if b.until < eternity {
			times = append(times, max(0, b.until))
		}
		if b.from > 0 {
			l.begins = append(l.begins, b.from)
		}
	}
	steps := a.steps(node)
	for i := range steps {
		times = append(times, steps[i].at)
	}
	slices.Sort(l.begins)
	l.begins = slices.Compact(l.begins)
	slices.Sort(times)
	times = slices.Compact(times)
	a.times = times
	for i, k, last := 0, 0, 0; i < len(times) || k < len(l.begins); {
		s := period{}
		switch {
		case k == len(l.begins) || i < len(times) && times[i] <= l.begins[k]:
			s.from, s.frees = times[i], true
			if k < len(l.begins) && l.begins[k] == times[i] {
				k++
			}
			i++
		default:
			s.from = l.begins[k]
			k++
		}
		for last+1 < len(steps) && steps[last+1].at <= s.from {
			last++
		}
		s.row = steps[last].row
		for n := range list {
			if b := &list[n]; b.from <= s.from && b.until > s.from && (foreseen || !b.foreseen) {
				s.row.GPUs &^= b.claim.GPUs
				s.row.Closed = s.row.Closed || b.closed
				s.row.Free = minus(s.row.Free, b.claim.Resources)
				if len(b.claim.Ports) > 0 {
					s.row.Ports = topo.MergePorts(s.row.Ports, b.claim.Ports)
				}
			}
		}
		l.periods = append(l.periods, s)
	}
}

func negative(r model.Resources) bool {
	return r.CPUMHz < 0 || r.Cores < 0 || r.MemoryMiB < 0 || r.DiskMiB < 0
}

// at is the period of a time.
func (l *line) at(t time.Duration) int {
	k := len(l.periods) - 1
	for l.periods[k].from > t {
		k--
	}
	return k
}

// row is what is free from a period on until a time.
func (l *line) row(first int, until time.Duration) topo.Row {
	row := l.periods[first].row
	if len(l.begins) == 0 {
		return row // nothing is taken away later
	}
	for i := first + 1; i < len(l.periods) && l.periods[i].from < until; i++ {
		meet(&row, &l.periods[i].row)
	}
	return row
}

// hasGPUs reports whether at least n GPUs are free from a period on until a time.
// Most often they are not, and no row is needed.
func (l *line) hasGPUs(first int, until time.Duration, n int) bool {
	gpus := l.periods[first].row.GPUs
	for i := first + 1; len(l.begins) > 0 && bits.OnesCount64(gpus) >= n && i < len(l.periods) && l.periods[i].from < until; i++ {
		gpus &= l.periods[i].row.GPUs
	}
	return bits.OnesCount64(gpus) >= n
}

// meet leaves of a row what is free in another one too.
func meet(row, other *topo.Row) {
	row.GPUs &= other.GPUs
	row.Free = least(row.Free, other.Free)
	row.Closed = row.Closed || other.Closed
	if len(other.Ports) > 0 && !slices.Equal(row.Ports, other.Ports) {
		row.Ports = topo.MergePorts(row.Ports, other.Ports)
	}
}

// rowOf is what of a node may be taken at a time by what then runs for so long, as
// row says it.
func (a *ahead) rowOf(node int32, at, runs time.Duration, w who) topo.Row {
	if !a.booked[node] {
		return *a.baseAt(node, at)
	}
	l := a.lineOf(node, w)
	if l == nil {
		return a.row(node, at, runs, w)
	}
	return l.row(l.at(at), ending(at, runs))
}

// ending is when somebody has ended.
func ending(at, runs time.Duration) time.Duration {
	if runs < eternity-at {
		return at + runs
	}
	return eternity
}

// changes are the times at which what somebody who runs for so long may take of a
// node changes, in order.
func (l *line) changes(runs time.Duration, out []time.Duration) []time.Duration {
	for i := range l.periods {
		if l.periods[i].frees {
			out = append(out, l.periods[i].from)
		}
	}
	later := len(out)
	for _, begins := range l.begins {
		if begins > runs {
			out = append(out, begins-runs+1) // what starts then would run into it
		}
	}
	if later < len(out) {
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out
}

// takesOf is how many members a node takes with a row free. Most often it is clear
// without a look.
func (a *ahead) takesOf(k curveKey, node int32, row *topo.Row) int32 {
	if row.Closed || bits.OnesCount64(row.GPUs) < k.request.GPUs {
		return 0
	}
	return a.takes(k, node, row)
}
