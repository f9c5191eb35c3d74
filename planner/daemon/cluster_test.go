package daemon_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/daemon"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// planner is a running daemon.
type planner struct {
	client *httpapi.Client
	daemon *daemon.Daemon
	stop   func()
}

func run(t *testing.T, c devcluster.Cluster, change ...func(*config.Config)) planner {
	t.Helper()
	cfg := config.Default()
	cfg.Nomad.Address, cfg.Nomad.Token = c.Address(), c.Token()
	cfg.Listen.Address, cfg.Listen.Advertise = "127.0.0.1:0", ""
	cfg.Gateway.Wait = 5 * time.Second
	for _, c := range change {
		c(&cfg)
	}
	d, err := daemon.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	client, err := httpapi.NewClient(d.Address(), c.Token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return planner{client, d, stop}
}

// eventually waits for what comes by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func leads(t *testing.T, p planner) bool {
	st, err := p.client.Status(t.Context())
	return err == nil && st.Leader && !st.ViewTaken.IsZero()
}

// Two planners on one cluster: one leads, the other sends on what only a
// leader knows, and takes over when the first one stops.
func TestTwoPlanners(t *testing.T) {
	c, err := devnomad.Start(t.Context(), devcluster.Spec{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	first := run(t, c)
	eventually(t, "the first leads", func() bool { return leads(t, first) })
	second := run(t, c)
	eventually(t, "the second knows who leads", func() bool {
		st, err := second.client.Status(t.Context())
		return err == nil && st.LeaderAddress == first.daemon.Address() && !st.ViewTaken.IsZero()
	})
	if leads(t, second) {
		t.Fatal("two lead")
	}

	// A job through the follower's gateway waits for a decision that the leader
	// makes: there is no GPU in this cluster.
	follower, err := api.NewClient(&api.Config{Address: second.daemon.Address()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := follower.Jobs().Register(gpuJob(), nil); err != nil {
		t.Fatal(err)
	}
	e, err := second.client.Explain(t.Context(), "default", "j")
	if err != nil || e.Action != "wait" || e.Position != 1 || e.Reason == "" {
		t.Errorf("explain at the follower = %+v, %v; want the leader's decision", e, err)
	}

	first.stop()
	eventually(t, "the second leads", func() bool { return leads(t, second) })
	eventually(t, "the second decides", func() bool {
		e, err := second.client.Explain(t.Context(), "default", "j")
		return err == nil && e.Action == "wait"
	})
	resp, err := http.Get(second.daemon.Address() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("metrics: %s", resp.Status)
	}
}

// gpuJob asks for one GPU.
func gpuJob() *api.Job {
	one := uint64(1)
	task := api.NewTask("t", "raw_exec")
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &one}}}
	return api.NewBatchJob("j", "j", "global", 50).AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
}

// A planner that only observes changes no job, in its gateway neither: it
// would gate what nobody admits.
func TestObserveOnlyGatesNothing(t *testing.T) {
	c, err := devnomad.Start(t.Context(), devcluster.Spec{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	p := run(t, c, func(cfg *config.Config) { cfg.ObserveOnly = true })
	gateway, err := api.NewClient(&api.Config{Address: p.daemon.Address()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := gateway.Jobs().Register(gpuJob(), nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job is decided on", func() bool {
		e, err := p.client.Explain(t.Context(), "default", "j")
		return err == nil && e.Reason != ""
	})
	job, _, err := c.Client().Jobs().Info("j", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(job.Constraints) > 0 || *job.Version != 0 {
		t.Errorf("version %d of the job has constraints %v, want it as it was submitted", *job.Version, job.Constraints)
	}
}
