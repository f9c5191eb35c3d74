package bound

import (
	"cmp"
	"slices"
	"sort"
)

// AtOnce is how many GPUs jobs of one GPU have together at one moment at least, if the
// part Part of those that count starts within so many seconds of when they come and
// nobody is stopped: whoever decides, whatever he knows, and whichever are the late ones.
//
// Whenever one starts in time, it runs from within after its release until its shortest
// time after it. So no more than k of these intervals may overlap of those that are in
// time, and k is the least for which few enough have to be left out: always the one that
// ends last of those that overlap, so that most are in (Faigle and Nawijn, Note on scheduling
// intervals on-line, Discrete Applied Mathematics 58, 1995).
func (p *Problem) AtOnce(within float64) int {
	var runs []interval
	n := 0
	for i := range p.Jobs {
		if j := &p.Jobs[i]; j.Counted && j.Width == 1 {
			n++
			if j.Shortest > within {
				runs = append(runs, interval{j.Release + within, j.Release + j.Shortest})
			}
		}
	}
	slices.SortFunc(runs, func(a, b interval) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.until, b.until)) })
	return sort.Search(len(runs), func(k int) bool { return leftOut(runs, k) <= late(p.Part, n) })
}

// interval is a time in which a job runs.
type interval struct{ from, until float64 }

// leftOut is how many intervals, in the order in which they begin, have to be left out so that
// no more than k overlap.
func leftOut(runs []interval, k int) (out int) {
	var ends []float64 // of those that overlap, in order
	for _, r := range runs {
		ended := sort.Search(len(ends), func(i int) bool { return ends[i] > r.from })
		ends = ends[ended:]
		at, _ := slices.BinarySearch(ends, r.until)
		if ends = slices.Insert(ends, at, r.until); len(ends) > k {
			ends = ends[:k]
			out++
		}
	}
	return out
}

// Planned is when each job starts in a schedule that knows all run times and all that will
// come, and stops nobody: first the ones that are to be soon, and then the others, of each
// kind who comes first, and everybody as early as there are GPUs beside those before him.
// GPUs are only counted.
func (p *Problem) Planned(soon func(i int) bool) []float64 {
	order := p.chosen(false)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(kindOf(soon(a)), kindOf(soon(b))), cmp.Compare(p.Jobs[a].Release, p.Jobs[b].Release))
	})
	starts, t := make([]float64, len(p.Jobs)), timeline{at: []float64{0}, free: []float64{p.GPUs}}
	for _, i := range order {
		j := &p.Jobs[i]
		starts[i] = t.earliest(j)
		t.take(starts[i], starts[i]+j.Shortest, j.Width)
	}
	return starts
}

func kindOf(soon bool) int {
	if soon {
		return 0
	}
	return 1
}

// timeline is how many GPUs are free from each of some times on until the next.
type timeline struct{ at, free []float64 }

// earliest is when a job of at most as many GPUs as there are can start.
func (t *timeline) earliest(j *Job) float64 {
	start := max(j.Release, 0)
	k := t.step(start)
	for i := k; i < len(t.at) && t.at[i] < start+j.Shortest; i++ {
		if t.free[i] < j.Width && i+1 < len(t.at) {
			start = t.at[i+1]
		}
	}
	return start
}

// step is the number of the step in which a time lies.
func (t *timeline) step(at float64) int {
	return sort.Search(len(t.at), func(i int) bool { return t.at[i] > at }) - 1
}

// take takes GPUs from one time until another.
func (t *timeline) take(from, until, width float64) {
	a, b := t.split(from), t.split(until)
	for i := a; i < b; i++ {
		t.free[i] -= width
	}
}

// split makes a step begin at a time, and is its number.
func (t *timeline) split(at float64) int {
	i := t.step(at)
	if t.at[i] == at {
		return i
	}
	t.at, t.free = slices.Insert(t.at, i+1, at), slices.Insert(t.free, i+1, t.free[i])
	return i + 1
}
