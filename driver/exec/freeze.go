package exec

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Freeze suspends the whole workload and returns when all of it stands still.
// If that fails, the workload is resumed.
func (w *Workload) Freeze(ctx context.Context) error {
	select {
	case <-w.ended:
		return fmt.Errorf("suspend workload: %w", ErrNotRunning)
	default:
	}
	w.freezing.Lock()
	defer w.freezing.Unlock()
	ctx, stop := w.whileRunning(ctx)
	defer stop()
	w.setFrozen(true)
	if err := w.freeze(ctx); err != nil {
		w.setFrozen(false)
		_ = w.thaw(context.WithoutCancel(ctx))
		return fmt.Errorf("suspend workload: %w", err)
	}
	return nil
}

// whileRunning is a context that ends with the command, too: what is killed
// while it is being suspended never stands still.
func (w *Workload) whileRunning(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-w.ended:
			cancel(ErrNotRunning)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Thaw resumes it. It is no error if it was not suspended.
func (w *Workload) Thaw(ctx context.Context) error {
	w.freezing.Lock()
	defer w.freezing.Unlock()
	if err := w.thaw(ctx); err != nil {
		return fmt.Errorf("resume workload: %w", err)
	}
	w.setFrozen(false)
	return nil
}

// Frozen reports whether the workload is suspended, or about to be.
func (w *Workload) Frozen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frozen
}

func (w *Workload) setFrozen(frozen bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen = frozen
}

func (w *Workload) freeze(ctx context.Context) error {
	f, ok := w.groups.freezer()
	if !ok {
		return w.stopAll(ctx)
	}
	if f.file != f.state {
		if err := writeExisting(f.file, f.freeze); err != nil {
			return err
		}
		return waitFor(ctx, f.state, f.frozen)
	}
	return f.insist(ctx)
}

const (
	// freezeTry is how long one try may take, and thawEvery after how many of them
	// all are let go first.
	freezeTry = 200 * time.Millisecond
	thawEvery = 5
)

// insist freezes with cgroup v1: a process that is busy in the kernel, or forks,
// can leave the group half frozen until it is told again (the kernel's
// cgroup-v1/freezer-subsystem document leaves that to its users).
func (f freezer) insist(ctx context.Context) error {
	for try := 1; ; try++ {
		if err := writeExisting(f.file, f.freeze); err != nil {
			return err
		}
		once, cancel := context.WithTimeout(ctx, freezeTry)
		err := waitFor(once, f.state, f.frozen)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if try%thawEvery == 0 {
			if err := writeExisting(f.file, f.thaw); err != nil {
				return err
			}
		}
	}
}

// thaw does not wait: the kernel resumes processes before the write returns.
func (w *Workload) thaw(ctx context.Context) error {
	f, ok := w.groups.freezer()
	if !ok {
		return w.continueAll(ctx)
	}
	return ignoreMissing(writeExisting(f.file, f.thaw))
}

// freezer is a cgroup's: what to write into its file, and the line of another
// one that shows that all stands still.
type freezer struct {
	file, freeze, thaw string
	state, frozen      string
}

func (g *cgroups) freezer() (freezer, bool) {
	if file := filepath.Join(g.unified, "cgroup.freeze"); g.unified != "" && exists(file) {
		return freezer{file, "1", "0", filepath.Join(g.unified, "cgroup.events"), "frozen 1"}, true
	}
	if dir := g.v1["freezer"]; dir != "" {
		file := filepath.Join(dir, "freezer.state")
		return freezer{file, "FROZEN", "THAWED", file, "FROZEN"}, true
	}
	return freezer{}, false
}

// waitFor waits until a line of a file is what is wanted.
func waitFor(ctx context.Context, file, want string) error {
	pause := time.Millisecond
	for {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if slices.Contains(strings.Split(string(data), "\n"), want) {
			return nil
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("wait for %q in %s: %w", want, file, err)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// stopAll stops every process, until none is found that runs: each may start
// others before its turn comes.
func (w *Workload) stopAll(ctx context.Context) error {
	pause := time.Millisecond
	told := map[processKey]bool{}
	for {
		procs, err := w.processes(true)
		if err != nil {
			return err
		}
		var running []string
		for _, pid := range slices.Sorted(maps.Keys(procs)) {
			p := procs[pid]
			key := processKey{pid, p.Starttime}
			// One that waits inside the kernel stops before it runs again. It
			// may wait for one that has stopped: the parent after vfork(2).
			if p.stopped() || w.isInit(pid) || p.State == "D" && told[key] {
				continue
			}
			running = append(running, fmt.Sprintf("%d (%s, %s)", pid, p.Comm, p.State))
			if err := w.host.signalProcess(p, unix.SIGSTOP); err != nil {
				return err
			}
			told[key] = true
		}
		if len(running) == 0 {
			return nil
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("these still run: %s: %w", strings.Join(running, ", "), err)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// continueAll resumes every process, also one in which a stop is still on its
// way, until none is found that stands still.
func (w *Workload) continueAll(ctx context.Context) error {
	pause := time.Millisecond
	for first := true; ; first = false {
		procs, err := w.processes(true)
		if err != nil {
			return err
		}
		stopped := 0
		for _, pid := range slices.Sorted(maps.Keys(procs)) {
			if !procs[pid].stopped() && !first {
				continue
			}
			stopped++
			if err := w.host.signalProcess(procs[pid], unix.SIGCONT); err != nil {
				return err
			}
		}
		if stopped == 0 {
			return nil
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// isInit reports whether a process is the init that this package put in; it
// only waits, and may as well be left to.
func (w *Workload) isInit(pid int) bool { return pid == w.main.outer && pid != w.main.pid }
