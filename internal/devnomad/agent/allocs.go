package agent

import (
	"net/http"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

func (a *Agent) routeAllocs() {
	a.handle("GET /v1/allocations", "read-job", a.listAllocs)
	a.handle("GET /v1/allocation/{id}", "read-job", a.getAlloc)
	a.handle("/v1/allocation/{id}/stop", "alloc-lifecycle", a.stopAlloc)
	a.handle("GET /v1/allocation/{id}/services", "read-job", func(http.ResponseWriter, *http.Request) (any, error) { return []any{}, nil })
	a.handle("/v1/client/allocation/{id}/signal", "alloc-lifecycle", a.signalAlloc)
	a.handle("/v1/client/allocation/{id}/restart", "alloc-lifecycle", a.restartAlloc)
	a.handle("GET /v1/client/allocation/{id}/stats", "read-job", a.allocStats)
	a.handle("GET /v1/client/allocation/{id}/exec", "", a.execAlloc)
	a.handle("GET /v1/evaluations", "read-job", a.listEvals)
	a.handle("GET /v1/evaluations/count", "read-job", a.countEvals)
	a.handle("GET /v1/evaluation/{id}", "read-job", a.getEval)
	a.handle("GET /v1/evaluation/{id}/allocations", "read-job", a.evalAllocs)
	a.handle("GET /v1/deployments", "read-job", a.listDeployments)
	a.handle("GET /v1/deployment/{id}", "read-job", a.getDeployment)
	a.handle("GET /v1/deployment/allocations/{id}", "read-job", a.deploymentAllocs)
	a.handle("/v1/deployment/fail/{id}", "submit-job", a.failDeployment)
	a.handle("/v1/deployment/promote/{id}", "submit-job", a.promoteDeployment)
	a.handle("/v1/deployment/pause/{id}", "submit-job", a.pauseDeployment)
}

// allocStub is an allocation in a list.
func allocStub(al *api.Allocation, resources, taskStates bool) *api.AllocationListStub {
	s := al.Stub()
	if resources {
		s.AllocatedResources = al.AllocatedResources
	}
	if !taskStates {
		s.TaskStates = nil
	}
	return s
}

// inNamespace compares with "*" as any.
func inNamespace(ns, want string) bool { return want == api.AllNamespacesNamespace || ns == want }

func (a *Agent) listAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	resources, err := flag(r, "resources", false)
	if err != nil {
		return nil, err
	}
	taskStates, err := flag(r, "task_states", true)
	if err != nil {
		return nil, err
	}
	return a.read(func(v *state.View, _ *http.Request, q query) result {
		out := []*api.AllocationListStub{}
		for _, al := range v.Allocs() {
			if inNamespace(al.Namespace, q.namespace) && hasPrefix(al.ID, q.prefix) && q.keeps(al) {
				out = append(out, allocStub(al, resources, taskStates))
			}
		}
		if q.reverse {
			out = reverse(out)
		}
		return result{obj: page(w, q, out, func(s *api.AllocationListStub) string { return s.ID }), index: v.TableIndex(state.Allocs)}
	})(w, r)
}

func (a *Agent) getAlloc(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		al := v.Alloc(r.PathValue("id"))
		if al == nil {
			return result{index: v.TableIndex(state.Allocs), err: missing("alloc", "", r.PathValue("id"))}
		}
		return result{obj: al, index: al.ModifyIndex}
	})(w, r)
}

// missing is what Nomad says of an ID that nothing has: those of the length of
// a UUID may be somebody's.
func missing(what, before, id string) error {
	if err := short(what, before, id); err != nil {
		return err
	}
	return codef(404, "%s not found", what)
}

// short refuses what cannot be a whole ID.
func short(what, before, id string) error {
	if len(id) == len(uuid.Nil.String()) {
		return nil
	}
	return codef(500, "%s%s lookup failed: index error: UUID must be 36 characters", before, what)
}

func (a *Agent) stopAlloc(w http.ResponseWriter, r *http.Request) (any, error) {
	noDelay, err := flag(r, "no_shutdown_delay", false)
	if err != nil {
		return nil, err
	}
	reschedule, err := flag(r, "reschedule", false)
	if err != nil {
		return nil, err
	}
	if err := short("alloc", "", r.PathValue("id")); err != nil {
		return nil, err
	}
	resp, err := a.cfg.Server.StopAlloc(r.PathValue("id"), noDelay, reschedule)
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	return resp, nil
}

func (a *Agent) signalAlloc(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.AllocSignalRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	c, err := a.host(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return struct{}{}, c.Signal(r.PathValue("id"), req.Task, req.Signal)
}

func (a *Agent) restartAlloc(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.AllocationRestartRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	c, err := a.host(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return struct{}{}, c.Restart(r.PathValue("id"), req.TaskName)
}

func (a *Agent) allocStats(_ http.ResponseWriter, r *http.Request) (any, error) {
	c, err := a.host(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return c.Stats(r.PathValue("id"))
}

func (a *Agent) listEvals(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, q query) result {
		out := page(w, q, matchEvals(v, r, q), func(e *api.Evaluation) string { return e.ID })
		return result{obj: out, index: v.TableIndex(state.Evals)}
	})(w, r)
}

func matchEvals(v *state.View, r *http.Request, q query) []*api.Evaluation {
	status, job := r.URL.Query().Get("status"), r.URL.Query().Get("job")
	out := []*api.Evaluation{}
	for _, e := range v.Evals() {
		if inNamespace(e.Namespace, q.namespace) && hasPrefix(e.ID, q.prefix) &&
			(status == "" || e.Status == status) && (job == "" || e.JobID == job) && q.keeps(e) {
			out = append(out, e)
		}
	}
	if q.reverse {
		out = reverse(out)
	}
	return out
}

func (a *Agent) countEvals(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, q query) result {
		return result{obj: map[string]int{"Count": len(matchEvals(v, r, q))}, index: v.TableIndex(state.Evals)}
	})(w, r)
}

func (a *Agent) getEval(w http.ResponseWriter, r *http.Request) (any, error) {
	related, err := flag(r, "related", false)
	if err != nil {
		return nil, err
	}
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		e := v.Eval(r.PathValue("id"))
		if e == nil {
			return result{index: v.TableIndex(state.Evals), err: missing("eval", "failed to lookup eval: ", r.PathValue("id"))}
		}
		if related {
			c := *e
			c.RelatedEvals = relatedEvals(v, e)
			e = &c
		}
		return result{obj: e, index: e.ModifyIndex}
	})(w, r)
}

func relatedEvals(v *state.View, e *api.Evaluation) []*api.EvaluationStub {
	var out []*api.EvaluationStub
	for _, id := range []string{e.PreviousEval, e.NextEval, e.BlockedEval} {
		if o := v.Eval(id); o != nil {
			out = append(out, &api.EvaluationStub{
				ID: o.ID, Priority: o.Priority, Type: o.Type, TriggeredBy: o.TriggeredBy, Namespace: o.Namespace, JobID: o.JobID,
				NodeID: o.NodeID, DeploymentID: o.DeploymentID, Status: o.Status, StatusDescription: o.StatusDescription,
				WaitUntil: o.WaitUntil, NextEval: o.NextEval, PreviousEval: o.PreviousEval, BlockedEval: o.BlockedEval,
				CreateIndex: o.CreateIndex, ModifyIndex: o.ModifyIndex, CreateTime: o.CreateTime, ModifyTime: o.ModifyTime,
			})
		}
	}
	return out
}

func (a *Agent) evalAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		out := []*api.AllocationListStub{}
		for _, al := range v.Allocs() {
			if al.EvalID == r.PathValue("id") {
				out = append(out, allocStub(al, false, true))
			}
		}
		return result{obj: out, index: v.TableIndex(state.Allocs)}
	})(w, r)
}

func (a *Agent) listDeployments(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, _ *http.Request, q query) result {
		out := []*api.Deployment{}
		for _, d := range v.Deployments() {
			if inNamespace(d.Namespace, q.namespace) && hasPrefix(d.ID, q.prefix) && q.keeps(d) {
				out = append(out, d)
			}
		}
		if q.reverse {
			out = reverse(out)
		}
		return result{obj: page(w, q, out, func(d *api.Deployment) string { return d.ID }), index: v.TableIndex(state.Deployments)}
	})(w, r)
}

func (a *Agent) getDeployment(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		d := v.Deployment(r.PathValue("id"))
		if d == nil {
			return result{index: v.TableIndex(state.Deployments), err: missing("deployment", "", r.PathValue("id"))}
		}
		return result{obj: d, index: d.ModifyIndex}
	})(w, r)
}

func (a *Agent) deploymentAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.read(func(v *state.View, r *http.Request, _ query) result {
		out := []*api.AllocationListStub{}
		for _, al := range v.Allocs() {
			if al.DeploymentID == r.PathValue("id") {
				out = append(out, allocStub(al, false, true))
			}
		}
		return result{obj: out, index: v.TableIndex(state.Allocs)}
	})(w, r)
}

func (a *Agent) failDeployment(_ http.ResponseWriter, r *http.Request) (any, error) {
	return &api.DeploymentUpdateResponse{}, a.cfg.Server.FailDeployment(r.PathValue("id"))
}

func (a *Agent) promoteDeployment(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.DeploymentPromoteRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if req.DeploymentID != "" && req.DeploymentID != r.PathValue("id") {
		return nil, codef(400, "Deployment ID does not match")
	}
	return &api.DeploymentUpdateResponse{}, a.cfg.Server.PromoteDeployment(r.PathValue("id"), req.All, req.Groups)
}

func (a *Agent) pauseDeployment(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.DeploymentPauseRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return &api.DeploymentUpdateResponse{}, a.cfg.Server.PauseDeployment(r.PathValue("id"), req.Pause)
}
