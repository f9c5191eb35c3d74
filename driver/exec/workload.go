package exec

import (
	"context"
	"fmt"
	"syscall"
)

// Main does the steps of a start that have to be done inside the new process.
// It returns at once when the binary was run for anything else, and never
// otherwise. Call it before anything else in main and TestMain.
func Main() {}

// Check says what is wrong with a Spec on this host, without starting it: nil
// or a *SpecError.
func Check(spec Spec) error { return nil }

// Start starts a workload. Its error is a *SpecError where the Spec is at
// fault. The context only bounds the start.
func Start(ctx context.Context, spec Spec) (*Workload, error) {
	return nil, fmt.Errorf("start workload: %w", ErrUnsupported)
}

// Probe says what this host has.
func Probe() Facilities { return Facilities{} }

// Reap kills what is left of a workload whose supervisor has died, and removes
// its cgroups. Of the Spec, the ID and the fields on cgroups are used. It is
// no error if nothing is left.
func Reap(ctx context.Context, spec Spec) error { return nil }

// Workload is a started command with all its descendants. Its methods may be
// called concurrently.
type Workload struct{}

// PID is the command's process ID on the host.
func (w *Workload) PID() int { return 0 }

// Signal sends a signal to the command; ErrNotRunning once it has ended.
func (w *Workload) Signal(sig syscall.Signal) error { return nil }

// SignalAll sends a signal to every process of the workload.
func (w *Workload) SignalAll(sig syscall.Signal) error { return nil }

// Done is closed when the command has ended.
func (w *Workload) Done() <-chan struct{} { return nil }

// Wait returns how the command ended, any number of times. What the command
// left behind runs on until Kill. The error is the context's.
func (w *Workload) Wait(ctx context.Context) (Exit, error) { return Exit{}, nil }

// Kill kills the whole workload, suspended or not, with all that it ever
// started, and returns when nothing of it is left. If the context ends first,
// the error wraps ErrSurvivors. Kill may be called again.
func (w *Workload) Kill(ctx context.Context) error { return nil }

// Freeze suspends the whole workload and returns when all of it stands still.
func (w *Workload) Freeze(ctx context.Context) error { return nil }

// Thaw resumes it.
func (w *Workload) Thaw(ctx context.Context) error { return nil }

// Usage measures the workload.
func (w *Workload) Usage() (Usage, error) { return Usage{}, nil }

// Exec runs a command in the workload; ErrNotRunning once it has ended.
func (w *Workload) Exec(ctx context.Context, spec ExecSpec) (*Session, error) { return nil, nil }

// Close kills what is left, waits until all output in FIFOs was read or the
// context ended, and gives everything back: descriptors and cgroups.
func (w *Workload) Close(ctx context.Context) error { return nil }

// Session is a command running in a workload.
type Session struct{}

// Resize changes the size of the command's terminal.
func (s *Session) Resize(size Size) error { return nil }

// Signal sends a signal to the command.
func (s *Session) Signal(sig syscall.Signal) error { return nil }

// Wait returns how the command ended, after all its output was written. When
// the context ends first, the command is killed.
func (s *Session) Wait(ctx context.Context) (Exit, error) { return Exit{}, nil }
