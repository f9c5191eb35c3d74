// Package observe watches Nomad and turns what it sees into a View: the
// decision core's snapshot, and beside it what the executor needs to carry a
// plan out. A View is whole or it is not made: when any part of Nomad cannot
// be read, the last View stays.
package observe

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// View is the cluster at one moment. It is never changed after it was made,
// so that it may be read by many at once.
type View struct {
	// Taken is when it was made.
	Taken time.Time
	// Index is the highest Raft index that the View includes.
	Index uint64
	// Snapshot is what the decision core reads.
	Snapshot *model.Snapshot
	// Managed are the jobs that Caravan manages, released ones included, by
	// submission time, then namespace, then ID.
	Managed []Managed
	// Nodes are all Nomad clients, by ID.
	Nodes []NodeRef
	// LevelMeta maps a level's name to the node meta key that its values come
	// from. A level that is missing here comes from the operator's topology
	// file or from a device attribute, so no constraint can name it.
	LevelMeta map[string]string
	// PreemptionOn maps a scheduler type ("service", "batch") to whether
	// Nomad's own preemption is enabled for it.
	PreemptionOn map[string]bool
	// Devices are the device patterns that Caravan manages.
	Devices []string
	// Orphans are records whose job Nomad does not know any more, or that is
	// exempt now and bears no mark of Caravan's; of the former none while
	// there may be jobs that the planner does not see.
	Orphans []*record.Record
	// Strays are jobs with what only Caravan writes, by namespace and ID.
	Strays []Stray
	// ACLsOff: when the planner last looked, everybody could do everything.
	ACLsOff bool
	// Unseen are the namespaces that the planner may not read.
	Unseen []Unseen
	// FenceEnds is when the first allocation ceases to be fenced whose node has
	// come back and whose client has not spoken of it, or that was purged before it
	// had ended; zero: there is none.
	FenceEnds time.Time
	// Regions are the regions of a federation, in the order of the configuration;
	// nil where there is one only.
	Regions []RegionState
	// Partial: a region has not been seen yet, so that there may be jobs that are
	// missing here.
	Partial bool
	// Warnings are faults that an operator should see and that stop nothing.
	Warnings []Warning
}

// Warning is a fault in the cluster's data.
type Warning struct {
	// Subject is what it is about: "node gpu-07", "topology file", …
	Subject string `json:"subject"`
	// Text says what is wrong and what to do.
	Text string `json:"text"`
}

// RegionState is how a region of a federation stands.
type RegionState struct {
	Name string
	// Held says why nothing is decided there, and what runs there is left as it is;
	// "" where it is decided on. Since is when that began.
	Held  string
	Since time.Time
	// Taken is when it was seen last; zero: never.
	Taken time.Time
}

// InRegion is how a job is called in a View of a federation if an earlier region
// has one of its name. No ID of Nomad's has a blank in it.
func InRegion(id, region string) string { return id + " (region " + region + ")" }

// State is how the region of that name stands; nil if it is none of the
// federation's.
func (v *View) State(region string) *RegionState {
	for i := range v.Regions {
		if v.Regions[i].Name == region {
			return &v.Regions[i]
		}
	}
	return nil
}

// NodeRef names a Nomad client.
type NodeRef struct {
	ID   string
	Name string
	// Region is the federation's that it is in; "" without one.
	Region string
	// Levels maps a level's name to the node's value there.
	Levels map[string]string
	// Meta holds the values of those of View.LevelMeta's keys that the node
	// really carries: only by these may a constraint narrow the nodes.
	Meta map[string]string
	// GPUs is the number of the node's devices that Caravan manages.
	GPUs int
	// Twice is how many devices Nomad lists more than once, as it does where
	// two plugins report the same ones.
	Twice int
	// TopologyFault says why the paths between the node's GPUs are unknown; ""
	// when they are known, or when there are none.
	TopologyFault string
}

// Stray is a job with a gate or pins that Caravan does not manage: it asks for
// no managed device, or is exempt now. A gated one waits for ever.
type Stray struct {
	Namespace string
	ID        string
	Gated     bool
}

// Managed is a job that Caravan manages.
type Managed struct {
	Namespace string
	ID        string
	// Region is the federation's region in whose Nomad the job is, "" without one.
	// ID is Nomad's there, unless another region has a job of that name: see
	// JobID.
	Region string
	// Current is the job as it is in Nomad now, gate and pins included.
	Current *api.Job
	// Record is what is remembered; nil for a job that was never seen.
	Record *record.Record
	// SpecHash names the user's own version: the record's, or that of the job
	// without gate and pins where there is no record.
	SpecHash string
	// Model is the job as the Snapshot has it; for a released job, which the
	// Snapshot does not have, it has only namespace and ID.
	Model model.Job
	// Allocs are the job's allocations, oldest first, dead ones included.
	Allocs []*api.AllocationListStub
	// Members pairs the placement in force with the allocations, in the order
	// of Record.Members. Those of a released job are what Nomad runs of it.
	Members []MemberState
	// Canaries pairs the canaries in force of an update with the allocations.
	Canaries []MemberState
	// Faults says what is unreadable in the job's contract, one sentence per
	// fault; such a job is gated and held.
	Faults []string
	// Adopted is set on a job that was never seen and that Nomad placed whole by
	// itself, before Caravan was there or behind its back; Members then are
	// its allocations as they are.
	Adopted bool
	// BatchDone is set once a member of a batch job has completed: the job
	// must not be registered again, because Nomad would run that member anew.
	BatchDone bool
}

// MemberState is one member of a placement and what became of it.
type MemberState struct {
	Member model.Member
	// Alloc is the newest allocation that fills the member's place; nil when
	// there is none.
	Alloc *api.AllocationListStub
	State AllocState
	// together: it shares its group in Nomad with others, whatever its name.
	together bool
}

// Index is the one that Nomad gave the member's allocation, which decides by
// itself who of a group goes where; without one, and for a member that has a
// group of its own in Nomad, it is the one decided.
func (s MemberState) Index() int {
	if s.Alloc == nil || s.Alloc.TaskGroup != s.Member.Group && !s.together {
		return s.Member.Index
	}
	return allocIndex(s.Alloc.Name)
}

// AllocState is what an allocation means to its gang.
type AllocState string

const (
	// AllocNone: there is no allocation.
	AllocNone AllocState = "none"
	// AllocPlaced: desired run, pending or running, on the node and the GPUs
	// that were decided.
	AllocPlaced AllocState = "placed"
	// AllocMisplaced: desired run, pending or running, but somewhere else.
	AllocMisplaced AllocState = "misplaced"
	// AllocStopping: told to stop, and not yet reported dead by its client; it
	// holds what it was given.
	AllocStopping AllocState = "stopping"
	// AllocLost: its client is cut off or down. Gone for the gang, but its GPUs
	// stay fenced until the node is back or purged.
	AllocLost AllocState = "lost"
	// AllocComplete: ended by itself with success.
	AllocComplete AllocState = "complete"
	// AllocDead: ended in any other way; holds nothing.
	AllocDead AllocState = "dead"
)

// Holds says whether an allocation in this state holds its resources.
func (s AllocState) Holds() bool {
	switch s {
	case AllocPlaced, AllocMisplaced, AllocStopping, AllocLost:
		return true
	}
	return false
}

// JobID is the job's ID in its region's Nomad.
func (m *Managed) JobID() string {
	if m.Current != nil && m.Current.ID != nil {
		return *m.Current.ID
	}
	return m.ID
}

// Job returns the managed job of that name.
func (v *View) Job(namespace, id string) (*Managed, bool) {
	for i := range v.Managed {
		if m := &v.Managed[i]; m.Namespace == namespace && m.ID == id {
			return m, true
		}
	}
	return nil, false
}
