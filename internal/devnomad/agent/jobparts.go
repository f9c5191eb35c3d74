package agent

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/server"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

func (a *Agent) deregister(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	purge, err := flag(r, "purge", false)
	if err != nil {
		return nil, err
	}
	priority, _ := strconv.Atoi(r.URL.Query().Get("eval_priority"))
	resp, err := a.cfg.Server.Deregister(k, purge, priority)
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	return resp, nil
}

func (a *Agent) planJob(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	var req api.JobPlanRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	switch {
	case req.Job == nil:
		return nil, codef(400, "Job must be specified")
	case req.Job.ID == nil:
		return nil, codef(400, "Job must have a valid ID")
	case *req.Job.ID != k.ID:
		return nil, codef(400, "Job ID does not match")
	}
	if region := a.regionFor(r, req.WriteRequest, req.Job); region != a.cfg.Region {
		return nil, a.forwardBody(w, r, region, &req)
	}
	setNamespace(r, req.WriteRequest, req.Job)
	return a.cfg.Server.Plan(req.Job, req.Diff)
}

func (a *Agent) evaluateJob(_ http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	var req api.JobEvaluateRequest
	if r.ContentLength != 0 {
		if err := decode(r, &req); err != nil {
			return nil, err
		}
	}
	if req.JobID != "" && req.JobID != k.ID {
		return nil, codef(400, "JobID not same as job name")
	}
	return a.cfg.Server.Evaluate(k, req.EvalOptions.ForceReschedule)
}

func (a *Agent) revertJob(_ http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	var req api.JobRevertRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if req.JobID != k.ID {
		return nil, codef(400, "Job ID does not match")
	}
	return a.cfg.Server.Revert(k, req.JobVersion, req.EnforcePriorVersion)
}

func (a *Agent) stableJob(_ http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	var req api.JobStabilityRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return &api.JobStabilityResponse{}, a.cfg.Server.SetStable(k, req.JobVersion, req.Stable)
}

func (a *Agent) scaleJob(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	if r.Method == http.MethodGet {
		if err := a.acl.check(r, "read-job"); err != nil {
			return nil, err
		}
		return a.scaleStatus(w, r, k)
	}
	if err := a.acl.check(r, "scale-job", "submit-job"); err != nil {
		return nil, err
	}
	var req api.ScalingRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return a.cfg.Server.Scale(k, &req)
}

func (a *Agent) dispatchJob(_ http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	var req api.JobDispatchRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	return a.cfg.Server.Dispatch(k, &req)
}

func (a *Agent) forceJob(w http.ResponseWriter, _ *http.Request, k state.Key) (any, error) {
	id, index, err := a.cfg.Server.ForcePeriodic(k)
	if err != nil {
		return nil, err
	}
	setIndex(w, index)
	return map[string]any{"EvalID": id, "EvalCreateIndex": index, "Index": index}, nil
}

func (a *Agent) scaleStatus(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	return a.read(func(v *state.View, _ *http.Request, _ query) result {
		j := v.Job(k)
		if j == nil {
			return result{index: v.TableIndex(state.Jobs), err: codef(404, "job not found")}
		}
		out := &api.JobScaleStatusResponse{JobID: k.ID, Namespace: k.Namespace, JobCreateIndex: *j.CreateIndex, JobModifyIndex: *j.ModifyIndex, JobStopped: deref(j.Stop), TaskGroups: map[string]api.TaskGroupScaleStatus{}}
		for _, tg := range j.TaskGroups {
			s := api.TaskGroupScaleStatus{Desired: *tg.Count}
			for _, al := range v.AllocsOfJob(k) {
				if al.TaskGroup != *tg.Name || state.Terminal(al) {
					continue
				}
				s.Placed++
				if al.ClientStatus == api.AllocClientStatusRunning {
					s.Running++
				}
			}
			out.TaskGroups[*tg.Name] = s
		}
		return result{obj: out, index: max(*j.ModifyIndex, v.TableIndex(state.Allocs))}
	})(w, r)
}

func (a *Agent) jobSummary(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	return a.read(func(v *state.View, _ *http.Request, _ query) result {
		j := v.Job(k)
		if j == nil {
			return result{index: v.TableIndex(state.Jobs), err: codef(404, "job not found")}
		}
		return result{obj: summary(v, j), index: max(v.TableIndex(state.Jobs), v.TableIndex(state.Allocs), v.TableIndex(state.Evals))}
	})(w, r)
}

func (a *Agent) jobVersions(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	diffs, err := flag(r, "diffs", false)
	if err != nil {
		return nil, err
	}
	return a.read(func(v *state.View, _ *http.Request, _ query) result {
		versions := v.JobVersions(k)
		if len(versions) == 0 {
			return result{index: v.TableIndex(state.Jobs), err: codef(404, "job versions not found")}
		}
		out := &api.JobVersionsResponse{Versions: versions}
		for i := 0; diffs && i+1 < len(versions); i++ {
			out.Diffs = append(out.Diffs, server.Diff(versions[i+1], versions[i]))
		}
		return result{obj: out, index: *versions[0].ModifyIndex}
	})(w, r)
}

func (a *Agent) jobSubmission(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	version, err := strconv.ParseUint(r.URL.Query().Get("version"), 10, 64)
	if err != nil {
		return nil, codef(400, "Unable to parse job submission version parameter")
	}
	return a.read(func(v *state.View, _ *http.Request, _ query) result {
		s := v.Submission(k, version)
		if s == nil {
			return result{index: v.TableIndex(state.Jobs), err: codef(404, "job source not found")}
		}
		out := *s
		out.VariableFlags = map[string]string{}
		for name, value := range s.VariableFlags {
			plain, err := url.QueryUnescape(value)
			if err != nil {
				plain = value
			}
			out.VariableFlags[name] = plain
		}
		return result{obj: &out, index: v.TableIndex(state.Jobs)}
	})(w, r)
}

func (a *Agent) jobAllocations(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	all, err := flag(r, "all", false)
	if err != nil {
		return nil, err
	}
	return a.read(func(v *state.View, _ *http.Request, _ query) result {
		out := []*api.AllocationListStub{}
		job := v.Job(k)
		for _, al := range v.AllocsOfJob(k) {
			// Without all, only those of the job as it is now count: it may
			// have been purged and registered anew.
			if all || job == nil || al.Job == nil || *al.Job.CreateIndex == *job.CreateIndex {
				out = append(out, allocStub(al, false, true))
			}
		}
		return result{obj: out, index: v.TableIndex(state.Allocs)}
	})(w, r)
}

func (a *Agent) jobEvaluations(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	return a.read(func(v *state.View, _ *http.Request, _ query) result {
		out := reverse(v.EvalsOfJob(k))
		return result{obj: out, index: v.TableIndex(state.Evals)}
	})(w, r)
}

func (a *Agent) jobDeployments(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	return a.read(func(v *state.View, _ *http.Request, _ query) result {
		return result{obj: append([]*api.Deployment{}, reverse(v.DeploymentsOfJob(k))...), index: v.TableIndex(state.Deployments)}
	})(w, r)
}

func (a *Agent) jobDeployment(w http.ResponseWriter, r *http.Request, k state.Key) (any, error) {
	return a.read(func(v *state.View, _ *http.Request, _ query) result {
		d := v.LatestDeployment(k)
		if d == nil {
			return result{obj: nullJSON{}, index: v.TableIndex(state.Deployments)}
		}
		return result{obj: d, index: d.ModifyIndex}
	})(w, r)
}

// nullJSON is an answer of null.
type nullJSON struct{}

// MarshalJSON implements json.Marshaler.
func (nullJSON) MarshalJSON() ([]byte, error) { return []byte("null"), nil }
