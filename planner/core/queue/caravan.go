package queue

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// The order that combines the others, and is the default. Within a priority:
//
//  1. Deadlines that can be met are (see deadline). A job that would be late
//     otherwise, or would make another one late, goes first and displaces those
//     without need; nobody else displaces anybody but by priority and guarantee.
//  2. The rest go by when they are due: a job is due when it has waited Patience
//     times as long as it is predicted to need, by the GPUs that it takes beside
//     the average job, but no more than twice that, however large it is. Short and small jobs are due soon, so that little of the
//     waiting of others is behind a long one: that keeps the mean time to
//     completion low, as the shortest first would. But each job is passed only by
//     those that were submitted before it is due, so none starves, however many
//     small ones come. Due times in proportion to processing times, the earliest
//     first, are what makes the largest stretch (time to completion by run time)
//     as small as can be (Bender, Chakrabarti and Muthukrishnan, Flow and Stretch
//     Metrics for Scheduling Continuous Job Streams, SODA'98, section 3).
//  3. Elastic gangs get the sizes that make the most of their GPUs (see goodput),
//     those with a deadline at least what they need for it.
//
// Of a job of which nobody knows how long it runs, it is taken to need what jobs
// do on average that have had as much as it has. Where nothing is known of
// anybody all are due at once, and it is first come, first served.

// Caravan are the parameters of OrderCaravan.
type Caravan struct {
	// Patience is how many times as long as it is predicted to need an average job
	// waits until nobody passes it any more; 0 means DefaultPatience.
	Patience float64 `json:"patience,omitempty"`
}

// The default of Caravan and the most that it may say.
const (
	DefaultPatience = 4
	MaxPatience     = 1000
)

// maxWeight bounds what many GPUs count, so that large gangs need not wait many
// times as long as small ones do.
const maxWeight = 2

// Validate reports every fault.
func (c Caravan) Validate() error {
	if !(c.Patience >= 0 && c.Patience <= MaxPatience) { // NaN too
		return errors.Join(fmt.Errorf("%w: caravan.patience %g: want 0 to %d", ErrPolicy, c.Patience, MaxPatience))
	}
	return nil
}

// WithDefaults is c with its zeros filled in.
func (c Caravan) WithDefaults() Caravan {
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	return c
}

// caravan is the Discipline.
type caravan struct {
	Caravan
	policy Policy
}

func newCaravan(p Policy) Discipline { return caravan{p.Caravan.WithDefaults(), p} }

// Stand implements Discipline.
func (c caravan) Stand(s Situation) []Standing {
	out := make([]Standing, len(s.Jobs))
	guess := newGuess(s)
	timed, sized := false, false
	for i := range s.Jobs {
		e := &s.Jobs[i]
		timed = timed || !e.Job.Deadline.IsZero()
		sized = sized || e.elastic() && e.Speed != nil
		if e.Waiting {
			out[i] = c.standing(e, s, guess)
		}
		out[i].Class = classCalm
	}
	if timed {
		for i, p := range c.policy.Deadline.Promises(s, c.policy.Preempt) {
			keepPromise(p, &out[i])
		}
	}
	if sized {
		for i, size := range newGoodput(c.policy).Stand(s) {
			if e := &s.Jobs[i]; e.elastic() && e.Speed != nil {
				out[i].Members = max(out[i].Members, size.Members)
			}
		}
	}
	return out
}

// keepPromise puts a job with a deadline where its promise has it.
func keepPromise(p Promise, st *Standing) {
	if p.Why != "" {
		st.Why = p.Why
	}
	st.Members, st.Latest = p.Members, p.Latest
	if p.Urgent {
		st.Class = classUrgent
	}
	if p.Met {
		st.Key = promised + float64(p.Turn)
	}
}

// standing is when a job is due.
func (c caravan) standing(e *Entry, s Situation, guess *guess) Standing {
	left, known := e.Remaining()
	needs, from := left.Seconds(), e.Left.String()
	if !known {
		needs = guess.needs(e)
		from = fmt.Sprintf("%s; taken to need %s as jobs do on average", from, span(needs))
	}
	weight := min(float64(max(e.Asked, 1))/guess.gpus, maxWeight)
	wait := c.Patience * needs * weight
	st := Standing{Key: e.Job.Submitted.Sub(s.Now).Seconds() + wait}
	switch due := e.Job.Submitted.Add(seconds(wait)); {
	case !guess.any:
		st.Why = "nobody has said how long it runs, so the oldest goes first"
	case due.After(s.Now):
		st.Why = fmt.Sprintf("%s; due at %s", from, minute(due))
	default:
		st.Why = fmt.Sprintf("%s; due since %s, so nobody new passes it", from, minute(due))
	}
	return st
}

// minute says a time in words that do not change all the time.
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// guess is what is known of jobs on average.
type guess struct {
	// gpus is how many they ask for, at least 1; any: something is known of
	// somebody's run time.
	gpus float64
	any  bool
	// typical is the mean of the run times known, past the demands of the past.
	typical float64
	past    *Past
}

func newGuess(s Situation) *guess {
	g := &guess{gpus: 1}
	asked, jobs, known := 0, 0, 0
	for i := range s.Jobs {
		e := &s.Jobs[i]
		asked, jobs = asked+max(e.Asked, 1), jobs+1
		if e.Left.Known {
			known++
			g.typical += e.Left.Total.Seconds()
		}
	}
	if jobs > 0 {
		g.gpus = max(1, steady(float64(asked)/float64(jobs)))
	}
	if g.any = known > 0; g.any {
		g.typical = steady(g.typical / float64(known))
	}
	if s.Past.Jobs() >= minDemands {
		g.past, g.any = s.Past, true
	}
	return g
}

// needs is how long a job of which nothing is known may still run, in seconds:
// what others had beyond what it has had, else what is typical.
func (g *guess) needs(e *Entry) float64 {
	if g.past == nil {
		return max(g.typical, e.Ran.Seconds())
	}
	first := g.past.after(e.Attained)
	more := len(g.past.sorted) - first
	if more == 0 {
		return e.Ran.Seconds() // it has had more than any: as long again
	}
	mean := (g.past.sums[len(g.past.sorted)]-g.past.sums[first])/float64(more) - e.Attained
	return steady(mean / float64(max(e.Asked, 1)))
}

// steady is an average in steps, so that what is said of jobs does not change
// with each one that comes or ends: a power of the square root of two.
func steady(mean float64) float64 {
	if mean <= 0 {
		return 0
	}
	return math.Pow(2, math.Round(2*math.Log2(mean))/2)
}
