package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// keep returns the new submission pinned to the placement in force, and Nomad's
// dry-run of it; nil if that placement does not fit it any more. Nomad has the
// last word: a volume, a port or a driver may be missing on the very nodes.
func (g *Gateway) keep(r *http.Request, s *submission, rec *record.Record, current *api.Job) (*api.Job, *api.JobPlanResponse, error) {
	if !g.mayKeep(s, rec) {
		return nil, nil, nil
	}
	cluster, err := g.cfg.Cluster(r.Context())
	if err != nil {
		return nil, nil, problemf(http.StatusServiceUnavailable,
			"Job %q runs, and Caravan has not seen the cluster yet, so it cannot say whether the gang may stay on its nodes: %v. Nothing was registered; try again in a moment.", s.id, err)
	}
	pinned, err := rewrite.Repin(current, s.original, rec.Members, cluster)
	if err != nil {
		g.log.Info("pin new submission to its nodes", "namespace", s.namespace, "job", s.id, "error", err)
		return nil, nil, nil
	}
	plan, refused, p := g.dryRun(r, s, pinned)
	switch {
	case p != nil:
		return nil, nil, p
	case refused != nil:
		return nil, nil, fmt.Errorf("plan job: Nomad answered %d: %s", refused.status, refused.body)
	case !undisturbed(rec, pinned, plan):
		return nil, nil, nil
	}
	return pinned, plan, nil
}

// undisturbed says whether, by Nomad's forecast, the gang stays whole where it
// is. A running gang of which a member would be placed anew has lost that
// member, or it has completed and would run again. Members that wait for a
// place are gated, so that none is found for them.
func undisturbed(rec *record.Record, pinned *api.Job, plan *api.JobPlanResponse) bool {
	waits := func(name string) bool {
		group := pinned.LookupTaskGroup(name)
		return group != nil && !rewrite.MayPlace(group)
	}
	for name := range plan.FailedTGAllocs {
		if !waits(name) {
			return false
		}
	}
	if plan.Annotations == nil {
		return true
	}
	if len(plan.Annotations.PreemptedAllocs) > 0 {
		return false
	}
	// The canaries of an update that this submission overtakes go.
	gone := canaryGroups(rec)
	for name, u := range plan.Annotations.DesiredTGUpdates {
		if gone[name] || waits(name) {
			continue
		}
		if rec.Phase == record.PhaseRunning && u.Place+u.Stop+u.Migrate > 0 {
			return false
		}
	}
	return true
}

// canaryGroups are the names in Nomad of the groups in which canaries of an
// update under way may be.
func canaryGroups(rec *record.Record) map[string]bool {
	out := map[string]bool{}
	for _, m := range rec.Rollout.Beside() {
		out[rewrite.GroupName(rec.Original, m.Group, m.Index, false, m.Slot)] = true
		out[rewrite.GroupName(rec.Original, m.Group, m.Index, true, m.Slot)] = true
	}
	return out
}

// mayKeep says whether the placement in force was made for a job that asks for
// the same.
func (g *Gateway) mayKeep(s *submission, rec *record.Record) bool {
	return MayStay(rec, s.original, s.spec, g.cfg.Levels...)
}

// shapeOf is the part of a job that its placement was decided by.
func shapeOf(job *api.Job, spec gangspec.Spec) model.Job {
	shape := gangspec.ToModel(gangspec.Explicit(job), spec)
	return model.Job{
		Type: shape.Type, Region: shape.Region, Datacenters: shape.Datacenters, Pool: shape.Pool,
		Constraints: shape.Constraints, Gang: shape.Gang, Topology: shape.Topology, Groups: shape.Groups,
	}
}

// dryRun asks Nomad what registering job would do, in the name of who will
// register it. The reply is Nomad's refusal.
func (g *Gateway) dryRun(r *http.Request, s *submission, job *api.Job) (*api.JobPlanResponse, *reply, *problem) {
	if s.asPlanner {
		plan, _, err := g.cfg.Client.Jobs().PlanOpts(job, &api.PlanOptions{PolicyOverride: s.register.PolicyOverride},
			(&api.WriteOptions{Namespace: s.namespace}).WithContext(r.Context()))
		var refused api.UnexpectedResponseError
		switch {
		case errors.As(err, &refused) && refused.HasStatusCode():
			return nil, &reply{status: refused.StatusCode(), header: http.Header{}, body: []byte(refused.Body())}, nil
		case err != nil:
			return nil, nil, unreachable(g.cfg.Nomad, err)
		}
		return plan, nil, nil
	}
	path := "/v1/job/" + url.PathEscape(s.id) + "/plan"
	a, p := g.send(r.Context(), r, http.MethodPut, path, api.JobPlanRequest{
		Job:            job,
		Diff:           s.diff,
		PolicyOverride: s.register.PolicyOverride,
		WriteRequest:   s.register.WriteRequest,
	})
	if p != nil {
		return nil, nil, p
	}
	if !a.ok() {
		return nil, a, nil
	}
	var out api.JobPlanResponse
	if err := json.Unmarshal(a.body, &out); err != nil {
		return nil, nil, problemf(http.StatusBadGateway, "Nomad at %s answered a plan with something else: %v.", g.cfg.Nomad.Redacted(), err)
	}
	return &out, nil, nil
}
