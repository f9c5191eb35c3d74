package agent

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
	"github.com/caravan-sched/caravan/internal/jobhcl"
)

func (a *Agent) routeJobs() {
	a.handle("GET /v1/jobs", "list-jobs", a.listJobs)
	a.handle("/v1/jobs", "submit-job", a.register)
	a.handle("/v1/jobs/parse", "", a.parseJob)
	a.handle("/v1/validate/job", "", a.validateJob)
	// A job's ID may hold slashes, so what follows is told apart by its end.
	a.handle("any /v1/job/", "", a.job)
}

func (a *Agent) listJobs(w http.ResponseWriter, r *http.Request) (any, error) {
	meta, err := flag(r, "meta", false)
	if err != nil {
		return nil, err
	}
	return a.read(func(v *state.View, r *http.Request, q query) result {
		out := []*jobStub{}
		for _, j := range v.Jobs(q.namespace) {
			if hasPrefix(*j.ID, q.prefix) && q.keeps(j) {
				out = append(out, stubOf(v, j, meta))
			}
		}
		if q.reverse {
			out = reverse(out)
		}
		return result{obj: page(w, q, out, func(s *jobStub) string { return s.Namespace + "." + s.ID }), index: v.TableIndex(state.Jobs)}
	})(w, r)
}

// jobStub is a job in a list; the library's type lacks some fields that Nomad
// sends.
type jobStub struct {
	api.JobListStub
	NodePool string
	Version  uint64
}

func stubOf(v *state.View, j *api.Job, meta bool) *jobStub {
	s := &jobStub{JobListStub: api.JobListStub{
		ID: *j.ID, ParentID: deref(j.ParentID), Name: *j.Name, Namespace: *j.Namespace, Datacenters: j.Datacenters,
		Type: *j.Type, Priority: deref(j.Priority), Periodic: j.IsPeriodic(), ParameterizedJob: j.IsParameterized(),
		Stop: deref(j.Stop), Status: deref(j.Status), StatusDescription: deref(j.StatusDescription),
		JobSummary:  summary(v, j),
		CreateIndex: *j.CreateIndex, ModifyIndex: *j.ModifyIndex, JobModifyIndex: *j.JobModifyIndex, SubmitTime: deref(j.SubmitTime),
	}, NodePool: deref(j.NodePool), Version: *j.Version}
	if meta {
		s.Meta = j.Meta
	}
	return s
}

// summary counts a job's allocations; what is queued is what the newest
// evaluation that counted the group could not place.
func summary(v *state.View, j *api.Job) *api.JobSummary {
	k := state.JobKey(j)
	s := &api.JobSummary{JobID: k.ID, Namespace: k.Namespace, Summary: map[string]api.TaskGroupSummary{}, Children: &api.JobChildrenSummary{}, CreateIndex: *j.CreateIndex, ModifyIndex: *j.ModifyIndex}
	for _, tg := range j.TaskGroups {
		s.Summary[*tg.Name] = api.TaskGroupSummary{}
	}
	add := func(e state.Ended, n int) {
		g := s.Summary[e.Group]
		switch e.ClientStatus {
		case api.AllocClientStatusPending:
			g.Starting += n
		case api.AllocClientStatusRunning:
			g.Running += n
		case api.AllocClientStatusComplete:
			g.Complete += n
		case api.AllocClientStatusFailed:
			g.Failed += n
		case api.AllocClientStatusLost:
			g.Lost += n
		case api.AllocClientStatusUnknown:
			g.Unknown += n
		}
		s.Summary[e.Group] = g
	}
	for e, n := range v.Collected(k) {
		add(e, n)
	}
	for _, al := range v.AllocsOfJob(k) {
		add(state.Ended{Group: al.TaskGroup, ClientStatus: al.ClientStatus}, 1)
		s.ModifyIndex = max(s.ModifyIndex, al.ModifyIndex)
	}
	if j.IsPeriodic() || j.IsParameterized() {
		s.Children = v.Children(j)
	}
	evals := v.EvalsOfJob(k)
	counted := map[string]bool{}
	for i := len(evals) - 1; i >= 0; i-- {
		for group, n := range evals[i].QueuedAllocations {
			if g, ok := s.Summary[group]; ok && !counted[group] {
				counted[group] = true
				g.Queued = n
				s.Summary[group] = g
			}
		}
	}
	return s
}

func (a *Agent) register(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.registerAs(w, r, "")
}

func (a *Agent) registerAs(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	var req api.JobRegisterRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	switch {
	case req.Job == nil:
		return nil, codef(400, "Job must be specified")
	case req.Job.ID == nil:
		return nil, codef(400, "Job ID hasn't been provided")
	case id != "" && *req.Job.ID != id:
		return nil, codef(400, "Job ID does not match name")
	}
	if region := a.regionFor(r, req.WriteRequest, req.Job); region != a.cfg.Region {
		return nil, a.forwardBody(w, r, region, &req)
	}
	setNamespace(r, req.WriteRequest, req.Job)
	resp, err := a.cfg.Server.Register(&req, a.acl.accessor(r))
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	return resp, nil
}

// setNamespace settles where a job goes: the request's namespace, else its
// body's, else the job's own.
func setNamespace(r *http.Request, write api.WriteRequest, job *api.Job) {
	ns := cmp.Or(r.URL.Query().Get("namespace"), write.Namespace, deref(job.Namespace), api.DefaultNamespace)
	job.Namespace = &ns
}

func (a *Agent) parseJob(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := a.acl.check(r, "parse-job", "submit-job"); err != nil {
		return nil, err
	}
	var req api.JobsParseRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if req.JobHCL == "" {
		return nil, codef(400, "Job spec is empty")
	}
	opts := jobhcl.Options{}
	if req.Variables != "" {
		opts.VarFiles = []jobhcl.VarFile{{Name: "input.vars", Src: []byte(req.Variables)}}
	}
	job, err := jobhcl.ParseWith([]byte(req.JobHCL), "input.hcl", opts)
	if err != nil {
		return nil, codef(400, "Failed to parse job: %v", err)
	}
	if req.Canonicalize {
		job.Canonicalize()
	}
	return job, nil
}

func (a *Agent) validateJob(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.JobValidateRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	if req.Job == nil {
		return nil, codef(400, "Job must be specified")
	}
	warnings, err := a.cfg.Server.Admit(req.Job)
	resp := &api.JobValidateResponse{DriverConfigValidated: true, Warnings: warnings}
	if err != nil {
		resp.Error = err.Error()
		for line := range strings.SplitSeq(err.Error(), "\n") {
			if s, ok := strings.CutPrefix(line, "\t* "); ok {
				resp.ValidationErrors = append(resp.ValidationErrors, s)
			}
		}
	}
	return resp, nil
}

// subresource is what the API has below a job.
type subresource struct {
	suffix, capability string
	h                  func(a *Agent, w http.ResponseWriter, r *http.Request, k state.Key) (any, error)
}

var subresources = []subresource{
	{"/evaluate", "read-job", (*Agent).evaluateJob},
	{"/allocations", "read-job", (*Agent).jobAllocations},
	{"/evaluations", "read-job", (*Agent).jobEvaluations},
	{"/plan", "submit-job", (*Agent).planJob},
	{"/summary", "read-job", (*Agent).jobSummary},
	{"/versions", "read-job", (*Agent).jobVersions},
	{"/revert", "submit-job", (*Agent).revertJob},
	{"/deployments", "read-job", (*Agent).jobDeployments},
	{"/deployment", "read-job", (*Agent).jobDeployment},
	{"/stable", "submit-job", (*Agent).stableJob},
	{"/scale", "", (*Agent).scaleJob},
	{"/dispatch", "dispatch-job", (*Agent).dispatchJob},
	{"/periodic/force", "submit-job", (*Agent).forceJob},
	{"/submission", "read-job", (*Agent).jobSubmission},
	{"/services", "read-job", func(*Agent, http.ResponseWriter, *http.Request, state.Key) (any, error) { return []any{}, nil }},
}

func (a *Agent) job(w http.ResponseWriter, r *http.Request) (any, error) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/job/")
	if id, name, ok := cutTag(path); ok {
		return a.tagJob(r, state.Key{Namespace: namespace(r), ID: id}, name)
	}
	for _, s := range subresources {
		if id, ok := strings.CutSuffix(path, s.suffix); ok {
			if err := a.acl.check(r, s.capability); err != nil {
				return nil, err
			}
			return s.h(a, w, r, state.Key{Namespace: namespace(r), ID: id})
		}
	}
	k := state.Key{Namespace: namespace(r), ID: path}
	switch r.Method {
	case http.MethodGet:
		if err := a.acl.check(r, "read-job"); err != nil {
			return nil, err
		}
		return a.read(func(v *state.View, _ *http.Request, _ query) result {
			j := v.Job(k)
			if j == nil {
				return result{index: v.TableIndex(state.Jobs), err: codef(404, "job not found")}
			}
			return result{obj: j, index: *j.ModifyIndex}
		})(w, r)
	case http.MethodPut, http.MethodPost:
		if err := a.acl.check(r, "submit-job"); err != nil {
			return nil, err
		}
		return a.registerAs(w, r, path)
	case http.MethodDelete:
		if err := a.acl.check(r, "submit-job"); err != nil {
			return nil, err
		}
		return a.deregister(w, r, k)
	}
	return nil, codef(405, "Invalid method")
}

func cutTag(path string) (id, name string, ok bool) {
	parts := strings.Split(path, "/")
	if len(parts) == 4 && parts[1] == "versions" && parts[3] == "tag" {
		return parts[0], parts[2], true
	}
	return "", "", false
}

func (a *Agent) tagJob(r *http.Request, k state.Key, name string) (any, error) {
	if err := a.acl.check(r, "submit-job"); err != nil {
		return nil, err
	}
	if r.Method == http.MethodDelete {
		return struct{}{}, a.cfg.Server.TagVersion(k, nil, name, nil)
	}
	var req api.TagVersionRequest
	if err := decode(r, &req); err != nil {
		return nil, err
	}
	version := &req.Version
	if req.Latest {
		if req.Version > 0 {
			return nil, codef(500, "version must be zero when tagging latest, got: %d", req.Version)
		}
		version = nil
	}
	tag := &api.JobVersionTag{Name: name, Description: req.Description, TaggedTime: a.cfg.Server.Now().UnixNano()}
	return tag, a.cfg.Server.TagVersion(k, version, name, tag)
}
