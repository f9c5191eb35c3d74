// Package latency measures how long it takes from a job's submission until it is
// pinned, beside what Nomad needs itself for that.
package latency

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/agent"
	"github.com/caravan-sched/caravan/internal/devnomad/client"
	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/devnomad/server"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/daemon"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

const patience = 90 * time.Second

// nomad is a stand-in whose clients are a list: what is placed on them is never
// started. It counts the time in which it answers somebody.
type nomad struct {
	server *server.Server
	http   *httptest.Server

	mu      sync.Mutex
	active  int
	since   time.Time
	busy    time.Duration
	watched state.Key
	pinned  chan struct{}
}

func newNomad(ctx context.Context, nodes int) (*nomad, error) {
	n := &nomad{server: server.New(server.Config{Clock: clock.Real{}, LostAfter: time.Hour, Seed: 1})}
	handler := agent.New(agent.Config{Server: n.server, Client: func(string) *client.Client { return nil }, Address: "127.0.0.1:4646"})
	n.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.serve(handler, w, r) }))
	n.http.Config.ErrorLog = log.New(io.Discard, "", 0)
	n.http.Start()
	go n.server.Run(ctx)
	for i := range nodes {
		if err := n.server.Connect(node(i)); err != nil {
			return nil, fmt.Errorf("connect node %d: %w", i, err)
		}
	}
	return n, nil
}

func node(i int) *state.Node {
	dev := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H100", Attributes: map[string]*api.Attribute{}}
	for g := range 8 {
		dev.Instances = append(dev.Instances, &api.NodeDevice{ID: fmt.Sprintf("GPU-%05d-%d", i, g), Healthy: true})
	}
	rack := fmt.Sprint("r", i/16)
	return &state.Node{ComputedClass: "v1:" + rack, Node: &api.Node{
		ID: fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i), Name: fmt.Sprintf("gpu-%05d", i), Datacenter: "dc1", NodePool: api.NodePoolDefault,
		Attributes: map[string]string{"kernel.name": "linux", "driver.mock_driver": "1", "nomad.version": "2.0.5"},
		Drivers:    map[string]*api.DriverInfo{"mock_driver": {Detected: true, Healthy: true}},
		Meta:       map[string]string{"caravan_rack": rack}, HostVolumes: map[string]*api.HostVolumeInfo{}, Links: map[string]string{},
		ReservedResources: &api.NodeReservedResources{},
		NodeResources: &api.NodeResources{
			Cpu:    api.NodeCpuResources{CpuShares: 64_000, TotalCpuCores: 32},
			Memory: api.NodeMemoryResources{MemoryMB: 512 << 10}, Disk: api.NodeDiskResources{DiskMB: 1 << 20},
			Devices: []*api.NodeDeviceResource{dev}, MinDynamicPort: 20000, MaxDynamicPort: 32000,
		},
	}}
}

// serve answers, and counts the time if the answer does not wait for something.
func (n *nomad) serve(handler http.Handler, w http.ResponseWriter, r *http.Request) {
	if blocks := r.URL.Query().Get("index"); blocks != "" && blocks != "0" {
		handler.ServeHTTP(w, r)
		return
	}
	n.count(1)
	handler.ServeHTTP(w, r)
	n.count(-1)
	if r.Method == http.MethodPut || r.Method == http.MethodPost {
		n.look()
	}
}

func (n *nomad) count(more int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.active > 0 {
		n.busy += time.Since(n.since)
	}
	n.active += more
	n.since = time.Now()
}

// watch begins to look out for a job's pins, and to count anew.
func (n *nomad) watch(id string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy, n.since = 0, time.Now()
	n.watched, n.pinned = state.Key{Namespace: "default", ID: id}, make(chan struct{})
	return n.pinned
}

// look tells whoever watches a job that it is pinned.
func (n *nomad) look() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pinned == nil {
		return
	}
	n.server.Store().View(func(v *state.View) {
		if j := v.Job(n.watched); j != nil && rewrite.IsPinned(j) {
			close(n.pinned)
			n.pinned = nil
		}
	})
}

// placed waits until Nomad has placed a job's members.
func (n *nomad) placed(tb testing.TB, id string, members int) {
	tb.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		have := 0
		n.server.Store().View(func(v *state.View) { have = len(v.AllocsOfJob(state.Key{Namespace: "default", ID: id})) })
		if have == members {
			return
		}
		if time.Since(began) > patience {
			tb.Fatalf("%d of %d members of %s are placed", have, members, id)
		}
	}
}

// clear ends a job as if its members had completed.
func (n *nomad) clear(c *api.Client, id string) error {
	if _, _, err := c.Jobs().Deregister(id, false, nil); err != nil {
		return fmt.Errorf("deregister %s: %w", id, err)
	}
	var reports []*api.Allocation
	n.server.Store().View(func(v *state.View) {
		for _, a := range v.AllocsOfJob(state.Key{Namespace: "default", ID: id}) {
			reports = append(reports, &api.Allocation{ID: a.ID, ClientStatus: api.AllocClientStatusComplete})
		}
	})
	return n.server.UpdateAllocs(reports)
}

// gang asks for whole nodes.
func gang(id string, members int) *api.Job {
	eight := uint64(8)
	task := api.NewTask("main", "mock_driver").Require(&api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &eight}}})
	group := api.NewTaskGroup("worker", members).AddTask(task)
	return api.NewBatchJob(id, id, "global", 50).AddDatacenter("*").SetMeta("caravan_gang", "job").AddTaskGroup(group)
}

// startPlanner starts a planner and returns its address.
func startPlanner(tb testing.TB, n *nomad) string {
	cfg := config.Default()
	cfg.Nomad.Address = n.http.URL
	cfg.Listen.Address, cfg.Listen.Advertise = "127.0.0.1:0", ""
	d, err := daemon.New(cfg, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if err := d.Listen(); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("run: %v", err)
		}
		n.http.Close()
	})
	status, err := httpapi.NewClient(d.Address(), "", nil)
	if err != nil {
		tb.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if st, err := status.Status(context.Background()); err == nil && st.Leader && !st.ViewTaken.IsZero() {
			return d.Address()
		}
		if time.Since(began) > patience {
			tb.Fatal("the planner never leads")
		}
	}
}

// submit submits a gang through the gateway and waits until it is pinned. It
// returns how long that took, and how much of it Nomad was busy.
func submit(tb testing.TB, n *nomad, user *api.Client, id string, members int) (took, busy time.Duration) {
	tb.Helper()
	pinned, began := n.watch(id), time.Now()
	go func() { _, _, _ = user.Jobs().Register(gang(id, members), nil) }()
	select {
	case <-pinned:
	case <-time.After(patience):
		tb.Fatalf("%s is never pinned", id)
	}
	took = time.Since(began)
	n.mu.Lock()
	defer n.mu.Unlock()
	return took, n.busy
}

func TestSubmissionIsPinned(t *testing.T) {
	n, err := newNomad(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	user, err := api.NewClient(&api.Config{Address: startPlanner(t, n)})
	if err != nil {
		t.Fatal(err)
	}
	if took, busy := submit(t, n, user, "train", 4); busy <= 0 || busy > took {
		t.Errorf("%s in all, %s of it Nomad's", took, busy)
	}
}

// BenchmarkSubmission reports, beside the time from submission to pinned job, the
// part of it in which Nomad was busy answering; what is beyond has a budget of 200
// ms on 512 nodes.
func BenchmarkSubmission(b *testing.B) {
	for _, bb := range []struct{ nodes, members int }{{512, 1}, {512, 64}} {
		b.Run(fmt.Sprintf("nodes=%d/gang=%d", bb.nodes, bb.members), func(b *testing.B) {
			n, err := newNomad(b.Context(), bb.nodes)
			if err != nil {
				b.Fatal(err)
			}
			user, err := api.NewClient(&api.Config{Address: startPlanner(b, n)})
			if err != nil {
				b.Fatal(err)
			}
			var total, nomads time.Duration
			b.ResetTimer()
			for i := range b.N {
				id := fmt.Sprint("train-", i)
				took, busy := submit(b, n, user, id, bb.members)
				total, nomads = total+took, nomads+busy
				b.StopTimer() // what follows the pin is not measured
				n.placed(b, id, bb.members)
				if err := n.clear(user, id); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			each := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) / float64(b.N) }
			b.ReportMetric(each(total), "ms/submission")
			b.ReportMetric(each(nomads), "ms/nomad")
			b.ReportMetric(each(total-nomads), "ms/beyond")
		})
	}
}
