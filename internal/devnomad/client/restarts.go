package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// restarts applies a restart policy.
type restarts struct {
	clock clock.Clock
	// policy is the task's, else the group's; nil allows none.
	policy func() *api.RestartPolicy
	// onSuccess says that a task which ended well runs again too.
	onSuccess bool

	since time.Time // when the interval began
	count int       // ends within it
}

// verdict is what becomes of a task that ended.
type verdict struct {
	again, failed bool
	delay         time.Duration
	reason        string
}

func newRestarts(r *allocRunner, task *api.Task) restarts {
	batch := *r.alloc.Job.Type == api.JobTypeBatch || *r.alloc.Job.Type == api.JobTypeSysbatch
	onSuccess := !batch
	if s := stageOf(task); s != mainStage {
		onSuccess = s.sidecar()
	}
	return restarts{
		clock: r.c.cfg.Clock, onSuccess: onSuccess, since: r.c.cfg.Clock.Now(),
		policy: func() *api.RestartPolicy {
			p := task.RestartPolicy
			if p == nil {
				p = r.group.RestartPolicy
			}
			if p == nil || p.Attempts == nil || p.Interval == nil || p.Delay == nil || p.Mode == nil {
				return nil
			}
			return p
		},
	}
}

// after says what follows an end. Nomad adds up to a quarter to the delay; the
// stand-in does not.
func (r *restarts) after(x exit) verdict {
	well := x.ok() && !r.onSuccess
	p := r.policy()
	if p == nil || *p.Attempts == 0 {
		return verdict{failed: !well, reason: noRestarts}
	}
	now := r.clock.Now()
	if now.After(r.since.Add(*p.Interval)) {
		r.count, r.since = 0, now
	}
	r.count++
	var recoverable *driver.Recoverable
	switch {
	case x.startErr != nil && !errors.As(x.startErr, &recoverable):
		return verdict{failed: true, reason: unrecoverable}
	case well:
		return verdict{}
	case r.count <= *p.Attempts:
		return verdict{again: true, delay: *p.Delay, reason: withinPolicy}
	case *p.Mode == "fail":
		return verdict{failed: true, reason: fmt.Sprintf("Exceeded allowed attempts %d in interval %v and mode is %q", *p.Attempts, *p.Interval, *p.Mode)}
	}
	return verdict{again: true, delay: r.since.Add(*p.Interval).Sub(now), reason: exceededThenDelays}
}
