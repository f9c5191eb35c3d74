package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/rewrite"
)

// seen is a request as it reached the fake Nomad.
type seen struct {
	Method, Path, Query string
	Header              http.Header
	Body                []byte
}

// fakeNomad is the part of Nomad's HTTP API that registers jobs, with Nomad's
// own mux behaviour (net/http's), order of checks and error texts as far as
// clients read them. It can fail on demand.
type fakeNomad struct {
	mu       sync.Mutex
	changed  chan struct{}
	index    uint64
	jobs     map[string]*api.Job
	versions map[string][]*api.Job
	allocs   map[string]*api.Allocation
	// events are the texts of scaling events.
	events   []string
	evals    map[string][]*api.Evaluation
	requests []seen
	// tokens, when set, are those that may register.
	tokens map[string]bool
	// fail answers a request instead of Nomad when it returns true.
	fail func(w http.ResponseWriter, r *http.Request, body []byte) bool
	// plan, when set, is the answer to a plan.
	plan func(req api.JobPlanRequest) api.JobPlanResponse
	mux  *http.ServeMux
	// region is the only one.
	region string
}

func newFakeNomad() *fakeNomad {
	f := &fakeNomad{
		index: 100, jobs: map[string]*api.Job{}, versions: map[string][]*api.Job{}, allocs: map[string]*api.Allocation{}, evals: map[string][]*api.Evaluation{},
		changed: make(chan struct{}), mux: http.NewServeMux(),
	}
	f.mux.HandleFunc("/v1/jobs", f.register(""))
	f.mux.HandleFunc("/v1/job/", func(w http.ResponseWriter, r *http.Request) {
		rest := strings.TrimPrefix(r.URL.Path, "/v1/job/")
		for _, s := range subResources {
			if id, ok := strings.CutSuffix(rest, s); ok {
				f.sub(w, r, id, s)
				return
			}
		}
		switch r.Method {
		case http.MethodGet:
			f.get(w, r, rest)
			return
		case http.MethodDelete:
			f.deregister(w, r, rest)
			return
		}
		f.register(rest)(w, r)
	})
	f.mux.HandleFunc("/v1/regions", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode([]string{f.region})
	})
	f.mux.HandleFunc("/v1/allocation/", f.allocation)
	f.mux.HandleFunc("/v1/client/allocation/", f.allocation)
	f.mux.HandleFunc("/v1/acl/token/self", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"AccessorID": "acc-1", "Name": "alice"})
	})
	// Its own jobs make no deployments.
	f.mux.HandleFunc("/v1/deployments", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Nomad-Index", "90")
		_, _ = io.WriteString(w, "[]")
	})
	f.mux.HandleFunc("/v1/deployment/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "deployment not found", http.StatusNotFound)
	})
	return f
}

func (f *fakeNomad) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.mu.Lock()
	f.requests = append(f.requests, seen{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), body})
	fail := f.fail
	f.mu.Unlock()
	if fail != nil && fail(w, r, body) {
		return
	}
	f.mux.ServeHTTP(w, r)
}

func (f *fakeNomad) allowed(r *http.Request) bool {
	return f.tokens == nil || f.tokens[r.Header.Get("X-Nomad-Token")]
}

// register follows Nomad's order: decode, rights, index.
func (f *fakeNomad) register(pathID string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "[]")
			return
		}
		if r.Method != http.MethodPut && r.Method != http.MethodPost {
			http.Error(w, "Invalid method", http.StatusMethodNotAllowed)
			return
		}
		var req api.JobRegisterRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Job == nil || req.Job.ID == nil || (pathID != "" && *req.Job.ID != pathID) {
			http.Error(w, "bad job", http.StatusBadRequest)
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.allowed(r) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "Permission denied")
			return
		}
		ns := namespaceOf(r, req.WriteRequest, req.Job)
		req.Job.Namespace = &ns
		key := ns + "/" + *req.Job.ID
		old := f.jobs[key]
		var now uint64
		if old != nil {
			now = *old.JobModifyIndex
		}
		if req.EnforceIndex && req.JobModifyIndex != now {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = fmt.Fprintf(w, "%s %d: conflict", api.RegisterEnforceIndexErrPrefix, req.JobModifyIndex)
			return
		}
		resp := f.store(key, req.Job)
		w.Header().Set("X-Nomad-Index", strconv.FormatUint(f.index, 10))
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"EvalID":%q,"EvalCreateIndex":%d,"JobModifyIndex":%d,"Warnings":"nomad says","Index":%d,"KnownLeader":false,"LastContact":0,"Newer":"field"}`,
			resp.EvalID, resp.EvalCreateIndex, resp.JobModifyIndex, f.index)
	}
}

// store puts a job in under the next index, with an evaluation. f.mu is held.
func (f *fakeNomad) store(key string, job *api.Job) api.JobRegisterResponse {
	f.index++
	index, status, stop := f.index, "pending", false
	job.JobModifyIndex, job.ModifyIndex, job.Status, job.Stop = &index, &index, &status, &stop
	job.Version = new(uint64(len(f.versions[key])))
	f.jobs[key] = job
	f.versions[key] = append(f.versions[key], job)
	e := &api.Evaluation{
		ID: fmt.Sprintf("eval-%d", index), JobID: *job.ID, CreateIndex: index, ModifyIndex: index, JobModifyIndex: index,
		Status: api.EvalStatusComplete, TriggeredBy: "job-register",
	}
	f.evals[key] = append(f.evals[key], e)
	if rewrite.IsGated(job) {
		f.evals[key] = append(f.evals[key], &api.Evaluation{ID: e.ID + "-blocked", JobID: *job.ID, CreateIndex: index + 1, Status: api.EvalStatusBlocked})
		f.index++
	}
	close(f.changed)
	f.changed = make(chan struct{})
	return api.JobRegisterResponse{EvalID: e.ID, EvalCreateIndex: index, JobModifyIndex: index}
}

func (f *fakeNomad) get(w http.ResponseWriter, r *http.Request, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	job := f.jobs[queryNamespace(r)+"/"+id]
	if job == nil {
		http.Error(w, "job not found", http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(job)
}

func (f *fakeNomad) sub(w http.ResponseWriter, r *http.Request, id, what string) {
	key := queryNamespace(r) + "/" + id
	switch what {
	case "/versions", "/revert", "/scale", "/dispatch", "/allocations", "/submission", "/summary":
		f.more(w, r, key, what)
	case "/evaluations":
		f.evaluations(w, r, key)
	case "/deployments":
		w.Header().Set("X-Nomad-Index", "90")
		_, _ = io.WriteString(w, "[]")
	case "/evaluate":
		f.mu.Lock()
		defer f.mu.Unlock()
		f.index++
		e := &api.Evaluation{ID: fmt.Sprintf("eval-forced-%d", f.index), CreateIndex: f.index, Status: api.EvalStatusComplete}
		f.evals[key] = append(f.evals[key], e)
		_ = json.NewEncoder(w).Encode(map[string]any{"EvalID": e.ID, "EvalCreateIndex": f.index, "JobModifyIndex": f.index})
	case "/plan":
		var req api.JobPlanRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Job == nil {
			http.Error(w, "bad job", http.StatusBadRequest)
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.allowed(r) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "Permission denied")
			return
		}
		resp := api.JobPlanResponse{FailedTGAllocs: map[string]*api.AllocationMetric{"train": {}}}
		if !rewrite.IsGated(req.Job) {
			resp.FailedTGAllocs = nil
		}
		if f.plan != nil {
			resp = f.plan(req)
		}
		if job := f.jobs[namespaceOf(r, req.WriteRequest, req.Job)+"/"+id]; job != nil {
			resp.JobModifyIndex = *job.JobModifyIndex
		}
		_ = json.NewEncoder(w).Encode(resp)
	default:
		_, _ = io.WriteString(w, "{}")
	}
}

func (f *fakeNomad) evaluations(w http.ResponseWriter, r *http.Request, key string) {
	wait, _ := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64)
	for {
		f.mu.Lock()
		index, changed, evals := f.index, f.changed, f.evals[key]
		f.mu.Unlock()
		if index > wait {
			w.Header().Set("X-Nomad-Index", strconv.FormatUint(index, 10))
			w.Header().Set("X-Nomad-LastContact", "0")
			w.Header().Set("X-Nomad-KnownLeader", "true")
			_ = json.NewEncoder(w).Encode(evals)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fakeNomad) job(t *testing.T, key string) *api.Job {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.jobs[key]
}

// writes are the requests that reached Nomad and changed something there.
func (f *fakeNomad) registrations() []api.JobRegisterRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []api.JobRegisterRequest
	for _, s := range f.requests {
		if s.Method == http.MethodGet || !bytes.Contains(s.Body, []byte(`"Job"`)) || strings.HasSuffix(s.Path, "/plan") {
			continue
		}
		var req api.JobRegisterRequest
		if json.Unmarshal(s.Body, &req) == nil && req.JobModifyIndex != neverIndex {
			out = append(out, req)
		}
	}
	return out
}
