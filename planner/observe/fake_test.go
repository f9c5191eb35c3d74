package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/record"
)

// fakeNomad serves the reads that an Observer makes, counts them, and fails
// on demand.
type fakeNomad struct {
	*httptest.Server

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	index   uint64
	byPart  map[string]uint64
	nodes   map[string]*api.Node
	jobs    map[jobKey]*api.Job
	allocs  map[string]*api.AllocationListStub
	records map[jobKey]*record.Record
	// recordsErr comes with the records.
	recordsErr error
	sched      api.SchedulerConfiguration
	reads      map[string]int
	namespaces []string
	// token and policies (rules by name) are the caller's; nil: ACLs are off.
	token    *api.ACLToken
	policies map[string]string
	// denied says what is refused in which namespace.
	denied func(path, namespace string) bool
	// fail answers instead of the fake where it returns true.
	fail func(w http.ResponseWriter, path string) bool
}

func newFake(t *testing.T) *fakeNomad {
	f := &fakeNomad{
		changed: make(chan struct{}), index: 10,
		byPart: map[string]uint64{"jobs": 1, "nodes": 1, "allocations": 1, "vars": 1, "namespaces": 1},
		nodes:  map[string]*api.Node{}, jobs: map[jobKey]*api.Job{}, allocs: map[string]*api.AllocationListStub{},
		records: map[jobKey]*record.Record{}, reads: map[string]int{},
	}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeNomad) observer(t *testing.T, change ...func(*config.Config)) *Observer {
	t.Helper()
	c := config.Default()
	for _, f := range change {
		f(&c)
	}
	client, err := api.NewClient(&api.Config{Address: f.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return New(Options{Client: client, Records: f, Config: &c, Now: func() time.Time { return time.Unix(1000, 0) }})
}

// change does something to a part and advances its index, which it returns.
func (f *fakeNomad) change(part string, do func(index uint64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	f.byPart[part] = f.index
	do(f.index)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeNomad) putNode(n *api.Node) {
	f.change("nodes", func(i uint64) { n.ModifyIndex = i; f.nodes[n.ID] = n })
}

func (f *fakeNomad) putJob(j *api.Job) {
	f.change("jobs", func(i uint64) {
		j.ModifyIndex, j.JobModifyIndex = &i, &i
		f.jobs[jobKey{*j.Namespace, *j.ID}] = j
	})
}

func (f *fakeNomad) putAlloc(a *api.AllocationListStub) {
	f.change("allocations", func(i uint64) {
		a.ModifyIndex = i
		if a.CreateIndex == 0 {
			a.CreateIndex = i
		}
		f.allocs[a.ID] = a
	})
}

func (f *fakeNomad) putRecord(r *record.Record) {
	f.change("vars", func(i uint64) { r.ModifyIndex = i; f.records[jobKey{r.Namespace, r.JobID}] = r })
}

func (f *fakeNomad) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads[path]
}

func (f *fakeNomad) failWith(fail func(w http.ResponseWriter, path string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *fakeNomad) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	perPage := r.URL.Query().Get("per_page")
	if perPage == "" {
		f.reads[path]++
	}
	if f.fail != nil && f.fail(w, path) {
		return
	}
	if f.denied != nil && f.denied(path, r.URL.Query().Get("namespace")) {
		http.Error(w, "Permission denied", http.StatusForbidden)
		return
	}
	if path == "acl/token/self" && f.token == nil {
		http.Error(w, "ACL support disabled", http.StatusBadRequest)
		return
	}
	part, _, _ := strings.Cut(path, "/")
	part = map[string]string{"job": "jobs", "node": "nodes"}[part] + map[bool]string{true: part}[part != "job" && part != "node"]
	var after uint64
	_, _ = fmt.Sscan(r.URL.Query().Get("index"), &after)
	for after > 0 && f.byPart[part] <= after {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		f.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
	body := f.body(path, r.URL.Query().Get("namespace"))
	if body == nil {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	w.Header().Set("X-Nomad-Index", fmt.Sprint(f.byPart[part]))
	_ = json.NewEncoder(w).Encode(body)
}

func (f *fakeNomad) body(path, namespace string) any {
	switch {
	case path == "jobs":
		out := []*api.JobListStub{}
		for _, j := range f.jobs {
			out = append(out, &api.JobListStub{ID: *j.ID, Namespace: *j.Namespace, Type: *j.Type, Stop: deref(j.Stop), Status: deref(j.Status),
				ModifyIndex: *j.ModifyIndex, JobModifyIndex: *j.JobModifyIndex, Periodic: j.Periodic != nil})
		}
		return out
	case path == "nodes":
		out := []*api.NodeListStub{}
		for _, n := range f.nodes {
			out = append(out, &api.NodeListStub{ID: n.ID, ModifyIndex: n.ModifyIndex})
		}
		return out
	case path == "allocations":
		return append([]*api.AllocationListStub{}, slices.Collect(maps.Values(f.allocs))...)
	case path == "vars":
		return []any{}
	case path == "namespaces":
		out := []*api.Namespace{}
		for _, name := range f.namespaces {
			out = append(out, &api.Namespace{Name: name})
		}
		return out
	case path == "acl/token/self":
		return f.token
	case strings.HasPrefix(path, "acl/policy/"):
		if rules, ok := f.policies[strings.TrimPrefix(path, "acl/policy/")]; ok {
			return &api.ACLPolicy{Rules: rules}
		}
	case path == "operator/scheduler/configuration":
		return api.SchedulerConfigurationResponse{SchedulerConfig: &f.sched}
	case strings.HasPrefix(path, "node/"):
		if n, ok := f.nodes[strings.TrimPrefix(path, "node/")]; ok {
			return n
		}
	case strings.HasPrefix(path, "job/"):
		if j, ok := f.jobs[jobKey{namespace, strings.TrimPrefix(path, "job/")}]; ok {
			return j
		}
	}
	return nil
}

// List makes the fake the store of records.
func (f *fakeNomad) List(context.Context) ([]*record.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads["records"]++
	return slices.Collect(maps.Values(f.records)), f.recordsErr
}

func ptr[T any](v T) *T { return &v }

// node draws a ready node with n GPUs named NAME-0, NAME-1, …
func node(name string, n int) *api.Node {
	d := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H100", Attributes: map[string]*api.Attribute{
		"memory":         {IntVal: ptr(int64(81920)), Unit: "MiB"},
		"driver_version": {StringVal: ptr("535.104")},
	}}
	for i := range n {
		d.Instances = append(d.Instances, &api.NodeDevice{ID: fmt.Sprintf("%s-%d", name, i), Healthy: true})
	}
	return &api.Node{
		ID: "id-" + name, Name: name, Datacenter: "dc1", NodePool: "default", Status: api.NodeStatusReady,
		SchedulingEligibility: api.NodeSchedulingEligible,
		Attributes:            map[string]string{"kernel.name": "linux", "driver.raw_exec": "1"},
		Meta:                  map[string]string{"caravan_rack": "r1"},
		NodeResources: &api.NodeResources{
			Cpu:    api.NodeCpuResources{CpuShares: 10000, ReservableCpuCores: []uint16{0, 1, 2, 3}},
			Memory: api.NodeMemoryResources{MemoryMB: 64000}, Disk: api.NodeDiskResources{DiskMB: 90000},
			Devices: []*api.NodeDeviceResource{d},
		},
		ReservedResources: &api.NodeReservedResources{
			Cpu: api.NodeReservedCpuResources{CpuShares: 500}, Memory: api.NodeReservedMemoryResources{MemoryMB: 1000},
			Networks: api.NodeReservedNetworkResources{ReservedHostPorts: "22,8000-8002"},
		},
	}
}

// gpuJob draws a gang job that asks for GPUs.
func gpuJob(id string, count, gpus int) *api.Job {
	g := api.NewTaskGroup("workers", count)
	task := api.NewTask("train", "raw_exec")
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(gpus))}}}
	g.AddTask(task)
	j := api.NewBatchJob(id, id, "global", 50)
	j.Namespace, j.Status, j.SubmitTime = ptr("default"), ptr("pending"), ptr(time.Unix(900, 0).UnixNano())
	j.SetMeta("caravan_gang", "job")
	return j.AddTaskGroup(g)
}

func alloc(id, job, group, node string, index int, gpus ...string) *api.AllocationListStub {
	return &api.AllocationListStub{
		ID: id, Namespace: "default", JobID: job, TaskGroup: group, NodeID: node, Name: fmt.Sprintf("%s.%s[%d]", job, group, index),
		DesiredStatus: "run", ClientStatus: "running", JobType: "batch",
		AllocatedResources: &api.AllocatedResources{
			Tasks: map[string]*api.AllocatedTaskResources{"train": {
				Cpu: api.AllocatedCpuResources{CpuShares: 100}, Memory: api.AllocatedMemoryResources{MemoryMB: 300},
				Devices: []*api.AllocatedDeviceResource{{Vendor: "nvidia", Type: "gpu", Name: "H100", DeviceIDs: gpus}},
			}},
			Shared: api.AllocatedSharedResources{DiskMB: 300, Ports: []api.PortMapping{{Value: 25000}}},
		},
	}
}
