package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Workload is a started command with all its descendants. Its methods may be
// called concurrently.
type Workload struct {
	host    host
	plan    *plan
	groups  *cgroups
	main    *child
	outputs []*output
	// ended is closed when exit is set.
	ended chan struct{}
	exit  Exit

	// stopReaping ends the reaping of orphans, which reaped tells.
	stopReaping func()
	reaped      chan struct{}

	// freezing lets Freeze and Thaw follow each other.
	freezing sync.Mutex
	// mu guards what follows. Nothing waits while holding it.
	mu     sync.Mutex
	tree   tree
	last   measured
	frozen bool
	closed bool
	// sessions are the running commands of Exec.
	sessions map[*Session]struct{}
}

// Start starts a workload. Its error is a *SpecError where the Spec is at
// fault, and wraps ErrInUse where another one is in its cgroup. The context only
// bounds the start.
func Start(ctx context.Context, spec Spec) (*Workload, error) {
	h, err := here()
	if err != nil {
		return nil, fmt.Errorf("start workload: %w", err)
	}
	return h.start(ctx, spec)
}

func (h host) start(ctx context.Context, spec Spec) (*Workload, error) {
	p, err := h.check(spec)
	if err != nil {
		return nil, err
	}
	if err := becomeSubreaper(); err != nil {
		return nil, fmt.Errorf("start workload: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	w := &Workload{host: h, plan: p, groups: h.place(spec), ended: make(chan struct{}), sessions: map[*Session]struct{}{}}
	if pids := w.groups.pids(); len(pids) > 0 {
		return nil, fmt.Errorf("start workload %s: %w: processes %v are in its cgroup", spec.ID, ErrInUse, pids)
	}
	if err := w.launch(ctx); err != nil {
		for _, out := range w.outputs {
			out.close()
		}
		return nil, fmt.Errorf("start workload: %w", errors.Join(err, w.groups.remove()))
	}
	w.tree = tree{
		host: h, id: spec.ID, groups: w.groups, since: w.main.start,
		roots: map[int]uint64{w.main.outer: w.main.start},
		// Cgroups hold all there is, whatever it looks like.
		adopted: len(w.groups.holders()) == 0,
	}
	w.reapOrphans()
	go w.watch()
	return w, nil
}

// launch makes what the command needs and starts it.
func (w *Workload) launch(ctx context.Context) error {
	spec := w.plan.spec
	for _, path := range []string{spec.Stdout, spec.Stderr} {
		out, err := openOutput(path)
		if err != nil {
			return fmt.Errorf("open output: %w", err)
		}
		if id := w.plan.child.User; id != nil && out.keeper != nil {
			// Programs open /dev/stdout, which is the FIFO once more. Where it
			// cannot be given away they have what they were started with.
			_ = out.keeper.Chown(id.UID, -1)
		}
		w.outputs = append(w.outputs, out)
	}
	if err := w.groups.create(spec, w.plan.devices); err != nil {
		return err
	}
	config := w.plan.child
	config.OwnMounts, config.MountProc = spec.ownMounts(), spec.PIDNamespace
	config.Between = spec.PIDNamespace
	main, err := launch{
		config: config, flags: spec.cloneFlags(), groups: w.groups, mark: spec.ID,
		stdout: w.outputs[0].file, stderr: w.outputs[1].file,
	}.start(ctx, w.host)
	if err != nil {
		return err
	}
	w.main = main
	for _, out := range w.outputs {
		out.started()
	}
	return nil
}

// watch tells when the command has ended.
func (w *Workload) watch() {
	<-w.main.done
	w.exit = exitOf(w.main.status)
	w.exit.OOM = w.groups.count().oomKills > w.groups.base.oomKills
	close(w.ended)
}

// orphanPause is how often orphans are looked for at most.
const orphanPause = 100 * time.Millisecond

// reapOrphans reaps orphans as they end, until it is stopped.
func (w *Workload) reapOrphans() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	ctx, cancel := context.WithCancel(context.Background())
	w.stopReaping, w.reaped = cancel, make(chan struct{})
	go func() {
		defer close(w.reaped)
		defer signal.Stop(ended)
		for {
			// First, too: some may have ended before signals were listened to.
			w.host.reapOrphans()
			if sleep(ctx, orphanPause) != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-ended:
			}
		}
	}()
}

// ID is the Spec's.
func (w *Workload) ID() string { return w.plan.spec.ID }

// PID is the command's process ID on the host.
func (w *Workload) PID() int { return w.main.pid }

// Signal sends a signal to the command; ErrNotRunning once it has ended.
func (w *Workload) Signal(sig syscall.Signal) error {
	if err := w.main.signal(sig); err != nil {
		return fmt.Errorf("signal workload: %w", err)
	}
	return nil
}

// SignalAll sends a signal to every process of the workload, except to an init
// that this package put in; ErrNotRunning if there is none.
func (w *Workload) SignalAll(sig syscall.Signal) error {
	procs, err := w.processes(true)
	if err != nil {
		return fmt.Errorf("signal workload: %w", err)
	}
	if w.main.outer != w.main.pid {
		delete(procs, w.main.outer)
	}
	if len(procs) == 0 {
		return fmt.Errorf("signal workload: %w", ErrNotRunning)
	}
	var errs []error
	for _, pid := range slices.Sorted(maps.Keys(procs)) {
		errs = append(errs, w.host.signalProcess(procs[pid], sig))
	}
	return errors.Join(errs...)
}

// processes are the living processes of the workload.
func (w *Workload) processes(marks bool) (map[int]process, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tree.find(marks)
}

// Done is closed when the command has ended.
func (w *Workload) Done() <-chan struct{} { return w.ended }

// Wait returns how the command ended, any number of times. What the command
// left behind runs on until Kill. The error is the context's.
func (w *Workload) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-w.ended:
		return w.exit, nil
	default:
	}
	select {
	case <-w.ended:
		return w.exit, nil
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("wait for workload: %w", ctx.Err())
	}
}

// Close kills what is left, waits until all output in FIFOs was read or the
// context ended, and gives everything back: descriptors and cgroups. It may be
// called again if it failed.
func (w *Workload) Close(ctx context.Context) error {
	if err := w.Kill(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	sessions := slices.Collect(maps.Keys(w.sessions))
	w.mu.Unlock()
	for _, s := range sessions {
		s.abandon()
	}
	var errs []error
	for _, out := range w.outputs {
		errs = append(errs, out.drain(ctx))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errors.Join(errs...)
	}
	w.closed = true
	for _, out := range w.outputs {
		out.close()
	}
	w.stopReaping()
	<-w.reaped
	w.host.reapOrphans()
	w.main.release()
	return errors.Join(append(errs, w.groups.remove())...)
}
