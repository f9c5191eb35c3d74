package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

// rig is a runner among fakes, below testing/synctest.
type rig struct {
	t      *testing.T
	runner *runner
	board  *board
	begun  time.Time

	mu sync.Mutex
	// slept is how long the host slept: the clock goes on, timers do not.
	slept time.Duration
	// trace is what was done to the world, with its time.
	trace []string

	// What the world answers; the defaults do well.
	join     func(gangapi.JoinRequest) (gangapi.JoinAnswer, error)
	report   func(gangapi.ReportRequest) (gangapi.ReportAnswer, error)
	attached func() error
	launch   func() error
	prepare  func() error
	update   func() error
	examine  func(ctx context.Context) *gangapi.NodeFault
	// onSignal is what the user's code does.
	onSignal func(w *fakeWorkload, sig syscall.Signal)
	onKill   func(w *fakeWorkload) error
	// drain is how long the output of a workload that has ended takes to be read.
	drain time.Duration

	// poke breaks long polls off, as news does.
	poke       chan struct{}
	checkpoint *gangapi.Checkpoint
	asked      bool
	answered   bool
	changed    chan struct{}
	up         int
}

var errDown = errors.New("connection refused")

// play runs a task among fakes until f returns.
func play(t *testing.T, change func(r *rig, s *Start), f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := Start{
			Run:  "run-1",
			Task: Task{Namespace: "default", Job: "train", Group: "g", Alloc: "a1", Task: "main", Node: "n1"},
			Role: RoleRank,
			Barrier: Barrier{
				Planners: []string{"http://planner"}, IdentityFile: "/token", JoinTimeout: 10 * time.Minute, Address: "127.0.0.1", Port: 29500,
			},
			Files:      Files{Dir: "/files"},
			Checkpoint: Checkpoint{Signal: "SIGUSR1", Grace: time.Minute},
			Fence:      Fence{Nomad: "http://nomad", After: time.Minute},
		}
		r := &rig{
			t: t, begun: time.Now(), board: newBoard(), poke: make(chan struct{}), changed: make(chan struct{}),
			join:     func(q gangapi.JoinRequest) (gangapi.JoinAnswer, error) { return startAtOnce(q), nil },
			report:   func(gangapi.ReportRequest) (gangapi.ReportAnswer, error) { return gangapi.ReportAnswer{}, nil },
			attached: func() error { return nil },
			launch:   func() error { return nil }, prepare: func() error { return nil }, update: func() error { return nil },
			onSignal: func(w *fakeWorkload, sig syscall.Signal) {
				if sig == syscall.SIGTERM {
					w.end(exec.Exit{Code: 0})
				}
			},
			onKill: func(w *fakeWorkload) error { w.end(exec.Exit{Signal: 9}); return nil },
		}
		change(r, &s)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		w := world{planner: r, launcher: r, preparer: (*fakeScene)(r), agent: r, clock: r.clock, board: r.board, log: hclog.NewNullLogger()}
		if s.Preflight != nil {
			w.examiner = r
		}
		r.runner = newRunner(s, w)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.runner.run()
		}()
		f(r)
		r.runner.quit()
		<-done
		if r.up != 0 {
			t.Errorf("%d workloads are left", r.up)
		}
	})
}

func (r *rig) clock() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.begun) + r.slept
}

func (r *rig) did(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, fmt.Sprintf("%s %s", time.Since(r.begun), fmt.Sprintf(format, args...)))
}

// done is how many things were done to the world.
func (r *rig) done() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.trace)
}

func (r *rig) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// after lets time pass, and everything that happens in it.
func (r *rig) after(d time.Duration) Status {
	time.Sleep(d)
	synctest.Wait()
	s, _, _ := r.board.look(0)
	return s
}

// news ends the long polls that are open.
func (r *rig) news() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.poke)
	r.poke = make(chan struct{})
}

func (r *rig) poll(ctx context.Context, waitMS int64) error {
	r.mu.Lock()
	poke := r.poke
	r.mu.Unlock()
	if waitMS == 0 {
		return nil
	}
	select {
	case <-poke:
		return nil
	case <-time.After(time.Duration(waitMS) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Join and Report implement planner. A join is answered at once unless it is to
// wait.
func (r *rig) Join(ctx context.Context, q gangapi.JoinRequest) (gangapi.JoinAnswer, error) {
	r.did("join %d", q.Attempt)
	r.mu.Lock()
	a, err := r.join(q)
	r.mu.Unlock()
	if err != nil || a.State != gangapi.JoinWaiting {
		return a, err
	}
	if err := r.poll(ctx, q.WaitMS); err != nil {
		return gangapi.JoinAnswer{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.join(q)
}

func (r *rig) Report(ctx context.Context, q gangapi.ReportRequest) (gangapi.ReportAnswer, error) {
	if q.Exit != nil {
		r.did("report exit %d", q.Exit.Code)
	}
	r.mu.Lock()
	a, err := r.report(q)
	r.mu.Unlock()
	if err != nil || a.Order != nil || a.Membership != nil {
		return a, err
	}
	if err := r.poll(ctx, q.WaitMS); err != nil {
		return gangapi.ReportAnswer{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report(q)
}

// Attached implements agent.
func (r *rig) Attached(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attached()
}

// Examine implements examiner.
func (r *rig) Examine(ctx context.Context) *gangapi.NodeFault { return r.examine(ctx) }

// Ready and Launch implement launcher.
func (r *rig) Ready(context.Context) error { return nil }

func (r *rig) Launch(_ context.Context, env map[string]string) (workload, error) {
	r.did("launch in %s", env["EPOCH"])
	if err := r.launch(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up++; r.up > 1 {
		r.t.Error("the user's code runs twice at once")
	}
	return &fakeWorkload{rig: r, ended: make(chan struct{})}, nil
}

// fakeWorkload is user's code.
type fakeWorkload struct {
	rig   *rig
	once  sync.Once
	ended chan struct{}
	exit  exec.Exit
}

func (w *fakeWorkload) end(e exec.Exit) {
	w.once.Do(func() {
		w.exit = e
		close(w.ended)
	})
}

func (w *fakeWorkload) PID() int { return 77 }

func (w *fakeWorkload) Signal(sig syscall.Signal) error {
	w.rig.did("signal %d", int(sig))
	w.rig.onSignal(w, sig)
	return nil
}

func (w *fakeWorkload) Wait(ctx context.Context) (exec.Exit, error) {
	select {
	case <-w.ended:
		return w.exit, nil
	case <-ctx.Done():
		return exec.Exit{}, ctx.Err()
	}
}

func (w *fakeWorkload) Kill(context.Context) error {
	w.rig.did("kill")
	return w.rig.onKill(w)
}

func (w *fakeWorkload) Freeze(context.Context) error { w.rig.did("freeze"); return nil }
func (w *fakeWorkload) Thaw(context.Context) error   { w.rig.did("thaw"); return nil }
func (w *fakeWorkload) Usage() (exec.Usage, error)   { return exec.Usage{}, nil }

func (w *fakeWorkload) Exec(context.Context, exec.ExecSpec) (session, error) {
	return nil, exec.ErrNotRunning
}

func (w *fakeWorkload) Close(ctx context.Context) error {
	_ = sleep(ctx, w.rig.drain)
	w.rig.mu.Lock()
	defer w.rig.mu.Unlock()
	w.rig.up--
	return nil
}

// fakeScene is the rig as preparer.
type fakeScene rig

func (f *fakeScene) Prepare(_ context.Context, p plan) (map[string]string, error) {
	if err := f.prepare(); err != nil {
		return nil, err
	}
	env := map[string]string{}
	if p.membership != nil {
		env["EPOCH"] = p.membership.Epoch
	}
	return env, nil
}

func (f *fakeScene) Update(p plan) error {
	(*rig)(f).did("files of generation %d", p.membership.Generation)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.update()
}

func (f *fakeScene) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fakeScene) Progress() *gangapi.Progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.checkpoint == nil {
		return nil
	}
	return &gangapi.Progress{Checkpoint: f.checkpoint}
}

func (f *fakeScene) Ask(context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.answered = true, false
}

func (f *fakeScene) Answer() (gangapi.Checkpoint, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.answered {
		return gangapi.Checkpoint{}, false
	}
	return *f.checkpoint, true
}

func (f *fakeScene) Close() {}

// saves is a new checkpoint; one that was begun after the last Ask is newer.
func (r *rig) saves(step int64, begunAfterAsk bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkpoint = &gangapi.Checkpoint{At: time.Now(), Step: &step}
	r.answered = begunAfterAsk && r.asked
	close(r.changed)
	r.changed = make(chan struct{})
}

// happened are the kinds of events since the beginning.
func (r *rig) happened() []machine.EventKind {
	_, events, _ := r.board.look(0)
	return kinds(events)
}
