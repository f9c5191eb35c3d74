// Package gangspec reads what a Nomad job asks of Caravan: which jobs are
// managed, the contract that their authors write in the job's or the groups'
// meta, and the job in the form that the decision core reads. It is pure.
package gangspec

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Prefix starts every meta key of Caravan's.
const Prefix = "caravan_"

// The keys of the contract, in the meta of the job or of a group.
const (
	KeyGang              = Prefix + "gang"
	KeyQueue             = Prefix + "queue"
	KeyPriority          = Prefix + "priority"
	KeyTopology          = Prefix + "topology"
	KeyMin               = Prefix + "min"
	KeyMax               = Prefix + "max"
	KeyDuration          = Prefix + "duration"
	KeyDeadline          = Prefix + "deadline"
	KeyPreempt           = Prefix + "preempt"
	KeyMove              = Prefix + "move"
	KeyCheckpoint        = Prefix + "checkpoint"
	KeyCheckpointStorage = Prefix + "checkpoint_storage"
	KeyCheckpointGiB     = Prefix + "checkpoint_gib"
	KeyBurst             = Prefix + "burst"
	KeyBudget            = Prefix + "budget"
	KeyOnFailure         = Prefix + "on_failure"
	KeyOnResize          = Prefix + "on_resize"
	KeyRegions           = Prefix + "regions"
	KeyData              = Prefix + "data"
	KeyCollective        = Prefix + "collective"
	KeySlice             = Prefix + "slice"
	KeyModels            = Prefix + "models"
	KeyMix               = Prefix + "mix"
	KeySpeed             = Prefix + "speed"
	KeyShare             = Prefix + "share"
	KeyBurstMix          = Prefix + "burst_mix"
	KeyOutputGB          = Prefix + "output_gb"
)

// Keys lists the contract's keys in the order of its documentation.
var keys = []string{
	KeyGang, KeyQueue, KeyPriority, KeyTopology, KeyMin, KeyMax, KeyDuration, KeyDeadline,
	KeyPreempt, KeyMove, KeyCheckpoint, KeyCheckpointStorage, KeyCheckpointGiB, KeyBurst, KeyBudget, KeyOnFailure, KeyOnResize,
	KeyRegions, KeyData, KeyCollective, KeySlice, KeyModels, KeyMix, KeySpeed, KeyShare, KeyBurstMix, KeyOutputGB,
}

// The keys that Caravan itself writes into the groups that it splits off; see
// package rewrite. A job that carries them (copied from `nomad job inspect`)
// is not at fault.
const (
	KeyGroup = Prefix + "group"
	KeyIndex = Prefix + "index"
	KeyCount = Prefix + "count"
	// KeySlot tells a group that was made for a canary from the one beside it.
	KeySlot = Prefix + "slot"
)

// The values of caravan_preempt, caravan_move and caravan_burst.
const (
	PreemptCheckpoint = "checkpoint"
	PreemptAlways     = "always"
	PreemptNever      = "never"

	MoveAllow = "allow"
	MoveNever = "never"

	BurstAllow = "allow"
	BurstNever = "never"
	BurstOnly  = "only"
)

// The values of caravan_on_failure and caravan_on_resize.
const (
	FailureRestart  = "restart"
	FailureContinue = "continue"
	FailureFail     = "fail"

	ResizeNotify  = "notify"
	ResizeRestart = "restart"
)

// DriverName is Caravan's own task driver, which implies a gang.
const DriverName = "caravan"

// Spec is what a job's author asked for.
type Spec struct {
	Gang model.Gang
	// Queue is the queue's path, outer to inner: "org/team". Without a
	// caravan_queue it is the job's namespace.
	Queue string
	// Priority is a name that the queue gives a number; "" means Nomad's
	// priority.
	Priority string
	Topology model.Topology
	// Regions are those that it may run in, empty is all; Data names the data sets
	// that it reads.
	Regions, Data []string
	// Collective is what a member's GPUs do most with each other: one of
	// model.CollectiveRing and model.CollectiveAllToAll.
	Collective string
	// Models are the GPU models that it takes, with its speed on each, in the
	// author's order; empty is any. Mix lets one gang have several of them.
	Models []model.ModelSpeed
	Mix    bool
	// Share says whether slices of shared GPUs may serve its device requests: one of
	// the Share constants.
	Share string
	// Speed is how fast the gang is by its members, ascending; empty is not said.
	Speed []model.SpeedPoint
	// Groups are the elastic bounds, in the order of the job's groups.
	Groups []Bounds
	// Duration is the author's estimate; 0 means to be learned.
	Duration time.Duration
	// Deadline is when the job must have ended; zero means none. With
	// DeadlineAfter it is that long after the submission instead.
	Deadline      time.Time
	DeadlineAfter time.Duration
	// Preempt is one of the Preempt constants.
	Preempt string
	// Move is MoveAllow or MoveNever: whether the job's gangs may be moved so that
	// others fit.
	Move string
	// Checkpoint is the expected interval; 0 means as the driver reports.
	Checkpoint time.Duration
	// CheckpointStorage names where checkpoints are saved, "" is the storage that all
	// share; CheckpointGiB is how large a gang's checkpoint is, 0 is not said.
	CheckpointStorage string
	CheckpointGiB     int
	// Burst is one of the Burst constants, "" means as the queue says.
	Burst string
	// Budget is the most money to spend, in the operator's currency; 0 means
	// as the queue says.
	Budget float64
	// BurstMix: a gang may be on bought nodes and others at once.
	BurstMix bool
	// OutputGB is how much data, in 10^9 bytes, it brings home from bought nodes.
	OutputGB float64
	// OnFailure is what becomes of a gang when one of its members fails: one of
	// the Failure constants.
	OnFailure string
	// OnResize is what becomes of the members that stay when the gang gets
	// another size: one of the Resize constants.
	OnResize string
}

// Bounds are a group's elastic bounds, Min ≤ Count ≤ Max, and the slices that
// its members come in.
type Bounds struct {
	Group           string
	Count, Min, Max int
	Slice           model.Slice
}

// Elastic says whether the group may run with another count.
func (b Bounds) Elastic() bool { return b.Min != b.Count || b.Max != b.Count }

// DeadlineFor returns the deadline of a job submitted at that time; zero
// means none.
func (s Spec) DeadlineFor(submitted time.Time) time.Time {
	if s.DeadlineAfter > 0 {
		return submitted.Add(s.DeadlineAfter)
	}
	return s.Deadline
}

// Count is a group's count as Nomad completes it.
func Count(g *api.TaskGroup) int {
	switch {
	case g.Count != nil:
		return *g.Count
	case g.Scaling != nil && g.Scaling.Min != nil:
		return int(*g.Scaling.Min)
	default:
		return 1
	}
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
