package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/driver/supervisor"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// task is a task that this process of the plugin speaks for.
type task struct {
	config driver.TaskConfig
	client *supervisor.Client
	// started is when Nomad asked for it, or when it was recovered.
	started time.Time
	cancel  context.CancelFunc
	// mourn is done once its supervisor has died.
	mourn sync.Once
}

// tellFor bounds the word to the planner that a supervisor has died.
const tellFor = 5 * time.Second

func (t *task) tellDeath(ctx context.Context, log hclog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, tellFor)
	defer cancel()
	if err := t.client.TellDeath(ctx); err != nil {
		log.Warn("the gang learns of a dead member only by its restart", "task", t.config.ID, "error", err)
	}
}

func newTask(cfg driver.TaskConfig, client *supervisor.Client, at time.Time) *task {
	return &task{config: cfg, client: client, started: at}
}

// Recover implements driver.Plugin. Nomad destroys a task after an error, so
// that there is one only where nothing is known of the task any more: after a
// reboot. A supervisor that has died has a task that has ended.
func (p *Plugin) Recover(_ context.Context, h driver.Handle) error {
	if _, err := p.find(h.Config.ID); err == nil {
		return nil
	}
	if h.Version > handleVersion {
		return fmt.Errorf("recover task %s: its handle is of version %d, newer than %d: this is an older plugin than the one that started it", h.Config.ID, h.Version, handleVersion)
	}
	var state handle
	if err := h.DecodeState(&state); err != nil {
		return fmt.Errorf("recover task: %w", err)
	}
	client, err := supervisor.Attach(state.Dir)
	if err != nil {
		return fmt.Errorf("recover task %s: %w", h.Config.ID, err)
	}
	p.keep(newTask(h.Config, client, time.Now()))
	return nil
}

// Wait implements driver.Plugin.
func (p *Plugin) Wait(ctx context.Context, id string) (driver.Exit, error) {
	t, err := p.find(id)
	if err != nil {
		return driver.Exit{}, err
	}
	exit, err := t.client.Wait(ctx)
	if errors.Is(err, supervisor.ErrDied) {
		// Its user's code may live on; nobody would ever stop it.
		reap := t.client.Reap(ctx)
		t.mourn.Do(func() { t.tellDeath(ctx, p.log) })
		return driver.Exit{Code: 1, Err: errors.Join(fmt.Errorf("%w; how the task itself ended is not known, and what was left of it was killed", supervisor.ErrDied), reap)}, nil
	}
	if err != nil {
		return driver.Exit{}, fmt.Errorf("wait for task: %w", err)
	}
	return exitOf(exit), nil
}

func exitOf(e supervisor.Exit) driver.Exit {
	out := driver.Exit{Code: e.Code, Signal: e.Signal, OOMKilled: e.OOM}
	if e.Fault != "" {
		out.Err = errors.New(e.Fault)
	}
	return out
}

// Stop implements driver.Plugin. It returns when the task is over.
func (p *Plugin) Stop(ctx context.Context, id string, timeout time.Duration, signal string) error {
	t, err := p.find(id)
	if err != nil {
		return err
	}
	err = t.client.Stop(ctx, timeout, signal)
	if err == nil {
		_, err = t.client.Wait(ctx)
	}
	if errors.Is(err, supervisor.ErrDied) {
		err = t.client.Reap(ctx)
	}
	if err != nil {
		return fmt.Errorf("stop task: %w", err)
	}
	return nil
}

// Destroy implements driver.Plugin.
func (p *Plugin) Destroy(ctx context.Context, id string, force bool) error {
	t, err := p.find(id)
	if err != nil {
		return err
	}
	if err := t.client.Destroy(ctx, force); err != nil {
		return fmt.Errorf("destroy task: %w", err)
	}
	p.forget(t)
	return nil
}

// Inspect implements driver.Plugin.
func (p *Plugin) Inspect(ctx context.Context, id string) (driver.Status, error) {
	t, err := p.find(id)
	if err != nil {
		return driver.Status{}, err
	}
	out := driver.Status{ID: id, Name: t.config.Name, State: driver.StateRunning, Started: t.started}
	s, err := t.client.Status(ctx)
	if errors.Is(err, supervisor.ErrDied) {
		exit, err := t.client.Wait(ctx)
		out.State = driver.StateExited
		if err != nil {
			out.Exit = driver.Exit{Code: 1, Err: err}
			return out, nil
		}
		out.Exit, out.Completed = exitOf(exit), exit.At
		return out, nil
	}
	if err != nil {
		return driver.Status{}, fmt.Errorf("inspect task: %w", err)
	}
	if !s.StartedAt.IsZero() {
		out.Started = s.StartedAt
	}
	out.Attributes = attributes(s)
	if s.Exit != nil {
		out.State, out.Exit, out.Completed = driver.StateExited, exitOf(*s.Exit), s.Exit.At
	}
	return out, nil
}

// attributes are what Nomad's tools show of a task beside its state.
func attributes(s supervisor.Status) map[string]string {
	out := map[string]string{
		"phase": string(s.Phase), "attempt": strconv.Itoa(s.Attempt), "supervisor_pid": strconv.Itoa(s.PID),
	}
	add := func(key, value string) {
		if value != "" {
			out[key] = value
		}
	}
	add("reason", s.Reason)
	add("epoch", s.Epoch)
	if s.WorkloadPID > 0 {
		add("pid", strconv.Itoa(s.WorkloadPID))
	}
	if s.Generation > 0 {
		add("generation", strconv.Itoa(s.Generation))
	}
	if p := s.Progress; p != nil {
		if p.Step != nil {
			add("step", strconv.FormatInt(*p.Step, 10))
		}
		if c := p.Checkpoint; c != nil {
			add("checkpoint_age", (time.Duration(c.AgeMS) * time.Millisecond).Round(time.Second).String())
		}
	}
	add("notes", strings.Join(s.Notes, "; "))
	return out
}

// Signal implements driver.Plugin.
func (p *Plugin) Signal(ctx context.Context, id, signal string) error {
	t, err := p.find(id)
	if err != nil {
		return err
	}
	if err := t.client.Signal(ctx, signal); err != nil {
		return fmt.Errorf("signal task: %w", err)
	}
	return nil
}

// The file that says which events Nomad has had, so that a later process does
// not tell them again.
const toldFile = "told"

func (t *task) told() int64 {
	data, err := os.ReadFile(filepath.Join(t.client.Dir(), toldFile))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// follow passes on the task's events until it is forgotten.
func (t *task) follow(to *fanIn, log hclog.Logger) {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	go func() {
		since := t.told()
		for {
			events, err := t.client.Events(ctx, since)
			for _, e := range events {
				if !to.put(ctx, t.event(e)) {
					return
				}
				since = e.Sequence
			}
			if len(events) > 0 {
				// Told twice is better than not at all.
				if err := os.WriteFile(filepath.Join(t.client.Dir(), toldFile), []byte(strconv.FormatInt(since, 10)), 0o600); err != nil && ctx.Err() == nil {
					log.Warn("the last event cannot be noted; it will be told again after a restart", "task", t.config.ID, "error", err)
				}
			}
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, supervisor.ErrDied) {
					log.Error("a task's events cannot be read", "task", t.config.ID, "error", err)
				}
				return
			}
			// The last event has been told.
			if len(events) > 0 && events[len(events)-1].Kind == machine.EventExit {
				return
			}
		}
	}()
}

func (t *task) stopFollowing() {
	if t.cancel != nil {
		t.cancel()
	}
}

func (t *task) event(e supervisor.Event) driver.Event {
	annotations := map[string]string{"kind": string(e.Kind)}
	for k, v := range e.Details {
		annotations[k] = v
	}
	return driver.Event{
		TaskID: t.config.ID, AllocID: t.config.AllocID, TaskName: t.config.Name,
		Time: e.At, Message: e.Message, Annotations: annotations,
	}
}
