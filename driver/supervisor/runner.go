package supervisor

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

const (
	// joinFor and reportFor are how long one poll of the planner lasts, firstFor
	// the first one at the barrier.
	joinFor   = 20 * time.Second
	firstFor  = time.Second
	reportFor = 15 * time.Second
	// exitFor is how long the planner may take to see what a failure comes of.
	exitFor = 2 * time.Second
	// opFor bounds what is done to the user's code, killFor one attempt to kill
	// it, clearFor getting rid of what it left.
	opFor    = 20 * time.Second
	killFor  = 10 * time.Second
	clearFor = time.Minute
	// drainFor is how long a restart waits for the output of the run before to be
	// read, and leaveFor the end of the supervisor.
	drainFor = 5 * time.Second
	leaveFor = 2 * time.Second
	// finalFor is how long the planner is told of the exit.
	finalFor = time.Minute
	// lookAtLeast is how often the machine is told the time: timers stand still
	// while a host sleeps, and the clock does not.
	lookAtLeast = 5 * time.Second
	// agentEvery is how often the local agent is asked at most.
	agentEvery = 5 * time.Second
)

// world is everything outside of a runner.
type world struct {
	planner  planner
	launcher launcher
	preparer preparer
	// examiner is nil without a preflight, agent without a fence.
	examiner examiner
	agent    agent
	// release lets go of the task's output, once nothing is started any more; it
	// may be nil.
	release func()
	// clock is the time since some moment, counted also while the host sleeps.
	clock func() time.Duration
	board *board
	log   hclog.Logger
}

// runner carries out what the machine decides. The machine and everything that
// is not below mu belong to the loop.
type runner struct {
	start Start
	world world
	m     *machine.Machine

	inputs chan result
	// ctx ends with the runner.
	ctx  context.Context
	quit context.CancelFunc
	wg   sync.WaitGroup

	joinWait, reportWait *backoff.ExponentialBackOff
	cancelPreflight      context.CancelFunc
	cancelJoin           context.CancelFunc
	cancelReport         context.CancelFunc
	// lastOp is closed when what was done last to the user's code is done.
	lastOp <-chan struct{}
	env    map[string]string
	// closing is the end of the run before.
	closing *closing

	mu sync.Mutex
	w  workload

	// asking is held while the checkpoints are looked at, so that asked, the
	// Serial of the last AskCheckpoint, and what the preparer answers to agree.
	asking sync.Mutex
	asked  int64
}

// closing is a workload that has ended and whose output is being read.
type closing struct {
	hurry context.CancelFunc
	done  <-chan struct{}
}

// result is an input with what is to be done before the machine sees it.
type result struct {
	input  machine.Input
	before func()
}

func newRunner(start Start, w world) *runner {
	ctx, quit := context.WithCancel(context.Background())
	r := &runner{
		start: start, world: w, inputs: make(chan result), ctx: ctx, quit: quit,
		joinWait: newBackoff(), reportWait: newBackoff(),
		m: machine.New(machine.Config{
			Namespace: start.Task.Namespace, Job: start.Task.Job, Alloc: start.Task.Alloc,
			GPUs: start.Barrier.GPUs, Role: start.Role,
			Preflight:   w.examiner != nil || start.Container != nil,
			JoinTimeout: start.Barrier.JoinTimeout, CheckpointSignal: start.Checkpoint.Signal, Grace: start.Checkpoint.Grace,
			StopSignal: start.Stop.Signal, KillAfter: start.killAfter(),
			FenceAfter: start.Fence.After, ResizeSignal: start.ResizeSignal,
		}),
	}
	return r
}

// newBackoff waits up to 15 s: a member whose poll is not open is not at the
// barrier.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval = 250*time.Millisecond, 2, 15*time.Second
	return b
}

// run runs the task, and serves until the runner is told to quit.
func (r *runner) run() {
	defer r.leave()
	r.wg.Go(r.watchAgent)
	r.wg.Go(r.watchProgress)
	r.carryOut(r.m.Begin(r.world.clock()))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.publish()
		timer.Reset(r.untilNext())
		var in machine.Input = machine.Tick{}
		select {
		case res := <-r.inputs:
			if res.before != nil {
				res.before()
			}
			in = res.input
		case <-timer.C:
		case <-r.ctx.Done():
			return
		}
		r.carryOut(r.m.Step(r.world.clock(), in))
	}
}

func (r *runner) untilNext() time.Duration {
	at, ok := r.m.Next()
	if !ok {
		return lookAtLeast
	}
	return min(max(0, at-r.world.clock()), lookAtLeast)
}

// post hands an input to the loop.
func (r *runner) post(in machine.Input) { r.postAfter(nil, in) }

func (r *runner) postAfter(before func(), in machine.Input) {
	select {
	case r.inputs <- result{in, before}:
	case <-r.ctx.Done():
	}
}

// leave ends everything.
func (r *runner) leave() {
	r.quit()
	r.closeWorkload(context.Background(), leaveFor)
	r.wg.Wait()
	r.world.preparer.Close()
}

// closeWorkload waits for the end of the run before, and hurries it when the
// limit is over or the context has ended.
func (r *runner) closeWorkload(ctx context.Context, limit time.Duration) {
	c := r.closing
	if c == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	c.hurry()
	<-c.done
}

func (r *runner) workload() workload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w
}

func (r *runner) setWorkload(w workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.w = w
}

// publish shows how the task stands.
func (r *runner) publish() {
	s := Status{Phase: r.m.Phase(), Attempt: r.m.Attempt(), Reason: r.m.Reason(), Run: r.start.Run, Version: Version}
	if of := r.m.Membership(); of != nil {
		s.Epoch, s.Generation = of.Epoch, of.Generation
	}
	r.world.board.show(s)
}

// watchAgent tells the machine while Nomad's servers are in sight.
func (r *runner) watchAgent() {
	if r.world.agent == nil || r.start.Fence.After <= 0 || r.start.Role == RoleNone {
		return
	}
	every := min(agentEvery, r.start.Fence.After/6)
	wasGood := true
	for {
		at := r.world.clock()
		ctx, cancel := context.WithTimeout(r.ctx, every)
		err := r.world.agent.Attached(ctx)
		cancel()
		if err == nil {
			r.post(machine.AgentSeen{At: at})
		}
		if good := err == nil; good != wasGood && r.ctx.Err() == nil {
			r.world.log.Info("the local agent and Nomad's servers", "in sight", good, "reason", err)
			wasGood = good
		}
		if sleep(r.ctx, every) != nil {
			return
		}
	}
}

// watchProgress tells the machine of new checkpoints.
func (r *runner) watchProgress() {
	var last gangapi.Checkpoint
	for {
		changed := r.world.preparer.Changed()
		p := r.world.preparer.Progress()
		r.world.board.progress(p)
		if p != nil && p.Checkpoint != nil {
			if c := *p.Checkpoint; !sameCheckpoint(c, last) {
				last = c
				r.post(r.seen(c))
			}
		}
		select {
		case <-changed:
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *runner) seen(c gangapi.Checkpoint) machine.CheckpointSeen {
	seen := machine.CheckpointSeen{Step: c.Step, Path: c.Path}
	r.asking.Lock()
	defer r.asking.Unlock()
	if _, ok := r.world.preparer.Answer(); ok {
		seen.Answers = r.asked
	}
	return seen
}

func sameCheckpoint(a, b gangapi.Checkpoint) bool {
	return a.At.Equal(b.At) && a.Path == b.Path && (a.Step == nil) == (b.Step == nil) && (a.Step == nil || *a.Step == *b.Step)
}

// exitOf is an exit as it is kept.
func exitOf(e machine.Exit, at time.Time) Exit {
	return Exit{
		Exit:  exec.Exit{Code: e.Code, Signal: e.Signal, OOM: e.OOM},
		Cause: e.Cause, Fault: e.Fault, Started: e.Started, At: at,
	}
}
