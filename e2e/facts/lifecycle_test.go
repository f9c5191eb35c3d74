package facts

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
)

// with adds a task to a job's group.
func with(j *api.Job, name, hook string, sidecar bool, script string) *api.Task {
	task := api.NewTask(name, plugintest.DriverName).SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script})
	task.Resources = &api.Resources{CPU: ptr(50), MemoryMB: ptr(16)}
	task.KillTimeout = ptr(20 * time.Second)
	if hook != "" {
		task.Lifecycle = &api.TaskLifecycle{Hook: hook, Sidecar: sidecar}
	}
	j.TaskGroups[0].AddTask(task)
	return task
}

// tells writes a line into the order of things.
func tells(what string) string { return `echo ` + what + ` >> "$NOMAD_ALLOC_DIR/data/order"; ` }

// hears waits until that line is there.
func hears(what string) string {
	return `until grep -qx ` + what + ` "$NOMAD_ALLOC_DIR/data/order" 2> /dev/null; do sleep 0.02; done; `
}

// Tasks start in the order of their hooks: what comes before the main tasks has
// ended, or runs if it is a sidecar; poststart tasks come when those run.
func TestLifecycleOrder(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		j := e.driven(tells("main") + hears("then") + tells("main-ends"))
		with(j, "before", "prestart", false, hears("beside")+tells("before"))
		with(j, "beside", "prestart", true, `trap "echo beside-ends >> $NOMAD_ALLOC_DIR/data/order; exit 0" TERM; `+tells("beside")+`while :; do sleep 0.05; done`)
		with(j, "then", "poststart", false, hears("main")+tells("then"))
		with(j, "after", "poststop", false, tells("after"))
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusComplete)
		got := strings.Fields(e.file(alloc, "alloc/data/order"))
		want := []string{"beside", "before", "main", "then", "main-ends", "beside-ends", "after"}
		if !slices.Equal(got, want) {
			t.Errorf("order was %v, want %v", got, want)
		}
		e.event(alloc.ID, "beside", ofType("Main Tasks Dead"))
	})
}

// When a leader ends its siblings are stopped, and the allocation is complete;
// when a task fails they are stopped and it has failed.
func TestSiblingsEnd(t *testing.T) {
	tests := map[string]struct {
		script string
		leader bool
		event  string
		status string
	}{
		"leader ends": {hears("sibling"), true, api.TaskLeaderDead, api.AllocClientStatusComplete},
		"task fails":  {hears("sibling") + "exit 3", false, api.TaskSiblingFailed, api.AllocClientStatusFailed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachDriver(t, func(t *testing.T, e *env) {
				j := e.driven(test.script)
				j.TaskGroups[0].Tasks[0].Leader = test.leader
				with(j, "sibling", "", false, `trap "sleep 0.5; exit 0" TERM; `+tells("sibling")+`while :; do sleep 0.05; done`)
				e.register(j)
				alloc := e.only(*j.ID, test.status)
				e.event(alloc.ID, "sibling", ofType(test.event))
				sibling := alloc.TaskStates["sibling"]
				if sibling.State != "dead" || sibling.Failed {
					t.Errorf("the sibling is %s, failed: %v, when the allocation is %s", sibling.State, sibling.Failed, test.status)
				}
			})
		})
	}
}

// A stop ends the leader first, then the other tasks, sidecars last.
func TestStopOrder(t *testing.T) {
	eachDriver(t, func(t *testing.T, e *env) {
		ends := func(name string) string {
			return `trap "sleep 0.3; echo ` + name + ` >> $NOMAD_ALLOC_DIR/data/order; exit 0" TERM; ` + tells("up") + `while :; do sleep 0.05; done`
		}
		j := e.driven(ends("main"))
		with(j, "boss", "", false, ends("boss")).Leader = true
		with(j, "beside", "prestart", true, ends("beside"))
		e.register(j)
		alloc := e.only(*j.ID, api.AllocClientStatusRunning)
		e.until("all tasks run", func() (bool, any) {
			a, _, err := e.api.Allocations().Info(alloc.ID, nil)
			if err != nil {
				return false, err
			}
			for _, s := range a.TaskStates {
				if s.State != "running" {
					return false, s.State
				}
			}
			return true, nil
		})
		e.until("all tasks are ready for their end", func() (bool, any) {
			order := e.file(alloc, "alloc/data/order")
			return order == "up\nup\nup\n", order
		})
		if _, err := e.api.Allocations().Stop(alloc, nil); err != nil {
			t.Fatal(err)
		}
		alloc = e.allocStatus(alloc.ID, api.AllocDesiredStatusStop, api.AllocClientStatusComplete)
		if got := strings.Fields(e.file(alloc, "alloc/data/order")); !slices.Equal(got, []string{"up", "up", "up", "boss", "main", "beside"}) {
			t.Errorf("the tasks ended in the order %v", got)
		}
	})
}
