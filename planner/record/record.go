// Package record is what Caravan remembers about a managed job: the
// specification as its user submitted it, and the placement in force. It
// lives in Nomad Variables, so that a planner that starts anywhere knows
// everything, and it is written before Nomad is told to act, so that a
// planner that dies in between can finish or undo.
package record

import (
	"fmt"
	"maps"
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

// Rollout is an update of a running service job from one version to the next,
// a few gangs at a time.
type Rollout struct {
	// Original, Source and SpecHash are the version before: what has not been
	// rolled yet runs it.
	Original *api.Job           `json:"-"`
	Source   *api.JobSubmission `json:"-"`
	SpecHash string             `json:"spec_hash"`
	// Rolled are the members that run the new version, or are about to.
	Rolled []Place `json:"rolled,omitempty"`
	// Batch are those among them that are not known to be healthy yet.
	Batch []Place `json:"batch,omitempty"`
	// Index is the job's JobModifyIndex just before the last step was
	// registered, and Step when that was.
	Index uint64    `json:"index"`
	Step  time.Time `json:"step"`
	// Back says why an update is taken back: it failed, and the user's update
	// block asks for auto_revert. The record's Original then is the version from
	// before it.
	Back string `json:"back,omitempty"`
	// Failed says why no more is rolled.
	Failed string `json:"failed,omitempty"`
	// Began is when the new version came.
	Began time.Time `json:"began,omitzero"`
	// Canary is about the canaries of the new version; nil if it has none.
	Canary *Canary `json:"canary,omitempty"`
	// Paused is set by a person: nothing further is rolled while it is.
	Paused bool `json:"paused,omitempty"`
	// GivenUp says how a person has given the update up; it fails then. Undo
	// takes it back, whatever the update block says.
	GivenUp string `json:"given_up,omitempty"`
	Undo    bool   `json:"undo,omitempty"`
	// Marked says of allocations, by ID, whether a person or a program found
	// them healthy; it is asked for where health_check is "manual".
	Marked map[string]bool `json:"marked,omitempty"`
}

// Outcome is how an update ended.
type Outcome struct {
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Failed is set on one that was taken back, or that trouble of the job cut
	// short.
	Failed bool   `json:"failed,omitempty"`
	Text   string `json:"text"`
	// Canaries is how many each group had.
	Canaries map[string]int `json:"canaries,omitempty"`
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

// Canary is the part of an update in which some members run the new version
// beside the old ones, which all stay until the canaries are promoted.
type Canary struct {
	// Wanted is how many members of each group there are to be.
	Wanted map[string]int `json:"wanted,omitempty"`
	// Members are the canaries in force, with the indexes of those whose place
	// they take when they are promoted.
	Members []model.Member `json:"-"`
	// Index is the job's JobModifyIndex just before the first of Members was
	// registered; Placed is when the last was, and Deadline when all of them
	// must be placed.
	Index    uint64    `json:"index,omitempty"`
	Placed   time.Time `json:"placed,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// Attempts counts placements that did not hold; RetryAfter is set by the
	// last one.
	Attempts   int       `json:"attempts,omitempty"`
	RetryAfter time.Time `json:"retry_after,omitzero"`
	// Healthy: all were seen healthy, so that they may be promoted.
	Healthy bool `json:"healthy,omitempty"`
	// Promote says how it came that they are to be promoted; Promoted is when
	// they became members of the job.
	Promote  string    `json:"promote,omitempty"`
	Promoted time.Time `json:"promoted,omitzero"`
}

// Open says whether canaries are still to be placed, watched or promoted.
func (c *Canary) Open() bool { return c != nil && c.Promoted.IsZero() }

// Lacking is how many canaries of each group have no place yet.
func (c *Canary) Lacking() map[string]int {
	out := maps.Clone(c.Wanted)
	for _, m := range c.Members {
		if out[m.Group]--; out[m.Group] <= 0 {
			delete(out, m.Group)
		}
	}
	return out
}

// Beside are the canaries in force of an update under way.
func (r *Rollout) Beside() []model.Member {
	if r == nil || !r.Canary.Open() {
		return nil
	}
	return r.Canary.Members
}

// Begin asks for canaries, so many members of each group. What an unfinished
// update has changed already counts among them.
func (r *Rollout) Begin(wanted map[string]int) {
	r.Canary = nil
	if len(wanted) == 0 {
		return
	}
	r.Canary = &Canary{Wanted: maps.Clone(wanted)}
	for _, p := range r.Rolled {
		if _, ok := r.Canary.Wanted[p.Group]; !ok {
			continue
		}
		if r.Canary.Wanted[p.Group]--; r.Canary.Wanted[p.Group] <= 0 {
			delete(r.Canary.Wanted, p.Group)
		}
	}
}

// NewRollout begins an update of the running job that the record tells of, to
// a version that gangspec.Rolls allows. Whoever takes the new version in puts
// it into the record, with the new version as its Original, the phase and the
// members unchanged, and then registers the job as rewrite.Roll makes it. index
// is the job's JobModifyIndex. Canaries are asked for with Begin; those of an
// update before go.
func (r *Record) NewRollout(index uint64, now time.Time) *Rollout {
	out := &Rollout{Original: r.Original, Source: r.Source, SpecHash: r.SpecHash, Index: index, Step: now, Began: now}
	if was := r.Rollout; was != nil {
		// The update before has not come to its end: what it has changed goes on
		// to this version, the rest is as it was before both.
		out.Original, out.Source, out.SpecHash = was.Original, was.Source, was.SpecHash
		out.Rolled, out.Batch = was.Rolled, was.Rolled
	}
	return out
}

// Beginning says in words how the update of so many members begins.
func (r *Rollout) Beginning(members int) string {
	n := 0
	if r.Canary != nil {
		for _, want := range r.Canary.Wanted {
			n += want
		}
	}
	if n == 0 {
		return fmt.Sprintf("an update of %d members begins, where they are", members)
	}
	return fmt.Sprintf("an update of %d members begins, first with canaries beside them (%d); nothing of the version before is stopped until those are promoted", members, n)
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
