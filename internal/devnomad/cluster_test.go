package devnomad_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
)

// TestMain lets this binary be the clients' device plugin.
func TestMain(m *testing.M) {
	plugintest.ServeIfStarted()
	os.Exit(m.Run())
}

// start starts a cluster of alike nodes, each with gpus devices named after it.
func start(t *testing.T, opts devnomad.Options, gpus int, names ...string) *devnomad.Cluster {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := devcluster.Spec{DataDir: t.TempDir(), Log: func(line string) { t.Log(line) }}
	for _, n := range names {
		node := devcluster.Node{Name: n, Meta: map[string]string{"rack": "r1"}}
		if gpus > 0 {
			node.Plugins = []devcluster.Plugin{{Name: plugintest.DeviceName, Path: self, Config: fmt.Sprintf("count = %d\nprefix = %q", gpus, n+"-")}}
		}
		spec.Nodes = append(spec.Nodes, node)
	}
	return startSpec(t, spec, opts)
}

func startSpec(t *testing.T, spec devcluster.Spec, opts devnomad.Options) *devnomad.Cluster {
	t.Helper()
	c, err := devnomad.StartWith(t.Context(), spec, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually waits for a condition that the cluster comes to by itself.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func job(id, typ string, count int, script string) *api.Job {
	j := api.NewBatchJob(id, id, "global", 50)
	if typ == api.JobTypeService {
		j = api.NewServiceJob(id, id, "global", 50)
	}
	task := api.NewTask("main", "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script})
	j.AddTaskGroup(api.NewTaskGroup("g", count).AddTask(task))
	j.TaskGroups[0].RestartPolicy = &api.RestartPolicy{Attempts: new(int), Mode: ptr("fail")}
	j.TaskGroups[0].ReschedulePolicy = &api.ReschedulePolicy{Attempts: new(int), Unlimited: new(bool)}
	return j
}

func register(t *testing.T, c *devnomad.Cluster, j *api.Job) {
	t.Helper()
	if _, _, err := c.Client().Jobs().Register(j, nil); err != nil {
		t.Fatal(err)
	}
}

// reach waits until n allocations of a job have a client status.
func reach(t *testing.T, c *devnomad.Cluster, job, status string, n int) []*api.AllocationListStub {
	t.Helper()
	var out []*api.AllocationListStub
	eventually(t, fmt.Sprintf("%d members of %s %s", n, job, status), func() bool {
		out = nil
		all, _, err := c.Client().Jobs().Allocations(job, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.ClientStatus == status {
				out = append(out, a)
			}
		}
		return len(out) == n
	})
	return out
}

func logs(t *testing.T, c *devnomad.Cluster, alloc, kind string) string {
	t.Helper()
	resp, err := http.Get(c.Address() + "/v1/client/fs/logs/" + alloc + "?task=main&plain=true&type=" + kind)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestTaskEnvironment(t *testing.T) {
	c := start(t, devnomad.Options{}, 2, "a")
	j := job("env", api.JobTypeBatch, 1, `echo $NOMAD_ALLOC_NAME $NOMAD_ALLOC_INDEX $NOMAD_GROUP_NAME $NOMAD_META_queue ${node.unique.name} ${meta.rack} $EXTRA; test "$(pwd)/local" = "$NOMAD_TASK_DIR" && echo in its folder; env | grep TEST_DEVICE | sort; echo $NOMAD_PORT_web >&2`)
	tg := j.TaskGroups[0]
	tg.Meta = map[string]string{"queue": "research"}
	tg.Networks = []*api.NetworkResource{{DynamicPorts: []api.Port{{Label: "web"}}}}
	tg.Tasks[0].Env = map[string]string{"EXTRA": "job ${NOMAD_JOB_ID}"}
	tg.Tasks[0].Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(2))}}}
	register(t, c, j)
	a := reach(t, c, "env", api.AllocClientStatusComplete, 1)[0]
	out := logs(t, c, a.ID, "stdout")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 {
		t.Fatalf("the task printed\n%s", out)
	}
	if diff := cmp.Diff([]string{"env.g[0] 0 g research a r1 job env", "in its folder"}, lines[:2]); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	devices := lines[2] + " " + lines[3]
	if devices != "TEST_DEVICE_0=a-0 TEST_DEVICE_1=a-1" && devices != "TEST_DEVICE_0=a-1 TEST_DEVICE_1=a-0" {
		t.Errorf("devices reserved: %s", devices)
	}
	if port := strings.TrimSpace(logs(t, c, a.ID, "stderr")); len(port) != 5 {
		t.Errorf("port is %q", port)
	}
}

// TestSpecPath: commands are found in the directories that the cluster is given,
// by their names alone, after those of the machine.
func TestSpecPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"own-tool", "true"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho found; command -v own-tool\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := startSpec(t, devcluster.Spec{DataDir: t.TempDir(), Path: []string{dir}, Nodes: []devcluster.Node{{Name: "a"}}}, devnomad.Options{})
	for command, want := range map[string]string{"own-tool": "found\n" + filepath.Join(dir, "own-tool") + "\n", "true": ""} {
		j := job("path-"+command, api.JobTypeBatch, 1, "")
		j.TaskGroups[0].Tasks[0].Config = map[string]any{"command": command}
		register(t, c, j)
		a := reach(t, c, *j.ID, api.AllocClientStatusComplete, 1)[0]
		if got := logs(t, c, a.ID, "stdout"); got != want {
			t.Errorf("%s printed %q, want %q", command, got, want)
		}
	}
}

// TestKill: kill_signal first, and after kill_timeout the whole process group.
func TestKill(t *testing.T) {
	c := start(t, devnomad.Options{}, 0, "a")
	dir := t.TempDir()
	polite := job("polite", api.JobTypeService, 1, `trap 'echo term > `+dir+`/polite; exit 0' TERM; echo > `+dir+`/ready; while :; do sleep 0.05; done`)
	polite.TaskGroups[0].Tasks[0].KillSignal = "SIGTERM"
	deaf := job("deaf", api.JobTypeService, 1, `trap '' INT; (while :; do echo x >> `+dir+`/child; sleep 0.02; done) & wait`)
	deaf.TaskGroups[0].Tasks[0].KillTimeout = ptr(100 * time.Millisecond)
	register(t, c, polite)
	register(t, c, deaf)
	reach(t, c, "polite", api.AllocClientStatusRunning, 1)
	reach(t, c, "deaf", api.AllocClientStatusRunning, 1)
	for _, name := range []string{"child", "ready"} {
		eventually(t, "the tasks write", func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil })
	}
	for _, id := range []string{"polite", "deaf"} {
		if _, _, err := c.Client().Jobs().Deregister(id, false, nil); err != nil {
			t.Fatal(err)
		}
		reach(t, c, id, api.AllocClientStatusComplete, 1)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "polite")); err != nil || string(raw) != "term\n" {
		t.Errorf("the polite task wrote %q, %v", raw, err)
	}
	if err := os.Remove(filepath.Join(dir, "child")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if _, err := os.Stat(filepath.Join(dir, "child")); err == nil {
		t.Error("the child of a killed task lives on")
	}
}

func TestRestartsAndFailure(t *testing.T) {
	c := start(t, devnomad.Options{}, 0, "a")
	j := job("flaky", api.JobTypeBatch, 1, `[ -e ../tries-$NOMAD_TASK_NAME ] && exit 0; touch ../tries-$NOMAD_TASK_NAME; exit 3`)
	j.TaskGroups[0].RestartPolicy = &api.RestartPolicy{Attempts: ptr(2), Interval: ptr(time.Hour), Delay: ptr(time.Millisecond), Mode: ptr("fail")}
	register(t, c, j)
	a := reach(t, c, "flaky", api.AllocClientStatusComplete, 1)[0]
	if n := a.TaskStates["main"].Restarts; n != 1 {
		t.Errorf("%d restarts, want 1", n)
	}
	hopeless := job("hopeless", api.JobTypeBatch, 1, "exit 3")
	register(t, c, hopeless)
	a = reach(t, c, "hopeless", api.AllocClientStatusFailed, 1)[0]
	s := a.TaskStates["main"]
	if !s.Failed || s.State != "dead" {
		t.Errorf("task is %s, failed %v", s.State, s.Failed)
	}
}

// TestLifecycle: prestart before main, sidecars beside it, poststop after.
func TestLifecycle(t *testing.T) {
	c := start(t, devnomad.Options{}, 0, "a")
	j := job("life", api.JobTypeBatch, 1, `echo main >> $NOMAD_ALLOC_DIR/data/order`)
	add := func(name, hook string, sidecar bool, script string) {
		task := api.NewTask(name, "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script})
		task.Lifecycle = &api.TaskLifecycle{Hook: hook, Sidecar: sidecar}
		j.TaskGroups[0].AddTask(task)
	}
	add("before", "prestart", false, `echo before >> $NOMAD_ALLOC_DIR/data/order`)
	add("beside", "prestart", true, `while :; do sleep 0.05; done`)
	add("after", "poststop", false, `echo after >> $NOMAD_ALLOC_DIR/data/order`)
	register(t, c, j)
	a := reach(t, c, "life", api.AllocClientStatusComplete, 1)[0]
	resp, err := http.Get(c.Address() + "/v1/client/fs/cat/" + a.ID + "?path=alloc/data/order")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || string(raw) != "before\nmain\nafter\n" {
		t.Errorf("order was %q, %v", raw, err)
	}
}

// TestSignalAndRestart: a signal reaches the process, and a restart starts
// another one in the same allocation.
func TestSignalAndRestart(t *testing.T) {
	c := start(t, devnomad.Options{}, 0, "a")
	register(t, c, job("sig", api.JobTypeBatch, 1, `trap 'echo got it' USR1; trap 'exit 0' INT; echo ready; while :; do sleep 0.02; done`))
	stub := reach(t, c, "sig", api.AllocClientStatusRunning, 1)[0]
	said := func(n int, what string) func() bool {
		return func() bool { return strings.Count(logs(t, c, stub.ID, "stdout"), what) == n }
	}
	eventually(t, "the task is ready", said(1, "ready"))
	alloc := &api.Allocation{ID: stub.ID}
	if err := c.Client().Allocations().Signal(alloc, nil, "main", "SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the signal arrived", said(1, "got it"))
	if err := c.Client().Allocations().Restart(alloc, "main", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the task is ready again", said(2, "ready"))
	if a := reach(t, c, "sig", api.AllocClientStatusRunning, 1)[0]; a.ID != stub.ID || a.TaskStates["main"].Restarts != 1 {
		t.Errorf("allocation %s with %d restarts, want %s with 1", a.ID, a.TaskStates["main"].Restarts, stub.ID)
	}
	for name, err := range map[string]error{
		"unknown signal": c.Client().Allocations().Signal(alloc, nil, "main", "SIGNONE"),
		"unknown task":   c.Client().Allocations().Signal(alloc, nil, "other", "SIGUSR1"),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestNodeAway: a stopped node's tasks live on, and what they do meanwhile is
// reported when it is back.
func TestNodeAway(t *testing.T) {
	c := start(t, devnomad.Options{LostAfter: time.Hour}, 2, "a")
	stop := filepath.Join(t.TempDir(), "stop")
	register(t, c, job("away", api.JobTypeBatch, 1, "while [ ! -e "+stop+" ]; do sleep 0.02; done"))
	reach(t, c, "away", api.AllocClientStatusRunning, 1)
	if err := c.StopNode("a"); err != nil {
		t.Fatal(err)
	}
	if err := c.StopNode("a"); err == nil {
		t.Error("a stopped node was stopped again")
	}
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	reach(t, c, "away", api.AllocClientStatusRunning, 1)
	if err := c.StartNode("a"); err != nil {
		t.Fatal(err)
	}
	reach(t, c, "away", api.AllocClientStatusComplete, 1)
	for _, err := range []error{c.StopNode("none"), c.StartNode("none"), c.StartNode("a")} {
		if err == nil {
			t.Error("a fault was not reported")
		}
	}
}

func ptr[T any](v T) *T { return &v }
