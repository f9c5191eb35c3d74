package nomadproc_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// envHelper makes this binary start a cluster, print a line and wait to be
// killed.
const envHelper = "CARAVAN_TEST_CLUSTER_DIR"

// TestMain lets this binary be the clients' device plugin, and the process that
// a test kills.
func TestMain(m *testing.M) {
	plugintest.ServeIfStarted()
	if dir := os.Getenv(envHelper); dir != "" {
		helper(dir)
	}
	os.Exit(m.Run())
}

func helper(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	bin, _ := nomadproc.Find()
	c, err := nomadproc.Start(ctx, bin, devcluster.Spec{DataDir: dir, Nodes: []devcluster.Node{{Name: "n1"}}})
	if err == nil {
		err = c.WaitReady(ctx)
	}
	fmt.Println("ready", err)
	select {}
}

func binary(t *testing.T) string {
	t.Helper()
	bin, ok := nomadproc.Find()
	if !ok {
		t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
	}
	return bin
}

func start(t *testing.T, spec devcluster.Spec) *nomadproc.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if spec.Log == nil {
		spec.Log = func(line string) {
			if strings.Contains(line, "[ERROR]") {
				t.Log(line)
			}
		}
	}
	c, err := nomadproc.Start(ctx, binary(t), spec)
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

func plugin(t *testing.T, config string) devcluster.Plugin {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return devcluster.Plugin{Name: plugintest.DeviceName, Path: self, Config: config}
}

// eventually waits for a condition; got describes what is there instead.
func eventually(t *testing.T, what string, condition func() (ok bool, got any)) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		ok, got := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: still %v", what, got)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func nodes(t *testing.T, c devcluster.Cluster) map[string]*api.Node {
	t.Helper()
	stubs, _, err := c.Client().Nodes().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*api.Node{}
	for _, s := range stubs {
		n, _, err := c.Client().Nodes().Info(s.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		out[n.Name] = n
	}
	return out
}

// sleeper is a job for two GPUs that only node b has. Nodes of one computed class
// are judged by the first of them that is looked at, the IDs of its devices
// included: if that were a, b would count as unfit. A constraint of the group on
// what is unique, which all fulfil, has each node judged by itself.
func sleeper() *api.Job {
	task := api.NewTask("main", "raw_exec").
		SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", "echo $TEST_DEVICE_0; exec sleep 1000"}).
		Require(&api.Resources{
			CPU: new(100), MemoryMB: new(64),
			Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: new(uint64(2)), Constraints: []*api.Constraint{
				{LTarget: "${device.attr.memory}", Operand: ">=", RTarget: "79 GiB"},
				{LTarget: "${device.attr.island_size}", Operand: ">=", RTarget: "8"},
				{LTarget: "${device.ids}", Operand: "set_contains_any", RTarget: "b-1,b-2"},
			}}},
		})
	return api.NewBatchJob("sleeper", "sleeper", "global", 50).AddDatacenter("dc1").
		AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task).
			Constrain(api.NewConstraint("${node.unique.id}", api.ConstraintAttributeIsSet, "")))
}
