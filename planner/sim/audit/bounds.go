package audit

import (
	"cmp"
	"slices"
	"sort"
)

// piece is a job without its shape: GPU-seconds that come at a time.
type piece struct{ at, work float64 }

// span is the shortest time in which a job can be done, and width on how many
// GPUs.
func (j *tracked) span() (shortest, width float64) {
	if j.Share > 0 {
		return j.Duration, j.Share
	}
	width = float64(max(j.asks.GPUs, j.Max))
	return j.Duration * float64(j.asks.GPUs) / width, width
}

// most is the work that can be done by T: it is the least, over all times s, of
// what the jobs let be done by s and the cluster after it. That is smallest where
// one of the jobs comes, or could be done. What bought nodes can do comes on top.
func most(list []*tracked, gpus, horizon, renting float64) float64 {
	// cumulated is what the jobs let be done by s: Σ width · (min(s, end) − start).
	type edge struct{ at, width float64 }
	var edges []edge
	for _, j := range list {
		shortest, width := j.span()
		edges = append(edges, edge{j.submitted, width}, edge{j.submitted + shortest, -width})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	best, sum, slope, at := gpus*horizon+renting, 0.0, 0.0, 0.0
	for _, e := range append(edges, edge{at: horizon}) {
		to := min(e.at, horizon)
		if to > at {
			sum += slope * (to - at)
			at = to
		}
		best = min(best, sum+gpus*(horizon-at)+renting)
		slope += e.width
		if at == horizon {
			break
		}
	}
	return min(best, sum) // at T nothing more can be done
}

// least are lower bounds of the completion times, by the names of their metrics;
// docs/simulator.md says why they are bounds.
func least(list []*tracked, gpus float64) map[string]float64 {
	out := map[string]float64{"jct_mean_bound_s": 0, "jct_p50_bound_s": 0, "jct_p99_bound_s": 0, "jct_p999_bound_s": 0, "jct_max_bound_s": 0, "jct_gpu_weighted_bound_s": 0}
	if len(list) == 0 {
		return out
	}
	var pieces []piece
	var spans []float64
	work, byWork := 0.0, 0.0
	for _, j := range list {
		shortest, _ := j.span()
		w := j.Duration * j.asks.width()
		pieces, spans = append(pieces, piece{j.submitted, w}), append(spans, shortest)
		work += w
		byWork += w * shortest
	}
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.at, b.at) })
	out["jct_mean_bound_s"] = max(average(spans), shortestFirst(pieces, gpus)/float64(len(list)))
	out["jct_p50_bound_s"] = atPart(spans, 0.5)
	out["jct_p99_bound_s"] = max(atPart(spans, 0.99), allBut(pieces, gpus, len(list)/100))
	out["jct_p999_bound_s"] = max(atPart(spans, 0.999), allBut(pieces, gpus, len(list)/1000))
	out["jct_max_bound_s"] = max(atPart(spans, 1), allBut(pieces, gpus, 0))
	end, sum := 0.0, 0.0
	for _, p := range pieces {
		end = max(end, p.at) + p.work/gpus
		sum += (end - p.at) * p.work
	}
	out["jct_gpu_weighted_bound_s"] = max(byWork/work, sum/work)
	return out
}

// shortestFirst is the sum of all times in the system on one machine that does
// what has least left.
func shortestFirst(pieces []piece, gpus float64) float64 {
	var open []float64 // seconds that are left, the most first
	sum, at := 0.0, 0.0
	for i, p := range pieces {
		at = p.at
		left := p.work / gpus
		where := sort.Search(len(open), func(k int) bool { return open[k] <= left })
		open = slices.Insert(open, where, left)
		until := at
		if i+1 < len(pieces) {
			until = pieces[i+1].at
		}
		for len(open) > 0 && (at < until || i+1 == len(pieces)) {
			last := len(open) - 1
			step := open[last]
			if i+1 < len(pieces) {
				step = min(step, until-at)
			}
			sum += step * float64(len(open))
			at += step
			if open[last] -= step; open[last] <= 1e-9 {
				open = open[:last]
			}
		}
	}
	return sum
}

// looks is from how many jobs on allBut looks.
const looks = 24

// allBut is a time that more than `some` of the jobs take in any case.
func allBut(pieces []piece, gpus float64, some int) float64 {
	bound := 0.0
	for k := range looks {
		rest := pieces[k*len(pieces)/looks:]
		var large []float64 // sorted
		sum := 0.0          // of all but those
		for _, p := range rest {
			at, _ := slices.BinarySearch(large, p.work)
			large = slices.Insert(large, at, p.work)
			if len(large) > some {
				sum += large[0]
				large = large[1:]
			}
			bound = max(bound, sum/gpus-(p.at-rest[0].at))
		}
	}
	return bound
}
