package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// inMemory lets a client talk to a handler without a network.
type inMemory struct{ handler http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	m.handler.ServeHTTP(w, in)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

// memoryRecords are Records that fail on demand.
type memoryRecords struct {
	mu    sync.Mutex
	index uint64
	data  map[string]record.Record
	// beforePut runs before each Put, without the lock.
	beforePut func(rec *record.Record) error
	puts      int
}

func (m *memoryRecords) Get(_ context.Context, namespace, job string) (*record.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rec, ok := m.data[namespace+"/"+job]
	if !ok {
		return nil, record.ErrNotFound
	}
	return &rec, nil
}

func (m *memoryRecords) List(context.Context) ([]*record.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*record.Record
	for _, key := range slices.Sorted(maps.Keys(m.data)) {
		rec := m.data[key]
		out = append(out, &rec)
	}
	return out, nil
}

func (m *memoryRecords) Put(_ context.Context, rec *record.Record) error {
	if m.beforePut != nil {
		if err := m.beforePut(rec); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := rec.Namespace + "/" + rec.JobID
	if m.data[key].ModifyIndex != rec.ModifyIndex {
		return fmt.Errorf("put: %w", record.ErrConflict)
	}
	m.index++
	m.puts++
	rec.ModifyIndex = m.index
	m.data[key] = *rec
	return nil
}

func (m *memoryRecords) Delete(_ context.Context, rec *record.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := rec.Namespace + "/" + rec.JobID
	if m.data[key].ModifyIndex != rec.ModifyIndex {
		return fmt.Errorf("delete: %w", record.ErrConflict)
	}
	delete(m.data, key)
	return nil
}

// waiterFunc is a Waiter.
type waiterFunc func(ctx context.Context, namespace, job, hash string) (httpapi.Explain, error)

func (f waiterFunc) WaitDecision(ctx context.Context, namespace, job, hash string) (httpapi.Explain, error) {
	return f(ctx, namespace, job, hash)
}

// rig is a gateway in front of a fake Nomad.
type rig struct {
	nomad   *fakeNomad
	records *memoryRecords
	gateway *Gateway
	wait    waiterFunc
}

var submitted = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{nomad: newFakeNomad(), records: &memoryRecords{data: map[string]record.Record{}}}
	r.wait = func(context.Context, string, string, string) (httpapi.Explain, error) {
		return httpapi.Explain{Job: httpapi.Job{Reason: "needs 2 nodes; 1 is free", Position: 4}, Action: "wait"}, nil
	}
	client, err := api.NewClient(&api.Config{Address: "http://nomad.test", SecretID: "planner", HttpClient: &http.Client{Transport: inMemory{r.nomad}}})
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	cfg := Config{
		Nomad:   &url.URL{Scheme: "http", Host: "nomad.test"},
		Client:  client,
		Managed: func(job *api.Job) bool { return gangspec.Managed(job, gangspec.DefaultDevices) },
		Records: r.records,
		Cluster: func(context.Context) (*rewrite.Cluster, error) {
			return rewrite.NewCluster([]rewrite.Node{{ID: "aaaaaaaa-0001", GPUs: 8}, {ID: "bbbbbbbb-0002", GPUs: 8}}, nil), nil
		},
		Waiter: waiterFunc(func(ctx context.Context, ns, job, hash string) (httpapi.Explain, error) {
			return r.wait(ctx, ns, job, hash)
		}),
		Link: func(namespace, job string) string { return "http://caravan/" + namespace + "/" + job },
		Now:  func() time.Time { return submitted },
	}
	for _, c := range change {
		c(&cfg)
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatalf("make gateway: %v", err)
	}
	g.http.Transport = inMemory{r.nomad}
	g.proxy.Transport = inMemory{r.nomad}
	r.gateway = g
	return r
}

// do sends a request through the gateway.
func (r *rig) do(method, target string, body []byte, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, bytes.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	r.gateway.ServeHTTP(w, req)
	return w
}

// gang is a managed job; change adapts it.
func gang(change ...func(*api.Job)) *api.Job {
	job := api.NewBatchJob("train", "train", "", 50)
	job.Region, job.Datacenters = nil, []string{"dc1"}
	task := api.NewTask("main", "raw_exec")
	task.SetConfig("command", "/bin/true")
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(8))}}}
	job.AddTaskGroup(api.NewTaskGroup("train", 2).AddTask(task))
	job.SetMeta("caravan_gang", "job")
	for _, c := range change {
		c(job)
	}
	return job
}

func registration(t testing.TB, job *api.Job, change ...func(*api.JobRegisterRequest)) []byte {
	t.Helper()
	req := api.JobRegisterRequest{Job: job, Submission: &api.JobSubmission{Source: "job \"train\" {}", Format: "hcl2"}}
	for _, c := range change {
		c(&req)
	}
	return encode(t, req)
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return data
}

func decodeAnswer[T any](t testing.TB, w *httptest.ResponseRecorder) T {
	t.Helper()
	var out T
	if w.Code != http.StatusOK {
		t.Fatalf("status = %d: %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("decode answer: %v: %s", err, w.Body)
	}
	return out
}
