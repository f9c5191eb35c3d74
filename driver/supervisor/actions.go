package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

func (r *runner) carryOut(actions []machine.Action) {
	for _, a := range actions {
		r.carryOutOne(a)
	}
}

func (r *runner) carryOutOne(a machine.Action) {
	switch a := a.(type) {
	case machine.RunPreflight:
		r.cancelPreflight = r.background(r.preflight)
	case machine.CancelPreflight:
		r.cancelPreflight()
	case machine.Join:
		wait := r.backOff(r.joinWait, a.Failures, a.Pause)
		r.cancelJoin = r.background(func(ctx context.Context) { r.join(ctx, a, wait) })
	case machine.StopJoin:
		stopPoll(&r.cancelJoin)
	case machine.Report:
		stopPoll(&r.cancelReport)
		wait := r.backOff(r.reportWait, a.Failures, a.Pause)
		r.cancelReport = r.background(func(ctx context.Context) { r.report(ctx, a, wait) })
	case machine.StopReports:
		stopPoll(&r.cancelReport)
	case machine.Prepare:
		r.background(func(ctx context.Context) { r.prepare(ctx, a) })
	case machine.Update:
		r.background(func(ctx context.Context) { r.update(ctx, a) })
	case machine.Launch:
		env := r.env
		r.background(func(context.Context) { r.launch(env) })
	case machine.Clear:
		r.clear()
	case machine.Tell:
		r.world.log.Info(a.Message, "kind", a.Kind)
		r.world.board.tell(Event{At: time.Now(), Kind: a.Kind, Message: a.Message, Details: a.Details})
	case machine.Finish:
		if r.world.release != nil {
			r.world.release()
		}
		r.world.board.exit(exitOf(a.Exit, time.Now()))
	default:
		r.carryOutOnCode(a)
	}
}

// carryOutOnCode is for what is done to the user's code.
func (r *runner) carryOutOnCode(a machine.Action) {
	switch a := a.(type) {
	case machine.Signal:
		r.inTurn(func(ctx context.Context, w workload) { r.signal(w, a.Name) })
	case machine.AskCheckpoint:
		r.inTurn(func(ctx context.Context, w workload) {
			r.post(machine.Asked{Serial: a.Serial, Err: r.askCheckpoint(ctx, w, a.Serial)})
		})
	case machine.Freeze:
		r.inTurn(func(ctx context.Context, w workload) { r.frozen(true, w.Freeze(ctx)) })
	case machine.Thaw:
		r.inTurn(func(ctx context.Context, w workload) { r.frozen(false, w.Thaw(ctx)) })
	case machine.Kill:
		// Out of turn: nothing may hold up a kill.
		if w := r.workload(); w != nil {
			r.background(func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, killFor)
				defer cancel()
				if err := w.Kill(ctx); err != nil {
					r.world.log.Error("could not kill the user's code", "reason", err)
				}
			})
		}
	}
}

// background runs f until it is cancelled or the runner ends.
func (r *runner) background(f func(ctx context.Context)) context.CancelFunc {
	ctx, cancel := context.WithCancel(r.ctx)
	r.wg.Go(func() {
		defer cancel()
		f(ctx)
	})
	return cancel
}

// inTurn does something to the user's code after all that came before it.
func (r *runner) inTurn(f func(ctx context.Context, w workload)) {
	w, before, done := r.workload(), r.lastOp, make(chan struct{})
	r.lastOp = done
	if w == nil {
		close(done)
		return
	}
	r.background(func(ctx context.Context) {
		defer close(done)
		if before != nil {
			<-before
		}
		ctx, cancel := context.WithTimeout(ctx, opFor)
		defer cancel()
		f(ctx, w)
	})
}

func stopPoll(cancel *context.CancelFunc) {
	if *cancel != nil {
		(*cancel)()
		*cancel = nil
	}
}

type backingOff interface {
	Reset()
	NextBackOff() time.Duration
}

func (r *runner) backOff(b backingOff, failures int, pause time.Duration) time.Duration {
	if failures == 0 {
		b.Reset()
		return pause
	}
	return max(b.NextBackOff(), pause)
}

func (r *runner) preflight(ctx context.Context) {
	// What tidies up after the run before would kill the check with it.
	r.closeWorkload(ctx, drainFor)
	if err := r.world.launcher.Ready(ctx); err != nil {
		r.post(machine.PreflightDone{Err: err})
		return
	}
	var fault *gangapi.NodeFault
	if r.world.examiner != nil {
		fault = r.world.examiner.Examine(ctx)
	}
	r.post(machine.PreflightDone{Fault: fault})
}

func (r *runner) join(ctx context.Context, a machine.Join, wait time.Duration) {
	if sleep(ctx, wait) != nil {
		return
	}
	b := r.start.Barrier
	in := machine.JoinAnswered{Attempt: a.Attempt}
	patience := joinFor
	if a.First {
		patience = firstFor
	}
	port, err := b.Port, error(nil)
	if port == 0 {
		port, err = freePort(b.Address)
	}
	if err != nil {
		in.Err = err
	} else {
		in.Answer, in.Err = r.world.planner.Join(ctx, gangapi.JoinRequest{
			Run: r.start.Run, Attempt: a.Attempt, WaitMS: patience.Milliseconds(),
			Address: b.Address, Port: port, GPUs: b.GPUs, Processes: b.Processes,
			Follow: r.start.Role == RoleFollow, Fault: a.Fault,
		})
	}
	if ctx.Err() == nil {
		r.post(in)
	}
}

// freePort finds a port for rank 0 to listen on. It may be taken before that
// happens; a task that cannot bear it has a port of its own in its network block.
func freePort(address string) (int, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		// The address is another network namespace's, or translated.
		l, err = net.ListenTCP("tcp", nil)
	}
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return port, nil
}

func (r *runner) report(ctx context.Context, a machine.Report, wait time.Duration) {
	if a.Final {
		r.reportFinally(ctx, a)
		return
	}
	if sleep(ctx, wait) != nil {
		return
	}
	request := r.reportRequest(a)
	sent := r.world.clock()
	answer, err := r.world.planner.Report(ctx, request)
	if ctx.Err() != nil {
		return
	}
	// An answer may lie about while this host sleeps.
	at := min(r.world.clock(), sent+time.Duration(request.WaitMS)*time.Millisecond+agentEvery)
	r.post(machine.ReportAnswered{Serial: a.Serial, Answer: answer, Err: err, At: at})
}

func (r *runner) reportRequest(a machine.Report) gangapi.ReportRequest {
	wait := reportFor
	if f := r.start.Fence.After; f > 0 {
		// The answer is a sign of life, which is needed in time.
		wait = min(wait, f/3)
	}
	switch {
	case a.Final:
		wait = 0
	case a.Soon:
		wait = exitFor
	}
	return gangapi.ReportRequest{
		Run: r.start.Run, WaitMS: wait.Milliseconds(), State: a.State, Epoch: a.Epoch, Generation: a.Generation,
		Seen: a.Seen, Progress: r.world.preparer.Progress(), Exit: a.Exit,
	}
}

// reportFinally tells the planner of the exit. Nobody waits for it.
func (r *runner) reportFinally(ctx context.Context, a machine.Report) {
	ctx, cancel := context.WithTimeout(ctx, finalFor)
	defer cancel()
	wait := newBackoff()
	for {
		_, err := r.world.planner.Report(ctx, r.reportRequest(a))
		if err == nil {
			return
		}
		if sleep(ctx, wait.NextBackOff()) != nil {
			r.world.log.Warn("the planner was not told of the exit", "reason", err)
			return
		}
	}
}

func (r *runner) prepare(ctx context.Context, a machine.Prepare) {
	env, err := r.world.preparer.Prepare(ctx, r.plan(a.Membership, a.Attempt))
	r.postAfter(func() { r.env = env }, machine.Prepared{Attempt: a.Attempt, Err: err})
}

func (r *runner) update(ctx context.Context, a machine.Update) {
	err := r.world.preparer.Update(r.plan(a.Membership, 0))
	r.postAfter(func() {
		if err == nil && a.Signal != "" {
			r.inTurn(func(_ context.Context, w workload) { r.signal(w, a.Signal) })
		}
	}, machine.Updated{Epoch: a.Membership.Epoch, Generation: a.Membership.Generation, Err: err})
}

// plan is what the files are made of.
type plan struct {
	alloc string
	// membership is nil for a task that belongs to no gang and does not count.
	membership *rendezvous.Membership
}

// plan gives a member without a gang a gang of one, so that code that was
// written for many runs alone.
func (r *runner) plan(of *rendezvous.Membership, attempt int) plan {
	p := plan{alloc: r.start.Task.Alloc, membership: of}
	b := r.start.Barrier
	if of != nil || r.start.Role != RoleRank {
		return p
	}
	port := b.Port
	if port == 0 {
		var err error
		if port, err = freePort(b.Address); err != nil {
			r.world.log.Warn("the task gets no rendezvous of its own", "reason", err)
			return p
		}
	}
	t, processes := r.start.Task, b.Processes
	if processes == 0 {
		processes = max(1, len(b.GPUs))
	}
	p.membership = &rendezvous.Membership{
		Epoch: fmt.Sprintf("%s-%d", r.start.Run, attempt), Generation: 1, Namespace: t.Namespace, Job: t.Job,
		MasterAddr: b.Address, MasterPort: port, Min: 1, Max: 1,
		Members: []rendezvous.Member{{
			Group: t.Group, Alloc: t.Alloc, Node: t.Node, NodeName: t.NodeName, Address: b.Address,
			GPUs: b.GPUs, Processes: processes,
		}},
	}
	return p
}

// launch starts the user's code and waits for its end. It is not broken off:
// half a start would be nobody's.
func (r *runner) launch(env map[string]string) {
	r.closeWorkload(context.Background(), drainFor)
	w, err := r.world.launcher.Launch(r.ctx, env)
	if err != nil {
		r.post(machine.Launched{Err: err})
		return
	}
	r.setWorkload(w)
	pid := w.PID()
	r.postAfter(func() { r.world.board.started(pid, time.Now()) }, machine.Launched{PID: pid})
	exit, err := w.Wait(r.ctx)
	if err != nil {
		// The supervisor ends, and nobody could stop it afterwards.
		r.abandon(w)
		return
	}
	r.post(machine.Ended{Code: exit.Code, Signal: exit.Signal, OOM: exit.OOM})
}

func (r *runner) abandon(w workload) {
	kill, cancel := context.WithTimeout(context.Background(), killFor)
	defer cancel()
	if err := w.Kill(kill); err != nil {
		r.world.log.Error("could not kill the user's code", "reason", err)
	}
	leave, cancel := context.WithTimeout(context.Background(), leaveFor)
	defer cancel()
	if err := w.Close(leave); err != nil {
		r.world.log.Warn("could not tidy up after the user's code", "reason", err)
	}
}

// clear kills what an ended process left, and then reads its output to the end
// while nobody waits for it.
func (r *runner) clear() {
	w := r.workload()
	r.world.board.started(0, time.Time{})
	ctx, hurry := context.WithCancel(context.Background())
	done := make(chan struct{})
	r.closing = &closing{hurry: hurry, done: done}
	r.wg.Go(func() {
		defer close(done)
		defer hurry()
		clear, cancel := context.WithTimeout(r.ctx, clearFor)
		err := w.Kill(clear)
		cancel()
		r.setWorkload(nil)
		r.post(machine.Cleared{Err: err})
		if err := w.Close(ctx); err != nil {
			r.world.log.Warn("could not tidy up after the user's code", "reason", err)
		}
	})
}

func (r *runner) askCheckpoint(ctx context.Context, w workload, serial int64) error {
	r.asking.Lock()
	r.world.preparer.Ask(ctx)
	r.asked = serial
	r.asking.Unlock()
	sig, err := parseSignal(r.start.Checkpoint.Signal)
	if err != nil {
		return err
	}
	return w.Signal(sig)
}

func (r *runner) signal(w workload, name string) {
	sig, err := parseSignal(name)
	if err == nil {
		err = w.Signal(sig)
	}
	if err != nil && !errors.Is(err, exec.ErrNotRunning) {
		r.world.log.Warn("could not send a signal to the user's code", "signal", name, "reason", err)
	}
}

func (r *runner) frozen(suspended bool, err error) {
	r.postAfter(func() { r.world.board.frozen(err) }, machine.Frozen{Suspended: suspended, Err: err})
}
