// Package gangapi is the protocol between a gang's members and the planner:
// its types and the members' client. A member joins the barrier, is told when
// to start and with whom, and then reports its progress and takes orders. Each
// request carries the member's Nomad workload identity, which says who it is:
// nothing in a body is believed about that.
//
// Both requests are long polls: the planner answers at once when there is
// something new, and otherwise after the wait that was asked for.
package gangapi

import (
	"time"

	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// The paths, below the planner's address; both are POST.
const (
	JoinPath   = "/caravan/v1/member/join"
	ReportPath = "/caravan/v1/member/report"
)

// Audience is what the workload identities of members are made for, and
// IdentityName is their name in the job file.
const (
	Audience     = "caravan"
	IdentityName = "caravan"
)

// IdentityHeader carries the workload identity, a JWT.
const IdentityHeader = "X-Caravan-Identity"

// JoinRequest asks to start.
type JoinRequest struct {
	// Run is a random name that the task's supervisor chose when it began: a
	// task that Nomad restarted has another one. Attempt counts from 1 how often
	// this run was at the barrier.
	Run     string `json:"run"`
	Attempt int    `json:"attempt"`
	// WaitMS is how long the answer may be waited for, in milliseconds.
	WaitMS int64 `json:"wait_ms"`

	// Address is where the others reach the member, Port a free port on it for
	// the rendezvous, should the member become rank 0.
	Address string `json:"address"`
	Port    int    `json:"port"`
	// GPUs are the UUIDs that the task was granted.
	GPUs []string `json:"gpus,omitempty"`
	// Processes is how many ranks the member wants; 0 is one for each GPU.
	Processes int `json:"processes,omitempty"`
	// Follow is set by a task that starts with the gang and does not count: its
	// alloc may have another one that does, and it makes no reports.
	Follow bool `json:"follow,omitempty"`
	// Fault is set when the preflight found the node unfit: the member will not
	// start on it, and waits to be refused.
	Fault *NodeFault `json:"fault,omitempty"`
}

// NodeFault is what a preflight found.
type NodeFault struct {
	// Check names the check: "gpu" or the command.
	Check string `json:"check"`
	// GPU is the UUID of the sick one, if it is one.
	GPU    string `json:"gpu,omitempty"`
	Detail string `json:"detail"`
}

// JoinState is where a member stands at the barrier.
type JoinState string

const (
	// JoinWaiting: not all have joined. Ask again.
	JoinWaiting JoinState = "waiting"
	// JoinStart: all have joined. Start after StartInMS.
	JoinStart JoinState = "start"
	// JoinAlone: the task belongs to no gang, or Caravan does not manage the
	// job. Start at once.
	JoinAlone JoinState = "alone"
	// JoinRefused: the member must not start, and asking again will not help:
	// its allocation was replaced or is to be stopped, its job has a newer
	// version, its GPUs are not those that were planned.
	JoinRefused JoinState = "refused"
)

// JoinAnswer answers a JoinRequest.
type JoinAnswer struct {
	State JoinState `json:"state"`
	// Reason says, for people, why: "waiting for gang: 3 of 4 joined, node-7
	// missing".
	Reason string `json:"reason,omitempty"`
	Joined int    `json:"joined,omitempty"`
	Size   int    `json:"size,omitempty"`
	// Missing are members that have not joined, in the order of ranks: the first
	// of them, since there may be thousands.
	Missing []Missing `json:"missing,omitempty"`
	// StartInMS is how long to wait before the start, in milliseconds from the
	// answer: less for those who are told later, so that all start at once.
	StartInMS int64 `json:"start_in_ms,omitempty"`
	// Membership is set with JoinStart, and with JoinAlone where it is known.
	Membership *rendezvous.Membership `json:"membership,omitempty"`
}

// Missing is a member that the others wait for.
type Missing struct {
	Group    string `json:"group"`
	Index    int    `json:"index"`
	NodeName string `json:"node_name"`
	Why      string `json:"why,omitempty"`
}

// MemberState is what a member's supervisor does.
type MemberState string

const (
	MemberRunning   MemberState = "running"
	MemberSuspended MemberState = "suspended"
	// MemberStopping: the user's code is being stopped; it will end.
	MemberStopping MemberState = "stopping"
	// MemberExited: the user's code has ended by itself; Exit says how.
	MemberExited MemberState = "exited"
)

// ReportRequest tells how the member does, and waits for an order. One with an
// Exit that is not Ordered is answered as soon as it is known what becomes of the
// gang: OrderRestart in the answer says that another member failed first, and
// takes this one back to the barrier in place of ending its task. Without an
// order it ends.
type ReportRequest struct {
	Run    string      `json:"run"`
	WaitMS int64       `json:"wait_ms"`
	State  MemberState `json:"state"`
	// Epoch and Generation are those of the membership that the member has.
	Epoch      string `json:"epoch"`
	Generation int    `json:"generation"`
	// Seen is the Sequence of the last order that was carried out.
	Seen     int64     `json:"seen"`
	Progress *Progress `json:"progress,omitempty"`
	Exit     *Exit     `json:"exit,omitempty"`
}

// Progress is what the user's code has told. What it did not tell is nil.
type Progress struct {
	// At is when the last of it was told.
	At time.Time `json:"at"`
	// Step is the training step, Loss the last loss, Throughput the samples (or
	// tokens, as the user counts) per second.
	Step       *int64   `json:"step,omitempty"`
	Loss       *float64 `json:"loss,omitempty"`
	Throughput *float64 `json:"throughput,omitempty"`
	// Batch is how many samples all members have in a step together, NoiseScale
	// the gradient noise scale in samples.
	Batch      *float64 `json:"batch,omitempty"`
	NoiseScale *float64 `json:"noise_scale,omitempty"`
	// FetchS, PrepareS and ComputeS are the seconds of a step that the member
	// takes to read its input, to prepare it and to work with it; they overlap.
	FetchS     *float64    `json:"fetch_s,omitempty"`
	PrepareS   *float64    `json:"prepare_s,omitempty"`
	ComputeS   *float64    `json:"compute_s,omitempty"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// Checkpoint is the newest complete one.
type Checkpoint struct {
	At time.Time `json:"at"`
	// AgeMS is its age when the report was made, in milliseconds, so that clocks
	// need not agree.
	AgeMS int64 `json:"age_ms"`
	// Step is the step that it holds; nil if the user's code did not say.
	Step *int64 `json:"step,omitempty"`
	Path string `json:"path,omitempty"`
}

// Exit is how the user's code ended.
type Exit struct {
	Code   int  `json:"code"`
	Signal int  `json:"signal,omitempty"`
	OOM    bool `json:"oom,omitempty"`
	// RanMS is how long it ran, in milliseconds.
	RanMS int64 `json:"ran_ms"`
	// Ordered is set when it ended because the member was told to stop it.
	Ordered bool `json:"ordered,omitempty"`
}

// OrderKind is what a member is told to do.
type OrderKind string

const (
	// OrderRestart: stop the user's code and come back to the barrier, because
	// another member failed or the gang cannot change its size while it runs.
	OrderRestart OrderKind = "restart"
	// OrderFail: stop the user's code and end the task as failed.
	OrderFail OrderKind = "fail"
	// OrderSuspend and OrderResume: stop and continue every process.
	OrderSuspend OrderKind = "suspend"
	OrderResume  OrderKind = "resume"
	// OrderCheckpoint: ask the user's code for a checkpoint and run on.
	OrderCheckpoint OrderKind = "checkpoint"
)

// Order is one thing to do.
type Order struct {
	// Sequence grows from order to order.
	Sequence int64     `json:"sequence"`
	Kind     OrderKind `json:"kind"`
	// Urgent is set with OrderRestart and OrderFail when there is no point in
	// asking for a checkpoint first, because a member is gone that would have to
	// take part.
	Urgent bool `json:"urgent,omitempty"`
	// Reason says, for people, why: "rank 3 on node-7 failed first, with exit
	// code 1".
	Reason string `json:"reason"`
}

// ReportAnswer answers a ReportRequest.
type ReportAnswer struct {
	Order *Order `json:"order,omitempty"`
	// Membership is set when it has changed.
	Membership *rendezvous.Membership `json:"membership,omitempty"`
	// Attached is set when Nomad's servers see the member's node and want the
	// allocation to run; see the fence.
	Attached bool `json:"attached"`
	// Gone is set when the allocation is not wanted any more: the answer to
	// everything else is meaningless, and Nomad will stop the task.
	Gone   bool   `json:"gone,omitempty"`
	Reason string `json:"reason,omitempty"`
}
