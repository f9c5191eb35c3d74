package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// errInvalidConfig says that a task's config block does not fit its driver's
// schema; the task's events tell it already.
var errInvalidConfig = errors.New("failed to parse config")

// Times of Nomad's client with its tasks.
const (
	// statsInterval is how often usage is measured.
	statsInterval = time.Second
	// stopTries is how often a driver is asked to stop a task that it could
	// not stop, and stopBackoff the first pause, which grows fourfold.
	stopTries   = 5
	stopBackoff = 5 * time.Second
	// callGap is the pause before a call whose connection broke is repeated.
	callGap = 20 * time.Millisecond
	// destroyGrace is how long a driver may take to destroy a task when the
	// whole cluster ends.
	destroyGrace = 10 * time.Second
)

// drivenTask is a task that a driver plugin runs. Its handle is the client's
// state: with it a later process of the driver, or a client that was killed
// and came back, takes the task over.
type drivenTask struct {
	t      *taskRunner
	handle driver.Handle
	logs   *logmon
	over   chan struct{} // closed when it has ended
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	instance *driverInstance // which knows the task
	latest   *api.TaskResourceUsage
	halt     context.CancelFunc // ends the statistics of instance
}

// startDriven starts the task by its driver, once more if the driver's process
// dies over it.
func (t *taskRunner) startDriven(env map[string]string) (process, error) {
	for try := 0; ; try++ {
		instance, err := t.r.c.instance(t.task.Driver, t.r.now)
		if err != nil {
			return nil, err
		}
		p, err := t.startOn(instance, env)
		if err == nil {
			return p, nil
		}
		if errors.Is(err, errInvalidConfig) || !instance.broken(err) || try > 0 {
			return nil, err
		}
	}
}

func (t *taskRunner) startOn(instance *driverInstance, env map[string]string) (process, error) {
	config, err := t.taskConfig(instance, env)
	if err != nil {
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskFailedValidation, ValidationError: err.Error()})
		return nil, fmt.Errorf("%w: %w", errInvalidConfig, err)
	}
	if t.logs == nil {
		t.logs = newLogmon(t, instance.caps.NoLogCollection)
	}
	if err := t.logs.start(); err != nil {
		return nil, err
	}
	config.StdoutPath, config.StderrPath = t.logs.stdout.fifo, t.logs.stderr.fifo
	ctx, cancel := context.WithCancel(context.Background())
	handle, _, err := instance.client.Start(ctx, config)
	if err != nil {
		cancel()
		var recoverable *driver.Recoverable
		if errors.As(err, &recoverable) {
			return nil, recoverable
		}
		return nil, root(err)
	}
	p := &drivenTask{t: t, handle: handle, logs: t.logs, over: make(chan struct{}), ctx: ctx, cancel: cancel}
	p.belongs(instance)
	return p, nil
}

// taskConfig is what the driver gets to know of the task.
func (t *taskRunner) taskConfig(instance *driverInstance, env map[string]string) (driver.TaskConfig, error) {
	a := t.r.current()
	c := driver.TaskConfig{
		ID: fmt.Sprintf("%s/%s/%s", a.ID, t.task.Name, uuid.NewString()[:8]), Name: t.task.Name, Namespace: a.Namespace,
		JobID: a.JobID, JobName: *a.Job.Name, Group: a.TaskGroup, AllocID: a.ID, NodeID: a.NodeID, NodeName: a.NodeName,
		Env: env, User: t.task.User, AllocDir: t.r.dir(),
	}
	if a.Job.ParentID != nil {
		c.ParentJobID = *a.Job.ParentID
	}
	if t.devices != nil {
		c.DeviceEnv = t.devices.Env
		for _, m := range t.devices.Mounts {
			c.Mounts = append(c.Mounts, driver.Mount{TaskPath: m.TaskPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly})
		}
		for _, d := range t.devices.Devices {
			c.Devices = append(c.Devices, driver.DeviceNode{TaskPath: d.TaskPath, HostPath: d.HostPath, Permissions: d.Permissions})
		}
	}
	t.limits(&c.Resources)
	var err error
	if instance.schema != nil {
		c.Raw, err = hclspec.EncodeMap(instance.schema, t.task.Config, t.hclVars(env))
	}
	return c, err
}

// limits are the resources that the servers gave the task.
func (t *taskRunner) limits(out *driver.Resources) {
	res := t.resources()
	if res == nil {
		return
	}
	out.CPUMHz, out.MemoryMiB, out.MemoryMaxMiB = res.Cpu.CpuShares, res.Memory.MemoryMB, res.Memory.MemoryMaxMB
	out.Linux = driver.Linux{
		CPUShares: res.Cpu.CpuShares, MemoryLimitBytes: max(res.Memory.MemoryMB, res.Memory.MemoryMaxMB) << 20,
		CPUSet: coreList(res.Cpu.ReservedCores), PercentTicks: float64(res.Cpu.CpuShares) / float64(max(1, t.r.c.cfg.Capacity.CPUMHz)),
	}
	for _, p := range t.r.current().AllocatedResources.Shared.Ports {
		out.Ports = append(out.Ports, driver.PortMapping{Label: p.Label, Value: p.Value, To: p.To, HostIP: p.HostIP})
	}
}

// belongs notes which process of the driver knows the task, and measures there.
func (p *drivenTask) belongs(i *driverInstance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halt != nil {
		p.halt()
	}
	ctx, cancel := context.WithCancel(p.ctx)
	p.instance, p.halt = i, cancel
	go func() {
		// A stream that ends is opened again after a while, as long as the task
		// is known there.
		for ctx.Err() == nil {
			err := i.client.Stats(ctx, p.handle.Config.ID, statsInterval, func(u driver.Usage) error {
				p.mu.Lock()
				p.latest = taskUsage(u)
				p.mu.Unlock()
				return nil
			})
			if err != nil && i.broken(err) {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(statsInterval):
			}
		}
	}()
}

func (p *drivenTask) known() *driverInstance {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.instance
}

func (p *drivenTask) wait() exit {
	defer close(p.over)
	defer p.cancel()
	id := p.handle.Config.ID
	for {
		i, err := p.t.r.c.instance(p.t.task.Driver, p.t.r.now)
		if err != nil {
			p.t.r.c.logf("task %s: %v", id, err)
			return exit{unseen: true}
		}
		if before := p.known(); i != before {
			handle := p.handle
			if i.host != before.host {
				// An agent that comes back has lost the task's config block.
				handle.Config.Raw = nil
			}
			if err := i.client.Recover(p.ctx, handle); err != nil {
				if i.broken(err) {
					continue
				}
				p.t.r.c.logf("task %s: %v", id, err)
				p.destroy(i)
				return exit{lost: i.host != before.host, unseen: i.host == before.host}
			}
			p.belongs(i)
		}
		end, err := i.client.Wait(p.ctx, id)
		switch {
		case err == nil:
			p.destroy(i)
			return exit{code: end.Code, signal: end.Signal, oom: end.OOMKilled, err: end.Err}
		case !i.broken(err):
			p.destroy(i)
			return exit{err: root(err)}
		}
	}
}

// destroy makes the driver forget the task.
func (p *drivenTask) destroy(i *driverInstance) {
	ctx, cancel := context.WithTimeout(p.ctx, destroyGrace)
	defer cancel()
	if err := i.client.Destroy(ctx, p.handle.Config.ID, true); err != nil {
		p.t.r.c.logf("task %s: %v", p.handle.Config.ID, err)
	}
}

// call asks the process that knows the task, again if the connection breaks
// and another process takes the task over.
func (p *drivenTask) call(f func(c *driver.Client, id string) error) error {
	for {
		i := p.known()
		err := f(i.client, p.handle.Config.ID)
		if err == nil || !i.broken(err) {
			return err
		}
		select {
		case <-p.over:
			return err
		case <-time.After(callGap):
		}
	}
}

func (p *drivenTask) stop(over <-chan exit, grace time.Duration, signal string, now <-chan struct{}) exit {
	stopped := make(chan error, 1)
	ask := func() {
		stopped <- p.call(func(c *driver.Client, id string) error { return c.Stop(p.ctx, id, grace, signal) })
	}
	go ask()
	var again <-chan struct{}
	backoff, tries := stopBackoff, 1
	for {
		select {
		case x := <-over:
			return x
		case err := <-stopped:
			if err != nil && tries < stopTries {
				p.t.r.c.logf("stop task %s: %v", p.handle.Config.ID, err)
				again = p.t.r.after(backoff)
				backoff, tries = 4*backoff, tries+1
			}
		case <-again:
			again = nil
			go ask()
		case <-now:
			return p.abandon(over)
		}
	}
}

// abandon ends the task when the cluster does.
func (p *drivenTask) abandon(over <-chan exit) exit {
	go p.destroy(p.known())
	select {
	case x := <-over:
		return x
	case <-time.After(destroyGrace):
		p.cancel()
		return <-over
	}
}

func (p *drivenTask) signal(name string) error {
	return p.call(func(c *driver.Client, id string) error { return rootError(c.Signal(p.ctx, id, name)) })
}

// rootError is root for an error that may be nil.
func rootError(err error) error {
	if err == nil {
		return nil
	}
	return root(err)
}

func (p *drivenTask) exec(x driver.ExecOptions, cancel <-chan struct{}) (int, error) {
	ctx, stop := context.WithCancel(p.ctx)
	defer stop()
	go func() {
		select {
		case <-cancel:
			stop()
		case <-ctx.Done():
		}
	}()
	i := p.known()
	if !i.caps.Exec {
		return 0, fmt.Errorf("task driver does not support exec")
	}
	end, err := i.client.ExecStream(ctx, p.handle.Config.ID, x)
	if err != nil {
		return 0, root(err)
	}
	return end.Code, end.Err
}

func (p *drivenTask) usage() *api.TaskResourceUsage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}
