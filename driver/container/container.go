package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/driver/exec"
)

// clientEnv is the environment of the runtime's client: nothing of the task's, by
// which a task could make the client, which is root's, do other things.
var clientEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C"}

// askTimeout bounds a question to the runtime.
const askTimeout = 30 * time.Second

// Workload is what runs the client, as *exec.Workload does.
type Workload interface {
	PID() int
	Signal(sig syscall.Signal) error
	SignalAll(sig syscall.Signal) error
	Done() <-chan struct{}
	Wait(ctx context.Context) (exec.Exit, error)
	Kill(ctx context.Context) error
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Usage() (exec.Usage, error)
	Exec(ctx context.Context, spec exec.ExecSpec) (*exec.Session, error)
	Close(ctx context.Context) error
}

// Start starts the workload that a Spec and the client's own call for.
type Start func(ctx context.Context, spec exec.Spec) (Workload, error)

// Container is a running container. Its methods are a workload's.
type Container struct {
	Workload
	spec Spec
	host Host
	// dir is the client's own: it runs there, and finds the container's
	// environment there.
	dir string

	// mu guards what follows, which is known once the container runs.
	mu    sync.Mutex
	pid   int
	meter *exec.Meter
}

// Pull makes the image ready, which may take long, so that Start does not.
func Pull(ctx context.Context, host Host, s Spec) error {
	if err := s.Check(); err != nil {
		return err
	}
	if s.Runtime.Name == Apptainer {
		// A file is there or not; anything else is fetched into the cache.
		if filepath.IsAbs(s.Image) {
			if _, err := os.Stat(s.Image); err != nil {
				return fmt.Errorf("find image: %w", err)
			}
			return nil
		}
		_, err := host.Output(ctx, s.Runtime.Path, "exec", s.Image, "true")
		return wrap("fetch image "+s.Image, err)
	}
	if _, err := host.Output(ctx, s.Runtime.Path, "image", "inspect", "--format", "{{.Id}}", s.Image); err == nil {
		return nil
	}
	_, err := host.Output(ctx, s.Runtime.Path, "pull", "--quiet", s.Image)
	return wrap("pull image "+s.Image, err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Run starts the container. base is the workload that the client becomes: its
// ID, outputs, and cgroup; in base.Dir is a directory with the environment while
// the container runs, which only the caller's user can read.
func Run(ctx context.Context, host Host, start Start, base exec.Spec, s Spec) (*Container, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	// A container of an earlier attempt may be left where the host went down.
	if err := Remove(ctx, host, s); err != nil {
		return nil, err
	}
	in := s.invoke()
	c := &Container{spec: s, host: host}
	if c.managed() {
		if err := c.prepare(&base, in); err != nil {
			return nil, err
		}
	}
	base.Command, base.Args = s.Runtime.Path, in.args
	base.Env = slices.Concat(clientEnv, in.env)
	if s.Runtime.Name == Apptainer {
		base.User = s.User
	}
	w, err := start(ctx, base)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", s.Runtime.Name, err), c.tidy())
	}
	c.Workload = w
	if c.managed() {
		c.await(ctx)
	}
	return c, nil
}

const (
	// awaitAtMost bounds the wait for a container; where the runtime is slower
	// than that, it is there later.
	awaitAtMost = 10 * time.Second
	awaitPause  = 20 * time.Millisecond
)

// await waits until the container is there, so that it can be asked for by its
// name: the client needs a moment to make it.
func (c *Container) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, awaitAtMost)
	defer cancel()
	for {
		c.mu.Lock()
		c.first()
		there := c.pid > 0
		c.mu.Unlock()
		if there {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-c.Done(): // it has ended already, or never was
			return
		case <-time.After(awaitPause):
		}
	}
}

// prepare makes the client's directory, with the file that the invocation needs.
func (c *Container) prepare(base *exec.Spec, in invocation) error {
	dir, err := os.MkdirTemp(base.Dir, ".container-")
	if err != nil {
		return fmt.Errorf("make the container's directory: %w", err)
	}
	c.dir, base.Dir = dir, dir
	path := filepath.Join(dir, "environment")
	if err := os.WriteFile(path, []byte(in.file), 0o600); err != nil {
		return errors.Join(fmt.Errorf("write the container's environment: %w", err), c.tidy())
	}
	in.args[slices.Index(in.args, envFile)] = path
	return nil
}

func (c *Container) tidy() error {
	if c.dir == "" {
		return nil
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove the container's directory: %w", err)
	}
	return nil
}

// oomFile is what podman's monitor leaves in its directory, which is the
// client's, when the container has run out of memory. With cgroup v1 podman
// itself often does not notice (conmon, src/oom.c).
const oomFile = "oom"

// managed says that the runtime keeps the container, and not the client.
func (c *Container) managed() bool { return c.spec.Runtime.Name != Apptainer }

func (c *Container) ask(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, err := c.host.Output(ctx, c.spec.Runtime.Path, args...)
	return out, wrap(string(c.spec.Runtime.Name)+" "+args[0], err)
}

// Signal sends a signal to the container's first process.
func (c *Container) Signal(sig syscall.Signal) error {
	if !c.managed() {
		return c.Workload.Signal(sig)
	}
	name := unix.SignalName(sig)
	if name == "" {
		return fmt.Errorf("signal container: signal %d has no name", sig)
	}
	_, err := c.ask(context.Background(), "kill", "--signal", name, c.spec.Name)
	return err
}

// SignalAll sends it to the first process, which is the container's own init.
func (c *Container) SignalAll(sig syscall.Signal) error {
	if !c.managed() {
		return c.Workload.SignalAll(sig)
	}
	return c.Signal(sig)
}

// Wait returns how the container ended.
func (c *Container) Wait(ctx context.Context) (exec.Exit, error) {
	exit, err := c.Workload.Wait(ctx)
	if err != nil || !c.managed() {
		return exit, err
	}
	out, askErr := c.ask(ctx, "inspect", "--format", "{{.State.OOMKilled}}", c.spec.Name)
	if askErr == nil && strings.TrimSpace(out) == "true" {
		exit.OOM = true
	}
	if _, err := os.Stat(filepath.Join(c.dir, oomFile)); err == nil {
		exit.OOM = true
	}
	// The client ends with 128 and the number of the signal that ended the
	// container's first process.
	if exit.Code > 128 && exit.Code < 128+65 {
		exit.Code, exit.Signal = 0, exit.Code-128
	}
	return exit, nil
}

// Kill ends the container and the client, whatever they do.
func (c *Container) Kill(ctx context.Context) error {
	if !c.managed() {
		return c.Workload.Kill(ctx)
	}
	return errors.Join(Remove(ctx, c.host, c.spec), c.Workload.Kill(ctx))
}

// Freeze suspends the container.
func (c *Container) Freeze(ctx context.Context) error {
	if !c.managed() {
		return c.Workload.Freeze(ctx)
	}
	_, err := c.ask(ctx, "pause", c.spec.Name)
	return err
}

// Thaw resumes it.
func (c *Container) Thaw(ctx context.Context) error {
	if !c.managed() {
		return c.Workload.Thaw(ctx)
	}
	_, err := c.ask(ctx, "unpause", c.spec.Name)
	return err
}

// ErrNoExec says that the runtime runs no further commands in a container.
var ErrNoExec = errors.New("apptainer runs no commands in a container that runs already")

// Exec runs a command in the container, ErrNoExec where the runtime does not.
// Beside the client it would be outside of the container.
func (c *Container) Exec(ctx context.Context, spec exec.ExecSpec) (*exec.Session, error) {
	if !c.managed() {
		return nil, ErrNoExec
	}
	call := []string{c.spec.Runtime.Path, "exec", "--interactive"}
	if spec.TTY {
		call = append(call, "--tty")
	}
	for _, kv := range spec.Env {
		call = append(call, "--env", kv)
	}
	spec.Command, spec.Env = slices.Concat(call, []string{c.spec.Name}, spec.Command), nil
	return c.Workload.Exec(ctx, spec)
}

// PID is the container's first process on the host, or the client's where the
// runtime does not tell.
func (c *Container) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first()
}

// first is PID with mu held. The runtime is asked until it has told once.
func (c *Container) first() int {
	if c.managed() && c.pid == 0 {
		out, err := c.ask(context.Background(), "inspect", "--format", "{{.State.Pid}}", c.spec.Name)
		if pid, bad := strconv.Atoi(strings.TrimSpace(out)); err == nil && bad == nil && pid > 0 {
			c.pid = pid
		}
	}
	if c.pid == 0 {
		return c.Workload.PID()
	}
	return c.pid
}

// Usage measures the container. Before its first process is there and after
// that has ended, it is that of the client.
func (c *Container) Usage() (exec.Usage, error) {
	if !c.managed() {
		return c.Workload.Usage()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first(); c.meter == nil && c.pid > 0 {
		c.meter, _ = exec.NewMeter(c.pid) // it may have ended
	}
	if c.meter != nil {
		if u, err := c.meter.Usage(); !errors.Is(err, exec.ErrNotRunning) {
			return u, err
		}
	}
	return c.Workload.Usage()
}

// Close removes the container and what was kept about it.
func (c *Container) Close(ctx context.Context) error {
	return errors.Join(Remove(ctx, c.host, c.spec), c.Workload.Close(ctx), c.tidy())
}

// Remove ends and removes the container, if it is there.
func Remove(ctx context.Context, host Host, s Spec) error {
	if s.Runtime.Name == Apptainer {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	args := []string{"rm", "--force", "--volumes"}
	if s.Runtime.Name == Podman {
		// Docker kills at once; podman would wait for the container to end.
		args = append(args, "--time", "0")
	}
	var err error
	for range removeTries {
		_, err = host.Output(ctx, s.Runtime.Path, append(args, s.Name)...)
		if err == nil || strings.Contains(strings.ToLower(err.Error()), "no such container") {
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return wrap("remove container "+s.Name, err)
}

// removeTries is how often a removal is tried: podman takes it for a fault that
// a container ends by itself while it is being ended.
const removeTries = 3
