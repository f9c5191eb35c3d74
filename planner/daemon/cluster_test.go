package daemon_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/daemon"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/rewrite"
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
	cfg.Gateway.Wait = 90 * time.Second // it ends with the decision
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
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
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
	onEach(t, devcluster.Spec{Nodes: []devcluster.Node{{Name: "a"}}}, func(t *testing.T, c devcluster.Cluster) {
		p := run(t, c, func(cfg *config.Config) { cfg.ObserveOnly = true })
		through := callAs(t, p, "")
		behind := gpuJob()
		behind.ID, behind.Name = new("behind"), new("behind")
		if _, _, err := through.nomad.Jobs().Register(gpuJob(), nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Client().Jobs().Register(behind, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the jobs are decided on", func() bool {
			queue, err := p.client.Queue(t.Context())
			return err == nil && len(queue) == 2 && queue[0].Reason != "" && queue[1].Reason != ""
		})
		for _, id := range []string{"j", "behind"} {
			job, _, err := c.Client().Jobs().Info(id, nil)
			if err != nil {
				t.Fatal(err)
			}
			if rewrite.IsGated(job) || rewrite.IsPinned(job) || *job.Version != 0 {
				t.Errorf("version %d of job %s has constraints %v, want it as it was submitted", *job.Version, id, job.Constraints)
			}
		}
		if _, err := through.caravan.Release(t.Context(), httpapi.ReleaseRequest{All: true}); err == nil {
			t.Error("a planner that only observes releases jobs")
		}
		if left := jobsAndVariables(t, c.Client()); !slices.Equal(left, []string{"job behind", "job j"}) {
			t.Errorf("in Nomad are %v, want the two jobs and no Variable", left)
		}
	})
}

// What is exempt is left to Nomad, in the gateway and behind it, also where
// Caravan managed it before: until the job is submitted again it stays as it
// is, and from then on Caravan has nothing to do with it.
func TestExemptions(t *testing.T) {
	onEach(t, devcluster.Spec{Nodes: []devcluster.Node{{Name: "a"}}}, func(t *testing.T, c devcluster.Cluster) {
		boss := c.Client()
		if _, err := boss.NodePools().Register(&api.NodePool{Name: "lab"}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := boss.Namespaces().Register(&api.Namespace{Name: "team-x"}, nil); err != nil {
			t.Fatal(err)
		}
		named := func(id, namespace, pool string) *api.Job {
			j := gpuJob()
			j.ID, j.Name, j.Namespace, j.NodePool = &id, &id, &namespace, &pool
			return j
		}
		submit := func(p planner, j *api.Job) {
			t.Helper()
			if _, _, err := callAs(t, p, "").nomad.Jobs().Register(j, &api.WriteOptions{Namespace: *j.Namespace}); err != nil {
				t.Fatal(err)
			}
		}
		gated := func(id, namespace string) bool {
			t.Helper()
			job, _, err := boss.Jobs().Info(id, &api.QueryOptions{Namespace: namespace})
			if err != nil {
				t.Fatal(err)
			}
			return rewrite.IsGated(job)
		}
		before := run(t, c)
		eventually(t, "it leads", func() bool { return leads(t, before) })
		submit(before, named("old", "team-x", "default"))
		eventually(t, "the job is gated", func() bool { return gated("old", "team-x") })
		before.stop()

		p := run(t, c, func(cfg *config.Config) {
			cfg.Managed.ExemptNamespaces, cfg.Managed.ExemptNodePools = []string{"team-*"}, []string{"lab"}
		})
		eventually(t, "it leads", func() bool { return leads(t, p) })
		submit(p, named("old", "team-x", "default"))
		submit(p, named("new", "team-x", "default"))
		submit(p, named("pool", "default", "lab"))
		if _, _, err := boss.Jobs().Register(named("behind", "team-x", "default"), &api.WriteOptions{Namespace: "team-x"}); err != nil {
			t.Fatal(err)
		}
		// A managed job after them shows that the planner has been through all.
		submit(p, named("managed", "default", "default"))
		eventually(t, "the managed job is decided on", func() bool {
			e, err := p.client.Explain(t.Context(), "default", "managed")
			return err == nil && e.Action == "wait"
		})
		for id, ns := range map[string]string{"old": "team-x", "new": "team-x", "behind": "team-x", "pool": "default"} {
			if gated(id, ns) {
				t.Errorf("job %s in namespace %s is exempt and gated", id, ns)
			}
		}
		if !gated("managed", "default") {
			t.Error("the managed job is not gated")
		}
		eventually(t, "the exempt jobs are not shown as managed", func() bool {
			jobs, err := p.client.Jobs(t.Context())
			return err == nil && len(jobs) == 1 && jobs[0].ID == "managed"
		})
	})
}
