// Package apply carries decisions out in Nomad. The Checker compares what is
// intended (the records) with what Nomad shows (a View) and says what is to be
// done next; the Executor does it. Every step may be repeated and may stop
// anywhere: the intention is always written before Nomad is told to act, so
// the next look at Nomad finds what is left to do.
package apply

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// Options say how patient Caravan is.
type Options struct {
	// Deadline is how long all members of an admitted gang may take to be
	// placed.
	Deadline time.Duration
	// RetryInitial is the wait after the first failed admission; it doubles
	// with every further one, up to RetryMax.
	RetryInitial, RetryMax time.Duration
	// Settle is how long a member of a running gang may be missing before the
	// gang counts as broken: Nomad restarts tasks and moves allocations in
	// several steps. A member whose node is lost is missing at once.
	Settle time.Duration
	// Sick is how long a GPU of a running member must be reported unhealthy
	// before its gang is taken off.
	Sick time.Duration
	// Vanished is how long a GPU of a running member may be missing from its
	// node's list: a device plugin that restarts lists none for a moment.
	Vanished time.Duration
	// Stable is how long a gang must have run for its earlier failures to
	// count no more, where its reschedule block names no interval.
	Stable time.Duration
	// Link returns the address of the page about a job, which is put into the
	// job's ui block; nil puts none.
	Link func(namespace, job string) string
	// Withhold says of a job that has ended or is gone that its record is to stay for
	// now; nil withholds none.
	Withhold func(*record.Record) bool
	// Stops is the policy by which gangs stop, of which the limits of storages count
	// for drained nodes too; nil is its defaults.
	Stops func() preempt.Policy
	// Ended is told of each batch job that has ended, from several goroutines; nil
	// tells nobody.
	Ended func(Ending)
}

// The defaults of Options.
const (
	DefaultDeadline     = 60 * time.Second
	DefaultRetryInitial = 5 * time.Second
	DefaultRetryMax     = 5 * time.Minute
	DefaultSettle       = 15 * time.Second
	DefaultSick         = 30 * time.Second
	DefaultVanished     = 2 * time.Minute
	DefaultStable       = 10 * time.Minute
)

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field    *time.Duration
		fallback time.Duration
	}{
		{&o.Deadline, DefaultDeadline}, {&o.RetryInitial, DefaultRetryInitial},
		{&o.RetryMax, DefaultRetryMax}, {&o.Settle, DefaultSettle},
		{&o.Sick, DefaultSick}, {&o.Vanished, DefaultVanished}, {&o.Stable, DefaultStable},
	} {
		if *d.field <= 0 {
			*d.field = d.fallback
		}
	}
	return o
}

// backoff is the wait after the n-th failed admission, n ≥ 1.
func (o Options) backoff(n int) time.Duration {
	wait := o.RetryInitial
	for range n - 1 {
		if wait *= 2; wait >= o.RetryMax {
			return o.RetryMax
		}
	}
	return min(wait, o.RetryMax)
}

// Kind says what a step is for.
type Kind string

// The kinds of steps.
const (
	// KindAdopt: a job is seen for the first time.
	KindAdopt Kind = "adopt"
	// KindResubmit: the user has changed a job in Nomad itself.
	KindResubmit Kind = "resubmit"
	// KindGate: a queued job is gated, and what runs of it is stopped.
	KindGate Kind = "gate"
	// KindPin: an admitted or running job is registered with its pins.
	KindPin Kind = "pin"
	// KindRunning: every member was seen placed.
	KindRunning Kind = "running"
	// KindRollback: an admission has failed or a gang is broken.
	KindRollback Kind = "rollback"
	// KindRequeue: a roll-back is through.
	KindRequeue Kind = "requeue"
	// KindTrim: some members or groups go back to the queue.
	KindTrim Kind = "trim"
	// KindRollout: an update of a running service job begins, goes on or ends.
	KindRollout Kind = "rollout"
	// KindResize: members come to a gang that runs, or leave it.
	KindResize Kind = "resize"
	// KindPreempt: a gang is stopped to give way to another.
	KindPreempt Kind = "preempt"
	// KindMove: a gang is stopped to start again elsewhere.
	KindMove Kind = "move"
	// KindNote: only the record changes.
	KindNote Kind = "note"
	// KindForget: the job has ended, its record goes.
	KindForget Kind = "forget"
	// KindAdmit: a decision is carried out.
	KindAdmit Kind = "admit"
)

// Step is what is to be done next about one job, in this order: the record is
// written, the job is registered, allocations are stopped. It ends at the
// first thing that fails.
type Step struct {
	Namespace string
	Job       string
	Kind      Kind
	// Reason is a sentence for people.
	Reason string
	// Put is the record to write; nil leaves it.
	Put *record.Record
	// ReadSource tells to read the job's source in Nomad, at Version, into Put.
	ReadSource bool
	Version    int
	// Failed is an allocation that the reason speaks of: Nomad is asked why it
	// failed before the record is written. "" is none.
	Failed string
	// Register is the job to register, if its modify index in Nomad is still
	// Index; nil leaves it.
	Register *api.Job
	Index    uint64
	// Source goes along with Register.
	Source *api.JobSubmission
	// Reschedule asks Nomad not to wait any longer before it starts again what has
	// failed.
	Reschedule bool
	// Stop are IDs of allocations to stop.
	Stop []string
	// Forget is the record to delete; nil deletes none.
	Forget *record.Record
	// Ending is how the job ended whose record is deleted; nil where that says
	// nothing.
	Ending *Ending
}

// Result says what became of a step or of a decision.
type Result struct {
	Namespace string
	Job       string
	Kind      Kind
	Reason    string
	// Changed is set when anything was written, so that a new look at Nomad is
	// worth its while.
	Changed bool
	// Err wraps one of the package's sentinels, or record.ErrConflict.
	Err error
}

// Cluster is the part of a view that pins are made with.
func Cluster(v *observe.View) *rewrite.Cluster {
	nodes := make([]rewrite.Node, len(v.Nodes))
	for i, n := range v.Nodes {
		nodes[i] = rewrite.Node{ID: n.ID, GPUs: n.GPUs, Meta: n.Meta}
	}
	keys := make([]string, 0, len(v.LevelMeta))
	for _, key := range v.LevelMeta {
		if key != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return rewrite.NewCluster(nodes, keys)
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
