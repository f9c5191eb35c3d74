package gangspec_test

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

func TestFence(t *testing.T) {
	const s = time.Second
	task := func(driver string, after any, kill time.Duration) *api.Task {
		out := &api.Task{Name: "t", Driver: driver, Config: map[string]any{}}
		if after != nil {
			out.Config["fence_after"] = after
		}
		if kill > 0 {
			out.KillTimeout = &kill
		}
		return out
	}
	disconnect := func(after time.Duration) *api.DisconnectStrategy {
		return &api.DisconnectStrategy{StopOnClientAfter: &after}
	}
	tests := map[string]struct {
		tasks      []*api.Task
		disconnect *api.DisconnectStrategy
		old        *time.Duration
		group      string
		want       time.Duration
	}{
		"the driver's default":     {tasks: []*api.Task{task("caravan", nil, 0)}, want: 65 * s},
		"the task's own":           {tasks: []*api.Task{task("caravan", "2m", 30*s)}, want: 150 * s},
		"none":                     {tasks: []*api.Task{task("caravan", "0", 0)}, want: 0},
		"none, as a number":        {tasks: []*api.Task{task("caravan", 0, 0)}, want: 0},
		"nonsense":                 {tasks: []*api.Task{task("caravan", "soon", 0)}, want: 65 * s},
		"interpolated":             {tasks: []*api.Task{task("caravan", "${meta.fence}", 0)}, want: 65 * s},
		"another driver":           {tasks: []*api.Task{task("docker", "2m", 30*s)}, want: 0},
		"Nomad's client":           {tasks: []*api.Task{task("docker", nil, 10*s)}, disconnect: disconnect(20 * s), want: 30 * s},
		"Nomad's client, old form": {tasks: []*api.Task{task("docker", nil, 10*s)}, old: new(40 * s), want: 50 * s},
		"whichever comes first":    {tasks: []*api.Task{task("caravan", "2m", 0)}, disconnect: disconnect(20 * s), want: 25 * s},
		"the driver comes first":   {tasks: []*api.Task{task("caravan", "10s", 0)}, disconnect: disconnect(20 * s), want: 15 * s},
		"the slowest task counts":  {tasks: []*api.Task{task("caravan", "10s", 0), task("caravan", "20s", 0), task("docker", nil, 0)}, want: 25 * s},
		"a group of before":        {tasks: []*api.Task{task("caravan", "10s", 0)}, group: "gone", want: 15 * s},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			group := test.group
			if group == "" {
				group = "w"
			}
			job := &api.Job{TaskGroups: []*api.TaskGroup{nil, {Name: new("w"), Tasks: append(test.tasks, nil), Disconnect: test.disconnect, StopAfterClientDisconnect: test.old}}}
			if got := gangspec.Fence(job, group); got != test.want {
				t.Errorf("Fence = %v, want %v", got, test.want)
			}
		})
	}
}
