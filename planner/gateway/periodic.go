package gateway

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/rewrite"
	"github.com/caravan-sched/caravan/planner/taskcheck"
)

// launches says whether a job is a periodic one whose launches ask for managed
// devices.
func (g *Gateway) launches(job *api.Job) bool {
	if !job.IsPeriodic() || job.IsParameterized() {
		return false
	}
	child, err := childOf(job)
	return err == nil && g.cfg.Managed(child)
}

// periodicNote goes with the registration of a periodic job.
const periodicNote = "Caravan: each launch of this periodic job is queued and placed whole. An admitted launch is an ordinary job to Nomad: it is listed under its own ID and no longer below this one."

// gatePeriodic returns the periodic job with the gate, with which Nomad then
// launches: nothing of a launch is placed before Caravan admits it. Nomad loses
// sight of an admitted launch, so it could not keep two from overlapping.
func (g *Gateway) gatePeriodic(job *api.Job) (*api.Job, *problem) {
	child, err := childOf(job)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "Job %q cannot be read: %v.", deref(job.ID), err)
	}
	if _, err := taskcheck.Parse(child, g.cfg.Levels...); err != nil {
		return nil, faultsOf(deref(job.ID), err)
	}
	if deref(job.Periodic.ProhibitOverlap) {
		return nil, problemf(http.StatusBadRequest, "Job %q is periodic with prohibit_overlap, which Caravan cannot keep for a job with managed devices: Nomad does not count a launch any more once it is placed as a gang. "+
			"Leave prohibit_overlap out (launches that do not fit wait in the queue), or submit each launch as an ordinary job under one ID.", deref(job.ID))
	}
	gated, err := rewrite.Gate(job)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "Job %q cannot be gated: %v.", deref(job.ID), err)
	}
	return gated, nil
}

// registerPeriodic registers a periodic job with the gate for its launches.
func (g *Gateway) registerPeriodic(w http.ResponseWriter, r *http.Request, req api.JobRegisterRequest) {
	gated, p := g.gatePeriodic(req.Job)
	if p != nil {
		refuse(w, p.status, "%s", p.text)
		return
	}
	req.Job = gated
	a, p := g.send(r.Context(), r, r.Method, "", req)
	if p != nil {
		refuse(w, p.status, "%s", p.text)
		return
	}
	if a.ok() {
		a.body = withWarning(a.body, periodicNote)
	}
	relay(w, a)
}

// planPeriodic plans a periodic job without showing the gate.
func (g *Gateway) planPeriodic(w http.ResponseWriter, r *http.Request, req api.JobPlanRequest) {
	resp, refused, p := g.plannedPeriodic(r, &req)
	switch {
	case p != nil:
		refuse(w, p.status, "%s", p.text)
	case refused != nil:
		relay(w, refused)
	default:
		if err := answer(w, r, resp.JobModifyIndex, resp); err != nil {
			g.log.Debug("answer plan", "job", deref(req.Job.ID), "error", err)
		}
	}
}

func (g *Gateway) plannedPeriodic(r *http.Request, req *api.JobPlanRequest) (*api.JobPlanResponse, *reply, *problem) {
	gated, p := g.gatePeriodic(req.Job)
	if p != nil {
		return nil, nil, p
	}
	s := &submission{id: *req.Job.ID, diff: req.Diff, register: api.JobRegisterRequest{PolicyOverride: req.PolicyOverride, WriteRequest: req.WriteRequest}}
	resp, refused, p := g.dryRun(r, s, gated)
	if p != nil || refused != nil {
		return nil, refused, p
	}
	// What the gate keeps out is no news, and the gate itself is none either.
	resp.FailedTGAllocs = nil
	withoutGate(resp.Diff)
	resp.Warnings = joinWarnings(resp.Warnings, []string{periodicNote})
	return resp, nil, nil
}

// withoutGate takes the gate out of a difference between two versions of a job.
func withoutGate(d *api.JobDiff) {
	if d == nil {
		return
	}
	d.Objects = slices.DeleteFunc(d.Objects, func(o *api.ObjectDiff) bool {
		return slices.ContainsFunc(o.Fields, func(f *api.FieldDiff) bool {
			return f.Old == rewrite.GateAttribute || f.New == rewrite.GateAttribute
		})
	})
	if d.Type == diffEdited && len(d.Fields)+len(d.Objects)+len(d.TaskGroups) == 0 {
		d.Type = diffNone
	}
}

// withWarning adds a line to the warnings in Nomad's answer to a registration;
// one that cannot be read stays as it is.
func withWarning(body []byte, note string) []byte {
	var fields map[string]json.RawMessage
	var resp api.JobRegisterResponse
	if err := errors.Join(json.Unmarshal(body, &fields), json.Unmarshal(body, &resp)); err != nil {
		return body
	}
	warnings, err := json.Marshal(joinWarnings(resp.Warnings, []string{note}))
	if err != nil {
		return body
	}
	fields["Warnings"] = warnings
	out, err := json.Marshal(fields)
	if err != nil {
		return body
	}
	return out
}
