package facts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
)

// driverSpec is one node with the test driver and simulated GPUs.
func driverSpec() devcluster.Spec {
	self, err := os.Executable()
	if err != nil {
		panic(err) // the test itself runs from it
	}
	return devcluster.Spec{Nodes: []devcluster.Node{{
		Name: "w1", DistinctClass: true, Meta: map[string]string{"shelf": "s1"},
		Plugins: []devcluster.Plugin{
			{Name: plugintest.DriverName, Path: self},
			{Name: plugin, Path: suite.plugin, Config: "source = \"mock:dgxa100\"\nmock_seed = \"w1\""},
		},
	}}}
}

// drivers is the purpose of clusters with the test driver.
const drivers = "drivers"

func eachDriver(t *testing.T, fact func(t *testing.T, e *env)) {
	eachOf(t, drivers, driverSpec, fact)
}

// driven is a batch job of one task for the test driver.
func (e *env) driven(script string) *api.Job {
	j := e.newJob(api.JobTypeBatch, "dc1", 1, 0, script)
	j.TaskGroups[0].Tasks[0].Driver = plugintest.DriverName
	return j
}

// only waits for the job's single allocation to have a client status.
func (e *env) only(id, status string) *api.Allocation {
	e.t.Helper()
	var a *api.Allocation
	e.until("the allocation of "+id+" "+status, func() (bool, any) {
		list := e.allocs(id)
		if len(list) == 0 {
			return false, "none"
		}
		var err error
		a, _, err = e.api.Allocations().Info(list[len(list)-1].ID, nil)
		return err == nil && a.ClientStatus == status, e.describe(id)
	})
	return a
}

// event waits for an event of a task.
func (e *env) event(alloc, task string, is func(*api.TaskEvent) bool) *api.TaskEvent {
	e.t.Helper()
	var found *api.TaskEvent
	e.until("the event of "+task, func() (bool, any) {
		a, _, err := e.api.Allocations().Info(alloc, nil)
		if err != nil || a.TaskStates[task] == nil {
			return false, err
		}
		var all []string
		for _, x := range a.TaskStates[task].Events {
			if is(x) {
				found = x
				return true, nil
			}
			all = append(all, fmt.Sprintf("%s: %s", x.Type, x.DisplayMessage))
		}
		return false, strings.Join(all, "; ")
	})
	return found
}

func ofType(typ string) func(*api.TaskEvent) bool {
	return func(x *api.TaskEvent) bool { return x.Type == typ }
}

// recovered waits until the driver was asked to recover the task.
func (e *env) recovered(alloc *api.Allocation, how string) {
	e.t.Helper()
	e.until("the task recovered "+how, func() (bool, any) {
		got := e.file(alloc, "main/local/"+plugintest.RecoveredFile)
		return strings.Contains(got, how), got
	})
}

// file is what a file of an allocation holds, "" if there is none.
func (e *env) file(alloc *api.Allocation, path string) string {
	text, err := devcluster.ReadFile(e.api, alloc, path)
	if err != nil {
		return ""
	}
	return text
}

// wrote waits for a task's output to satisfy a condition.
func (e *env) wrote(alloc *api.Allocation, ok func(string) bool) string {
	e.t.Helper()
	out := ""
	e.until("the task's output", func() (bool, any) {
		out = e.file(alloc, "alloc/logs/main.stdout.0")
		return ok(out), out
	})
	return out
}

// driverNode is the node, and the process of its driver.
func (e *env) driverNode() (*api.Node, int) {
	e.t.Helper()
	n := e.nodes("dc1")
	if len(n) != 1 {
		e.t.Fatalf("%d nodes are ready, want 1", len(n))
	}
	pid, err := strconv.Atoi(n[0].Attributes[plugintest.PIDAttribute])
	if err != nil {
		e.t.Fatalf("the driver's process is %q: %v", n[0].Attributes[plugintest.PIDAttribute], err)
	}
	return n[0], pid
}

func TestDriverRunsATask(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		node, _ := e.driverNode()
		info := node.Drivers[plugintest.DriverName]
		if info == nil || !info.Detected || !info.Healthy || info.HealthDescription != "ready" || node.Attributes["driver."+plugintest.DriverName] != "1" {
			t.Fatalf("driver is %+v with attributes %v", info, node.Attributes)
		}
		j := e.driven(`trap 'echo got it' USR1; trap 'echo bye; exit 7' USR2; echo "hello $NAME on ${meta.shelf} ${env["NOMAD_TASK_NAME"]}"; while :; do sleep 0.05; done`)
		task := j.TaskGroups[0].Tasks[0]
		task.Env, task.KillSignal = map[string]string{"NAME": "driver"}, "SIGUSR2"
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusRunning)
		e.wrote(alloc, func(s string) bool { return s == "hello driver on s1 main\n" })
		if err := e.api.Allocations().Signal(alloc, nil, "main", "SIGUSR1"); err != nil {
			t.Fatal(err)
		}
		e.wrote(alloc, func(s string) bool { return strings.HasSuffix(s, "got it\n") })
		e.event(alloc.ID, "main", ofType(api.TaskSignaling))
		said := e.event(alloc.ID, "main", ofType(api.TaskDriverMessage))
		if said.DisplayMessage != "started by the test driver" || said.Details["pid"] == "" {
			t.Errorf("the driver's event is %+v", said)
		}

		var out, errOut bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		code, err := e.api.Allocations().Exec(ctx, alloc, "main", false, []string{"/bin/sh", "-c", "tr a-z A-Z; echo $NAME >&2; exit 5"},
			strings.NewReader("in the task"), &out, &errOut, make(chan api.TerminalSize), nil)
		if err != nil || code != 5 || out.String() != "IN THE TASK" || errOut.String() != "driver\n" {
			t.Errorf("exec = %d, %v with output %q and %q", code, err, &out, &errOut)
		}
		if _, err := e.api.Allocations().Exec(ctx, alloc, "other", false, []string{"true"}, strings.NewReader(""), &out, &errOut, nil, nil); err == nil ||
			!strings.Contains(err.Error(), "task not found") {
			t.Errorf("exec in a task that there is not: %v", err)
		}
		e.until("the task's statistics", func() (bool, any) {
			stats, err := e.api.Allocations().Stats(alloc, nil)
			if err != nil || stats.Tasks["main"] == nil || stats.Tasks["main"].ResourceUsage == nil {
				return false, err
			}
			got := stats.Tasks["main"].ResourceUsage.MemoryStats
			return got.RSS == 42<<20 && slices.Equal(got.Measured, []string{"RSS"}), got
		})
		if _, err := e.api.Allocations().Stop(alloc, nil); err != nil {
			t.Fatal(err)
		}
		if x := e.event(alloc.ID, "main", ofType(api.TaskTerminated)); x.ExitCode != 7 || x.Details["exit_code"] != "7" || x.DisplayMessage != "Exit Code: 7" {
			t.Errorf("the task ended with %+v", x)
		}
		e.event(alloc.ID, "main", ofType(api.TaskKilled))
		e.wrote(alloc, func(s string) bool { return strings.HasSuffix(s, "bye\n") })
	})
}

// A device plugin's reservation counts more than the job's environment.
func TestDriverGetsDevices(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		node, _ := e.driverNode()
		j := e.driven(`echo "$NVIDIA_VISIBLE_DEVICES"; ` + sleeper)
		task := j.TaskGroups[0].Tasks[0]
		task.Resources.Devices = []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(1))}}
		task.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"}
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusRunning)
		out := e.wrote(alloc, func(s string) bool { return strings.HasSuffix(s, "\n") })
		if !slices.Contains(gpus(node), strings.TrimSpace(out)) {
			t.Errorf("the task sees %q of %v", out, gpus(node))
		}
		// Its statistics have those of its devices, and of no others.
		e.until("the statistics of its device", func() (bool, any) {
			stats, err := e.api.Allocations().Stats(alloc, nil)
			if err != nil || stats.Tasks["main"] == nil || stats.Tasks["main"].ResourceUsage == nil {
				return false, err
			}
			of, all := stats.Tasks["main"].ResourceUsage.DeviceStats, stats.ResourceUsage.DeviceStats
			return len(of) == 1 && len(all) == 1 && len(of[0].InstanceStats) == 1 && of[0].InstanceStats[strings.TrimSpace(out)] != nil, of
		})
	})
}

func TestDriverRefusals(t *testing.T) {
	tests := map[string]struct {
		change   func(task *api.Task)
		event    string
		text     string
		reason   string
		restarts uint64
	}{
		"unknown key": {
			change: func(task *api.Task) { task.SetConfig("colour", "red") },
			event:  api.TaskFailedValidation, text: "colour", reason: "Error was unrecoverable",
		},
		"missing key": {
			change: func(task *api.Task) { delete(task.Config, "command") },
			event:  api.TaskFailedValidation, text: "command", reason: "Error was unrecoverable",
		},
		"start fails": {
			change: func(task *api.Task) { task.SetConfig("start_error", "no room") },
			event:  api.TaskDriverFailure, text: "no room", reason: "Error was unrecoverable",
		},
		"start fails for now": {
			change: func(task *api.Task) { task.SetConfig("start_error", "no room").SetConfig("recoverable", true) },
			event:  api.TaskDriverFailure, text: "no room", reason: `Exceeded allowed attempts 1 in interval 1h0m0s and mode is "fail"`, restarts: 1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachDriver(t, func(t *testing.T, e *env) {
				j := e.driven("true")
				j.TaskGroups[0].RestartPolicy = &api.RestartPolicy{Attempts: ptr(1), Interval: ptr(time.Hour), Delay: ptr(10 * time.Millisecond), Mode: ptr("fail")}
				test.change(j.TaskGroups[0].Tasks[0])
				e.register(j)
				alloc := e.only(*j.ID, api.AllocClientStatusFailed)
				if x := e.event(alloc.ID, "main", ofType(test.event)); !strings.Contains(x.DisplayMessage, test.text) {
					t.Errorf("the event says %q, want %q in it", x.DisplayMessage, test.text)
				}
				if x := e.event(alloc.ID, "main", ofType(api.TaskNotRestarting)); x.DisplayMessage != test.reason {
					t.Errorf("it is not restarted because of %q, want %q", x.DisplayMessage, test.reason)
				}
				if n := alloc.TaskStates["main"].Restarts; n != test.restarts {
					t.Errorf("%d restarts, want %d", n, test.restarts)
				}
			})
		})
	}
}

func TestDriverLogs(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		j := e.driven("head -c 2500000 /dev/zero | tr '\\0' x; echo end")
		j.TaskGroups[0].Tasks[0].LogConfig = &api.LogConfig{MaxFiles: ptr(2), MaxFileSizeMB: ptr(1), Disabled: ptr(false)}
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusComplete)
		// The oldest of the files goes. Nomad begins another a little early.
		e.until("the rotated log", func() (bool, any) {
			gone, full, last := e.file(alloc, "alloc/logs/main.stdout.0"), e.file(alloc, "alloc/logs/main.stdout.1"), e.file(alloc, "alloc/logs/main.stdout.2")
			return gone == "" && len(full) > 900_000 && len(full) <= 1<<20 && strings.HasSuffix(last, "xend\n"), []int{len(gone), len(full), len(last)}
		})
	})
}

// raw_exec does not try again what it could not start, whatever the policy.
func TestRawExecCannotStart(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := e.newJob(api.JobTypeBatch, alike, 1, 0, "true")
		j.TaskGroups[0].RestartPolicy = &api.RestartPolicy{Attempts: ptr(2), Interval: ptr(time.Hour), Delay: ptr(10 * time.Millisecond), Mode: ptr("fail")}
		j.TaskGroups[0].Tasks[0].SetConfig("command", "/no/such/command")
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusFailed)
		e.event(alloc.ID, "main", ofType(api.TaskDriverFailure))
		if x := e.event(alloc.ID, "main", ofType(api.TaskNotRestarting)); x.DisplayMessage != "Error was unrecoverable" || alloc.TaskStates["main"].Restarts != 0 {
			t.Errorf("it is not restarted because of %q, after %d restarts", x.DisplayMessage, alloc.TaskStates["main"].Restarts)
		}
	})
}
