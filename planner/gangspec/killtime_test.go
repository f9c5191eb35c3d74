package gangspec_test

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

func TestKillTime(t *testing.T) {
	secs := func(n int) *time.Duration { d := time.Duration(n) * time.Second; return &d }
	name := func(s string) *string { return &s }
	group := func(delay *time.Duration, tasks ...*api.Task) *api.Job {
		return &api.Job{TaskGroups: []*api.TaskGroup{nil, {Name: name("w"), ShutdownDelay: delay, Tasks: append(tasks, nil)}}}
	}
	life := func(hook string, sidecar bool) *api.TaskLifecycle {
		return &api.TaskLifecycle{Hook: hook, Sidecar: sidecar}
	}
	tests := map[string]struct {
		job   *api.Job
		group string
		want  time.Duration
	}{
		"unknown job":                  {nil, "w", 5 * time.Second},
		"Nomad's default":              {group(nil, &api.Task{}), "w", 5 * time.Second},
		"its own":                      {group(nil, &api.Task{KillTimeout: secs(90)}), "w", 90 * time.Second},
		"none":                         {group(nil, &api.Task{KillTimeout: secs(0)}), "w", 0},
		"the longest":                  {group(nil, &api.Task{KillTimeout: secs(1)}, &api.Task{KillTimeout: secs(30)}, &api.Task{}), "w", 30 * time.Second},
		"shutdown_delay of both kinds": {group(secs(7), &api.Task{KillTimeout: secs(2), ShutdownDelay: 3 * time.Second}), "w", 12 * time.Second},
		"in turn": {group(nil, &api.Task{KillTimeout: secs(10), Leader: true}, &api.Task{KillTimeout: secs(20)},
			&api.Task{KillTimeout: secs(40), Lifecycle: life(api.TaskLifecycleHookPrestart, true)}), "w", 70 * time.Second},
		"a poststop task has not begun": {group(nil, &api.Task{KillTimeout: secs(10)},
			&api.Task{KillTimeout: secs(40), Lifecycle: life(api.TaskLifecycleHookPoststop, false)}), "w", 10 * time.Second},
		"a group of an earlier version":            {group(nil, &api.Task{KillTimeout: secs(10)}), "gone", 10 * time.Second},
		"less than the default is no bound for it": {group(nil, &api.Task{KillTimeout: secs(1)}), "gone", 5 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := gangspec.KillTime(test.job, test.group); got != test.want {
				t.Errorf("kill time = %v, want %v", got, test.want)
			}
		})
	}
}
