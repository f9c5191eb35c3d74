package gangspec

import (
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"
)

const (
	// DefaultFence is how long a task of Caravan's driver runs on while its node
	// is cut off, unless its config says otherwise.
	DefaultFence = 60 * time.Second
	// defaultKillTimeout is Nomad's.
	defaultKillTimeout = 5 * time.Second
)

// Fence is how long after its node was cut off a member of the group may still
// run: until its tasks have seen that and were killed. 0 is where nothing stops
// them, so that nothing is known. group is one of the user's groups; one that
// the job does not have counts as the slowest of them.
func Fence(job *api.Job, group string) time.Duration {
	var out, slowest time.Duration
	found := false
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		for _, t := range g.Tasks {
			if t == nil {
				continue
			}
			d := taskFence(g, t)
			slowest = max(slowest, d)
			if deref(g.Name) == group {
				out, found = max(out, d), true
			}
		}
	}
	if !found {
		return slowest
	}
	return out
}

func taskFence(g *api.TaskGroup, t *api.Task) time.Duration {
	after := nomadFence(g)
	if own := driverFence(t); own > 0 && (after == 0 || own < after) {
		after = own
	}
	if after == 0 {
		return 0
	}
	return after + killTimeout(t)
}

// nomadFence is when Nomad's client stops the group by itself.
func nomadFence(g *api.TaskGroup) time.Duration {
	switch {
	case g.Disconnect != nil && g.Disconnect.StopOnClientAfter != nil:
		return max(*g.Disconnect.StopOnClientAfter, 0)
	case g.StopAfterClientDisconnect != nil:
		return max(*g.StopAfterClientDisconnect, 0)
	}
	return 0
}

// driverFence is when Caravan's driver stops the task by itself.
func driverFence(t *api.Task) time.Duration {
	if t.Driver != DriverName {
		return 0
	}
	value, ok := t.Config["fence_after"]
	if !ok || value == nil {
		return DefaultFence
	}
	// What cannot be read the driver refuses, so that nothing runs.
	d, err := time.ParseDuration(fmt.Sprint(value))
	if err != nil || d < 0 {
		return DefaultFence
	}
	return d
}
