package plugintest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// DriverName is the task driver's name.
const DriverName = "caravan-test-driver"

// Driver is a task driver that runs a command without any isolation. Its tasks
// survive its process; the exit code of one that was recovered is unknown and
// told as RecoveredExit.
type Driver struct {
	mu     sync.Mutex
	tasks  map[string]*task
	events chan driver.Event
}

// RecoveredExit is the exit code of tasks that were recovered.
const RecoveredExit = 77

type task struct {
	process *os.Process
	config  driver.TaskConfig
	started time.Time
	done    chan struct{}
	exit    driver.Exit // once done is closed
}

type taskConfig struct {
	Command string   `codec:"command"`
	Args    []string `codec:"args"`
	// StartError makes the start fail, in a way after which Nomad may try again
	// if Recoverable. Forget makes Recover fail.
	StartError  string `codec:"start_error"`
	Recoverable bool   `codec:"recoverable"`
	Forget      bool   `codec:"forget"`
}

// state is what the driver keeps in a task's handle. The task's own
// configuration is not there after the agent was restarted.
type state struct {
	PID    int  `codec:"pid"`
	Forget bool `codec:"forget"`
}

// NewDriver returns a driver without tasks.
func NewDriver() *Driver {
	return &Driver{tasks: map[string]*task{}, events: make(chan driver.Event, 100)}
}

// Info implements base.Plugin.
func (d *Driver) Info() base.Info { return base.Info{Name: DriverName, Version: "0.1.0"} }

// ConfigSchema implements base.Plugin.
func (d *Driver) ConfigSchema() *hclspec.Spec { return hclspec.Object(nil) }

// SetConfig implements base.Plugin.
func (d *Driver) SetConfig(context.Context, base.Config) error { return nil }

// TaskConfigSchema implements driver.Plugin.
func (d *Driver) TaskConfigSchema() *hclspec.Spec {
	return hclspec.Object(map[string]*hclspec.Spec{
		"command": hclspec.Attr("command", "string", true),
		"args":    hclspec.Attr("args", "list(string)", false),

		"start_error": hclspec.Attr("start_error", "string", false),
		"recoverable": hclspec.Attr("recoverable", "bool", false),
		"forget":      hclspec.Attr("forget", "bool", false),
	})
}

// Capabilities implements driver.Plugin.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Signals: true, Exec: true, NetworkModes: []driver.NetworkMode{driver.NetworkHost}}
}

// PIDAttribute is the node attribute with the driver's process.
const PIDAttribute = "unique.driver." + DriverName + ".pid"

// Fingerprint implements driver.Plugin.
func (d *Driver) Fingerprint(ctx context.Context, send func(driver.Fingerprint) error) error {
	err := send(driver.Fingerprint{
		Attributes: map[string]attr.Value{
			"driver." + DriverName: attr.Bool(true), PIDAttribute: attr.Int(int64(os.Getpid())),
		},
		Health: driver.Healthy, Description: "ready",
	})
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// Start implements driver.Plugin.
func (d *Driver) Start(_ context.Context, config driver.TaskConfig) (driver.Handle, *driver.Network, error) {
	var c taskConfig
	if err := config.Decode(&c); err != nil {
		return driver.Handle{}, nil, err
	}
	if c.StartError != "" {
		err := errors.New(c.StartError)
		if c.Recoverable {
			err = &driver.Recoverable{Err: err}
		}
		return driver.Handle{}, nil, err
	}
	cmd := exec.Command(c.Command, c.Args...)
	cmd.Env, cmd.Dir = config.Environ(), config.TaskDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := os.OpenFile(config.StdoutPath, os.O_WRONLY, 0)
	if err != nil {
		return driver.Handle{}, nil, fmt.Errorf("open output: %w", err)
	}
	defer stdout.Close()
	cmd.Stdout = stdout
	if err := cmd.Start(); err != nil {
		return driver.Handle{}, nil, fmt.Errorf("start command: %w", err)
	}
	handle, err := driver.NewHandle(1, config, state{PID: cmd.Process.Pid, Forget: c.Forget})
	if err != nil {
		return driver.Handle{}, nil, errors.Join(err, cmd.Process.Kill())
	}
	t := &task{process: cmd.Process, config: config, started: time.Now(), done: make(chan struct{})}
	d.add(t, "started by the test driver")
	go func() {
		defer close(t.done)
		t.exit = exitOf(cmd.Wait())
	}()
	return handle, nil, nil
}

// add keeps a task and tells its owner.
func (d *Driver) add(t *task, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tasks[t.config.ID] = t
	select {
	case d.events <- driver.Event{
		TaskID: t.config.ID, AllocID: t.config.AllocID, TaskName: t.config.Name, Time: time.Now(), Message: message,
		Annotations: map[string]string{"pid": fmt.Sprint(t.process.Pid)},
	}:
	default: // nobody listens
	}
}

func exitOf(err error) driver.Exit {
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return driver.Exit{Signal: int(ws.Signal())}
		}
		return driver.Exit{Code: exit.ExitCode()}
	default:
		return driver.Exit{Err: err}
	}
}

func (d *Driver) find(id string) (*task, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tasks[id]; t != nil {
		return t, nil
	}
	return nil, driver.ErrTaskNotFound
}

// recoverLook is the time between two looks at a process that is no child.
const recoverLook = 20 * time.Millisecond

// Recover implements driver.Plugin.
func (d *Driver) Recover(_ context.Context, h driver.Handle) error {
	if t, err := d.find(h.Config.ID); err == nil {
		d.add(t, "recovered by the process that started it")
		return note(h.Config, RecoveredBySame)
	}
	var s state
	if err := h.DecodeState(&s); err != nil {
		return err
	}
	process, err := os.FindProcess(s.PID)
	if err != nil || s.Forget || !lives(s.PID) {
		return fmt.Errorf("recover task: process %d is gone", s.PID)
	}
	t := &task{process: process, config: h.Config, started: time.Now(), done: make(chan struct{})}
	d.add(t, "recovered by another process")
	if err := note(h.Config, RecoveredByOther); err != nil {
		return err
	}
	go func() {
		defer close(t.done)
		for lives(s.PID) {
			time.Sleep(recoverLook)
		}
		t.exit = driver.Exit{Code: RecoveredExit}
	}()
	return nil
}

// RecoveredFile is a file in the task's local directory to which Recover
// appends RecoveredBySame or RecoveredByOther: an agent that comes back drops
// the events that a driver sends meanwhile.
const (
	RecoveredFile    = "recovered"
	RecoveredBySame  = "by the process that started it"
	RecoveredByOther = "by another process"
	// NoConfig is added when the handle lacked the task's config block.
	NoConfig = ", without its configuration"
)

func note(c driver.TaskConfig, text string) error {
	f, err := os.OpenFile(filepath.Join(c.LocalDir(), RecoveredFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("note recovery: %w", err)
	}
	if len(c.Raw) == 0 {
		text += NoConfig
	}
	_, err = f.WriteString(text + "\n")
	return errors.Join(err, f.Close())
}

// lives says whether a process is more than a corpse that nobody buries.
func lives(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(raw, []byte(") Z "))
}

// Wait implements driver.Plugin.
func (d *Driver) Wait(ctx context.Context, id string) (driver.Exit, error) {
	t, err := d.find(id)
	if err != nil {
		return driver.Exit{}, err
	}
	select {
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	case <-t.done:
		return t.exit, nil
	}
}

// Stop implements driver.Plugin.
func (d *Driver) Stop(ctx context.Context, id string, timeout time.Duration, name string) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	first := syscall.SIGTERM
	if s, ok := signals[name]; ok {
		first = s
	}
	if err := t.signal(first); err != nil {
		return err
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(timeout):
		return t.signal(syscall.SIGKILL)
	}
}

func (t *task) signal(s syscall.Signal) error {
	if err := t.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal task: %w", err)
	}
	return nil
}

// Destroy implements driver.Plugin.
func (d *Driver) Destroy(_ context.Context, id string, force bool) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	select {
	case <-t.done:
	default:
		if !force {
			return fmt.Errorf("destroy task %q: it is running", id)
		}
		if err := t.signal(syscall.SIGKILL); err != nil {
			return err
		}
		<-t.done
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tasks, id)
	return nil
}

// Inspect implements driver.Plugin.
func (d *Driver) Inspect(_ context.Context, id string) (driver.Status, error) {
	t, err := d.find(id)
	if err != nil {
		return driver.Status{}, err
	}
	s := driver.Status{ID: id, Name: t.config.Name, State: driver.StateRunning, Started: t.started}
	select {
	case <-t.done:
		s.State, s.Exit = driver.StateExited, t.exit
	default:
	}
	return s, nil
}

// Stats implements driver.Plugin.
func (d *Driver) Stats(ctx context.Context, id string, interval time.Duration, send func(driver.Usage) error) error {
	if _, err := d.find(id); err != nil {
		return err
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		rss := uint64(42 << 20)
		if err := send(driver.Usage{TaskID: id, Time: time.Now(), Total: driver.ResourceUsage{RSS: &rss}}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// Events implements driver.Plugin.
func (d *Driver) Events(ctx context.Context, send func(driver.Event) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-d.events:
			if err := send(e); err != nil {
				return err
			}
		}
	}
}
