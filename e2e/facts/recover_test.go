package facts

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
)

const counter = `trap 'exit 3' TERM; n=0; while :; do echo $n; n=$((n+1)); sleep 0.02; done`

// complete checks that a counter's output lacks nothing, and returns its end.
func complete(t *testing.T, out string) int {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for i, l := range lines {
		if i < len(lines)-1 && l != strconv.Itoa(i) {
			t.Fatalf("line %d is %q", i, l)
		}
	}
	return len(lines)
}

// An agent that is killed leaves drivers, tasks and log collection alone, and
// finds them again: the driver's process is the same, and is asked to recover.
func TestDriverSurvivesItsClient(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		_, pid := e.driverNode()
		j := e.driven(counter)
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusRunning)
		e.wrote(alloc, func(s string) bool { return complete(t, s) > 5 })
		e.restartNode("w1", func() {})
		if _, now := e.driverNode(); now != pid {
			t.Errorf("the driver's process is %d, and was %d", now, pid)
		}
		e.recovered(alloc, plugintest.RecoveredBySame+plugintest.NoConfig+"\n")
		before := complete(t, e.file(alloc, "alloc/logs/main.stdout.0"))
		e.wrote(alloc, func(s string) bool { return complete(t, s) > before+5 })
		after := e.only(*j.ID, api.AllocClientStatusRunning)
		if after.ID != alloc.ID || after.TaskStates["main"].Restarts != 0 {
			t.Errorf("allocation %s with %d restarts, want %s with none", after.ID, after.TaskStates["main"].Restarts, alloc.ID)
		}
		if _, err := e.api.Allocations().Stop(alloc, nil); err != nil {
			t.Fatal(err)
		}
		if x := e.event(alloc.ID, "main", ofType(api.TaskTerminated)); x.ExitCode != 3 {
			t.Errorf("the task ended with %d, want 3", x.ExitCode)
		}
	})
}

// restartNode kills a node's agent, does something, and starts it again.
func (e *env) restartNode(name string, meanwhile func()) {
	e.t.Helper()
	if err := e.c.StopNode(name); err != nil {
		e.t.Fatal(err)
	}
	meanwhile()
	if err := e.c.StartNode(name); err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	if err := e.c.WaitReady(ctx); err != nil {
		e.t.Fatal(err)
	}
}

// killDriver kills the driver's process.
func (e *env) killDriver() {
	e.t.Helper()
	_, pid := e.driverNode()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		e.t.Fatal(err)
	}
}

// newDriver waits for a driver with another process.
func (e *env) newDriver(old int) {
	e.t.Helper()
	e.until("another process of the driver", func() (bool, any) {
		n := e.nodes("dc1")
		if len(n) != 1 {
			return false, n
		}
		now := n[0].Attributes[plugintest.PIDAttribute]
		return now != strconv.Itoa(old) && n[0].Drivers[plugintest.DriverName].Healthy, now
	})
}

func TestDriverProcessDies(t *testing.T) {
	tests := map[string]struct {
		with   func(e *env)
		config string
	}{
		"under its client":        {(*env).killDriver, ""},
		"while the agent is away": {func(e *env) { e.restartNode("w1", e.killDriver) }, plugintest.NoConfig},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachDriver(t, func(t *testing.T, e *env) {
				_, pid := e.driverNode()
				j := e.driven(counter)
				e.register(j)
				alloc := e.only(*j.ID, api.AllocClientStatusRunning)
				e.wrote(alloc, func(s string) bool { return complete(t, s) > 5 })
				test.with(e)
				e.recovered(alloc, plugintest.RecoveredByOther+test.config+"\n")
				e.newDriver(pid)
				before := complete(t, e.file(alloc, "alloc/logs/main.stdout.0"))
				e.wrote(alloc, func(s string) bool { return complete(t, s) > before+5 })
				if _, err := e.api.Allocations().Stop(alloc, nil); err != nil {
					t.Fatal(err)
				}
				if x := e.event(alloc.ID, "main", ofType(api.TaskTerminated)); x.ExitCode != plugintest.RecoveredExit {
					t.Errorf("the task ended with %d, want %d", x.ExitCode, plugintest.RecoveredExit)
				}
			})
		})
	}
}

// A task that a new process of the driver cannot take over runs again: under
// the restart policy when the process died, without it when the agent was away.
func TestDriverForgetsATask(t *testing.T) {
	tests := map[string]struct {
		with     func(e *env)
		event    string
		restarts uint64
	}{
		"under its client":        {(*env).killDriver, api.TaskRestarting, 1},
		"while the agent is away": {func(e *env) { e.restartNode("w1", e.killDriver) }, "Failed Restoring Task", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachDriver(t, func(t *testing.T, e *env) {
				_, pid := e.driverNode()
				j := e.driven("echo run; while [ -d .. ]; do sleep 0.05; done")
				j.TaskGroups[0].RestartPolicy = &api.RestartPolicy{Attempts: ptr(1), Interval: ptr(time.Hour), Delay: ptr(10 * time.Millisecond), Mode: ptr("fail")}
				j.TaskGroups[0].Tasks[0].SetConfig("forget", true)
				e.register(j)
				alloc := e.only(*j.ID, api.AllocClientStatusRunning)
				first := e.event(alloc.ID, "main", ofType(api.TaskDriverMessage)).Details["pid"]
				t.Cleanup(func() { killGroup(t, first) })
				test.with(e)
				e.event(alloc.ID, "main", ofType(test.event))
				e.event(alloc.ID, "main", func(x *api.TaskEvent) bool { return x.Type == api.TaskDriverMessage && x.Details["pid"] != first })
				e.newDriver(pid)
				if now := e.only(*j.ID, api.AllocClientStatusRunning); now.ID != alloc.ID || now.TaskStates["main"].Restarts != test.restarts {
					t.Errorf("allocation %s with %d restarts, want %s with %d", now.ID, now.TaskStates["main"].Restarts, alloc.ID, test.restarts)
				}
			})
		})
	}
}

// killGroup ends a process that nobody knows any more.
func killGroup(t *testing.T, pid string) {
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Errorf("process %q: %v", pid, err)
		return
	}
	_ = syscall.Kill(-n, syscall.SIGKILL) // it may have ended
}

// What ended while the agent was away is told when it is back.
func TestDriverTaskEndsMeanwhile(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		mark := t.TempDir() + "/go"
		j := e.driven("while [ ! -e " + mark + " ]; do sleep 0.02; done; echo over; exit 4")
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusRunning)
		e.restartNode("w1", func() {
			if err := os.WriteFile(mark, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			e.until("the task ends", func() (bool, any) {
				pid := e.event(alloc.ID, "main", ofType(api.TaskDriverMessage)).Details["pid"]
				raw, err := os.ReadFile("/proc/" + pid + "/stat")
				return err != nil || strings.Contains(string(raw), ") Z "), string(raw)
			})
		})
		if x := e.event(alloc.ID, "main", ofType(api.TaskTerminated)); x.ExitCode != 4 {
			t.Errorf("the task ended with %d, want 4", x.ExitCode)
		}
		e.only(*j.ID, api.AllocClientStatusFailed)
		e.wrote(alloc, func(s string) bool { return s == "over\n" })
	})
}
