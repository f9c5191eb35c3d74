// Package bound says what no schedule can do: below which percentile of completion
// times none can come whose longest completion times, and whose mean weighted by
// work, are bounded too.
//
// Each job may be late at a cost, and uses GPUs at a price that differs over time.
// Whatever the prices, what the jobs cost at least, each by itself, less what all
// GPUs are worth at these prices, is no more than what any schedule costs that
// exists (Fisher, The Lagrangian relaxation method for solving integer programming
// problems, Management Science 27, 1981; of jobs over time Dyer and Wolsey,
// Formulating the single machine sequencing problem with release dates as a mixed
// integer program, Discrete Applied Mathematics 26, 1990). If it is more than the
// number of jobs that may be late, there is no such schedule.
package bound

import "math"

// Job is what the bounds see of a job.
type Job struct {
	// Release is when it comes, Shortest how long it takes at least, in seconds, and
	// Width on how many GPUs it does.
	Release, Shortest, Width float64
	// Counted: the percentile is of these jobs.
	Counted bool
}

func (j *Job) work() float64 { return j.Shortest * j.Width }

// Limit is a condition: at least that part of the jobs takes no longer than Within
// seconds.
type Limit struct{ Part, Within float64 }

// Limits are conditions for completion times. Weighted is one for their mean
// weighted by work, in seconds; 0 is none.
type Limits struct {
	Parts    []Limit
	Weighted float64
}

func (l *Limits) any() bool { return len(l.Parts) > 0 || l.Weighted > 0 }

// Problem is a set of jobs on a cluster.
type Problem struct {
	Jobs []Job
	// GPUs are what the cluster has, all the time.
	GPUs float64
	// Part says which percentile is bounded: the smallest time that so large a part of
	// the jobs that count does not exceed.
	Part float64
	// Counted are conditions for the jobs that count, and All for all of them. Without
	// any for all, the others are left out: they may wait for ever.
	Counted, All Limits
	// Whole: nobody is stopped, so that a job runs in one piece, on Width GPUs. It
	// may be divided over time otherwise.
	Whole bool
	// Effort is how many prices are tried for each percentile; 0 means
	// DefaultEffort. More of them make a tighter bound.
	Effort int
}

// DefaultEffort is how many prices are tried unless a Problem says otherwise.
const DefaultEffort = 150

// tolerance is how near Least comes to the best that it could find, as a part of what
// a schedule has.
const tolerance = 0.01

// Least is a time below which the percentile does not come. The first argument is a lower bound that is known, and the second the
// percentile of a schedule that keeps the conditions; the answer lies between them.
func (p *Problem) Least(least, most float64) float64 {
	low, high := least, most
	d := newDual(p, most)
	// What is known may be the best already, so it begins close to it.
	for step := tolerance * most; d != nil && high-low > tolerance*most; step *= 2 {
		if x := min(low+step, (low+high)/2); d.refutes(x) {
			low = x
		} else {
			high, step = x, (x-low)/4
		}
	}
	return low
}

// late is how many of n may exceed a percentile, which is the smallest value that
// so large a part of them does not exceed.
func late(part float64, n int) int {
	return n - max(1, min(int(math.Ceil(part*float64(n))), n))
}
