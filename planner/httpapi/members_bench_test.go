package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// nowhere keeps no documents.
type nowhere struct{ index uint64 }

func (nowhere) List(context.Context) ([]record.Document, error) { return nil, nil }
func (nowhere) Get(context.Context, ...string) (record.Document, error) {
	return record.Document{}, record.ErrNotFound
}
func (n *nowhere) Put(context.Context, uint64, []byte, ...string) (uint64, error) {
	n.index++
	return n.index, nil
}
func (nowhere) Delete(context.Context, ...string) error { return nil }

// barred is a backend with a real barrier; a member's identity is its
// allocation's ID.
type barred struct {
	*fakeBackend
	service *barrier.Service
}

func (b barred) Join(ctx context.Context, token string, req gangapi.JoinRequest) (barrier.Reply[gangapi.JoinAnswer], error) {
	return b.service.Join(ctx, identity.Claims{Namespace: "ml", Job: "train", Alloc: token, Task: "rank"}, req)
}

// wholeGang is a view with a gang of n members, each with 8 GPUs.
func wholeGang(n int) (*observe.View, []string) {
	job := observe.Managed{
		Namespace: "ml", ID: "train",
		Record: &record.Record{Namespace: "ml", JobID: "train", Phase: record.PhaseRunning, Original: &api.Job{ID: new("train")}},
		Model: model.Job{Namespace: "ml", ID: "train", Gang: model.GangJob,
			Groups: []model.TaskGroup{{Name: "w", Count: n, Devices: []model.DeviceAsk{{Task: "rank", Count: 8}}}}},
	}
	v := &observe.View{Taken: time.Now().Add(time.Hour), Snapshot: &model.Snapshot{}}
	var ids []string
	for i := range n {
		id, node := fmt.Sprintf("%08x-0000-4000-8000-000000000000", i), fmt.Sprintf("%08x-1111-4000-8000-000000000000", i)
		var gpus []string
		for g := range 8 {
			gpus = append(gpus, fmt.Sprintf("GPU-%08x-2222-4000-8000-%012x", i, g))
		}
		a := &api.AllocationListStub{ID: id, DesiredStatus: "run", ClientStatus: "running", NodeID: node, TaskGroup: "w"}
		job.Allocs = append(job.Allocs, a)
		job.Members = append(job.Members, observe.MemberState{Member: model.Member{Group: "w", Index: i, Rank: i, Node: node, GPUs: gpus}, Alloc: a, State: observe.AllocPlaced})
		v.Nodes = append(v.Nodes, observe.NodeRef{ID: node, Name: fmt.Sprintf("node-%d", i)})
		ids = append(ids, id)
	}
	v.Managed = []observe.Managed{job}
	return v, ids
}

// BenchmarkBarrier lets whole gangs wait, join and start over HTTP. It reports
// the time from the last one's request until the last answer has been read, by
// which time all must have been told, and what an answer weighs.
func BenchmarkBarrier(b *testing.B) {
	for _, n := range []int{64, 512, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			v, ids := wholeGang(n)
			var late, told time.Duration
			var bytes int64
			for b.Loop() {
				l, s, w := startGang(b, v, ids)
				late, told, bytes = late+l, told+s, w
			}
			b.ReportMetric(float64(told.Milliseconds())/float64(b.N), "ms-to-tell")
			b.ReportMetric(float64(late.Milliseconds())/float64(b.N), "ms-late")
			b.ReportMetric(float64(bytes)/float64(n), "B/answer")
		})
	}
}

// startGang returns how late the last member was for the common start, how
// long it took to tell all, and how many bytes.
func startGang(b *testing.B, v *observe.View, ids []string) (late, told time.Duration, weight int64) {
	service := barrier.NewService(barrier.Options{Documents: new(nowhere), Now: time.Now})
	if err := service.Update(b.Context(), b.Context(), v); err != nil {
		b.Fatal(err)
	}
	s := httptest.NewServer(Handler(barred{new(fakeBackend), service}))
	defer s.Close()
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(ids), DisableCompression: true}}
	defer hc.CloseIdleConnections()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first time.Time
	gpus := v.Managed[0].Members
	ask := func(i int) {
		body, _ := json.Marshal(gangapi.JoinRequest{Run: ids[i], Attempt: 1, WaitMS: 60_000, Address: "10.0.0.1", Port: 29500, GPUs: gpus[i].Member.GPUs})
		req, _ := http.NewRequest(http.MethodPost, s.URL+gangapi.JoinPath, bytes.NewReader(body))
		req.Header.Set(gangapi.IdentityHeader, ids[i])
		req.Header.Set("Accept-Encoding", "gzip")
		resp, err := hc.Do(req)
		if err != nil {
			b.Error(err)
			return
		}
		defer resp.Body.Close()
		var head [4096]byte
		n, size := 0, int64(0)
		for {
			n, err = resp.Body.Read(head[:])
			if size += int64(n); err != nil {
				break
			}
		}
		mu.Lock()
		defer mu.Unlock()
		weight += size
		if now := time.Now(); first.IsZero() || now.After(first) {
			first = now
		}
	}
	for i := range ids[:len(ids)-1] {
		wg.Go(func() { ask(i) })
	}
	for {
		st := service.Gangs("ml", "train")
		if len(st) == 1 && st[0].Joined == len(ids)-1 {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	began := time.Now()
	ask(len(ids) - 1)
	wg.Wait()
	told = first.Sub(began)
	if st := service.Gangs("ml", "train"); len(st) == 1 {
		late = max(first.Sub(st[0].Started), 0)
	}
	return late, told, weight
}
