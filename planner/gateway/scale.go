package gateway

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
)

const (
	// targetGroup is the key of a scaling request's target that names the group.
	targetGroup = "Group"
	// noGroup is the name of a group that no job has: Nomad compares names as
	// they are, and job files cannot hold this one.
	noGroup = "caravan rehearsal\n"
)

// serveScale handles a new count for a group of a managed job: it is the last
// submission with another count, resized where it runs if that can be.
func (g *Gateway) serveScale(w http.ResponseWriter, r *http.Request, id string) {
	var req api.ScalingRequest
	body, ok := g.decodeRequest(w, r, &req)
	if !ok {
		return
	}
	// An event without a count changes nothing.
	if req.Count == nil || req.Error || g.elsewhere(r, api.WriteRequest{}) {
		g.pass(w, r, body)
		return
	}
	namespace := queryNamespace(r)
	current, err := g.current(r.Context(), namespace, id)
	if err == nil && !rewritten(current) {
		g.pass(w, r, body)
		return
	}
	var rec *record.Record
	if err == nil {
		rec, current, err = g.look(r.Context(), namespace, id)
	}
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "Caravan could not scale job %q: %v. Try again; if it stays so, see the log of caravan agent.", id, err)
		return
	}
	var group *api.TaskGroup
	if rec != nil && rec.Original != nil && rec.Phase != record.PhaseReleased && live(current) {
		group = groupOf(rec.Original, req.Target[targetGroup])
	}
	if group == nil {
		g.pass(w, r, body)
		return
	}
	if p := g.scale(w, r, req, rec, group, body); p != nil {
		refuse(w, p.status, "%s", p.text)
	}
}

func groupOf(job *api.Job, name string) *api.TaskGroup {
	for _, group := range job.TaskGroups {
		if deref(group.Name) == name {
			return group
		}
	}
	return nil
}

// scale answers itself unless it returns a problem.
func (g *Gateway) scale(w http.ResponseWriter, r *http.Request, req api.ScalingRequest, rec *record.Record, group *api.TaskGroup, body []byte) *problem {
	if a, p := g.rehearseScale(r, req); p != nil || a != nil {
		if a != nil {
			relay(w, a)
		}
		return p
	}
	if p := scalable(rec.JobID, group, *req.Count); p != nil {
		return p
	}
	if p := withinBounds(rec.JobID, rec.Original, group, *req.Count, g.cfg.Levels); p != nil {
		return p
	}
	job, err := gangspec.Copy(rec.Original)
	if err != nil {
		return problemf(http.StatusServiceUnavailable, "Caravan could not scale job %q: %v.", rec.JobID, err)
	}
	job.ID, job.Namespace = &rec.JobID, &rec.Namespace
	groupOf(job, deref(group.Name)).Count = new(int(*req.Count))
	s, p := g.newSubmission(r, api.JobRegisterRequest{
		Job: job, PolicyOverride: req.PolicyOverride,
		EnforceIndex: req.JobModifyIndex > 0, JobModifyIndex: req.JobModifyIndex,
	})
	if p != nil {
		return p
	}
	s.asPlanner = true
	s.taken = func() { g.noteScaling(r, req, group) }
	return g.register(w, r, s, body)
}

// noteScaling leaves the event in Nomad that a scaling of its own would have
// left: an autoscaler tells by it when it acted last. The count is in the text,
// since an event with a count is another scaling.
func (g *Gateway) noteScaling(r *http.Request, req api.ScalingRequest, group *api.TaskGroup) {
	text := fmt.Sprintf("Caravan took in the count %d, it was %d", *req.Count, count(group))
	if req.Message != "" {
		text = req.Message + " (" + text + ")"
	}
	req.Count, req.JobModifyIndex, req.Message = nil, 0, text
	a, p := g.send(r.Context(), r, r.Method, "", req)
	if p != nil || !a.ok() {
		// Already pinned in groups of other names, or Nomad is away: the count
		// is taken in all the same.
		g.log.Debug("leave scaling event", "path", r.URL.Path, "group", deref(group.Name))
	}
}

// rehearseScale lets Nomad say whether the user may scale the job, by scaling a
// group that it does not have. A reply is Nomad's refusal.
func (g *Gateway) rehearseScale(r *http.Request, req api.ScalingRequest) (*reply, *problem) {
	req.Target = maps.Clone(req.Target)
	req.Target[targetGroup] = noGroup
	a, p := g.send(r.Context(), r, r.Method, "", req)
	switch {
	case p != nil:
		return nil, p
	case a.ok():
		return nil, problemf(http.StatusBadGateway, "Nomad at %s scaled a group that the job does not have. Nothing was changed; see what is between Caravan and Nomad.", g.cfg.Nomad.Redacted())
	case a.status == http.StatusBadRequest && bytes.Contains(a.body, []byte("does not exist in job")):
		return nil, nil
	}
	return a, nil
}

// scalable checks a count against the group's scaling policy, with Nomad's
// texts.
func scalable(id string, group *api.TaskGroup, n int64) *problem {
	switch policy := group.Scaling; {
	case n < 0:
		return problemf(http.StatusBadRequest, "scaling action count can't be negative")
	case n > gangspec.MaxCount:
		return problemf(http.StatusBadRequest, "job %q: a group of %d members is more than the %d that Caravan places", id, n, gangspec.MaxCount)
	case policy == nil:
	case policy.Min != nil && n < *policy.Min:
		return problemf(http.StatusBadRequest, "group count was less than scaling policy minimum: %d < %d", n, *policy.Min)
	case policy.Max != nil && n > *policy.Max:
		return problemf(http.StatusBadRequest, "group count was greater than scaling policy maximum: %d > %d", n, *policy.Max)
	}
	return nil
}
