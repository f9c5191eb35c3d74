package nomadproc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
)

// TestNomadRunsOurDriver is what counts for the driver protocol: a real client
// loads a driver that was built on it, and starts, signals, measures, enters
// and stops a task through it.
func TestNomadRunsOurDriver(t *testing.T) {
	p := plugin(t, "")
	p.Name = plugintest.DriverName
	c := start(t, devcluster.Spec{Nodes: []devcluster.Node{{Name: "a", Plugins: []devcluster.Plugin{p}}}})
	node := nodes(t, c)["a"]
	info := node.Drivers[plugintest.DriverName]
	if info == nil || !info.Healthy || info.HealthDescription != "ready" || node.Attributes["driver."+plugintest.DriverName] == "" {
		t.Fatalf("driver is %+v with attributes %v", info, node.Attributes)
	}
	const script = `trap 'echo got it' USR1; trap 'echo bye; exit 7' TERM; echo "hello $NAME"; while :; do sleep 0.05; done`
	task := api.NewTask("main", plugintest.DriverName).
		SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script}).
		Require(&api.Resources{CPU: new(100), MemoryMB: new(64)})
	task.Env = map[string]string{"NAME": "driver"}
	job := api.NewBatchJob("sleeper", "sleeper", "global", 50).AddDatacenter("dc1").AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
	if _, _, err := c.Client().Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	alloc := waitRunning(t, c)

	if err := c.Client().Allocations().Signal(alloc, nil, "main", "SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	waitOutput(t, c, alloc, "hello driver\ngot it\n")

	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	code, err := c.Client().Allocations().Exec(ctx, alloc, "main", false, []string{"/bin/sh", "-c", "tr a-z A-Z; echo $NAME >&2; exit 5"},
		strings.NewReader("in the task"), &out, &errOut, make(chan api.TerminalSize), nil)
	if err != nil || code != 5 || out.String() != "IN THE TASK" || errOut.String() != "driver\n" {
		t.Errorf("exec = %d, %v with output %q and %q", code, err, &out, &errOut)
	}
	eventually(t, "the task's statistics", func() (bool, any) {
		stats, err := c.Client().Allocations().Stats(alloc, nil)
		if err != nil || stats.Tasks["main"] == nil || stats.Tasks["main"].ResourceUsage == nil {
			text, _ := json.Marshal(stats)
			return false, fmt.Sprintf("%s %v", text, err)
		}
		got := stats.Tasks["main"].ResourceUsage.MemoryStats.RSS
		return got == 42<<20, got
	})

	if _, err := c.Client().Allocations().Stop(alloc, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the task's end", func() (bool, any) {
		a, _, err := c.Client().Allocations().Info(alloc.ID, nil)
		if err != nil {
			return false, err
		}
		for _, e := range a.TaskStates["main"].Events {
			if e.Type == api.TaskTerminated {
				return e.ExitCode == 7, e
			}
		}
		return false, a.ClientStatus
	})
}

func waitOutput(t *testing.T, c devcluster.Cluster, alloc *api.Allocation, want string) {
	t.Helper()
	eventually(t, "the task's output", func() (bool, any) {
		r, err := c.Client().AllocFS().Cat(alloc, "alloc/logs/main.stdout.0", nil)
		if err != nil {
			return false, err
		}
		defer r.Close()
		var out bytes.Buffer
		_, err = out.ReadFrom(r)
		return err == nil && out.String() == want, out.String()
	})
}
