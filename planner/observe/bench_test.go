package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/record"
)

// largeNomad serves a large cluster whose answers are encoded beforehand, so
// that what is measured is the reader.
type largeNomad struct {
	*httptest.Server
	nodes   map[string][]byte
	stubs   []byte
	list    [][]byte // the allocations
	body    []byte   // the same as one answer
	allocs  []*api.AllocationListStub
	indexes map[string]uint64
	bytes   atomic.Int64
}

func newLarge(b *testing.B, nodes, allocs int) *largeNomad {
	f := &largeNomad{nodes: map[string][]byte{}, indexes: map[string]uint64{"jobs": 1, "nodes": 2, "allocations": 10, "vars": 1, "namespaces": 1}}
	encode := func(x any) []byte {
		out, err := json.Marshal(x)
		if err != nil {
			b.Fatal(err)
		}
		return out
	}
	var stubs []*api.NodeListStub
	for i := range nodes {
		n := node(fmt.Sprintf("gpu-%05d", i), 8)
		n.ModifyIndex, n.Meta["caravan_rack"] = 2, fmt.Sprintf("r%d", i/32)
		for k := range 40 {
			n.Attributes[fmt.Sprintf("attribute.%d", k)] = fmt.Sprintf("value %d", k)
		}
		f.nodes[n.ID] = encode(n)
		stubs = append(stubs, &api.NodeListStub{ID: n.ID, Name: n.Name, ModifyIndex: 2, Attributes: map[string]string{"os.name": "linux"}})
	}
	f.stubs = encode(stubs)
	for i := range allocs {
		at := i % nodes
		a := alloc(fmt.Sprintf("%08x-1111-2222-3333-444444444444", i), fmt.Sprintf("train-%d", i/64), "workers",
			fmt.Sprintf("id-gpu-%05d", at), i%64, fmt.Sprintf("gpu-%05d-%d", at, i/nodes%8))
		a.EvalID, a.NodeName, a.JobVersion = "01234567-89ab-cdef-0123-456789abcdef", fmt.Sprintf("gpu-%05d", at), 1
		a.CreateIndex, a.ModifyIndex = uint64(i+3), 10
		if i >= nodes*8 {
			a.ClientStatus = api.AllocClientStatusComplete
		}
		f.allocs = append(f.allocs, a)
		f.list = append(f.list, encode(a))
	}
	f.join()
	f.Server = httptest.NewServer(f)
	b.Cleanup(f.Close)
	return f
}

func (f *largeNomad) join() {
	f.body = append(append([]byte("["), bytes.Join(f.list, []byte(","))...), ']')
}

// touch changes one allocation as a client's report does.
func (f *largeNomad) touch(b *testing.B, i int) {
	f.indexes["allocations"]++
	f.allocs[i].ModifyIndex = f.indexes["allocations"]
	var err error
	if f.list[i], err = json.Marshal(f.allocs[i]); err != nil {
		b.Fatal(err)
	}
	f.join()
}

func (f *largeNomad) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	part, id, _ := strings.Cut(path, "/")
	part = map[string]string{"node": "nodes", "allocation": "allocations"}[part] + map[bool]string{true: part}[part != "node" && part != "allocation"]
	w.Header().Set("X-Nomad-Index", fmt.Sprint(f.indexes[part]))
	write := func(p []byte) { _, _ = w.Write(p); f.bytes.Add(int64(len(p))) }
	one := r.URL.Query().Get("per_page") != ""
	switch {
	case path == "acl/token/self":
		http.Error(w, "ACL support disabled", http.StatusBadRequest)
	case path == "operator/scheduler/configuration":
		write([]byte(`{"SchedulerConfig":{}}`))
	case part == "nodes" && id != "":
		write(f.nodes[id])
	case path == "nodes" && !one:
		write(f.stubs)
	case path == "allocations" && !one:
		write(f.body)
	default:
		write([]byte("[]"))
	}
}

func (f *largeNomad) List(context.Context) ([]*record.Record, error) { return nil, nil }

// BenchmarkRefresh is a look at a large cluster in which one allocation has
// changed since the last one: its time, and what Nomad had to send. heap-MB is
// what the planner keeps between two looks.
func BenchmarkRefresh(b *testing.B) {
	for _, nodes := range []int{2000, 16384} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			f := newLarge(b, nodes, 50000)
			c := config.Default()
			client, err := api.NewClient(&api.Config{Address: f.URL})
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			o := New(Options{Client: client, Records: f, Config: &c})
			look := func() *View {
				v, err := o.Refresh(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				return v
			}
			v := look()
			runtime.GC()
			runtime.ReadMemStats(&after)
			if len(v.Nodes) != nodes {
				b.Fatalf("%d nodes, want %d", len(v.Nodes), nodes)
			}
			f.bytes.Store(0)
			looks := 0
			for b.Loop() {
				b.StopTimer()
				f.touch(b, looks%len(f.allocs))
				b.StartTimer()
				look()
				looks++
			}
			b.ReportMetric(float64(f.bytes.Load())/float64(looks)/1e6, "MB-read/op")
			b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/1e6, "heap-MB")
			runtime.KeepAlive(v)
		})
	}
}
