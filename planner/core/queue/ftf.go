package queue

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Finish-time fairness (Mahajan et al., Themis: Fair and Efficient GPU Cluster
// Scheduling, NSDI'20). A job's ρ is how long it takes in the shared cluster, from
// its submission to its end, by how long it would take with an equal part of the
// cluster to itself; what is above 1 it has lost by sharing. Jobs hold their GPUs
// for a lease. When one is over, the GPUs are offered to those whose ρ is worst,
// a part of 1 − f of all that wait or have no lease (f is the fairness knob: the
// larger, the fewer are offered and the fairer it is). Of those who are offered
// GPUs the auction picks the ones that make the product of all ρ least, which the
// paper calls its Nash social welfare; the rest of the GPUs goes to the others.
//
// What is simpler here than in the paper. Bids are made by the planner and not by
// agents of the jobs' own, so nobody can gain by lying, and the hidden payments
// that keep them honest are left out. The auction is greedy: it takes the bid with
// the greatest gain for each GPU and lease first, and a bid is for all that a job
// asks for. How near to each other GPUs are does not count in ρ, since the
// placement sees to that. The equal part is one by the number of jobs that there
// are now, not over the job's life. And when a lease is over, the job goes on
// until somebody who is offered its GPUs takes them.

// FTF are the parameters of ftf.
type FTF struct {
	// Fairness is f, above 0 and below 1: the part of jobs that is offered nothing
	// in the first place; 0 means DefaultFairness.
	Fairness float64 `json:"fairness,omitempty"`
	// Lease is how long a job keeps its GPUs at least; 0 means DefaultLease.
	Lease time.Duration `json:"lease_ns,omitempty"`
}

// The defaults of FTF, f being that of the paper's evaluation, and the most that
// it may say.
const (
	DefaultFairness = 0.8
	DefaultLease    = 20 * time.Minute
	MinLease        = 10 * time.Second
	MaxLease        = 30 * 24 * time.Hour
)

// Validate reports every fault.
func (f FTF) Validate() error {
	var faults []error
	if !(f.Fairness >= 0 && f.Fairness < 1) {
		faults = append(faults, fmt.Errorf("%w: ftf.fairness %g: want 0 or more, and less than 1", ErrPolicy, f.Fairness))
	}
	if f.Lease != 0 && (f.Lease < MinLease || f.Lease > MaxLease) {
		faults = append(faults, fmt.Errorf("%w: ftf.lease %s: want %s to %s", ErrPolicy, f.Lease, MinLease, MaxLease))
	}
	return errors.Join(faults...)
}

// WithDefaults is f with its zeros filled in.
func (f FTF) WithDefaults() FTF {
	if f.Fairness == 0 {
		f.Fairness = DefaultFairness
	}
	if f.Lease == 0 {
		f.Lease = DefaultLease
	}
	return f
}

// The classes of ftf and maxmin.
const (
	// classHeld is what keeps its GPUs for now.
	classHeld = iota
	// classChosen is what is to have GPUs next, or to keep those that it has.
	classChosen
	// classOther is the rest.
	classOther
)

// fairTime is what ftf knows of a job, in seconds.
type fairTime struct {
	// shared is how long it takes in all if it runs from now on, alone how long
	// with an equal part of the cluster to itself.
	shared, alone float64
	left          float64
	// guessed: nobody knows how long it runs.
	guessed bool
}

func (t fairTime) rho() float64 { return t.shared / t.alone }

type ftf struct{ FTF }

func newFTF(p Policy) Discipline { return ftf{p.FTF.WithDefaults()} }

// Stand implements Discipline.
func (f ftf) Stand(s Situation) []Standing {
	out := make([]Standing, len(s.Jobs))
	times := make([]fairTime, len(s.Jobs))
	part := float64(s.GPUs) / float64(max(1, len(s.Jobs)))
	var bidders []int
	for i := range s.Jobs {
		e := &s.Jobs[i]
		times[i] = f.times(e, part)
		if lease, longer := e.turnOf(f.Lease); e.Running && e.Turn < lease {
			out[i] = Standing{Class: classHeld, Why: fmt.Sprintf("%s; it has a lease for another %s%s", times[i].why(part), (lease - e.Turn).Round(time.Second), longer)}
		} else {
			bidders = append(bidders, i)
		}
	}
	slices.SortStableFunc(bidders, func(a, b int) int { return cmp.Compare(times[b].rho(), times[a].rho()) })
	offered := int(math.Ceil((1-f.Fairness)*float64(len(bidders)) - 1e-9))
	for place, i := range bidders {
		e, st := &s.Jobs[i], &out[i]
		st.Class, st.Key = classOther, -times[i].rho()
		text := "so it is offered what the others leave"
		if place < offered {
			st.Class, st.Key = classChosen, -f.bid(e, times[i])
			text = "so it is offered GPUs first"
		}
		if e.Running {
			text = "and its lease is over"
		}
		st.Why = fmt.Sprintf("%s; %d of %d by that, of which %d are worst off, %s", times[i].why(part), place+1, len(bidders), offered, text)
	}
	spread(s, out)
	return out
}

// times estimates a job's times. One of which nobody knows how long it runs, or
// that runs for longer than was said, is taken to run as long again as it has, and
// a lease at least.
func (f ftf) times(e *Entry, part float64) fairTime {
	t := fairTime{left: e.Left.Left.Seconds()}
	if !e.Left.Known || t.left <= 0 {
		t.left, t.guessed = max(e.Ran, f.Lease).Seconds(), true
	}
	t.shared = (e.Waited + e.Ran).Seconds() + t.left
	t.alone = (e.Ran.Seconds() + t.left) * e.slowdown(part)
	return t
}

// slowdown is how many times as long a job takes with a part of the cluster: with
// fewer members if it is elastic, and with all GPUs a part of the time if that is
// not enough.
func (e *Entry) slowdown(part float64) float64 {
	gpus, slower := float64(max(e.Asked, e.Held, 1)), 1.0
	if e.elastic() && gpus > part {
		least := min(max(1, e.Min), max(1, e.Count))
		n := min(max(least, int(part)/e.GPUsPerMember), max(1, e.Count))
		gpus, slower = float64(n*e.GPUsPerMember), 1/e.relativeSpeed(n)(n)
	}
	return slower * max(1, gpus/part)
}

// bid is what a lease now is worth to a job, for each of its GPUs: by how much the
// logarithm of its ρ grows if it waits for one lease longer.
func (f ftf) bid(e *Entry, t fairTime) float64 {
	return math.Log1p(f.Lease.Seconds()/t.shared) / float64(max(1, e.Asked))
}

// why says ρ.
func (t fairTime) why(part float64) string {
	guessed := ""
	if t.guessed {
		guessed = ", as far as can be guessed"
	}
	return fmt.Sprintf("finish-time fairness %.2f: %s from submission to end, %s with %.3g GPUs to itself%s", t.rho(), span(t.shared), span(t.alone), part, guessed)
}
