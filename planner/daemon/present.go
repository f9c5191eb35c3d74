package daemon

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/gateway"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// present is what becomes of the version of a job that is there already.
type present struct {
	// what is one of httpapi's, "" if there is none.
	what string
	// state is the job's, only that nothing is decided on it anew.
	state model.State
	only  bool
}

// present looks at what is there of a job in the way the gateway does when the
// job is submitted again, short of what only Nomad can forecast. A job that is
// to be resized gets the members that stay.
func (d *Daemon) present(v *observe.View, own *api.Job, spec gangspec.Spec, candidate *model.Job) present {
	m, ok := v.Job(candidate.Namespace, candidate.ID)
	if !ok || m.Record == nil || m.Record.Phase == record.PhaseReleased || m.Current == nil || m.Model.State == model.StateStopping {
		return present{}
	}
	rec, levels := m.Record, d.cfg.LevelNames()
	if gateway.Unchanged(rec, m.Current, gangspec.Hash(own)) {
		return present{what: httpapi.PresentUnchanged, state: m.Model.State, only: true}
	}
	if m.Model.State == model.StateQueued || len(rec.Members) == 0 {
		return present{}
	}
	if kept, _, ok := gateway.MayResize(rec, m.Current, own, apply.Cluster(v), levels...); ok {
		candidate.State, candidate.Started, candidate.Submitted = m.Model.State, m.Model.Started, m.Model.Submitted
		candidate.Deadline = spec.DeadlineFor(candidate.Submitted)
		candidate.Members = within(candidate, kept)
		return present{what: httpapi.PresentResized, state: m.Model.State}
	}
	if gateway.MayStay(rec, own, spec, levels...) {
		return present{what: httpapi.PresentStays, state: m.Model.State, only: true}
	}
	return present{what: httpapi.PresentEnds, state: m.Model.State}
}

// within are the members that a job's counts leave, the first of each group.
func within(j *model.Job, kept []model.Member) []model.Member {
	left := map[string]int{}
	for i := range j.Groups {
		left[j.Groups[i].Name] = j.Groups[i].Count
	}
	kept = slices.Clone(kept)
	slices.SortStableFunc(kept, func(a, b model.Member) int { return a.Index - b.Index })
	return slices.DeleteFunc(kept, func(m model.Member) bool {
		left[m.Group]--
		return left[m.Group] < 0
	})
}

// resize puts a job with other counts into a snapshot, which keeps what it holds.
// The snapshot's list is copied.
func resize(snap *model.Snapshot, job model.Job) {
	snap.Jobs = slices.Clone(snap.Jobs)
	for i := range snap.Jobs {
		if j := &snap.Jobs[i]; j.Namespace == job.Namespace && j.ID == job.ID {
			snap.Jobs[i] = job
		}
	}
}

// leftAsIs answers for a job that stays as it is: what waits has the decision
// that it has anyway.
func (d *Daemon) leftAsIs(v *observe.View, snap *model.Snapshot, j *model.Job, there present) (httpapi.PlanResult, error) {
	out := httpapi.PlanResult{Managed: true, Present: there.what}
	if there.state == model.StateQueued {
		plan, err := d.decideOn(v, snap)
		if err != nil {
			return out, &httpapi.Error{Status: http.StatusInternalServerError, Message: "the cluster cannot be decided on: " + err.Error()}
		}
		for _, decision := range plan.Decisions {
			if decision.Namespace == j.Namespace && decision.Job == j.ID {
				out.Decision, out.Placement = decision, placed(decision.Members, v)
			}
		}
	}
	there.tell(&out)
	return out, nil
}

// tell says what becomes of the version that is there.
func (p present) tell(out *httpapi.PlanResult) {
	d := &out.Decision
	switch {
	case p.what == httpapi.PresentUnchanged && p.state != model.StateQueued:
		d.Action, d.Reason = model.ActionAdmit, fmt.Sprintf("unchanged, nothing would be registered; %s", p.state)
	case p.what == httpapi.PresentUnchanged:
		d.Reason = "unchanged, nothing would be registered; " + d.Reason
	case p.what == httpapi.PresentStays:
		d.Action, d.Reason = model.ActionAdmit, "the gang would stay on its nodes, since what it asks for is the same"
	case p.what == httpapi.PresentResized && d.Reason == "":
		d.Action, d.Reason = model.ActionAdmit, "it would be resized where it runs: it has all the members that it asks for"
	case p.what == httpapi.PresentResized:
		d.Reason = "it would be resized where it runs, and gets more members: " + d.Reason
	case p.what == httpapi.PresentEnds:
		d.Reason = "what runs would end first, since it differs in more than counts; " + d.Reason
	}
}
