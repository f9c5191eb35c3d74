package supervisor

import (
	"context"
	"syscall"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
)

// What a runner needs from the world. The real ones are put together in Run.

// planner is where the gang meets; *gangapi.Client is one.
type planner interface {
	Join(ctx context.Context, r gangapi.JoinRequest) (gangapi.JoinAnswer, error)
	Report(ctx context.Context, r gangapi.ReportRequest) (gangapi.ReportAnswer, error)
}

// workload is the user's code while it runs, and until Close.
type workload interface {
	PID() int
	Signal(sig syscall.Signal) error
	Wait(ctx context.Context) (exec.Exit, error)
	// Kill returns when nothing is left, or with an error.
	Kill(ctx context.Context) error
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	Usage() (exec.Usage, error)
	Exec(ctx context.Context, spec exec.ExecSpec) (session, error)
	// Close waits until the output was read, or the context has ended.
	Close(ctx context.Context) error
}

// session is a command inside the user's code; *exec.Session is one.
type session interface {
	Resize(size exec.Size) error
	Wait(ctx context.Context) (exec.Exit, error)
}

// launcher starts the user's code.
type launcher interface {
	// Ready makes an image ready, which may take long.
	Ready(ctx context.Context) error
	// Launch starts the code with variables beside its own.
	Launch(ctx context.Context, env map[string]string) (workload, error)
}

// preparer makes the files for the user's code and knows of its progress.
type preparer interface {
	// Prepare makes everything for a start and returns the variables for it.
	Prepare(ctx context.Context, p plan) (map[string]string, error)
	// Update replaces the files.
	Update(p plan) error
	// Changed is closed when there is new progress; before the first Prepare it
	// never is.
	Changed() <-chan struct{}
	Progress() *gangapi.Progress
	// Ask takes note of the checkpoints that there are; Answer returns one that
	// was begun after that.
	Ask(ctx context.Context)
	Answer() (gangapi.Checkpoint, bool)
	Close()
}

// examiner looks at the node before the barrier.
type examiner interface {
	Examine(ctx context.Context) *gangapi.NodeFault
}

// agent asks the local Nomad agent whether Nomad's servers have a leader.
type agent interface {
	Attached(ctx context.Context) error
}
