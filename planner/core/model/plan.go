package model

import "time"

// Plan is what is to be done, in the order in which it is to be done, with one
// decision for every job that was waiting.
type Plan struct {
	Decisions []Decision `json:"decisions"`
	// Queues is how the queues stand once the plan is carried out, by path;
	// empty where none are configured and the order is not one among queues.
	Queues []QueueUse `json:"queues,omitempty"`
	// Reservations is how the reservations stand, in the order of the snapshot.
	Reservations []ReservationUse `json:"reservations,omitempty"`
	// Preemptions are the gangs that give way to some of those that wait, in the
	// order in which they are to be stopped.
	Preemptions []Preemption `json:"preemptions,omitempty"`
	// Repartitions are the idle GPUs that are divided otherwise, after the shapes
	// that wait.
	Repartitions []Repartition `json:"repartitions,omitempty"`
	// Resizes are the elastic gangs that get another size though none of them
	// waits for members.
	Resizes []Resize `json:"resizes,omitempty"`
	// Promises are the deadlines that are promised from now on, and the promises that
	// cannot be kept any more; what was promised before and still is is not among them.
	Promises []Promise `json:"promises,omitempty"`
	// Demand is what is wanted of the pools in which nodes can be bought; nil where
	// there are none.
	Demand *Demand `json:"demand,omitempty"`
}

// Resize gives an elastic gang that runs more members than it has, or fewer.
type Resize struct {
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job"`
	// Action is ActionGrow or ActionShrink.
	Action Action `json:"action"`
	Group  string `json:"group"`
	// From and To count the group's members before and after.
	From int `json:"from"`
	To   int `json:"to"`
	// Members are those that come, with their places, or that leave.
	Members []Member `json:"members"`
	// Reason is a sentence for people, with the numbers.
	Reason string `json:"reason"`
	// Gain is how many times as fast it is expected to work, and Benefit what that
	// is worth in the time that it may still run, in GPU-seconds at its present
	// speed.
	Gain    float64 `json:"gain,omitempty"`
	Benefit int64   `json:"benefit,omitempty"`
	// Cost is what the change is expected to lose.
	Cost Cost `json:"cost,omitzero"`
}

// Preemption takes a running gang, or the members that an elastic one can do
// without, off what another gang is to have.
type Preemption struct {
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job"`
	// Action is ActionPreempt, ActionMove or ActionShrink.
	Action Action `json:"action"`
	// Members are those that stop. With ActionPreempt and ActionMove they are
	// whole gangs: all members in force of the job, of a group, or single ones, by
	// the job's Gang.
	Members []Member `json:"members"`
	// To is where the gang of an ActionMove starts again. The place is kept for it
	// until then.
	To []Member `json:"to,omitempty"`
	// For names the job that the room is for, ForGroup its group where it is more
	// than one gang.
	For      JobName `json:"for"`
	ForGroup string  `json:"for_group,omitempty"`
	// Reason is a sentence for people, with the numbers.
	Reason string `json:"reason"`
	// Cost is what it is expected to lose.
	Cost Cost `json:"cost"`
	// Moves is the domain that To is in; "" where the gang has to wait.
	Moves string `json:"moves,omitempty"`
	// Returned: all of Members are beyond their gang's count, or beyond what the
	// order would have it run with. It had them for as long as nobody else needed
	// them, and they come back whatever the priorities.
	Returned bool `json:"returned,omitempty"`
	// Benefit is what the moves for the same gang save together, in GPU-seconds
	// that it would wait; 0 where it has a right to the room anyway.
	Benefit int64 `json:"benefit,omitempty"`
}

// Repartition divides an idle GPU into MIG instances, or makes it whole again.
type Repartition struct {
	// Node is the node's ID, GPU the UUID of the whole GPU.
	Node string `json:"node"`
	GPU  string `json:"gpu"`
	// From are the profiles of its present instances, To those that it is to have;
	// none is a whole GPU.
	From []string `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`
	// For names the job that asks for it.
	For JobName `json:"for"`
	// Reason is a sentence for people, with the numbers.
	Reason string `json:"reason"`
}

// JobName names a job.
type JobName struct {
	Namespace string `json:"namespace,omitempty"`
	ID        string `json:"id"`
}

// Cost is what a preemption loses, in GPU-seconds; a member without GPUs counts
// as one.
type Cost struct {
	// Lost is the work since the last checkpoint, or since the start.
	Lost int64 `json:"lost,omitempty"`
	// Restart is what stopping and starting again takes.
	Restart int64 `json:"restart,omitempty"`
	// Placement is what the place was worth that the gang gives up.
	Placement int64 `json:"placement,omitempty"`
}

// Plus adds costs up.
func (c Cost) Plus(o Cost) Cost {
	return Cost{c.Lost + o.Lost, c.Restart + o.Restart, c.Placement + o.Placement}
}

// Total is all of it.
func (c Cost) Total() int64 { return c.Lost + c.Restart + c.Placement }

// QueueUse is how a queue stands, with those below it.
type QueueUse struct {
	Path string `json:"path"`
	// Guaranteed, Limit and Used are amounts by resource, as in a Queue. What has
	// no limit is not in Limit.
	Guaranteed map[string]int `json:"guaranteed"`
	Limit      map[string]int `json:"limit,omitempty"`
	Used       map[string]int `json:"used"`
	// BorrowedGPUs is how many GPUs it uses beyond its guarantee.
	BorrowedGPUs int `json:"borrowed_gpus"`
	// Waiting and WaitingGPUs count the jobs that wait, and what they ask for.
	Waiting     int `json:"waiting"`
	WaitingGPUs int `json:"waiting_gpus"`
	// Share is its dominant share by weight: 0.5 is half of the cluster for a
	// queue of weight 1. The past counts in it.
	Share float64 `json:"share"`
}

// Action is what a decision does.
type Action string

const (
	// ActionAdmit places the members listed, now.
	ActionAdmit Action = "admit"
	// ActionWait leaves the job queued.
	ActionWait Action = "wait"
	// ActionPreempt stops a gang whole; it is queued again.
	ActionPreempt Action = "preempt"
	// ActionShrink stops the members of an elastic gang that it can do without.
	ActionShrink Action = "shrink"
	// ActionGrow gives an elastic gang members beyond its count.
	ActionGrow Action = "grow"
	// ActionMove stops a gang whole and starts it again elsewhere at once.
	ActionMove Action = "move"
)

// Decision is about one job.
type Decision struct {
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job"`
	Action    Action `json:"action"`
	// Reason is a sentence for people, with the numbers that decided and, when
	// the job waits, what would unblock it.
	Reason string `json:"reason"`
	// Detail holds the same numbers for programs.
	Detail Detail `json:"detail,omitzero"`
	// Forgets: what the job has had so far is not to be held against it any more,
	// once its members are placed.
	Forgets bool `json:"forgets,omitempty"`
	// Backfill is set on an admitted job that is placed where another one is to
	// start, since it is expected to have ended by then.
	Backfill *Backfill `json:"backfill,omitempty"`
	// Members are the placements, by rank. For Gang group and none they may be
	// some of the job's members only. Empty, not nil, if there are none.
	Members []Member `json:"members"`
}

// Detail is a reason's numbers.
type Detail struct {
	// Code is stable: "placed", "no_capacity", "no_domain", "no_node",
	// "behind", "hold", "retry_later", "too_large", "invalid", "preempting",
	// "quota", "target", "moving", "dividing".
	Code string `json:"code,omitempty"`
	// Level and Domain are the domain chosen, or the best of those refused.
	// Domain is a path, outer to inner: "b1/r7".
	Level  string `json:"level,omitempty"`
	Domain string `json:"domain,omitempty"`
	// MembersWanted and MembersFit count members: what was asked for, and what
	// Domain can take at this moment.
	MembersWanted int `json:"members_wanted,omitempty"`
	MembersFit    int `json:"members_fit,omitempty"`
	// FreeGPUs counts free, healthy GPUs of the kind asked for, on the nodes
	// that the job may use.
	FreeGPUs   int `json:"free_gpus,omitempty"`
	WantedGPUs int `json:"wanted_gpus,omitempty"`
	// Queue is the queue that the job counts for, where queues are configured.
	Queue string `json:"queue,omitempty"`
	// BorrowedGPUs counts, of the GPUs placed now, those beyond the queue's
	// guarantee: they may be reclaimed.
	BorrowedGPUs int `json:"borrowed_gpus,omitempty"`
	// Ahead is how many jobs are before this one in its order.
	Ahead int `json:"ahead,omitempty"`
	// Standing is how the job stands in the order, in words, where more than age
	// counts in it; Target is the size that the order would give an elastic gang.
	Standing string `json:"standing,omitempty"`
	Target   int    `json:"target,omitempty"`
	// Filtered counts the nodes refused, by reason ("constraint ${attr.x} = y",
	// "memory", "draining").
	Filtered map[string]int `json:"filtered,omitempty"`
	// Held are the IDs of the nodes kept free for this job while it waits, in
	// whole or in part.
	Held []string `json:"held,omitempty"`
	// Victims are the jobs that give way to this one, and Cost what that is
	// expected to lose.
	Victims []JobName `json:"victims,omitempty"`
	Cost    Cost      `json:"cost,omitzero"`
	// Start is when the job is expected to start; left out, it is not known. Basis
	// says what that rests on, or why it is not known.
	Start time.Time `json:"start,omitzero"`
	Basis string    `json:"basis,omitempty"`
	// Burst is whether nodes are bought for it, and why; nil where that was not
	// asked.
	Burst *BurstChoice `json:"burst,omitempty"`
}

// Unblock is what would let a job that waits for room start at once.
type Unblock struct {
	// Stop are the jobs that would have to stop, in whole or in part, Cost what
	// that would lose, and Level and Domain where the job would start.
	Stop   []JobName `json:"stop"`
	Cost   Cost      `json:"cost"`
	Level  string    `json:"level,omitempty"`
	Domain string    `json:"domain,omitempty"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
}

// Backfill says of a job that it was placed, on an estimate, where another one
// is to start.
type Backfill struct {
	// For is the job that is to start there, and Start when it was expected to.
	For   JobName   `json:"for"`
	Start time.Time `json:"start"`
	// Until is when the job placed is expected to have ended.
	Until time.Time `json:"until"`
	// Drained: the nodes were kept for For already, from all who would be there for
	// longer.
	Drained bool `json:"drained,omitempty"`
}

// Member is one placed member of a gang.
type Member struct {
	Group string `json:"group"`
	// Index is the member's index in its group, 0 ≤ Index < Count. Nomad
	// itself decides which allocation index lands on which of a group's nodes.
	Index int `json:"index"`
	// Rank is the member's place in the order along the topology tree,
	// 0 ≤ Rank < all the gang's members.
	Rank int `json:"rank"`
	// Node is the node's ID.
	Node string `json:"node"`
	// GPUs are UUIDs in topology order: neighbours in the list are near.
	GPUs []string `json:"gpus"`
	// Tasks splits GPUs by device request for members that have several: the
	// k-th list belongs to the k-th DeviceAsk.
	Tasks [][]string `json:"tasks,omitempty"`
	// Ended is set, in a Job's Members, on a member that has completed: it
	// holds nothing any more, and is not to be placed again.
	Ended bool `json:"ended,omitempty"`
	// Slot tells which task group in Nomad the member is in: 0 is its own, any
	// other one that was made beside it for a canary. Nothing is decided by it.
	Slot int `json:"slot,omitempty"`
	// SinceCheckpoint is how many seconds of work the member would lose if it
	// were stopped without making a checkpoint first: those since its last
	// complete one. Left out, none is known of.
	SinceCheckpoint *int64 `json:"since_checkpoint_s,omitempty"`
	// CheckpointStep is the step that this checkpoint holds, and Step the one that
	// the member has come to, as far as it has told.
	CheckpointStep *int64 `json:"checkpoint_step,omitempty"`
	Step           *int64 `json:"step,omitempty"`
}
