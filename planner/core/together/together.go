// Package together says which tasks may use one GPU in turn: those whose expected
// peaks fit, better those that are busy at different times.
//
// It follows Thinakaran et al., "Kube-Knots: Resource Harvesting through Dynamic
// Container Orchestration in GPU-based Datacenters", CLUSTER 2019: correlation
// based provisioning (who is busy at the same time, by Spearman's rank correlation,
// is kept apart) and peak prediction (those whose peaks do not coincide may share
// all the same). What is simpler here: minutes in place of seconds, and the peaks
// of the past in place of a forecast by an autoregressive model.
package together

import (
	"math"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// GPU is one that tasks share.
type GPU struct {
	// Slices is how many may at once.
	Slices int
	// MemoryMiB is all of its memory, 0 if unknown.
	MemoryMiB int
}

// Load is what some tasks are expected to need of a GPU, all together.
type Load struct {
	MemoryMiB int
	// Busy is in percent of the time; above 100 they slow each other down.
	Busy int
}

// MaxBusy is how busy a GPU may be expected to be, in percent.
const MaxBusy = 100

// Limits of what is told from a series of minutes.
const (
	// minMinutes is of how many minutes at least something is told.
	minMinutes = 8
	// calm is the part of the time for which Busy holds, in percent.
	calm = 80
	// Coincide is the correlation above which tasks are busy at the same time.
	Coincide = 0.5
)

// Load adds up what tasks need; nil is one of which nothing is known, which counts
// as an equal part of the GPU. Of those whose minutes are known it is what they
// need at the same time.
func (g GPU) Load(users []*model.Usage) Load {
	var l Load
	n := minutesOf(users)
	sums := make([]int, n)
	for _, u := range users {
		if u == nil {
			l.MemoryMiB += g.MemoryMiB / g.Slices
			l.Busy += 100 / g.Slices
			continue
		}
		l.MemoryMiB += u.MemoryMiB
		if n == 0 || len(u.Minutes) < minMinutes {
			l.Busy += u.Busy
			continue
		}
		for i, m := range u.Minutes[len(u.Minutes)-n:] {
			sums[i] += m
		}
	}
	l.Busy += Calm(sums)
	return l
}

// minutesOf is how many minutes those have in common that have enough.
func minutesOf(users []*model.Usage) int {
	n := 0
	for _, u := range users {
		if u != nil && len(u.Minutes) >= minMinutes && (n == 0 || len(u.Minutes) < n) {
			n = len(u.Minutes)
		}
	}
	return n
}

// Calm is the value that four fifths of a series do not exceed, 0 of none.
func Calm(series []int) int {
	if len(series) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(series))
	return sorted[(len(sorted)*calm+99)/100-1]
}

// Fits reports whether a GPU is enough for a load.
func (g GPU) Fits(l Load) bool {
	return l.Busy <= MaxBusy && (g.MemoryMiB == 0 || l.MemoryMiB <= g.MemoryMiB)
}

// Room is how many more tasks with a usage fit beside those that are there, up to
// most.
func (g GPU) Room(users []*model.Usage, more *model.Usage, most int) int {
	all := slices.Clone(users)
	for n := range most {
		if all = append(all, more); !g.Fits(g.Load(all)) {
			return n
		}
	}
	return most
}

// Worst is the largest correlation of a usage with any of those beside it; 0 where
// nothing is known.
func Worst(u *model.Usage, beside []*model.Usage) float64 {
	worst, known := 0.0, false
	for _, o := range beside {
		if u == nil || o == nil {
			continue
		}
		if rho, ok := Correlation(u.Minutes, o.Minutes); ok && (!known || rho > worst) {
			worst, known = rho, true
		}
	}
	return worst
}

// Correlation is Spearman's rank correlation of the minutes that two series have in
// common, from -1 to 1; false if they are too few, or one of them never changes.
func Correlation(a, b []int) (rho float64, known bool) {
	n := min(len(a), len(b))
	if n < minMinutes {
		return 0, false
	}
	x, y := ranks(a[len(a)-n:]), ranks(b[len(b)-n:])
	mean := float64(n+1) / 2
	var xy, xx, yy float64
	for i := range n {
		dx, dy := x[i]-mean, y[i]-mean
		xy, xx, yy = xy+dx*dy, xx+dx*dx, yy+dy*dy
	}
	if xx == 0 || yy == 0 {
		return 0, false
	}
	return xy / math.Sqrt(xx*yy), true
}

// ranks are the places of values in their order, from 1; equals share the mean of
// theirs.
func ranks(values []int) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return values[a] - values[b] })
	out := make([]float64, len(values))
	for i := 0; i < len(order); {
		end := i + 1
		for end < len(order) && values[order[end]] == values[order[i]] {
			end++
		}
		for k := i; k < end; k++ {
			out[order[k]] = float64(i+1+end) / 2
		}
		i = end
	}
	return out
}
