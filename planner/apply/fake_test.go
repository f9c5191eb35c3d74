package apply_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/record"
)

// fakeNomad is as much of Nomad as the executor talks to, with a scheduler
// that understands gates and pins, and the records. Every write asks fail
// first, so that a test can let any of them go wrong.
type fakeNomad struct {
	t      *testing.T
	client *api.Client

	mu    sync.Mutex
	now   time.Time
	index uint64
	nodes []string
	down  map[string]bool
	// unusable says why nothing new may be placed on a node; sick and hidden
	// are GPUs that are unhealthy or not listed.
	unusable map[string]string
	sick     map[string]string
	hidden   map[string]bool
	jobs     map[string]*api.Job
	allocs   []*api.AllocationListStub
	records  map[string]record.Record
	writes   int
	// retried are failed allocations that Nomad starts again elsewhere in their
	// group.
	retried map[string]bool
	// made is what each allocation was made of, see says.
	made map[string]string
	// fail is asked before (after false) and after each write; a status other
	// than 0 is the answer then, -1 is an answer that makes no sense.
	fail func(n int, what string, after bool) int
	// planned runs after each dry-run, for what happens in between.
	planned func()
	log     []string
}

const gpusPerNode = 8

func newFake(t *testing.T, nodes int) *fakeNomad {
	t.Helper()
	f := &fakeNomad{t: t, now: time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC), index: 100,
		made: map[string]string{}, retried: map[string]bool{}, down: map[string]bool{}, unusable: map[string]string{}, sick: map[string]string{}, hidden: map[string]bool{}, jobs: map[string]*api.Job{}, records: map[string]record.Record{}}
	for i := range nodes {
		f.nodes = append(f.nodes, fmt.Sprintf("%08x-node", uint32(i+1)*2654435761))
	}
	slices.Sort(f.nodes)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	client, err := api.NewClient(&api.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	f.client = client
	return f
}

func gpu(node string, i int) string { return fmt.Sprintf("GPU-%s-%d", node, i) }

// write lets one write happen or fail.
func (f *fakeNomad) write(what string, do func() error) (status int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	n := f.writes
	f.log = append(f.log, what)
	if f.fail != nil {
		if status := f.fail(n, what, false); status != 0 {
			return status, nil
		}
	}
	if err := do(); err != nil {
		return 0, err
	}
	if f.fail != nil {
		return f.fail(n, what, true), nil
	}
	return 0, nil
}

var errConflict = errors.New(api.RegisterEnforceIndexErrPrefix + " 1: job exists with conflicting job modify index: 2")

func (f *fakeNomad) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var out any
	do := func() error { return fmt.Errorf("unexpected request %s %s", r.Method, r.URL.Path) }
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	switch {
	case r.URL.Path == "/v1/jobs":
		var req api.JobRegisterRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		do = func() error { return f.register(&req) }
		out = api.JobRegisterResponse{}
	case parts[0] == "job" && parts[2] == "plan":
		f.plan(w, r, parts[1])
		return
	case parts[0] == "job" && parts[2] == "evaluate":
		do = func() error { f.reschedule(parts[1]); return nil }
		out = api.JobRegisterResponse{}
	case parts[0] == "job" && parts[2] == "submission":
		http.Error(w, "no submission", http.StatusNotFound)
		return
	case parts[0] == "allocation" && len(parts) == 2:
		_ = json.NewEncoder(w).Encode(api.Allocation{ID: parts[1], TaskStates: map[string]*api.TaskState{"t": {Failed: true,
			Events: []*api.TaskEvent{{Type: api.TaskTerminated, DisplayMessage: "Exit Code: 3"}}}}})
		return
	case parts[0] == "allocation" && parts[2] == "stop":
		do = func() error { f.stopAlloc(parts[1]); return nil }
		out = api.AllocStopResponse{}
	}
	status, err := f.write(strings.Join(parts, " "), do)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case status > 0:
		http.Error(w, "told to fail", status)
	case status < 0:
		_, _ = w.Write([]byte("<html>hello</html>"))
	default:
		_ = json.NewEncoder(w).Encode(out)
	}
}

func (f *fakeNomad) register(req *api.JobRegisterRequest) error {
	job := req.Job
	old := f.jobs[*job.ID]
	if req.EnforceIndex && (old == nil) != (req.JobModifyIndex == 0) || req.EnforceIndex && old != nil && *old.JobModifyIndex != req.JobModifyIndex {
		return errConflict
	}
	f.index++
	job.Canonicalize()
	job.JobModifyIndex, job.Version, job.SubmitTime = ptr(f.index), ptr(uint64(0)), ptr(f.now.UnixNano())
	job.Status = ptr("pending")
	if old != nil {
		job.Version = ptr(*old.Version + 1)
	}
	f.jobs[*job.ID] = job
	for _, a := range f.allocs {
		if a.JobID == *job.ID && job.LookupTaskGroup(a.TaskGroup) == nil && a.DesiredStatus == "run" {
			a.DesiredStatus = "stop"
		}
	}
	f.update(job)
	f.schedule(job, true)
	return nil
}

// occupy gives a GPU to a job that is nobody's business.
func (f *fakeNomad) occupy(id, node string, gpuIndex int) *api.AllocationListStub {
	a := &api.AllocationListStub{ID: id, JobID: id, TaskGroup: "t", NodeID: node, DesiredStatus: "run", ClientStatus: "running",
		AllocatedResources: &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{"t": {Devices: []*api.AllocatedDeviceResource{{DeviceIDs: []string{gpu(node, gpuIndex)}}}}}}}
	f.allocs = append(f.allocs, a)
	return a
}

func (f *fakeNomad) plan(w http.ResponseWriter, r *http.Request, id string) {
	var req api.JobPlanRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	status, _ := f.write("job "+id+" plan", func() error { return nil })
	if status != 0 {
		http.Error(w, "told to fail", max(status, 500))
		return
	}
	f.mu.Lock()
	req.Job.Canonicalize()
	req.Job.Version = ptr(uint64(1 << 40))
	out := api.JobPlanResponse{FailedTGAllocs: f.schedule(req.Job, false), JobModifyIndex: *f.jobs[id].JobModifyIndex}
	f.mu.Unlock()
	if f.planned != nil {
		f.planned()
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (f *fakeNomad) stopAlloc(id string) {
	for _, a := range f.allocs {
		if a.ID == id {
			a.DesiredStatus = "stop"
		}
	}
}

// Put and Delete make the fake the records' store, too.
func (f *fakeNomad) Put(_ context.Context, rec *record.Record) error {
	status, err := f.write("record "+string(rec.Phase), func() error {
		key := rec.Namespace + "/" + rec.JobID
		if f.records[key].ModifyIndex != rec.ModifyIndex {
			return record.ErrConflict
		}
		f.index++
		next := *rec
		next.ModifyIndex = f.index
		f.records[key] = next
		rec.ModifyIndex = f.index
		return nil
	})
	if err == nil && status != 0 {
		err = context.DeadlineExceeded
	}
	return err
}

func (f *fakeNomad) Delete(_ context.Context, rec *record.Record) error {
	_, err := f.write("forget", func() error { delete(f.records, rec.Namespace+"/"+rec.JobID); return nil })
	return err
}

// tick lets a second pass: clients report what was told to stop.
func (f *fakeNomad) tick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(time.Second)
	for _, a := range f.allocs {
		if job := f.jobs[a.JobID]; job != nil && a.DesiredStatus == "run" && a.ClientStatus == "running" && a.DeploymentStatus == nil {
			if g := job.LookupTaskGroup(a.TaskGroup); g != nil {
				a.DeploymentStatus = &api.AllocDeploymentStatus{Healthy: ptr(g.Tasks[0].Env["BAD"] == "")}
			}
		}
		if a.DesiredStatus == "stop" && a.ClientStatus == "running" && !f.down[a.NodeID] {
			a.ClientStatus = "complete"
		}
	}
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// submit registers a user's job behind everybody's back.
func (f *fakeNomad) submit(job *api.Job) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.register(&api.JobRegisterRequest{Job: job}); err != nil {
		f.t.Fatal(err)
	}
}

func options() apply.Options {
	return apply.Options{Deadline: 5 * time.Second, RetryInitial: 2 * time.Second, RetryMax: 20 * time.Second, Settle: 3 * time.Second,
		Sick: 4 * time.Second, Vanished: 8 * time.Second,
		Link: func(ns, job string) string { return "http://caravan/" + ns + "/" + job }}
}
