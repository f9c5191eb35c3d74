package live_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devcluster/gpunodes"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/sim/live"
)

func TestMain(m *testing.M) { os.Exit(gpunodes.Main(m)) }

const patience = 3 * time.Minute

// past is a cluster on which jobs have run.
type past struct {
	*testing.T
	jobs *api.Jobs
}

// submit registers a job of one group.
func (p *past) submit(id, script string, members, gpus, restarts int) {
	p.Helper()
	task := api.NewTask("t", "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script})
	cpu, memory, attempts, delay, none, mode := 10, 16, restarts, time.Second, false, "fail"
	task.Resources = &api.Resources{CPU: &cpu, MemoryMB: &memory}
	if count := uint64(gpus); gpus > 0 {
		task.Resources.Devices = []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &count}}
	}
	group := api.NewTaskGroup("g", members).AddTask(task)
	never := 0
	group.RestartPolicy = &api.RestartPolicy{Attempts: &attempts, Delay: &delay, Interval: &[]time.Duration{time.Hour}[0], Mode: &mode}
	group.ReschedulePolicy = &api.ReschedulePolicy{Attempts: &never, Unlimited: &none}
	job := api.NewBatchJob(id, id, "global", 50).AddDatacenter("*").AddTaskGroup(group)
	job.Meta = map[string]string{"caravan_queue": "org/" + id}
	if _, _, err := p.jobs.Register(job, nil); err != nil {
		p.Fatal(err)
	}
}

// until waits for a job's allocations to be in a state.
func (p *past) until(id string, allocations int, state string) {
	p.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		list, _, err := p.jobs.Allocations(id, true, nil)
		n := 0
		for _, a := range list {
			if a.ClientStatus == state {
				n++
			}
		}
		if err == nil && n == allocations {
			return
		}
		if time.Now().After(deadline) {
			p.Fatalf("%s: %d allocations are %s, %v: want %d", id, n, state, err, allocations)
		}
	}
}

// What a cluster knows of jobs that ended, failed, were stopped, restarted and run again
// becomes a trace, on the stand-in and on a real Nomad where there is one.
func TestImportFromClusters(t *testing.T) {
	spec := devcluster.Spec{Nodes: []devcluster.Node{gpunodes.Node("n0", "r0", gpunodes.Plugin(t), "")}}
	t.Run(devcluster.BackendDevNomad, func(t *testing.T) {
		c, err := devnomad.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		importFrom(t, c)
	})
	t.Run(devcluster.BackendNomad, func(t *testing.T) {
		bin, found := nomadproc.Find()
		if !found {
			t.Skip("no nomad binary: set NOMAD_BIN or put one on the PATH")
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		c, err := nomadproc.Start(ctx, bin, spec)
		if err != nil {
			t.Fatal(err)
		}
		importFrom(t, c)
	})
}

func importFrom(t *testing.T, c devcluster.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	gpunodes.Ready(ctx, t, c)
	p := past{t, c.Client().Jobs()}
	p.submit("ok", "sleep 0.2", 1, 2, 0)
	p.submit("fails", "sleep 0.2; exit 1", 1, 1, 0)
	p.submit("gang", "sleep 0.2", 2, 1, 0)
	p.until("ok", 1, api.AllocClientStatusComplete)
	p.until("fails", 1, api.AllocClientStatusFailed)
	p.until("gang", 2, api.AllocClientStatusComplete)
	p.submit("restarts", "sleep 0.2; exit 1", 1, 1, 1)
	p.submit("cpu", "true", 1, 0, 0)
	p.submit("again", "sleep 0.2", 1, 1, 0)
	p.until("again", 1, api.AllocClientStatusComplete)
	p.submit("again", "sleep 0.3", 1, 2, 0)
	p.submit("stopped", "sleep 1000", 1, 1, 0)
	p.submit("runs", "sleep 1000", 1, 1, 0)
	p.until("stopped", 1, api.AllocClientStatusRunning)
	if _, _, err := p.jobs.Deregister("stopped", false, nil); err != nil {
		t.Fatal(err)
	}
	p.until("stopped", 1, api.AllocClientStatusComplete)
	p.until("again", 2, api.AllocClientStatusComplete)
	p.until("restarts", 1, api.AllocClientStatusFailed)
	p.until("cpu", 1, api.AllocClientStatusComplete)
	p.until("runs", 1, api.AllocClientStatusRunning)

	jobs, rep, err := live.Import(ctx, live.Client{API: c.Client()})
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Queue string
		GPUs  int
	}
	got, want := map[string]row{}, map[string]row{
		"default/ok": {"org/ok", 2}, "default/fails": {"org/fails", 1}, "default/gang": {"org/gang", 2}, "default/restarts": {"org/restarts", 1},
		"default/again": {"org/again", 1}, "default/again#2": {"org/again", 2}, "default/stopped": {"org/stopped", 1},
	}
	before := 0.0
	for _, j := range jobs {
		got[j.ID] = row{j.Queue, j.GPUs}
		if j.Submit < before || j.Duration <= 0 || j.Duration > patience.Seconds() {
			t.Errorf("%s: submitted at %g s, after one at %g s, for %g s", j.ID, j.Submit, before, j.Duration)
		}
		if before = j.Submit; j.ID == "default/restarts" && j.Duration < 1 {
			t.Errorf("%s ran for %g s: want what was before its restart too, a second before", j.ID, j.Duration)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
	left := map[string]int{"it has had no whole GPU, or Nomad has forgotten its allocations": 1, "it has not ended": 1}
	if !maps.Equal(rep.Left, left) || rep.Rows != 9 || rep.Jobs != 7 {
		t.Errorf("%d jobs of %d rows, left out %v: want 7 of 9, %v", rep.Jobs, rep.Rows, slices.Sorted(maps.Keys(rep.Left)), left)
	}
}
