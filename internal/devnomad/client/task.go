package client

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// defaultKillTimeout is Nomad's kill_timeout.
const defaultKillTimeout = 5 * time.Second

// taskRunner runs one task again and again, as its restart policy allows.
type taskRunner struct {
	r    *allocRunner
	task *api.Task
	dir  string
	kill chan struct{} // closed to end the task for good
	done chan struct{} // closed when it is over
	end  func()        // closes kill; may be called again

	// These are the runner's own.
	restarts restarts
	ready    bool                // folders and devices are there
	devices  *device.Reservation // what the plugins gave
	tokens   *identities
	logs     *logmon // of a task that a plugin runs

	mu      sync.Mutex
	process process       // the running task, nil without one
	restart chan struct{} // closed to end the process and start another
}

func newTaskRunner(r *allocRunner, task *api.Task) *taskRunner {
	t := &taskRunner{
		r: r, task: task, dir: filepath.Join(r.dir(), task.Name),
		kill: make(chan struct{}), done: make(chan struct{}),
	}
	t.end = sync.OnceFunc(func() { close(t.kill) })
	t.restarts = newRestarts(r, task)
	return t
}

// process is a task that a driver has started.
type process interface {
	// wait returns when the task has ended and nothing of it runs any more.
	wait() exit
	// stop asks the task to end, and kills it after the grace, or at once when
	// now is closed. over has what wait returns.
	stop(over <-chan exit, grace time.Duration, signal string, now <-chan struct{}) exit
	signal(name string) error
	exec(x driver.ExecOptions, cancel <-chan struct{}) (int, error)
	usage() *api.TaskResourceUsage
}

// exit is how a task ended.
type exit struct {
	code, signal int
	oom          bool
	err          error // the driver lost sight of it
	startErr     error // it could not be started
	unseen       bool  // the driver's process died and could not take it over
	lost         bool  // a client that came back could not take it over
	killed       bool
	restart      bool // a restart was asked for
}

func (e exit) ok() bool {
	return e.startErr == nil && e.err == nil && e.code == 0 && e.signal == 0 && !e.unseen
}

// run runs the task until it is over.
func (t *taskRunner) run() {
	defer close(t.done)
	t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskReceived})
	select {
	case <-t.r.gates[stageOf(t.task)]:
		t.loop()
	case <-t.kill:
	}
	if t.logs != nil {
		t.logs.close()
	}
	t.r.c.tasks.close(t.dir)
	t.r.set(t.task.Name, func(s *api.TaskState) {
		s.State = taskDead
		if s.FinishedAt.IsZero() {
			s.FinishedAt = t.r.c.cfg.Clock.Now()
		}
	}, nil)
}

func (t *taskRunner) loop() {
	for !t.killed() {
		var x exit
		p, err := t.begin()
		if err != nil {
			x.startErr = err
		} else {
			x = t.await(p)
		}
		t.r.c.awaitUp(t.r.now)
		if !t.again(x) {
			return
		}
	}
}

func (t *taskRunner) killed() bool {
	select {
	case <-t.kill:
		return true
	default:
		return false
	}
}

// begin prepares the task and starts it.
func (t *taskRunner) begin() (process, error) {
	env, err := t.setup()
	if err != nil {
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: taskHookFailed, Message: err.Error()})
		return nil, err
	}
	var p process
	switch t.task.Driver {
	case "mock_driver":
		p, err = t.startMock()
	case "raw_exec":
		p, err = t.startRaw(env)
	default:
		p, err = t.startDriven(env)
	}
	if err != nil {
		if !errors.Is(err, errInvalidConfig) {
			t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskDriverFailure, DriverError: err.Error()})
		}
		return nil, err
	}
	t.r.set(t.task.Name, func(s *api.TaskState) {
		s.State, s.StartedAt = taskRunning, t.r.c.cfg.Clock.Now()
	}, &api.TaskEvent{Type: api.TaskStarted})
	return p, nil
}

// await waits for a started task's end, which a kill or restart may bring.
func (t *taskRunner) await(p process) exit {
	restart := make(chan struct{})
	t.hold(p, restart)
	over := make(chan exit, 1)
	go func() { over <- p.wait() }()
	var x exit
	select {
	case x = <-over:
	case <-t.kill:
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskKilling, KillTimeout: t.grace()})
		x = t.stop(p, over)
		x.killed = true
	case <-restart:
		x = t.stop(p, over)
		x.restart = !t.killed()
		x.killed = !x.restart
	}
	t.hold(nil, nil)
	if !x.lost && !x.unseen {
		t.terminated(x)
	}
	return x
}

// hold notes the running task for those who want something of it.
func (t *taskRunner) hold(p process, restart chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.process, t.restart = p, restart
}

func (t *taskRunner) grace() time.Duration {
	if t.task.KillTimeout != nil {
		return *t.task.KillTimeout
	}
	return defaultKillTimeout
}

// stop waits for the task's shutdown delay and ends it.
func (t *taskRunner) stop(p process, over <-chan exit) exit {
	t.r.mu.Lock()
	noDelay := t.r.noDelay
	t.r.mu.Unlock()
	if d := t.task.ShutdownDelay; d > 0 && !noDelay && t.killed() {
		select {
		case x := <-over:
			return x
		case <-t.r.after(d):
		case <-t.r.now:
		}
	}
	return p.stop(over, t.grace(), t.task.KillSignal, t.r.now)
}

func (t *taskRunner) terminated(x exit) {
	e := &api.TaskEvent{
		Type: api.TaskTerminated, ExitCode: x.code, Signal: x.signal,
		Details: map[string]string{"exit_code": fmt.Sprint(x.code), "signal": fmt.Sprint(x.signal), "oom_killed": fmt.Sprint(x.oom)},
	}
	if x.err != nil {
		e.Message = x.err.Error()
		e.Details["exit_message"] = e.Message
	}
	t.r.set(t.task.Name, nil, e)
}

// again decides by how the task ended whether it runs again, and waits until
// it may.
func (t *taskRunner) again(x exit) bool {
	var delay time.Duration
	reason := ""
	switch {
	case x.killed:
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskKilled})
		return false
	case x.lost:
		t.r.set(t.task.Name, func(s *api.TaskState) { s.State = taskPending }, &api.TaskEvent{
			Type: taskRestoreFailed, DisplayMessage: "failed to restore task; will not run until server is contacted",
		})
		return true
	case !x.restart:
		verdict := t.restarts.after(x)
		if !verdict.again {
			if verdict.failed {
				t.r.set(t.task.Name, func(s *api.TaskState) {
					s.State, s.Failed, s.FinishedAt = taskDead, true, t.r.c.cfg.Clock.Now()
				}, &api.TaskEvent{Type: api.TaskNotRestarting, RestartReason: verdict.reason, FailsTask: true})
			}
			return false
		}
		delay, reason = verdict.delay, verdict.reason
	}
	t.r.set(t.task.Name, func(s *api.TaskState) {
		s.State, s.Restarts, s.LastRestart = taskPending, s.Restarts+1, t.r.c.cfg.Clock.Now()
	}, &api.TaskEvent{Type: api.TaskRestarting, StartDelay: int64(delay), RestartReason: reason})
	if delay > 0 {
		select {
		case <-t.r.after(delay):
		case <-t.kill:
			return false
		}
	}
	t.r.c.awaitUp(t.r.now)
	return true
}
