package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// more is what the fake Nomad knows of jobs beside registrations, with Nomad's
// order of checks and texts.
func (f *fakeNomad) more(w http.ResponseWriter, r *http.Request, key, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.jobs[key]
	writes := r.Method != http.MethodGet
	switch {
	case writes && !f.allowed(r):
		refuse(w, http.StatusForbidden, "Permission denied")
	case job == nil:
		refuse(w, http.StatusNotFound, "job not found")
	case what == "/versions":
		list := slices.Clone(f.versions[key])
		slices.Reverse(list)
		reply := map[string]any{"Versions": list, "Diffs": nil, "Index": f.index}
		_ = json.NewEncoder(w).Encode(reply)
	case what == "/revert":
		f.revert(w, r, key, job)
	case what == "/scale" && writes:
		f.scale(w, r, key, job)
	case what == "/scale":
		_ = json.NewEncoder(w).Encode(map[string]any{"JobID": *job.ID, "TaskGroups": perGroup(job, func(n int) any {
			return map[string]any{"Desired": n, "Running": n, "Events": []any{map[string]any{}}}
		})})
	case what == "/summary":
		groups := perGroup(job, func(n int) any { return map[string]any{"Running": n, "Queued": 0} })
		// Nomad keeps what it last counted of groups that the job has lost.
		for _, version := range f.versions[key] {
			for _, g := range version.TaskGroups {
				if _, ok := groups[*g.Name]; !ok {
					groups[*g.Name] = map[string]any{"Running": 0, "Queued": *g.Count}
				}
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"JobID": *job.ID, "Summary": groups})
	case what == "/dispatch":
		f.dispatch(w, r, job)
	case what == "/allocations":
		var stubs []*api.AllocationListStub
		for _, a := range f.allocs {
			if a.Namespace+"/"+a.JobID == key {
				stubs = append(stubs, a.Stub())
			}
		}
		_ = json.NewEncoder(w).Encode(stubs)
	default:
		refuse(w, http.StatusNotFound, "job source not found")
	}
}

func perGroup(job *api.Job, of func(count int) any) map[string]any {
	out := map[string]any{}
	for _, g := range job.TaskGroups {
		out[*g.Name] = of(*g.Count)
	}
	return out
}

func (f *fakeNomad) revert(w http.ResponseWriter, r *http.Request, key string, job *api.Job) {
	var req api.JobRevertRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	switch {
	case req.JobVersion == *job.Version:
		refuse(w, http.StatusInternalServerError, "can't revert to current version")
	case req.JobVersion >= uint64(len(f.versions[key])):
		refuse(w, http.StatusInternalServerError, "job %q in namespace %q at version %d not found", *job.ID, *job.Namespace, req.JobVersion)
	case req.EnforcePriorVersion != nil && *req.EnforcePriorVersion != *job.Version:
		refuse(w, http.StatusInternalServerError, "Current job has version %d; enforcing version %d", *job.Version, *req.EnforcePriorVersion)
	default:
		copied, _ := gangspec.Copy(f.versions[key][req.JobVersion])
		stop := copied.Stop
		resp := f.store(key, copied)
		if copied.Stop = stop; deref(stop) {
			copied.Status = new("dead")
		}
		_ = json.NewEncoder(w).Encode(resp)
	}
}

func (f *fakeNomad) scale(w http.ResponseWriter, r *http.Request, key string, job *api.Job) {
	var req api.ScalingRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	group := groupOf(job, req.Target["Group"])
	if group == nil {
		refuse(w, http.StatusBadRequest, "task group %q specified for scaling does not exist in job", req.Target["Group"])
		return
	}
	if req.Count == nil {
		f.events = append(f.events, req.Message)
		_, _ = io.WriteString(w, "{}")
		return
	}
	copied, _ := gangspec.Copy(job)
	groupOf(copied, *group.Name).Count = new(int(*req.Count))
	_ = json.NewEncoder(w).Encode(f.store(key, copied))
}

func (f *fakeNomad) dispatch(w http.ResponseWriter, r *http.Request, job *api.Job) {
	var req api.JobDispatchRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	config := job.ParameterizedJob
	if config == nil {
		refuse(w, http.StatusInternalServerError, "Specified job %q is not a parameterized job", *job.ID)
		return
	}
	if config.Payload == "required" && len(req.Payload) == 0 {
		refuse(w, http.StatusInternalServerError, "Payload is not provided but required by parameterized job")
		return
	}
	for key := range req.Meta {
		if !allows(config, key) {
			refuse(w, http.StatusInternalServerError, "Dispatch request included unpermitted metadata keys: [%s]", key)
			return
		}
	}
	child, _ := gangspec.Copy(job)
	child.ID = new(*job.ID + "/dispatch-by-nomad")
	child.Dispatched, child.ParameterizedJob = true, nil
	f.store(*job.Namespace+"/"+*child.ID, child)
	_ = json.NewEncoder(w).Encode(map[string]any{"DispatchedJobID": *child.ID})
}

func (f *fakeNomad) deregister(w http.ResponseWriter, r *http.Request, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := queryNamespace(r) + "/" + id
	job := f.jobs[key]
	if job == nil || !f.allowed(r) {
		refuse(w, http.StatusForbidden, "Permission denied")
		return
	}
	copied, _ := gangspec.Copy(job)
	f.store(key, copied)
	copied.Stop, copied.Status = new(true), new("dead")
	for _, a := range f.allocs {
		if a.Namespace+"/"+a.JobID == key {
			a.DesiredStatus = api.AllocDesiredStatusStop
		}
	}
	if r.URL.Query().Get("purge") == "true" {
		delete(f.jobs, key)
	}
	_, _ = io.WriteString(w, `{"EvalID":"eval-stop"}`)
}

// place makes the allocations of a pinned job, as Nomad's scheduler would.
func (f *fakeNomad) place(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.jobs[key]
	for _, g := range job.TaskGroups {
		if !rewrite.MayPlace(g) {
			continue
		}
		for i := range *g.Count {
			f.index++
			id := fmt.Sprintf("alloc-%s-%d", *g.Name, i)
			f.allocs[id] = &api.Allocation{
				ID: id, Namespace: *job.Namespace, JobID: *job.ID, Job: job, TaskGroup: *g.Name, Name: fmt.Sprintf("%s.%s[%d]", *job.ID, *g.Name, i),
				DesiredStatus: api.AllocDesiredStatusRun, ClientStatus: api.AllocClientStatusRunning, EvalID: "eval-placed",
				CreateIndex: f.index, ModifyIndex: f.index,
			}
		}
	}
}

// allocation serves what is asked of one allocation.
func (f *fakeNomad) allocation(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v1/client/allocation/"), "/v1/allocation/")
	id, what, _ := strings.Cut(rest, "/")
	a := f.allocs[id]
	switch {
	case a == nil:
		refuse(w, http.StatusNotFound, "alloc not found")
	case what == "" && (f.allowed(r) || r.Header.Get("X-Nomad-Token") == "planner"):
		_ = json.NewEncoder(w).Encode(a)
	case !f.allowed(r):
		refuse(w, http.StatusForbidden, "Permission denied")
	case what == "stop":
		a.DesiredStatus = api.AllocDesiredStatusStop
		_, _ = fmt.Fprintf(w, `{"EvalID":"eval-of-%s","Index":%d}`, id, f.index)
	default:
		_, _ = io.WriteString(w, "{}")
	}
}

// did lists what was asked of allocations: "stop alloc-x".
func (f *fakeNomad) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, s := range f.requests {
		if s.Method == http.MethodGet || !strings.Contains(s.Path, "/allocation/") {
			continue
		}
		parts := strings.Split(s.Path, "/")
		out = append(out, parts[len(parts)-1]+" "+parts[len(parts)-2])
	}
	slices.Sort(out)
	return out
}
