package apply

import (
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// Nomad runs a completed member of a batch job again when the job is
// registered anew. This file is about what has ended, and must not run again.

// fresh are the members' states without what ended in an earlier submission:
// its allocations stay in Nomad for a while, and they may be of the same nodes
// and GPUs. What is recorded as ended stays so.
func fresh(m *observe.Managed, rec *record.Record) []observe.MemberState {
	out := make([]observe.MemberState, len(m.Members))
	for i, s := range m.Members {
		if s.Alloc != nil && !s.State.Holds() && s.Alloc.CreateIndex <= rec.Floor() {
			s.Alloc, s.State = nil, observe.AllocNone
		}
		// A member that has failed may have left the very place that a new one gets.
		if s.Alloc != nil && !s.State.Holds() && rec.Growth.Has(s.Member.Group, s.Member.Index) && s.Alloc.CreateIndex <= rec.Growth.Index {
			s.Alloc, s.State = nil, observe.AllocNone
		}
		if s.Member.Ended && !s.State.Holds() {
			s.State = observe.AllocComplete
		}
		out[i] = s
	}
	return out
}

// over ends a job of which every member has ended and some were held: Nomad
// still wants to place those again, and waits.
func (j *job) over() *Step {
	done := j.done()
	total := 0
	for _, g := range j.rec.Original.TaskGroups {
		total += gangspec.Count(g)
	}
	held := slices.ContainsFunc(j.cur.TaskGroups, func(g *api.TaskGroup) bool {
		return rewrite.IsPinned(&api.Job{TaskGroups: []*api.TaskGroup{g}}) && !rewrite.MayPlace(g)
	})
	if len(done) < total || !held || deref(j.cur.Status) == "dead" {
		return nil
	}
	empty, err := rewrite.Pin(j.rec.Original, nil, j.pins(), done...)
	if err != nil {
		return j.stuck(fmt.Sprintf("every member has ended, but the job cannot be closed: %v", err))
	}
	step := j.step(KindPin, "every member has ended")
	step.Put = j.next(step.Reason)
	j.ended(step.Put)
	step.Register, step.Index, step.Source = empty, deref(j.cur.JobModifyIndex), j.rec.Source
	return step
}

// ended marks in the record's members those that have ended. Nomad forgets
// that a member has completed when its group leaves the job.
func (j *job) ended(rec *record.Record) {
	gone := map[rewrite.Place]bool{}
	for _, d := range j.done() {
		gone[d] = true
	}
	rec.Members = slices.Clone(rec.Members)
	for i := range rec.Members {
		m := &rec.Members[i]
		m.Ended = m.Ended || gone[rewrite.Place{Group: m.Group, Index: m.Index}]
	}
}

// done are the members that have ended and must not run again.
func (j *job) done() []rewrite.Place {
	batch := j.m.Model.Type == api.JobTypeBatch
	var out []rewrite.Place
	for _, s := range j.states {
		if s.Member.Ended || batch && s.State == observe.AllocComplete || batch && s.State == observe.AllocDead && j.m.Model.Gang == model.GangNone && j.failedForGood(s) {
			out = append(out, rewrite.Place{Group: s.Member.Group, Index: s.Member.Index})
		}
	}
	return out
}

// failedForGood says whether a dead member has had all the tries that its
// reschedule policy gives it. Nomad says so itself, unless it is held back.
func (j *job) failedForGood(s observe.MemberState) bool {
	if s.Alloc == nil || s.Alloc.NextAllocation != "" {
		return false
	}
	if !j.held(s) {
		return s.Alloc.FollowupEvalID == ""
	}
	return !j.retriable(s)
}

// held says whether a member's group is kept from being placed again.
func (j *job) held(s observe.MemberState) bool {
	for _, g := range j.cur.TaskGroups {
		if s.Alloc != nil && g != nil && deref(g.Name) == s.Alloc.TaskGroup {
			return !rewrite.MayPlace(g)
		}
	}
	return false
}

// retriable says whether a member that failed while it was held may be tried
// again: Nomad would have, had it been let.
func (j *job) retriable(s observe.MemberState) bool {
	if s.State != observe.AllocDead || j.m.Model.Type != api.JobTypeBatch || j.m.Model.Gang != model.GangNone || !j.held(s) {
		return false
	}
	policy := j.reschedule(s.Member.Group)
	failures := 0
	for _, a := range j.m.Allocs {
		if a.TaskGroup == s.Alloc.TaskGroup && a.ClientStatus == api.AllocClientStatusFailed && a.CreateIndex > j.rec.Floor() {
			failures++
		}
	}
	return deref(policy.Unlimited) || failures <= deref(policy.Attempts)
}

// hold keeps the members of a batch job that run already from being placed
// again: each may end at the very moment at which the job is registered anew,
// and Nomad would run it a second time.
func (j *job) hold(pinned *api.Job, members []model.Member) {
	if j.m.Model.Type != api.JobTypeBatch || !j.severally() {
		return
	}
	places := make([]rewrite.Place, len(members))
	for i, m := range members {
		places[i] = rewrite.Place{Group: m.Group, Index: m.Index}
	}
	rewrite.Hold(pinned, places)
}

// pinnable are the members in force that have not ended.
func (j *job) pinnable() []model.Member {
	ended := map[rewrite.Place]bool{}
	for _, d := range j.done() {
		ended[d] = true
	}
	out := make([]model.Member, 0, len(j.rec.Members))
	for _, s := range j.states {
		if !ended[rewrite.Place{Group: s.Member.Group, Index: s.Member.Index}] {
			out = append(out, s.Member)
		}
	}
	return out
}

// rewritable says whether the job may be registered anew without running a
// member again that has completed.
func (j *job) rewritable() bool {
	return len(j.done()) == 0 || j.m.Model.Gang == model.GangNone
}
