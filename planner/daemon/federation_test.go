package daemon_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// world are two joined regions: eu with one node of eight GPUs, us with two.
type world struct {
	t      *testing.T
	eu, us devcluster.Member
}

// eachWorld runs a test on every back end there is.
func eachWorld(t *testing.T, test func(w world)) {
	names := []string{devcluster.BackendDevNomad}
	if _, ok := nomadproc.Find(); ok {
		names = append(names, devcluster.BackendNomad)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time they wait
			test(newWorld(t, name))
		})
	}
}

func newWorld(t *testing.T, backend string) world {
	t.Helper()
	plugin := filepath.Join(t.TempDir(), "nomad-device-caravan")
	if out, err := exec.Command("go", "build", "-o", plugin, "github.com/caravan-sched/caravan/devicegpu/cmd/nomad-device-caravan").CombinedOutput(); err != nil {
		t.Fatalf("build the device plugin: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	start := func(region string, nodes ...string) devcluster.Member {
		spec := devcluster.Spec{Region: region}
		for _, n := range nodes {
			spec.Nodes = append(spec.Nodes, devcluster.Node{Name: n, Meta: map[string]string{"caravan_rack": "r1"}, Plugins: []devcluster.Plugin{{
				Name: "nomad-device-caravan", Path: plugin, Config: fmt.Sprintf("source = \"mock:dgxh100\"\nmock_seed = %q", n)}}})
		}
		var c devcluster.Member
		var err error
		if backend == devcluster.BackendDevNomad {
			c, err = devnomad.StartWith(ctx, spec, devnomad.Options{LostAfter: time.Second})
		} else {
			bin, _ := nomadproc.Find()
			c, err = nomadproc.Start(ctx, bin, spec)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
		if err := c.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		return c
	}
	w := world{t, start("eu", "eu-1"), start("us", "us-1", "us-2")}
	if err := w.eu.Federate(ctx, w.us); err != nil {
		t.Fatal(err)
	}
	return w
}

// plan runs a planner of both regions beside eu's servers.
func (w world) plan(change ...func(*config.Config)) planner {
	w.t.Helper()
	p := run(w.t, w.eu, append([]func(*config.Config){func(c *config.Config) {
		c.Nomad.Region, c.Federation = "eu", []string{"eu", "us"}
	}}, change...)...)
	eventually(w.t, "it leads in both regions", func() bool {
		st, err := p.client.Status(w.t.Context())
		return err == nil && st.Leader && len(st.Regions) == 2 && st.Regions[0].Held == "" && st.Regions[1].Held == ""
	})
	return p
}

// gang is a job of so many whole nodes, for which nobody names a region.
func gang(id string, members int) *api.Job {
	eight := uint64(8)
	task := api.NewTask("t", "raw_exec").SetConfig("command", "sleep").SetConfig("args", []string{"3600"})
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &eight}}}
	job := api.NewBatchJob(id, id, "", 50).AddDatacenter("*").AddTaskGroup(api.NewTaskGroup("g", members).AddTask(task))
	job.Region = nil
	return job.SetMeta("caravan_gang", "job")
}

func (w world) submit(p planner, job *api.Job) *api.JobRegisterResponse {
	w.t.Helper()
	resp, _, err := callAs(w.t, p, "").nomad.Jobs().Register(job, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// running are a job's members that run in a region.
func (w world) running(in devcluster.Member, id string) int {
	list, _, err := in.Client().Jobs().Allocations(id, false, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, a := range list {
		if a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			n++
		}
	}
	return n
}

// records are the paths of what is remembered of jobs in a region.
func (w world) records(in devcluster.Member) []string {
	list, _, err := in.Client().Variables().PrefixList("caravan/jobs/", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, v := range list {
		out = append(out, v.Path)
	}
	return out
}

func (w world) status(in devcluster.Member, id string) (status string, job *api.Job) {
	job, _, err := in.Client().Jobs().Info(id, nil)
	if err != nil {
		return "none", nil
	}
	return *job.Status, job
}

// A gang that fits in the other region alone is sent there, runs there, and ends
// when it is stopped where it was submitted.
func TestFederationRoutes(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(w world) {
		t := w.t
		p := w.plan()
		w.submit(p, gang("small", 1))
		resp := w.submit(p, gang("big", 2))
		// On a busy machine the planner may have to get hold of us again first.
		if !strings.Contains(resp.Warnings, "admitted in region us") && !strings.Contains(resp.Warnings, "queued") {
			t.Errorf("the answer is %q, want it to name the region", resp.Warnings)
		}
		if e, _, err := callAs(t, p, "").nomad.Evaluations().Info(resp.EvalID, nil); err != nil || e.JobID != "big" {
			t.Errorf("the evaluation %s that it names: %+v, %v", resp.EvalID, e, err)
		}
		eventually(t, "big runs in us", func() bool { return w.running(w.us, "big") == 2 })
		eventually(t, "small runs in eu", func() bool { return w.running(w.eu, "small") == 1 })
		if status, job := w.status(w.eu, "big"); status != "pending" || !rewrite.IsGated(job) || w.running(w.eu, "big") != 0 {
			t.Errorf("big is %s in eu, want it gated and pending there", status)
		}
		eventually(t, "it is known where they run", func() bool {
			big, err := p.client.Explain(t.Context(), "default", "big")
			small, err2 := p.client.Explain(t.Context(), "default", "small")
			return err == nil && err2 == nil && big.State == model.StateRunning && big.Region == "us" && big.Home == "eu" &&
				small.State == model.StateRunning && small.Region == "eu" && small.Home == ""
		})
		w.seenAtHome(p, "big", 2)
		if _, _, err := callAs(t, p, "").nomad.Jobs().Deregister("big", false, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "big has ended in us", func() bool {
			status, _ := w.status(w.us, "big")
			return status == "dead" && w.running(w.us, "big") == 0
		})
		eventually(t, "only small is remembered", func() bool { return len(w.records(w.eu)) == 1 && len(w.records(w.us)) == 0 })
	})
}

// seenAtHome: through the gateway of the region where it was submitted a job that
// was sent is seen as if it ran there.
func (w world) seenAtHome(p planner, id string, members int) {
	t := w.t
	t.Helper()
	nomad := callAs(t, p, "").nomad
	job, _, err := nomad.Jobs().Info(id, nil)
	if err != nil || *job.Region != "us" || *job.Status != "running" || rewrite.IsPinned(job) {
		t.Errorf("job %+v, %v; want it running in us, as its user wrote it", job, err)
	}
	allocs, _, err := nomad.Jobs().Allocations(id, false, nil)
	if err != nil || len(allocs) != members {
		t.Fatalf("%d allocations, %v; want %d", len(allocs), err, members)
	}
	found, _, err := nomad.Allocations().PrefixList(allocs[0].ID[:8])
	if err != nil || len(found) != 1 || found[0].ID != allocs[0].ID {
		t.Errorf("by its first letters: %v, %v; want allocation %s", found, err, allocs[0].ID)
	}
	alloc, _, err := nomad.Allocations().Info(allocs[0].ID, nil)
	if err != nil || alloc.JobID != id {
		t.Fatalf("allocation %+v, %v", alloc, err)
	}
	if node, _, err := nomad.Nodes().Info(alloc.NodeID, nil); err != nil || node.ID != alloc.NodeID {
		t.Errorf("its node %+v, %v", node, err)
	}
	if files, _, err := nomad.AllocFS().List(alloc, "alloc/logs", nil); err != nil || len(files) == 0 {
		t.Errorf("its logs %+v, %v; want some", files, err)
	}
	if stub, _, err := nomad.Jobs().Info(id, &api.QueryOptions{Region: "eu"}); err != nil || *stub.Region != "eu" || *stub.Status != "pending" {
		t.Errorf("in eu %+v, %v; want it pending there", stub, err)
	}
}

// A job that ends where it was sent ends where it was submitted; a name in two
// regions is two jobs.
func TestFederationEnds(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(w world) {
		t := w.t
		p := w.plan()
		short := gang("short", 2)
		short.TaskGroups[0].Tasks[0].Config = map[string]any{"command": "sleep", "args": []string{"1"}}
		w.submit(p, short)
		eventually(t, "it is complete in us", func() bool {
			list, _, err := w.us.Client().Jobs().Allocations("short", false, nil)
			return err == nil && len(list) == 2 && !slices.ContainsFunc(list, func(a *api.AllocationListStub) bool { return a.ClientStatus != api.AllocClientStatusComplete })
		})
		eventually(t, "it has ended in eu", func() bool { status, _ := w.status(w.eu, "short"); return status == "dead" })
		eventually(t, "nothing is remembered", func() bool { return len(w.records(w.eu))+len(w.records(w.us)) == 0 })
		if _, job := w.status(w.us, "short"); job.Stop != nil && *job.Stop {
			t.Error("the job is shown as stopped in us, want it as it ended")
		}
		// Again, as two jobs of one name.
		w.submit(p, gang("twin", 1))
		if _, _, err := w.us.Client().Jobs().Register(gang("twin", 1), nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "both run", func() bool { return w.running(w.eu, "twin") == 1 && w.running(w.us, "twin") == 1 })
		eventually(t, "both are listed", func() bool {
			jobs, err := p.client.Jobs(t.Context())
			var names []string
			for _, j := range jobs {
				names = append(names, j.ID)
			}
			slices.Sort(names)
			return err == nil && slices.Equal(names, []string{"twin", "twin (region us)"})
		})
	})
}

// Planners in two regions are one: the one that follows takes jobs in for its own
// region, and takes over. A region that a planner of its own leads is left to it.
func TestFederationPlanners(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(w world) {
		t := w.t
		alone := run(t, w.us)
		eventually(t, "us has a planner of its own", func() bool { return leads(t, alone) })
		first := run(t, w.eu, func(c *config.Config) { c.Nomad.Region, c.Federation = "eu", []string{"eu", "us"} })
		eventually(t, "it leaves us alone", func() bool {
			st, err := first.client.Status(t.Context())
			return err == nil && len(st.Regions) == 2 && st.Regions[0].Held == "" && strings.Contains(st.Regions[1].Held, alone.daemon.Address()+" leads there")
		})
		alone.stop()
		eventually(t, "it leads in both", func() bool {
			st, err := first.client.Status(t.Context())
			return err == nil && st.Regions[1].Held == ""
		})
		second := run(t, w.us, func(c *config.Config) { c.Nomad.Region, c.Federation = "us", []string{"eu", "us"} })
		eventually(t, "the second follows", func() bool {
			st, err := second.client.Status(t.Context())
			return err == nil && st.LeaderAddress == first.daemon.Address() && !st.ViewTaken.IsZero()
		})
		w.submit(second, gang("fills-us", 2).SetMeta("caravan_regions", "us"))
		eventually(t, "us is full", func() bool { return w.running(w.us, "fills-us") == 2 })
		w.submit(second, gang("guest", 1))
		eventually(t, "guest runs in eu", func() bool { return w.running(w.eu, "guest") == 1 })
		first.stop()
		eventually(t, "the second leads in both", func() bool {
			st, err := second.client.Status(t.Context())
			return err == nil && st.Leader && st.Regions[0].Held == "" && st.Regions[1].Held == ""
		})
		if _, _, err := callAs(t, second, "").nomad.Jobs().Deregister("guest", false, nil); err != nil {
			t.Fatal(err)
		}
		eventually(t, "guest has ended", func() bool { return w.running(w.eu, "guest") == 0 && len(w.records(w.eu)) == 0 })
		if n := w.running(w.us, "fills-us"); n != 2 {
			t.Errorf("%d members of fills-us run, want 2", n)
		}
	})
}
