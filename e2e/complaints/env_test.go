// Package complaints holds public complaints about GPUs on Nomad and on
// Kubernetes, each a test of what Caravan does there. docs/complaints.md is
// their table.
package complaints

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/daemon"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

const (
	pluginBin = "nomad-device-caravan"
	// patience is how long a cluster may take to come to a state. Only a failing
	// test waits that long.
	patience = 60 * time.Second
)

// bin is the folder of the device plugin's binary.
var bin string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if bin, err = os.MkdirTemp("", "caravan-complaints-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(bin)
		if out, err := exec.Command("go", "build", "-o", bin+"/", "../../devicegpu/cmd/"+pluginBin).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the device plugin: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// env is a cluster with a planner before it.
type env struct {
	*testing.T
	cluster devcluster.Cluster
	// nomad is Nomad's own API, user the gateway's.
	nomad, user *api.Client
	caravan     *httpapi.Client
}

// gpuNode is a node whose plugin has this configuration; "" is eight H100.
func gpuNode(name, plugin string) devcluster.Node {
	if plugin == "" {
		plugin = `source = "mock:dgxh100"`
	}
	return devcluster.Node{
		Name: name, Meta: map[string]string{"caravan_rack": "r1"},
		Plugins: []devcluster.Plugin{{Name: pluginBin, Path: filepath.Join(bin, pluginBin), Config: fmt.Sprintf("mock_seed = %q\n%s", name, plugin)}},
	}
}

func start(t *testing.T, nodes ...devcluster.Node) *env {
	t.Helper()
	c, err := devnomad.Start(t.Context(), devcluster.Spec{DataDir: t.TempDir(), Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop cluster: %v", err)
		}
	})
	cfg := config.Default()
	cfg.Nomad.Address = c.Address()
	cfg.Listen.Address, cfg.Listen.Advertise = "127.0.0.1:0", ""
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
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run the planner: %v", err)
		}
	})
	e := &env{T: t, cluster: c, nomad: c.Client()}
	if e.caravan, err = httpapi.NewClient(d.Address(), "", nil); err != nil {
		t.Fatal(err)
	}
	if e.user, err = api.NewClient(&api.Config{Address: d.Address()}); err != nil {
		t.Fatal(err)
	}
	e.until("the planner leads", func() (bool, any) {
		s, err := e.caravan.Status(t.Context())
		return err == nil && s.Leader && !s.ViewTaken.IsZero(), err
	})
	return e
}

// until waits for a condition; the second result of ok says what there is.
func (e *env) until(what string, ok func() (bool, any)) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	for {
		done, got := ok()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			e.Fatalf("never: %s; last: %+v", what, got)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// submit registers a job through the gateway.
func (e *env) submit(job *api.Job) {
	e.Helper()
	if _, _, err := e.user.Jobs().Register(job, nil); err != nil {
		e.Fatal(err)
	}
}

// explain is what Caravan says about a job once it has decided.
func (e *env) explain(job string, ok func(httpapi.Explain) bool) httpapi.Explain {
	e.Helper()
	var out httpapi.Explain
	e.until("job "+job+" is as it should be", func() (bool, any) {
		var err error
		out, err = e.caravan.Explain(e.Context(), "default", job)
		return err == nil && ok(out), []any{out.State, out.Reason, out.Placed, out.Members, err}
	})
	return out
}

func running(x httpapi.Explain) bool { return x.State == "running" && x.Placed == x.Members }

func waits(x httpapi.Explain) bool { return x.State == "queued" && x.Reason != "" }

// allocs are a job's allocations that are to run.
func (e *env) allocs(job string) []*api.Allocation {
	e.Helper()
	stubs, _, err := e.nomad.Jobs().Allocations(job, true, nil)
	if err != nil {
		e.Fatal(err)
	}
	var out []*api.Allocation
	for _, s := range stubs {
		if s.DesiredStatus != api.AllocDesiredStatusRun {
			continue
		}
		a, _, err := e.nomad.Allocations().Info(s.ID, nil)
		if err != nil {
			e.Fatal(err)
		}
		out = append(out, a)
	}
	return out
}

// gpus are the devices that an allocation was given, by task, each once.
func (e *env) gpus(a *api.Allocation) map[string][]string {
	e.Helper()
	out, seen := map[string][]string{}, map[string]bool{}
	for task, r := range a.AllocatedResources.Tasks {
		for _, d := range r.Devices {
			for _, id := range d.DeviceIDs {
				if seen[id] {
					e.Errorf("device %s is given twice in allocation %s", id, a.ID)
				}
				seen[id] = true
				out[task] = append(out[task], id)
			}
		}
		slices.Sort(out[task])
	}
	return out
}

// devices asks for n devices of a name, with constraints "attribute op value".
func devices(name string, n int, constraints ...string) *api.RequestedDevice {
	d := &api.RequestedDevice{Name: name, Count: ptr(uint64(n))}
	for _, c := range constraints {
		f := strings.Fields(c)
		d.Constraints = append(d.Constraints, api.NewConstraint(f[0], f[1], f[2]))
	}
	return d
}

// job is a service of count members, one task per list of device requests.
func job(id string, count int, tasks ...[]*api.RequestedDevice) *api.Job {
	j := api.NewServiceJob(id, id, "global", 50)
	j.Datacenters = []string{"dc1"}
	g := api.NewTaskGroup("g", count)
	for i, asks := range tasks {
		t := api.NewTask(fmt.Sprintf("t%d", i), "mock_driver")
		t.Config = map[string]any{"run_for": "1h"}
		g.AddTask(t.Require(&api.Resources{CPU: ptr(100), MemoryMB: ptr(64), Devices: asks}))
	}
	return j.AddTaskGroup(g)
}

func asks(of ...*api.RequestedDevice) []*api.RequestedDevice { return of }

// gang makes a job's members start together.
func gang(j *api.Job) *api.Job {
	j.Meta = map[string]string{"caravan_gang": "job"}
	return j
}

func ptr[T any](v T) *T { return &v }
