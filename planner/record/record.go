// Package record is what Caravan remembers about a managed job: the
// specification as its user submitted it, and the placement in force. It
// lives in Nomad Variables, so that a planner that starts anywhere knows
// everything, and it is written before Nomad is told to act, so that a
// planner that dies in between can finish or undo.
package record

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Phase is where a managed job is, as intended; what is true in Nomad is
// observed and compared.
type Phase string

const (
	// PhaseQueued: the job is to be gated.
	PhaseQueued Phase = "queued"
	// PhaseAdmitted: the placement is to be pinned and every member placed
	// before Deadline.
	PhaseAdmitted Phase = "admitted"
	// PhaseRunning: every member of the placement was seen placed.
	PhaseRunning Phase = "running"
	// PhaseRollback: the gate is to be set and what was placed is to be
	// stopped; then the job is queued again.
	PhaseRollback Phase = "rollback"
	// PhaseReleased: Caravan leaves the job alone.
	PhaseReleased Phase = "released"
)

// ArrivingFor is how long the gateway takes at most from a record to the
// registration of its job.
const ArrivingFor = 30 * time.Second

// Record is about one job.
type Record struct {
	Namespace string `json:"namespace"`
	JobID     string `json:"job"`
	// Original is the job as the user registered it, without gate and pins.
	Original *api.Job `json:"-"`
	// Source is the job file, if the user sent one.
	Source *api.JobSubmission `json:"-"`
	// SpecHash identifies Original; two submissions of one file share it.
	SpecHash string `json:"spec_hash"`
	// PlacedHash is the SpecHash that the placement was made for.
	PlacedHash string `json:"placed_hash,omitempty"`
	// Submitter is who registered the job, as far as it is known.
	Submitter string    `json:"submitter,omitempty"`
	Submitted time.Time `json:"submitted"`

	Phase Phase `json:"phase"`
	// Members is the placement in force in admitted and running.
	Members []model.Member `json:"members,omitempty"`
	// Unpinned is set while Members are where Nomad put them by itself, before
	// Caravan knew the job: nothing pins them, and they run on as they are.
	Unpinned bool `json:"unpinned,omitempty"`
	// Backfilled is set while the placement in force is where another job is to
	// start, on the word that this one has ended by then.
	Backfilled *model.Backfill `json:"backfilled,omitempty"`
	// Reason is the last decision's.
	Reason   string    `json:"reason,omitempty"`
	Admitted time.Time `json:"admitted,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// Attempts counts failed admissions; RetryAfter is set by the last one.
	Attempts   int       `json:"attempts,omitempty"`
	RetryAfter time.Time `json:"retry_after,omitzero"`
	// Failures counts, for each gang, how often a member of it has failed; see
	// Failures. The key is "" where the gang is the whole job, else the group.
	Failures map[string]Failures `json:"failures,omitempty"`
	// Held says why the job is not placed again, and what a person must do; a
	// new submission lifts it.
	Held string `json:"held,omitempty"`
	// KeepSize says why an elastic gang that runs on without members that have
	// failed is not made larger again; "" if it may be.
	KeepSize string `json:"keep_size,omitempty"`
	// GangFailures says why gangs that run have failed for good, by their own
	// members' word; the keys are those of Failures. They are taken off.
	GangFailures map[string]string `json:"gang_failures,omitempty"`
	// PlacedIndex is the job's JobModifyIndex in Nomad at the last admission of
	// a gang that is the whole job: what was allocated up to it is of an
	// earlier placement. 0 where members come and go one by one.
	PlacedIndex uint64 `json:"placed_index,omitempty"`
	// KeptIndex is what Floor was before the last change of counts alone, where
	// what runs ran on; nil if there was none.
	KeptIndex *uint64 `json:"kept_index,omitempty"`
	// Sizes is how many members a group may have by Caravan's own decision, where
	// that is more than its count. The user's next change of the counts, or the
	// gang's next placement, ends it.
	Sizes map[string]int `json:"sizes,omitempty"`
	// Resizes is when Caravan gave gangs of the job another size, the latest last,
	// at most maxResizes.
	Resizes []time.Time `json:"resizes,omitempty"`
	// Growth are members that gangs which run are being given; nil without.
	Growth *Growth `json:"growth,omitempty"`
	// Rollout is an update of a running service job that is under way; nil
	// without one.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Ended is how the latest update of this submission ended.
	Ended *Outcome `json:"ended,omitempty"`
	// Recalls are the gangs that users told to stop, at most one of each.
	Recalls []Recall `json:"recalls,omitempty"`
	// Promised is that its deadline has been promised. The next submission forgets it.
	Promised *model.Promised `json:"promised,omitempty"`
	// Preempted is when gangs of the job gave way to others, the latest last, at
	// most maxPreempted. The next submission forgets them.
	Preempted []model.Preempted `json:"preempted,omitempty"`
	// Model is the model of the GPUs that Members have, that of the first where they
	// differ; "" if they have none.
	Model string `json:"model,omitempty"`
	// Service is what the job has had since it was submitted.
	Service Service `json:"service,omitzero"`
	// Moving are the places kept for gangs that were stopped to start again there,
	// at most one for each.
	Moving []model.Moving `json:"moving,omitempty"`
	// Replace is about gangs that were stopped, or run on with fewer members, since
	// nodes or GPUs of some members have failed; nil without. What is placed again
	// is out of it.
	Replace *model.Replacement `json:"replace,omitempty"`
	// History are the latest troubles and what was done about them, newest
	// first, at most MaxHistory.
	History []Event `json:"history,omitempty"`

	// PriorIndex is the job's JobModifyIndex in Nomad just before Original came
	// in, 0 for a new job. Every later index up to the job's present one is
	// Caravan's own (gate and pins), so that a user who enforces one of them is
	// right. Whoever records a submission that came past the gateway sets it to
	// one less than the index at which it was found.
	PriorIndex uint64 `json:"prior_index,omitempty"`
	// Arriving is when the gateway wrote the record, which it does before it
	// registers the job. For the while that a registration may take
	// (ArrivingFor), a job that is missing, or that is at PriorIndex still, is
	// no sign that the record is wrong.
	Arriving time.Time `json:"arriving,omitzero"`
	// Prior is the record of the version before, for as long as it is not known
	// that Nomad has got this one: if it has not, the version before is still in
	// force, and what it has put aside of the user's job is only here. It has no
	// Prior of its own.
	Prior *Record `json:"prior,omitempty"`

	// Regions are the regions of a federation that the job may be sent to, whatever
	// its file says of that; "*" is all, nil the one that it is registered in. It is
	// set where the gateway takes the job in and nobody named a region.
	Regions []string `json:"regions,omitempty"`
	// Route says to which region of a federation the job was sent; nil while it is
	// decided on where it is registered.
	Route *Route `json:"route,omitempty"`
	// Home is the region that has sent the job here, where its user submitted it;
	// "" for a job that was submitted here.
	Home string `json:"home,omitempty"`

	// Avoided are nodes that the job's own preflight has found unfit for it, the
	// latest last: it is not placed on them for a while. The next submission
	// forgets them.
	Avoided []Avoided `json:"avoided,omitempty"`

	// ModifyIndex is the Variable's, for check-and-set. 0: not stored yet.
	ModifyIndex uint64 `json:"-"`
}

// Avoided is a node that a job is not placed on.
type Avoided struct {
	Node     string `json:"node"`
	NodeName string `json:"node_name,omitempty"`
	// Why is what the preflight found.
	Why   string    `json:"why,omitempty"`
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
}

// maxAvoided bounds how many nodes a job avoids at once.
const maxAvoided = 64

// Avoid notes that a node is unfit for the job, from now on for that long, and
// says whether that is news. The list is copied.
func (r *Record) Avoid(node, name, why string, now time.Time, long time.Duration) bool {
	next := make([]Avoided, 0, len(r.Avoided)+1)
	for _, a := range r.Avoided {
		if a.Node == node && a.At.After(r.Admitted) && now.Before(a.Until) {
			return false
		}
		if a.Node != node && now.Before(a.Until) {
			next = append(next, a)
		}
	}
	next = append(next, Avoided{Node: node, NodeName: name, Why: why, At: now, Until: now.Add(long)})
	r.Avoided = next[max(0, len(next)-maxAvoided):]
	return true
}

// maxPreempted bounds how many times are remembered.
const maxPreempted = 64

// GiveWay notes that a gang gave way. The list is copied.
func (r *Record) GiveWay(gave model.Preempted) {
	next := append(slices.Clone(r.Preempted), gave)
	r.Preempted = next[max(0, len(next)-maxPreempted):]
}

// Failures counts how often members of a gang have failed in a row.
type Failures struct {
	Count int `json:"count"`
	// Since and Last are when the first and the last of them were seen.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
}

// End takes the update out of the record, which keeps how it ended.
func (r *Record) End(now time.Time, failed bool, text string) {
	if r.Rollout == nil {
		return
	}
	r.Ended = &Outcome{Began: r.Rollout.Began, Ended: now, Failed: failed, Text: text}
	if c := r.Rollout.Canary; c != nil {
		r.Ended.Canaries = c.Wanted
	}
	r.Rollout = nil
}

// Place names a member of a job.
type Place struct {
	Group string `json:"group"`
	Index int    `json:"index"`
}

// MaxHistory is how many events a record keeps.
const MaxHistory = 12

// Event is something that happened to a job.
type Event struct {
	At time.Time `json:"at"`
	// Kind is the kind of the step taken; see package apply.
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Note puts an event before the others. The list is copied.
func (r *Record) Note(at time.Time, kind, text string) {
	if text == "" || len(r.History) > 0 && r.History[0].Kind == kind && r.History[0].Text == text {
		return
	}
	next := append([]Event{{At: at, Kind: kind, Text: text}}, r.History...)
	r.History = next[:min(len(next), MaxHistory)]
}

// InForce is the record that tells of the job as it is in Nomad, where it has
// the given JobModifyIndex: r, or the one before while r's version has not
// arrived. It is to be written under r's ModifyIndex.
func (r *Record) InForce(jobModifyIndex uint64) *Record {
	// Nomad makes no version of a job that is the same as before, so the index of
	// such a one need not rise.
	if r.Prior == nil || jobModifyIndex > r.PriorIndex || r.Prior.SpecHash == r.SpecHash {
		return r
	}
	out := *r.Prior
	out.ModifyIndex, out.Prior = r.ModifyIndex, nil
	return &out
}

// Floor is the index up to which what Nomad has allocated belongs to an
// earlier submission or placement.
func (r *Record) Floor() uint64 {
	if r.KeptIndex != nil {
		return max(*r.KeptIndex, r.PlacedIndex)
	}
	return max(r.PriorIndex, r.PlacedIndex)
}
