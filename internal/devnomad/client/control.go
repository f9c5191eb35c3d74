package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// Errors with which Nomad's client answers.
var (
	// ErrUnknownAlloc says that the client has no such allocation.
	ErrUnknownAlloc = errors.New("Unknown allocation")
	// ErrNotRunning says that a task has no process.
	ErrNotRunning = errors.New("Task not running")
)

// Signal sends a signal to the tasks of an allocation, or to one of them.
func (c *Client) Signal(alloc, task, signal string) error {
	if unix.SignalNum(signal) == 0 {
		return fmt.Errorf("Signal %s is not supported", signal)
	}
	return c.eachTask(alloc, task, func(t *taskRunner, p process) error {
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskSignaling, TaskSignal: signal})
		return p.signal(signal)
	})
}

// Restart ends the processes of an allocation's tasks, or of one of them, and
// starts them anew.
func (c *Client) Restart(alloc, task string) error {
	return c.eachTask(alloc, task, func(t *taskRunner, _ process) error {
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskRestartSignal, RestartReason: restartRequested})
		t.askRestart()
		return nil
	})
}

// askRestart ends the task's process, so that another is started.
func (t *taskRunner) askRestart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.restart != nil {
		close(t.restart)
		t.restart = nil
	}
}

// running is the task's process, nil without one.
func (t *taskRunner) running() process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.process
}

func (c *Client) runner(alloc string) (*allocRunner, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.runners[alloc]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownAlloc, alloc)
}

// eachTask calls f with the tasks of an allocation that have a process.
func (c *Client) eachTask(alloc, task string, f func(t *taskRunner, p process) error) error {
	r, err := c.runner(alloc)
	if err != nil {
		return err
	}
	if task != "" && r.tasks[task] == nil {
		return fmt.Errorf("Could not find task named %q", task)
	}
	found := false
	var errs []error
	for _, x := range r.group.Tasks {
		t := r.tasks[x.Name]
		if task != "" && x.Name != task {
			continue
		}
		if p := t.running(); p != nil {
			found = true
			errs = append(errs, f(t, p))
		}
	}
	if !found {
		return ErrNotRunning
	}
	return errors.Join(errs...)
}

// Exec runs a command beside a task, until it ends or cancel closes.
func (c *Client) Exec(alloc, task string, x driver.ExecOptions, cancel <-chan struct{}) (int, error) {
	r, err := c.runner(alloc)
	if err != nil {
		return 0, err
	}
	t := r.tasks[task]
	if t == nil {
		return 0, errors.New("task not found")
	}
	p := t.running()
	if p == nil {
		return 0, fmt.Errorf("task %q is not running.", task)
	}
	return p.exec(x, cancel)
}

// Stats is what an allocation's tasks use, as far as their drivers say, and the
// statistics of their devices.
func (c *Client) Stats(alloc string) (*api.AllocResourceUsage, error) {
	r, err := c.runner(alloc)
	if err != nil {
		return nil, err
	}
	out := &api.AllocResourceUsage{
		ResourceUsage: &api.ResourceUsage{MemoryStats: &api.MemoryStats{}, CpuStats: &api.CpuStats{}, DeviceStats: []*api.DeviceGroupStats{}},
		Tasks:         map[string]*api.TaskResourceUsage{},
	}
	var devices []*api.DeviceGroupStats
	for _, x := range r.group.Tasks {
		p := r.tasks[x.Name].running()
		if p == nil {
			continue
		}
		if u := p.usage(); u != nil {
			if res := r.tasks[x.Name].resources(); res != nil && len(res.Devices) > 0 {
				if devices == nil {
					devices = c.deviceStats(context.Background())
				}
				own, used := *u, *u.ResourceUsage // the driver's own is shared
				used.DeviceStats, own.ResourceUsage, u = statsOf(res.Devices, devices), &used, &own
				out.ResourceUsage.DeviceStats = append(out.ResourceUsage.DeviceStats, u.ResourceUsage.DeviceStats...)
			}
			out.Tasks[x.Name] = u
			out.Timestamp = max(out.Timestamp, u.Timestamp)
			addUsage(out.ResourceUsage, u.ResourceUsage)
		}
	}
	return out, nil
}

// copyInput copies what a user types. Errors show at the other ends.
func copyInput(to io.Writer, from io.Reader) {
	if from != nil {
		_, _ = io.Copy(to, from)
	}
}
