package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// RollbackQuery in the query of a request to fail a deployment, as
// ?caravan=rollback, has the update taken back whatever its job's update block
// says.
const RollbackQuery = "rollback"

// deploymentRequest is what the requests about a deployment say.
type deploymentRequest struct {
	DeploymentID           string
	All                    bool
	Groups                 []string
	Pause                  bool
	HealthyAllocationIDs   []string
	UnhealthyAllocationIDs []string
}

// serveDeploymentChange promotes, fails or pauses an update, or takes down what
// somebody found of its members' health. A deployment of Nomad's own passes.
func (g *Gateway) serveDeploymentChange(w http.ResponseWriter, r *http.Request, rt route) {
	var req deploymentRequest
	body, ok := g.decodeRequest(w, r, &req)
	if !ok {
		return
	}
	found, err := g.updates(r, func(rec *record.Record) bool { return deploymentID(rec) == rt.jobID })
	switch {
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, "Caravan could not look up deployment %q, nothing was done: %v. Try again; if it stays so, see the log of caravan agent.", rt.jobID, err)
		return
	case len(found) == 0:
		g.pass(w, r, body)
		return
	}
	rec := found[0]
	if a, p := g.maySubmit(r, rec); p != nil {
		refuse(w, p.status, "%s", p.text)
		return
	} else if a != nil {
		relay(w, a)
		return
	}
	index, err := g.changeRollout(r, rec, rt.operation, req)
	var p *problem
	switch {
	case errors.As(err, &p):
		refuse(w, p.status, "%s", p.text)
		return
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, "Caravan could not write down what is to become of the update of job %q, nothing was done: %v. Try again; if it stays so, see the log of caravan agent.", rec.JobID, err)
		return
	}
	// No evaluation follows at once: the planner acts on its record.
	if err := answer(w, r, index, map[string]any{"EvalID": "", "EvalCreateIndex": 0, "DeploymentModifyIndex": index, "RevertedJobVersion": nil, "Index": index}); err != nil {
		g.log.Debug("answer about a deployment", "deployment", rt.jobID, "error", err)
	}
}

// maySubmit asks Nomad, in the user's name and without any effect, whether they
// may submit the job, which is what a change of a deployment needs. A reply is
// Nomad's refusal.
func (g *Gateway) maySubmit(r *http.Request, rec *record.Record) (*reply, *problem) {
	gated, err := rewrite.Gate(rec.Original)
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "Job %q cannot be gated: %v.", rec.JobID, err)
	}
	a, p := g.send(r.Context(), within(r, rec.Namespace), http.MethodPut, "/v1/jobs", api.JobRegisterRequest{Job: gated, EnforceIndex: true, JobModifyIndex: neverIndex})
	if p != nil || a.indexConflict() {
		return nil, p
	}
	return a, nil
}

// changeRollout writes into the record what the planner is to do.
func (g *Gateway) changeRollout(r *http.Request, rec *record.Record, operation string, req deploymentRequest) (index uint64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), record.ArrivingFor)
	defer cancel()
	id, by := deploymentID(rec), cmp.Or(g.submitterOf(ctx, r), "a user")
	for range attempts {
		if rec.Rollout == nil || deploymentID(rec) != id {
			return 0, problemf(http.StatusBadRequest, "The update of job %q has ended: %s.", rec.JobID, cmp.Or(rec.Reason, "another one came"))
		}
		rollout := *rec.Rollout
		switch operation {
		case opPromote:
			err = promote(rec, &rollout, req, by)
		case opFail:
			rollout.GivenUp, rollout.Undo = "it was given up by "+by, r.URL.Query().Get(rawParameter) == RollbackQuery
			if rollout.Failed != "" && !rollout.Undo {
				err = problemf(http.StatusBadRequest, "The update of job %q has failed already.", rec.JobID)
			}
		case opPause:
			rollout.Paused = req.Pause
		case opHealth:
			markHealth(&rollout, req)
		}
		if err != nil {
			return 0, err
		}
		rec.Rollout = &rollout
		if err = g.cfg.Records.Put(ctx, rec); !errors.Is(err, record.ErrConflict) {
			return rec.ModifyIndex, err
		}
		if rec, err = g.cfg.Records.Get(ctx, rec.Namespace, rec.JobID); err != nil {
			return 0, fmt.Errorf("read record: %w", err)
		}
	}
	return 0, record.ErrConflict
}

// promote notes that the canaries are to become members.
func promote(rec *record.Record, ro *record.Rollout, req deploymentRequest, by string) error {
	c := ro.Canary
	switch {
	case c == nil:
		return problemf(http.StatusBadRequest, "The update of job %q has no canaries to promote.", rec.JobID)
	case !c.Open() || c.Promote != "":
		return problemf(http.StatusBadRequest, "The canaries of job %q are promoted already.", rec.JobID)
	case ro.Failed != "" || ro.GivenUp != "":
		return problemf(http.StatusBadRequest, "The update of job %q has failed, so its canaries cannot be promoted: %s.", rec.JobID, cmp.Or(ro.Failed, ro.GivenUp))
	case !c.Healthy:
		return problemf(http.StatusBadRequest, "The canaries of job %q are not healthy yet, so they cannot be promoted: %s.", rec.JobID, rec.Reason)
	}
	if !req.All {
		for _, group := range slices.Sorted(maps.Keys(c.Wanted)) {
			if !slices.Contains(req.Groups, group) {
				return problemf(http.StatusBadRequest, "The canaries of job %q are promoted together; name all of its groups with canaries (%s), or none.", rec.JobID, strings.Join(slices.Sorted(maps.Keys(c.Wanted)), ", "))
			}
		}
	}
	next := *c
	next.Promote = by
	ro.Canary = &next
	return nil
}

// markHealth notes what somebody found of allocations' health.
func markHealth(ro *record.Rollout, req deploymentRequest) {
	marked := maps.Clone(ro.Marked)
	if marked == nil {
		marked = map[string]bool{}
	}
	for _, id := range req.HealthyAllocationIDs {
		marked[id] = true
	}
	for _, id := range req.UnhealthyAllocationIDs {
		marked[id] = false
	}
	ro.Marked = marked
}
