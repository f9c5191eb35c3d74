package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// taskRunner runs one task again and again, as its restart policy allows.
type taskRunner struct {
	r    *allocRunner
	task *api.Task
	dir  string

	starts []time.Time // of restarts within the policy's interval

	mu      sync.Mutex
	pid     int           // of the running process, 0 without one
	restart chan struct{} // closed to end the process and start another
}

// exit is how a task's process ended.
type exit struct {
	code, signal int
	err          error // it could not be started
	killed       bool
	restart      bool // a restart was asked for
}

func (e exit) ok() bool { return e.err == nil && e.code == 0 && e.signal == 0 }

// run runs the task until it is over. end, if not nil, ends a sidecar.
func (t *taskRunner) run(end <-chan struct{}, evenStopping bool) {
	name := t.task.Name
	t.r.set(name, nil, &api.TaskEvent{Type: api.TaskReceived, DisplayMessage: "Task received by client"})
	env, err := t.setup()
	if err != nil {
		t.over(true, &api.TaskEvent{Type: api.TaskSetupFailure, DisplayMessage: err.Error(), SetupError: err.Error(), FailsTask: true})
		return
	}
	for {
		if !evenStopping && t.r.isStopping() {
			t.over(false, nil)
			return
		}
		x := t.once(env, end, evenStopping)
		if x.killed {
			t.over(false, &api.TaskEvent{Type: api.TaskKilled, DisplayMessage: "Task successfully killed"})
			return
		}
		if x.restart {
			t.r.set(name, func(s *api.TaskState) {
				s.State, s.Restarts, s.LastRestart = taskPending, s.Restarts+1, t.r.c.cfg.Clock.Now()
			}, &api.TaskEvent{Type: api.TaskRestarting, DisplayMessage: "Task restarting in 0s"})
			continue
		}
		delay, again, why := t.policy(x)
		if !again {
			failed := why != ""
			var e *api.TaskEvent
			if failed {
				e = &api.TaskEvent{Type: api.TaskNotRestarting, DisplayMessage: why, RestartReason: why, FailsTask: true}
			}
			t.over(failed, e)
			return
		}
		t.r.set(name, func(s *api.TaskState) {
			s.State, s.Restarts, s.LastRestart = taskPending, s.Restarts+1, t.r.c.cfg.Clock.Now()
		}, &api.TaskEvent{Type: api.TaskRestarting, DisplayMessage: "Task restarting in " + delay.String(), StartDelay: int64(delay)})
		if !t.r.wait(delay, end) {
			t.over(false, &api.TaskEvent{Type: api.TaskKilled, DisplayMessage: "Task successfully killed"})
			return
		}
	}
}

// over notes the task's end and what it means for its siblings.
func (t *taskRunner) over(failed bool, e *api.TaskEvent) {
	t.r.taskEnded(t.task, failed)
	t.r.set(t.task.Name, func(s *api.TaskState) {
		s.State, s.Failed, s.FinishedAt = taskDead, failed, t.r.c.cfg.Clock.Now()
	}, e)
}

// setup makes the task's folders and reserves its devices.
func (t *taskRunner) setup() (map[string]string, error) {
	t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskSetup, Message: api.TaskBuildingTaskDir, DisplayMessage: api.TaskBuildingTaskDir})
	shared := filepath.Join(t.r.dir(), "alloc")
	for _, d := range []string{"data", "logs", "tmp"} {
		if err := os.MkdirAll(filepath.Join(shared, d), 0o755); err != nil {
			return nil, fmt.Errorf("make allocation directory: %w", err)
		}
	}
	for _, d := range []string{"local", "secrets", "private", "tmp"} {
		if err := os.MkdirAll(filepath.Join(t.dir, d), 0o755); err != nil {
			return nil, fmt.Errorf("make task directory: %w", err)
		}
	}
	if len(t.task.Artifacts) > 0 {
		return nil, fmt.Errorf("the development cluster fetches no artifacts")
	}
	if err := t.templates(); err != nil {
		return nil, err
	}
	env := t.env()
	if res := t.resources(); res != nil {
		devices, err := t.r.c.reserve(context.Background(), res.Devices)
		if err != nil {
			return nil, err
		}
		for k, v := range devices {
			env[k] = v
		}
	}
	for k, v := range t.task.Env {
		env[k] = t.interpolate(v, env)
	}
	return env, nil
}

func (t *taskRunner) resources() *api.AllocatedTaskResources {
	if t.r.alloc.AllocatedResources == nil {
		return nil
	}
	return t.r.alloc.AllocatedResources.Tasks[t.task.Name]
}

// templates writes template blocks without actions; the stand-in renders none.
func (t *taskRunner) templates() error {
	for _, tpl := range t.task.Templates {
		if tpl.EmbeddedTmpl == nil || tpl.DestPath == nil || strings.Contains(*tpl.EmbeddedTmpl, "{{") {
			return fmt.Errorf("the development cluster renders no templates")
		}
		path := filepath.Join(t.dir, filepath.Clean("/"+*tpl.DestPath))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write template: %w", err)
		}
		if err := os.WriteFile(path, []byte(*tpl.EmbeddedTmpl), 0o644); err != nil {
			return fmt.Errorf("write template: %w", err)
		}
	}
	return nil
}

// policy says whether the task runs again, and when; why is set when it may
// not and therefore failed.
func (t *taskRunner) policy(x exit) (delay time.Duration, again bool, why string) {
	batch := *t.r.alloc.Job.Type == api.JobTypeBatch || *t.r.alloc.Job.Type == api.JobTypeSysbatch
	h, sidecar := hook(t.task)
	if x.ok() && !sidecar && (batch || h != "") {
		return 0, false, ""
	}
	p := t.r.group.RestartPolicy
	if t.task.RestartPolicy != nil {
		p = t.task.RestartPolicy
	}
	if p == nil || p.Attempts == nil || p.Interval == nil || p.Delay == nil || p.Mode == nil {
		return 0, false, "Policy allows no restarts"
	}
	now := t.r.c.cfg.Clock.Now()
	for len(t.starts) > 0 && now.Sub(t.starts[0]) > *p.Interval {
		t.starts = t.starts[1:]
	}
	switch {
	case len(t.starts) < *p.Attempts:
		t.starts = append(t.starts, now)
		return *p.Delay, true, ""
	case *p.Mode == "delay" && *p.Attempts > 0:
		wait := t.starts[0].Add(*p.Interval).Sub(now)
		t.starts = nil
		return wait, true, ""
	case *p.Attempts == 0:
		return 0, false, "Policy allows no restarts"
	}
	return 0, false, fmt.Sprintf("Exceeded allowed attempts %d in interval %v and mode is %q", *p.Attempts, *p.Interval, *p.Mode)
}
