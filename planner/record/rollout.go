package record

import (
	"fmt"
	"maps"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

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
