package gangspec

import (
	"time"

	"github.com/hashicorp/nomad/api"
)

// KillTime is how long Nomad's client takes at most to end an allocation of
// the group that is not to run any more: the group's shutdown_delay, and the
// shutdown_delay and kill_timeout of its tasks, which the client stops in turn:
// the leader, the others together, and the sidecars together. A client's
// max_kill_timeout, which nobody else knows, may make it less. Poststop tasks,
// which begin only then, do not count. group is a group's name in Nomad; one
// that the job does not have counts as the slowest of them, and a job that is
// not known (nil) as one with Nomad's defaults.
func KillTime(job *api.Job, group string) time.Duration {
	slowest := defaultKillTimeout
	if job == nil {
		return slowest
	}
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		d := groupKillTime(g)
		if deref(g.Name) == group {
			return d
		}
		slowest = max(slowest, d)
	}
	return slowest
}

func groupKillTime(g *api.TaskGroup) time.Duration {
	var leader, others, sidecars time.Duration
	for _, t := range g.Tasks {
		if t == nil {
			continue
		}
		d := max(t.ShutdownDelay, 0) + killTimeout(t)
		switch l := t.Lifecycle; {
		case t.Leader:
			leader = max(leader, d)
		case l != nil && l.Hook == api.TaskLifecycleHookPoststop:
		case l != nil && l.Sidecar:
			sidecars = max(sidecars, d)
		default:
			others = max(others, d)
		}
	}
	return max(deref(g.ShutdownDelay), 0) + leader + others + sidecars
}

// killTimeout is a task's own, or Nomad's default.
func killTimeout(t *api.Task) time.Duration {
	if t.KillTimeout == nil {
		return defaultKillTimeout
	}
	return max(*t.KillTimeout, 0)
}
