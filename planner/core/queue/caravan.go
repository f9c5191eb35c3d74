package queue

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The order that combines the others, and is the default. Within a priority:
//
//  1. Deadlines that can be met are (see deadline). A job that would be late
//     otherwise, or would make another one late, goes first and displaces those
//     without need.
//  2. Short jobs go next, the shortest first: those that have at most Short left, and so
//     few GPUs that littleGPUs could do the work in that time. They are most of the jobs,
//     and little of the work: together with all that need no more GPU-seconds they have
//     had at most littleWork of what jobs had that have ended. So others lose by them
//     about that part of the cluster, once the past shows what comes now. Where nobody
//     gives way no gang is short that needs most of the cluster.
//  3. Then the rest, the oldest first. Work is conserved, so whatever the order is
//     the GPU-hours that wait are the same, and long jobs have nearly all of them:
//     by age, none of these waits for much longer than it would in the order of age.
//     Where jobs give way the more GPUs a job needs the later it counts as submitted, by
//     a quarter of SizeDelay for each doubling, and from two nodes on by SizeDelay: it would
//     displace many narrower jobs that wait less for it while it waits a little longer.
//  4. As long as too few jobs have ended to tell what is little, who is overdue goes
//     before short ones: a job is due when it has waited Patience times as long as it is
//     predicted to need. So each is passed only by those that were submitted before it
//     is due; due times in proportion to processing times, the earliest first, make the
//     largest stretch (time to completion by run time) as small as can be (Bender,
//     Chakrabarti and Muthukrishnan, Flow and Stretch Metrics for Scheduling Continuous
//     Job Streams, SODA'98, section 3).
//  5. Who has been the first in line for long goes before all of these (see stuck).
//  6. Elastic gangs get the sizes that make the most of their GPUs (see goodput),
//     those with a deadline at least what they need for it.
//
// With preemption it is also found out who should run now: by that order all that
// the cluster has GPUs for (see turnsOf). They displace the others, which run only
// where these leave something.
//
// Of a job of which nobody knows how long it runs, it is taken to need what jobs
// do on average that have had as much as it has. Where nothing is known of
// anybody it is first come, first served.

// Caravan are the parameters of OrderCaravan.
type Caravan struct {
	// Patience is how many times as long as it is predicted to need a job waits until
	// nobody passes it any more, as long as too few jobs have ended to tell what is little
	// of the work; 0 means DefaultPatience.
	Patience float64 `json:"patience,omitempty"`
	// Short is how much a job has left at most that goes before longer ones, on
	// littleGPUs; on more of them it is as many GPU-hours. 0 means DefaultShort.
	Short time.Duration `json:"short_ns,omitempty"`
	// StuckAfter is how long the first in line is passed at most; 0 means
	// DefaultStuckAfter.
	StuckAfter time.Duration `json:"stuck_after_ns,omitempty"`
	// SizeDelay is how much later a long gang counts as submitted, with preemption, for
	// each doubling of its GPUs over twice littleGPUs, and a quarter of that for each up to
	// there; 0 means DefaultSizeDelay.
	SizeDelay time.Duration `json:"size_delay_ns,omitempty"`
	// DeadlinesOnly: with preemption, only deadlines displace, and no other place in
	// the order does.
	DeadlinesOnly bool `json:"deadlines_only,omitempty"`
}

// The default of Caravan and the most that it may say.
const (
	DefaultPatience = 24
	MaxPatience     = 1000
	DefaultShort    = 4 * time.Hour
	MaxShort        = 30 * 24 * time.Hour
	// DefaultStuckAfter lets a day's rush pass.
	DefaultStuckAfter = 24 * time.Hour
	MaxStuckAfter     = 365 * 24 * time.Hour
	DefaultSizeDelay  = 12 * time.Hour
	MaxSizeDelay      = 30 * 24 * time.Hour
)

// Validate reports every fault.
func (c Caravan) Validate() error {
	var faults []error
	if !(c.Patience >= 0 && c.Patience <= MaxPatience) { // NaN too
		faults = append(faults, fmt.Errorf("%w: caravan.patience %g: want 0 to %d", ErrPolicy, c.Patience, MaxPatience))
	}
	if c.Short < 0 || c.Short > MaxShort {
		faults = append(faults, fmt.Errorf("%w: caravan.short %s: want 0 to %s", ErrPolicy, c.Short, MaxShort))
	}
	if c.StuckAfter < 0 || c.StuckAfter > MaxStuckAfter {
		faults = append(faults, fmt.Errorf("%w: caravan.stuck_after %s: want 0 to %s", ErrPolicy, c.StuckAfter, MaxStuckAfter))
	}
	if c.SizeDelay < 0 || c.SizeDelay > MaxSizeDelay {
		faults = append(faults, fmt.Errorf("%w: caravan.size_delay %s: want 0 to %s", ErrPolicy, c.SizeDelay, MaxSizeDelay))
	}
	return errors.Join(faults...)
}

// WithDefaults is c with its zeros filled in.
func (c Caravan) WithDefaults() Caravan {
	c.Patience = cmp.Or(c.Patience, DefaultPatience)
	c.Short = cmp.Or(c.Short, DefaultShort)
	c.StuckAfter = cmp.Or(c.StuckAfter, DefaultStuckAfter)
	c.SizeDelay = cmp.Or(c.SizeDelay, DefaultSizeDelay)
	return c
}

// caravan is the Discipline.
type caravan struct {
	Caravan
	policy Policy
}

func newCaravan(p Policy) Discipline { return &caravan{p.Caravan.WithDefaults(), p} }

// Stand implements Discipline.
func (c *caravan) Stand(s Situation) []Standing {
	out := s.standings()
	s.Memory = nil // whoever is asked below has a list of his own
	guess := newGuess(s)
	timed, sized := false, false
	for i := range s.Jobs {
		e := &s.Jobs[i]
		timed = timed || !e.Job.Deadline.IsZero()
		sized = sized || e.elastic() && e.Speed != nil
		out[i] = c.standing(e, &s, guess)
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
	if c.policy.Preempt.Enabled && !c.DeadlinesOnly {
		c.giveTurns(&s, out)
	} else {
		c.letThrough(&s, out)
	}
	return out
}

// keepPromise puts a job with a deadline where its promise has it.
func keepPromise(p Promise, st *Standing) {
	if p.Why != "" {
		st.Why = p.Why
	}
	st.Members, st.Latest, st.LeastSpeed, st.Domain = p.Members, p.Latest, p.LeastSpeed, p.Room.Domain
	if p.Urgent {
		st.Class = classUrgent
	}
	if p.Met {
		st.Key = promised + float64(p.Turn)
	}
}

// The kinds of jobs, in the order in which they go. Keys of one kind are less than
// span apart.
const (
	kindOverdue = iota
	kindShort
	kindLong
	kindSpan = 4 * maxSeconds
)

// littleGPUs is how many GPUs a short job may use for all of Short: a gang of many
// nodes that passes others for hours takes more from them than it is worth.
const littleGPUs = 8

// littleWork is the part of all GPU-seconds that short jobs may have together. With it
// longer ones lose a fifth of the GPUs at most; where most of the
// work is in jobs of some hours, to let all of these pass would make a tail of the rest.
const littleWork = 0.2

// Where nobody gives way no gang is short that needs more than wholePart of the cluster and
// more than wholeGPUs: no other one fits beside it, so everybody's GPUs are emptied for it,
// which takes many times as long as the hour at most for which a short one of so many runs.
// By age the cluster is emptied once for those that were submitted together.
const (
	wholePart = 0.5
	wholeGPUs = 32
)

// emptiesAll reports whether a gang is such a one.
func (c *caravan) emptiesAll(e *Entry, s *Situation) bool {
	needs := e.needs()
	displaces := c.policy.Preempt.Enabled && !c.DeadlinesOnly
	return !displaces && needs > wholeGPUs && float64(needs) > wholePart*float64(s.GPUs)
}

// short is how many seconds a job may have left to go before longer ones.
func (c *caravan) short(e *Entry, s *Situation, guess *guess) float64 {
	if c.emptiesAll(e, s) {
		return 0
	}
	gpus := float64(max(e.Asked, 1))
	if e.Running {
		gpus = float64(max(e.Held, 1))
	}
	return min(c.Short.Seconds()/max(1, gpus/littleGPUs), guess.little/gpus)
}

// later is how much later a long job counts as submitted for its size. From WidePart of
// the cluster on it is no more: wide gangs that were submitted together have their nodes
// emptied once if nobody goes between them. Where nobody gives way all that wait are passed
// by who finds a place, and nothing is gained by it. One GPU is found wherever others end:
// first come, first served with backfilling has such jobs wait least too, and who has many
// of them would lose most if all long jobs were the same.
func (c *caravan) later(e *Entry, s *Situation) time.Duration {
	gpus := min(float64(e.needs()), WidePart*float64(s.GPUs))
	if gpus <= 1 || !c.policy.Preempt.Enabled || c.DeadlinesOnly {
		return 0
	}
	doublings := math.Log2(gpus)
	return time.Duration(max(doublings/fewDoublings, doublings-math.Log2(littleGPUs)) * float64(c.SizeDelay))
}

// fewDoublings of one GPU make twice littleGPUs, and count as the one from there.
const fewDoublings = 4

// headStart is by how much a long job has to be older than another one that runs to
// go before it: less is not worth a restart.
const headStart = 2 * time.Hour

// standing is a job's kind, and its place among those of its kind. Why is said only
// of those that wait.
func (c *caravan) standing(e *Entry, s *Situation, guess *guess) Standing {
	total, left := e.Left.Total.Seconds(), e.Left.Left.Seconds()
	switch ran := e.Ran.Seconds(); {
	case !e.Left.Known:
		left = guess.needs(e)
		total = left
	case total <= ran: // twice as long, and so on, in steps: nothing changes in between
		total *= math.Pow(2, math.Floor(math.Log2(ran/total))+1)
		left = max(total-ran, ran/2)
	}
	age, wait, short, kind := e.Job.Submitted.Sub(s.Now).Seconds(), c.Patience*total, c.short(e, s, guess), kindLong
	later := c.later(e, s)
	within := age + later.Seconds()
	switch {
	case !guess.any:
	case guess.past == nil && e.Waited.Seconds() >= wait:
		kind, within = kindOverdue, age+wait
	case left <= short && e.Running:
		kind, within = kindShort, left/2 // what is little shorter is not worth a restart
	case left <= short:
		kind, within = kindShort, left
	case e.Running:
		within -= headStart.Seconds()
	}
	st := Standing{Key: kindSpan*float64(kind) + max(-maxSeconds, min(within, maxSeconds))}
	if e.Waiting {
		about := Said{short: short, kind: kind, left: left, ran: e.Ran, later: later, estimate: e.Left}
		if guess.past == nil {
			about.due = e.Job.Submitted.Add(seconds(wait) + e.Ran)
		}
		st.Why = about.again(e.Job, s.Said, func() string { return about.words(e) })
		if !guess.any {
			st.Why = "nobody has said how long it runs, so the oldest goes first"
		}
	}
	return st
}

// Said is where a job that waits was said to stand, and on what grounds.
type Said struct {
	ran         time.Duration
	kind        int
	short, left float64
	// later is by how much it counts as submitted later.
	later time.Duration
	// due is zero if nobody becomes due.
	due      time.Time
	estimate Estimate
	text     string
}

// again is what was said of a job on the same grounds, else what words say now.
func (a *Said) again(j *model.Job, said map[*model.Job]Said, words func() string) string {
	known, again := said[j]
	if a.text = known.text; again && *a == known {
		return a.text
	}
	if a.text = words(); said != nil {
		said[j] = *a
	}
	return a.text
}

// words say where a job stands that waits.
func (a *Said) words(e *Entry) string {
	from := e.Left.String()
	switch {
	case !e.Left.Known:
		from = fmt.Sprintf("%s; taken to need %s as jobs do on average", from, span(a.left))
	case e.Left.Total <= e.Ran:
		from = fmt.Sprintf("%s, but has for %s already", from, minutes(e.Ran))
	}
	most := seconds(a.short).Round(time.Second).String()
	if e.Asked > 1 {
		most += fmt.Sprintf(" on %d GPUs", e.Asked)
	}
	until := ""
	if !a.due.IsZero() {
		until = "; due at " + minute(a.due)
	}
	switch a.kind {
	case kindOverdue:
		return fmt.Sprintf("%s; due since %s, so nobody new passes it", from, minute(a.due))
	case kindShort:
		return fmt.Sprintf("%s; has no more than %s left, so it goes before longer ones%s", from, most, until)
	}
	if a.short <= 0 {
		return fmt.Sprintf("%s; by age, however short, since it needs more than half of all GPUs%s", from, until)
	}
	as := ""
	if a.later > 0 {
		as = fmt.Sprintf(", as if it had been submitted %s later for its size,", a.later.Round(time.Second))
	}
	return fmt.Sprintf("%s; by age%s among those that have more than %s left%s", from, as, most, until)
}

// minutes says how long in words that do not change all the time.
func minutes(d time.Duration) time.Duration {
	if d < time.Hour {
		return d.Truncate(time.Minute)
	}
	return d.Truncate(time.Hour)
}

// minute says a time in words that do not change all the time.
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// guess is what is known of jobs on average.
type guess struct {
	// any: something is known of somebody's run time.
	any bool
	// typical is the mean of the run times known, past the demands of the past.
	typical float64
	past    *Past
	// little is how many GPU-seconds a job may have left to be little of the work.
	little float64
}

func newGuess(s Situation) *guess {
	g, known := &guess{little: math.Inf(1)}, 0
	for i := range s.Jobs {
		if e := &s.Jobs[i]; e.Left.Known {
			known++
			g.typical += e.Left.Total.Seconds()
		}
	}
	if g.any = known > 0; g.any {
		g.typical = steady(g.typical / float64(known))
	}
	if s.Past.Jobs() >= minDemands {
		g.past, g.any, g.little = s.Past, true, s.Past.upTo(littleWork)
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
