package queue

import (
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

// Discipline orders jobs by more than their age. Each has a file of its own,
// which cites its paper, and a line in the table of orders.
//
// A job's priority is the word of an operator and goes before what a discipline
// says: jobs are decided on by priority, highest first, then by class, key and
// age. So does the queue: where queues are limited, a class counts within one.
type Discipline interface {
	// Stand says how each of the Situation's jobs stands, in their order. It
	// depends on nothing else, and changes nothing.
	Stand(s Situation) []Standing
}

// Situation is what a Discipline looks at.
type Situation struct {
	Now time.Time
	// GPUs counts the healthy GPUs of the nodes that may be used and that nothing
	// holds that is not managed; Models the same by model, in the order of their
	// names.
	GPUs   int
	Models []ModelGPUs
	// NodeGPUs is how many the largest of these nodes has.
	NodeGPUs int
	// Jobs are all that run, that wait, or both, the oldest first (by
	// submission, then namespace and ID). What must not be decided on is not
	// among them, unless it runs.
	Jobs []Entry
	// Rooms are sets of nodes of which some jobs need whole ones.
	Rooms []Room
	// Pools are bounds on the GPUs of some jobs.
	Pools []Pool
	// Past is how many GPU-seconds jobs have had in all that have ended.
	Past *Past
	// Told, if there is one, is where it is left what was promised of each job's
	// deadline, in the order of Jobs.
	Told *[]Promise
	// Memory is a list whose memory may be used for the answer.
	Memory []Standing
	// CanRun reports whether a job that waits could run if nobody else did but who never
	// gives way and has no end, and FitsWithout whether it would have a place now if some
	// did not; nil: each can.
	CanRun      func(*model.Job) bool
	FitsWithout func(j *model.Job, gone []*model.Job) bool
	// Said is what was said of jobs before, so that the same need not be put into
	// words again; nil remembers nothing.
	Said map[*model.Job]Said
}

// standings are one for each job, to be filled in.
func (s *Situation) standings() []Standing {
	out := slices.Grow(s.Memory[:0], len(s.Jobs))[:len(s.Jobs)]
	clear(out)
	return out
}

// ModelGPUs is a number of GPUs of one model.
type ModelGPUs struct {
	Name string
	GPUs int
}

// Room is a set of nodes that may be used and that nothing holds that is not managed.
type Room struct {
	// Name says what they are: "block b2", "" for all that a job may use.
	Name string
	// Domain is the number of the domain that they are of; 0 is none.
	Domain int32
	// Nodes are their numbers, ascending.
	Nodes []int32
}

// Entry is one job of a Situation.
type Entry struct {
	Job *model.Job
	// Priority is the one that counts: its queue's number for its class, else
	// Nomad's.
	Priority int
	// Running: some of its members have places. Waiting: some have none.
	Running, Waiting bool
	// Held and Asked count GPUs: those that it has, and those of all the members
	// that it asks for.
	Held, Asked int
	// Members counts those that have places, Count those that it asks for.
	Members, Count int
	// Min and Max bound the members of an elastic gang; both are 0 for others,
	// and for jobs of several groups.
	Min, Max int
	// GPUsPerMember is what each member asks for, 0 where they differ.
	GPUsPerMember int
	// Model is that of the GPUs that it has, "" if it has none.
	Model string
	// Attained are the GPU-seconds that it has had so far, in all of its runs.
	Attained float64
	// Ran is how long it has run in all, and Waited how long it has not since it
	// was submitted.
	Ran, Waited time.Duration
	// Turn is how long it has run since it was placed last, 0 if it does not run.
	Turn time.Duration
	// Rest is how long it has been without a place since it ran last, or since
	// it was submitted; 0 if it runs.
	Rest time.Duration
	// Nodes are those of the Rooms that it holds something of, if it runs.
	Nodes []int32
	// Footprint is how many GPUs a member that waits takes away, where that is more
	// than it asks for since the rest of its node is too small for another; 0 is not
	// known. Rooms are those in one of which each member takes a whole node, the one
	// that it is to be in rather than another first. Pieces counts the GPUs free now that
	// are too few on their nodes for a member.
	Footprint int
	Rooms     []int
	Pieces    int
	// Draws are what it takes of the Pools.
	Draws []Draw
	// Left is how long it may still run.
	Left Estimate
	// Speed is what is known of the speed of an elastic gang; nil if nothing is.
	Speed *speed.Curve
}

// Estimate is what is thought of a job's run time.
type Estimate struct {
	// Known: somebody has said it, or others like it have ended.
	Known bool
	// Total is the whole run time, Left what remains of it (0 once it has run for
	// longer), Spread how far Total may be off either way.
	Total, Left, Spread time.Duration
	// Runs is of how many runs of others it was made, 0 where the author says it.
	Runs int
}

// Standing is how a job stands.
type Standing struct {
	// Class goes before Key: lower goes first. A job that waits displaces one of a
	// higher class that runs, where the order is preemptive and
	// policy.preempt.enabled is set, the latter's priority is not higher, and both
	// are of one queue or queues are not limited.
	Class int
	// Key orders jobs of one class, lower first; equals go by age.
	Key float64
	// Members is how many members an elastic gang should have; 0 is no wish.
	Members int
	// Model is that of the GPUs, of those that the job names, which it is to have
	// rather than the fastest that has room; "" is no wish.
	Model string
	// Latest is by when the job has to begin to keep a promise, for which others are
	// displaced then where the order is preemptive; zero without one.
	Latest time.Time
	// LeastSpeed is how fast it has to be on the GPUs that it gets to keep a promise,
	// beside its estimate; 0 without one.
	LeastSpeed float64
	// Domain is the number of the domain in which it is to be to keep a promise; 0 is
	// anywhere.
	Domain int32
	// InTurn: it is one of those who should run now, so that it displaces somebody
	// else if it has to give way.
	InTurn bool
	// Passed: while it waits it keeps nothing from others, since it displaces them
	// when its turn has come.
	Passed bool
	// Forgets: once the job is placed, what it has had so far is not held against
	// it any more.
	Forgets bool
	// Why is half a sentence for the job's reason, with numbers: "queue 1 of 3
	// with 0.5 of 1 GPU-hour".
	Why string
}

// order is a line of the table of orders.
type order struct {
	name string
	// discipline makes the order's Discipline; nil: by age alone.
	discipline func(Policy) Discipline
	// preemptive: a lower class displaces a higher one.
	preemptive bool
	// back: a job may displace by its class whom it gave way to before. Without
	// it nothing goes back and forth.
	back bool
	// turns: giving way by class is nothing special, so that it does not count
	// for preempt.max_per_job.
	turns bool
}

// orders are all orders. Validation, configuration and the command line read
// their names here.
var orders = [...]order{
	{name: OrderFIFO},
	{name: OrderBestEffort},
	{name: OrderCaravan, discipline: newCaravan, preemptive: true, turns: true},
	{name: OrderSJF, discipline: newSJF},
	{name: OrderFairShare},
	{name: OrderLAS, discipline: newLAS, preemptive: true, back: true},
	{name: OrderGoodput, discipline: newGoodput},
	{name: OrderMarginal, discipline: newMarginal},
	{name: OrderBackfill},
	{name: OrderDeadline, discipline: newDeadline, preemptive: true},
	{name: OrderTimeslice, discipline: newTimeslice, preemptive: true, back: true, turns: true},
	{name: OrderGittins, discipline: newGittins, preemptive: true, back: true},
	{name: OrderFTF, discipline: newFTF, preemptive: true, back: true, turns: true},
	{name: OrderMaxMin, discipline: newMaxMin, preemptive: true, back: true, turns: true},
}

// Orders are the names of all orders.
func Orders() []string {
	out := make([]string, len(orders))
	for i := range orders {
		out[i] = orders[i].name
	}
	return out
}

// entry is the policy's line of the table.
func (p Policy) entry() order {
	for _, o := range orders {
		if o.name == p.Order {
			return o
		}
	}
	return orders[0]
}

// Discipline is the order's, nil where jobs are ordered by age alone.
func (p Policy) Discipline() Discipline {
	if o := p.entry(); o.discipline != nil {
		return o.discipline(p)
	}
	return nil
}

// Preemptive reports whether a lower class displaces a higher one.
func (p Policy) Preemptive() bool { return p.entry().preemptive }

// MayReturn reports whether a job may displace by its class whom it gave way to.
func (p Policy) MayReturn() bool { return p.entry().back }

// TakesTurns reports whether giving way by class is not counted.
func (p Policy) TakesTurns() bool { return p.entry().turns }
