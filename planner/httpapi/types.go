// Package httpapi is Caravan's own HTTP API, below /caravan/v1/ on the same
// listener as the gateway: its types, its handler and its client. Every answer
// is JSON; every error is an Error.
package httpapi

import (
	"time"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// DefaultAddress is where Caravan listens unless it is told otherwise.
const DefaultAddress = "http://127.0.0.1:4656"

// AddressEnv is the environment variable that clients take the address from.
const AddressEnv = "CARAVAN_ADDR"

// Prefix is the path below which the API lives.
const Prefix = "/caravan/v1"

// Error is the body of every answer that is not a success.
type Error struct {
	// Status is the HTTP status; it is not part of the body.
	Status int `json:"-"`
	// Message says what went wrong.
	Message string `json:"error"`
	// Do says what to do about it.
	Do string `json:"what_to_do,omitempty"`
}

// Error makes the answer usable as a Go error.
func (e *Error) Error() string {
	if e.Do == "" {
		return e.Message
	}
	return e.Message + " (" + e.Do + ")"
}

// Status is GET /status.
type Status struct {
	Version string `json:"version"`
	// Leader is set on the planner that decides. LeaderAddress is the API
	// address of the one that does, "" if nobody is known to.
	Leader        bool   `json:"leader"`
	LeaderAddress string `json:"leader_address,omitempty"`
	// ObserveOnly: decisions are shown but not carried out.
	ObserveOnly bool   `json:"observe_only,omitempty"`
	Policy      string `json:"policy"`
	// Predictions says how far predicted run times were off lately; "" if nothing
	// is known of that.
	Predictions string `json:"predictions,omitempty"`
	Nomad       Nomad  `json:"nomad"`
	// ViewTaken is when the cluster was last seen whole; zero: never yet.
	ViewTaken time.Time `json:"view_taken,omitzero"`
	ViewIndex uint64    `json:"view_index,omitempty"`
	Decided   time.Time `json:"decided,omitzero"`
	// Waiting says what the planner waits for before it can decide, "for …";
	// "" if for nothing.
	Waiting string `json:"waiting,omitempty"`
	// Regions are those of a federation.
	Regions  []Region  `json:"regions,omitempty"`
	Counts   Counts    `json:"counts"`
	Warnings []Warning `json:"warnings,omitempty"`
}

// Nomad is how the planner's connection to Nomad is.
type Nomad struct {
	Address string `json:"address"`
	// OK is false while Nomad cannot be read; Error then says why, and
	// RetryAt when it is tried again.
	OK      bool      `json:"ok"`
	Error   string    `json:"error,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// Region is how a region of a federation stands.
type Region struct {
	Name string `json:"region"`
	// Held says why nothing is decided there; "" where it is. Since is when that
	// began, and Taken when the region was seen last.
	Held  string    `json:"held,omitempty"`
	Since time.Time `json:"since,omitzero"`
	Taken time.Time `json:"taken,omitzero"`
}

// Counts are the cluster in numbers.
type Counts struct {
	Nodes         int `json:"nodes"`
	GPUs          int `json:"gpus"`
	FreeGPUs      int `json:"free_gpus"`
	UsedGPUs      int `json:"used_gpus"`
	UnhealthyGPUs int `json:"unhealthy_gpus"`
	Queued        int `json:"queued"`
	Admitted      int `json:"admitted"`
	Running       int `json:"running"`
}

// Warning is a fault that stops nothing but that an operator should see.
type Warning struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
}

// Job is one managed job, an element of GET /jobs (all of them) and of GET
// /queue (those that wait, in the order in which they are served).
type Job struct {
	Namespace string `json:"namespace"`
	ID        string `json:"job"`
	// Region is the region of a federation where the job is, and Home the one that
	// has sent it there; "" without.
	Region string      `json:"region,omitempty"`
	Home   string      `json:"home,omitempty"`
	Type   string      `json:"type,omitempty"`
	State  model.State `json:"state"`
	// Position is the place in the queue, from 1; 0 when the job does not wait.
	Position int        `json:"position,omitempty"`
	Queue    string     `json:"queue,omitempty"`
	Priority int        `json:"priority,omitempty"`
	Gang     model.Gang `json:"gang,omitempty"`
	// Members and GPUs are what it asks for; Placed and HeldGPUs are what it has,
	// which is more of an elastic gang that has grown.
	Members   int       `json:"members"`
	Placed    int       `json:"placed"`
	GPUs      int       `json:"gpus"`
	HeldGPUs  int       `json:"held_gpus,omitempty"`
	Submitted time.Time `json:"submitted,omitzero"`
	Reason    string    `json:"reason,omitempty"`
	Released  bool      `json:"released,omitempty"`
	// Work says how far the gangs have come that run, and who is missing of those
	// that wait at the barrier.
	Work string `json:"work,omitempty"`
	// RunTime says how long the job is thought to run, and how sure that is.
	RunTime string `json:"run_time,omitempty"`
}

// Explain is GET /explain/{namespace}/{job}: what was last decided on a job,
// and why.
type Explain struct {
	Job
	SpecHash string       `json:"spec_hash,omitempty"`
	Action   model.Action `json:"action,omitempty"`
	Detail   model.Detail `json:"detail,omitzero"`
	Decided  time.Time    `json:"decided,omitzero"`
	// Placement are the members of the placement in force or, in observe_only,
	// of the one that would be.
	Placement []Placed `json:"placement,omitempty"`
	// Gangs are how the gangs are that wait at the barrier or run.
	Gangs []barrier.Status `json:"gangs,omitempty"`
	// Speed is what is known of how fast the job works; nil if nothing is.
	Speed *Speed `json:"speed,omitempty"`
	// Faults are what is unreadable in the job's contract.
	Faults []string `json:"faults,omitempty"`
	// Attempts counts admissions that failed; RetryAfter is when the next may
	// be tried.
	Attempts   int       `json:"attempts,omitempty"`
	RetryAfter time.Time `json:"retry_after,omitzero"`
	// Queued is how long the job waited, or has waited until now.
	QueuedMS int64 `json:"queued_ms,omitempty"`
	// History are the decisions before, newest first; equal ones in a row are
	// one.
	History []Past `json:"history,omitempty"`
}

// UnblockResult is GET /unblock/NAMESPACE/JOB.
type UnblockResult struct {
	// Unblock is the cheapest way; nil: the job does not wait for room, or nothing
	// that runs would help.
	Unblock *model.Unblock `json:"unblock"`
}

// Placed is a member and what became of it in Nomad.
type Placed struct {
	model.Member
	NodeName string `json:"node_name,omitempty"`
	// State is observe.AllocState: none, placed, misplaced, stopping, lost,
	// complete, dead.
	State string `json:"state"`
	Alloc string `json:"alloc,omitempty"`
}

// Past is a decision of the past.
type Past struct {
	At     time.Time    `json:"at"`
	Action model.Action `json:"action"`
	Reason string       `json:"reason"`
}

// Topology is GET /topology: the tree.
type Topology struct {
	// Levels are the tree's levels, outermost first, "node" last.
	Levels []string `json:"levels"`
	Root   Domain   `json:"root"`
}

// Domain is a node of the tree: the root, a domain of a level, or a Nomad
// client (Level "node").
type Domain struct {
	Level string `json:"level"`
	Name  string `json:"name"`
	// ID is the Nomad node's, for Level "node" alone.
	ID string `json:"id,omitempty"`
	// FreeGPUs are those that something may be placed on: neither held nor
	// unhealthy, on a node that takes work. UsedGPUs are held.
	Nodes         int `json:"nodes"`
	GPUs          int `json:"gpus"`
	FreeGPUs      int `json:"free_gpus"`
	UsedGPUs      int `json:"used_gpus"`
	UnhealthyGPUs int `json:"unhealthy_gpus,omitempty"`
	// SharedGPUs are offered in time slices, and are none of the GPUs; FreeSlices of
	// their Slices may be given away.
	SharedGPUs int `json:"shared_gpus,omitempty"`
	Slices     int `json:"slices,omitempty"`
	FreeSlices int `json:"free_slices,omitempty"`
	// Unschedulable says why nothing may be placed on this node.
	Unschedulable string `json:"unschedulable,omitempty"`
	// Model names the node's GPUs, when they are all alike.
	Model    string   `json:"model,omitempty"`
	Children []Domain `json:"children,omitempty"`
}

// NodeTopology is GET /topology/{node}, by ID, ID prefix or name: the inside
// of a node.
type NodeTopology struct {
	ID            string            `json:"id"`
	Name          string            `json:"name"`
	Datacenter    string            `json:"datacenter,omitempty"`
	Pool          string            `json:"pool,omitempty"`
	Levels        map[string]string `json:"levels,omitempty"`
	Unschedulable string            `json:"unschedulable,omitempty"`
	GPUs          []GPUUse          `json:"gpus"`
	// Islands are lists of indexes into GPUs.
	Islands [][]int `json:"islands"`
	// Links[i][j] joins GPUs[i] and GPUs[j]; nil if unknown.
	Links    [][]model.Link `json:"links,omitempty"`
	Warnings []Warning      `json:"warnings,omitempty"`
}

// GPUUse is a GPU and who holds it.
type GPUUse struct {
	model.GPU
	// Namespace, Job and Alloc are the holder's; "" when the GPU is free.
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job,omitempty"`
	Alloc     string `json:"alloc,omitempty"`
	// Stopping and Lost are the holder's: still held, and soon free or fenced.
	Stopping bool `json:"stopping,omitempty"`
	Lost     bool `json:"lost,omitempty"`
}

// PlanResult is the answer to POST /plan with a Nomad job ({"Job": …}, as for
// Nomad's /v1/jobs): what would be decided now. Nothing is changed.
type PlanResult struct {
	// Managed is false for a job that Caravan leaves to Nomad; Why says so.
	Managed bool   `json:"managed"`
	Why     string `json:"why,omitempty"`
	// Present is what would become of the version that is there already:
	// PresentUnchanged, PresentStays, PresentResized or PresentEnds; "" if there
	// is none.
	Present string `json:"present,omitempty"`
	// Decision is what would be decided on this job, as the last in its queue.
	Decision model.Decision `json:"decision,omitzero"`
	// Placement are the decision's members with their nodes' names.
	Placement []Placed `json:"placement,omitempty"`
	// Preemptions are those who would give way to it.
	Preemptions []model.Preemption `json:"preemptions,omitempty"`
	// Effects are what would be decided otherwise on the jobs that wait now.
	Effects []Effect `json:"effects,omitempty"`
	// Faults are what is unreadable in the job's contract.
	Faults []string `json:"faults,omitempty"`
}

// What becomes of a job that is there when a file of its name is submitted.
const (
	// PresentUnchanged: it is the same, and nothing is registered.
	PresentUnchanged = "unchanged"
	// PresentStays: its members stay on their nodes.
	PresentStays = "stays"
	// PresentResized: it is resized where it runs.
	PresentResized = "resized"
	// PresentEnds: what runs ends, and the new version is queued.
	PresentEnds = "ends"
)

// Effect is what a job that is submitted changes for one that waits already.
type Effect struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	// Now is what is decided on it without the new job, Then with it.
	Now  model.Action `json:"now"`
	Then model.Action `json:"then"`
	// Reason is that of the decision with the new job.
	Reason string `json:"reason"`
}

// ReleaseRequest is POST /release: one job, or all.
type ReleaseRequest struct {
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job,omitempty"`
	All       bool   `json:"all,omitempty"`
}

// ReleaseResult says what became of each job.
type ReleaseResult struct {
	Jobs []Released `json:"jobs"`
}

// Released is one job of a ReleaseResult.
type Released struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	// Done is false when the job could not be released; Note then says why.
	// On a done job Note says what stays (the device constraints of running
	// members, which cannot go without restarting them).
	Done bool   `json:"done"`
	Note string `json:"note,omitempty"`
}

// CheckStatus is what came of a check.
type CheckStatus string

const (
	// CheckOK: nothing to do.
	CheckOK CheckStatus = "ok"
	// CheckWarn: Caravan works, and something should be looked at.
	CheckWarn CheckStatus = "warn"
	// CheckFail: Caravan does not work, or not as it should.
	CheckFail CheckStatus = "fail"
)

// Check is one thing that was looked at.
type Check struct {
	Name   string      `json:"name"`
	Status CheckStatus `json:"status"`
	// Detail says what there is, with numbers.
	Detail string `json:"detail"`
	// Do says what to do about it; "" where nothing is to be done.
	Do string `json:"what_to_do,omitempty"`
}

// Doctor is GET /doctor: the cluster and the planner, examined.
type Doctor struct {
	// OK: no check failed.
	OK bool `json:"ok"`
	// At is when, Version the planner's that looked.
	At      time.Time `json:"at"`
	Version string    `json:"version"`
	Checks  []Check   `json:"checks"`
}

// NewDoctor puts checks together.
func NewDoctor(at time.Time, version string, checks []Check) Doctor {
	d := Doctor{OK: true, At: at, Version: version, Checks: checks}
	for _, c := range checks {
		d.OK = d.OK && c.Status != CheckFail
	}
	return d
}
