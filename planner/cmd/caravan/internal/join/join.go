// Package join brings a task of any driver to its gang's barrier: before the
// task, as a step that ends when all members have come, and beside it, to tell
// how it does and to end it with its gang.
package join

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// Options are what a task says of itself.
type Options struct {
	// Namespace, Job, Group, Index and Alloc are Nomad's names of the task's
	// allocation, Node and NodeName those of its node.
	Namespace, Job, Group string
	Index                 int
	Alloc, Node, NodeName string
	// Address and Port are where the other members reach this one.
	Address string
	Port    int
	GPUs    []string
	// Processes is how many ranks the member has; 0 is one for each GPU.
	Processes int
	// Interface is the network interface for NCCL and the like, "" for theirs to
	// choose.
	Interface string
	// Dir is where the files go; DirInTask is its path in the task that reads
	// them.
	Dir, DirInTask string
	// Timeout is how long to wait for the gang.
	Timeout time.Duration
	// Checkpoints are what a sidecar sees checkpoints by; see progress.Config.
	Checkpoints []string
}

// Planner is where the gang meets; *gangapi.Client is one.
type Planner interface {
	Join(ctx context.Context, r gangapi.JoinRequest) (gangapi.JoinAnswer, error)
	Report(ctx context.Context, r gangapi.ReportRequest) (gangapi.ReportAnswer, error)
}

// Result is where a member has got to.
type Result struct {
	// State is gangapi.JoinStart, or JoinAlone for a task without a gang.
	State gangapi.JoinState `json:"state"`
	// Run and Alloc name the member to the planner, for its sidecar.
	Run        string                `json:"run"`
	Alloc      string                `json:"alloc"`
	Membership rendezvous.Membership `json:"membership"`
	// Socket is where the sidecar is to listen for progress.
	Socket string `json:"socket"`
	// Env are the variables in the environment file.
	Env map[string]string `json:"env"`
}

var (
	// ErrTimeout: the gang has not come together in time.
	ErrTimeout = errors.New("the gang has not come together")
	// ErrRefused: the planner does not let the member start.
	ErrRefused = errors.New("refused by the planner")
)

const (
	// poll is how long one request waits for news.
	poll = 30 * time.Second
	// refusals is how often in a row an identity may be refused: a planner that
	// has just started may not know Nomad's keys yet.
	refusals = 5
)

// Wait waits at the barrier, writes the files, and returns at the moment at
// which all members start. tell is given what it waits for, in words.
func Wait(ctx context.Context, o Options, planner Planner, tell func(string)) (Result, error) {
	// What a run before has left must not look like this one's.
	if err := o.clear(); err != nil {
		return Result{}, err
	}
	b := barrier{options: o, planner: planner, tell: tell, run: rand.Text()}
	answer, at, err := b.wait(ctx)
	if err != nil {
		return Result{}, err
	}
	m := answer.Membership
	if m == nil {
		m = o.alone(b.run)
	}
	r := Result{State: answer.State, Run: b.run, Alloc: o.Alloc, Membership: *m}
	if r.Socket, err = o.socket(); err != nil {
		return Result{}, err
	}
	if r.Env, err = o.write(r); err != nil {
		return Result{}, err
	}
	if err := sleep(ctx, time.Until(at)); err != nil {
		return Result{}, fmt.Errorf("wait for the common start: %w", err)
	}
	return r, nil
}

// alone is the membership of a task that has no gang.
func (o Options) alone(run string) *rendezvous.Membership {
	processes := o.Processes
	if processes == 0 {
		processes = max(1, len(o.GPUs))
	}
	return &rendezvous.Membership{
		Epoch: run, Generation: 1, Namespace: o.Namespace, Job: o.Job, Min: 1, Max: 1, MasterAddr: o.Address, MasterPort: o.Port,
		Members: []rendezvous.Member{{
			Group: o.Group, Index: o.Index, Alloc: o.Alloc, Node: o.Node, NodeName: o.NodeName,
			Address: o.Address, GPUs: o.GPUs, Processes: processes,
		}},
	}
}

type barrier struct {
	options Options
	planner Planner
	tell    func(string)
	run     string
	// said is what was told last, so that it is told once.
	said    string
	refused int
}

func (b *barrier) say(text string) {
	if text != "" && text != b.said {
		b.said = text
		b.tell(text)
	}
}

// wait asks until the gang starts. The time is the start's.
func (b *barrier) wait(ctx context.Context) (gangapi.JoinAnswer, time.Time, error) {
	var none gangapi.JoinAnswer
	limited, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	pause := newBackoff()
	for {
		asked := time.Now()
		answer, err := b.planner.Join(limited, b.request())
		wait := time.Duration(0)
		switch {
		case limited.Err() != nil:
		case err != nil:
			if err := b.failed(err); err != nil {
				return none, time.Time{}, err
			}
			wait = pause.NextBackOff()
		case answer.State == gangapi.JoinRefused:
			return none, time.Time{}, fmt.Errorf("%w: %s", ErrRefused, answer.Reason)
		case answer.State == gangapi.JoinStart || answer.State == gangapi.JoinAlone:
			return answer, time.Now().Add(time.Duration(answer.StartInMS) * time.Millisecond), nil
		default:
			b.refused = 0
			pause.Reset()
			b.say(answer.Reason)
			// A planner that does not wait is not asked all the time.
			wait = least - time.Since(asked)
		}
		if err := sleep(limited, wait); err != nil {
			return none, time.Time{}, b.ended(ctx)
		}
	}
}

func (b *barrier) request() gangapi.JoinRequest {
	o := b.options
	return gangapi.JoinRequest{Run: b.run, Attempt: 1, WaitMS: poll.Milliseconds(), Address: o.Address, Port: o.Port, GPUs: o.GPUs, Processes: o.Processes}
}

// failed says whether there is no point in asking again.
func (b *barrier) failed(err error) error {
	if !errors.Is(err, gangapi.ErrRefusedIdentity) {
		b.refused = 0
	} else if b.refused++; b.refused >= refusals {
		return fmt.Errorf("%w: %v", ErrRefused, err)
	}
	b.say("asking the planner again: " + err.Error())
	return nil
}

// ended is why the wait is over without a start.
func (b *barrier) ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("wait for the gang: %w", err)
	}
	last := b.said
	if last == "" {
		last = "the planner has not said for what"
	}
	return fmt.Errorf("%w within %v: %s", ErrTimeout, b.options.Timeout, last)
}

// least is the time between two requests that were answered.
const least = time.Second

func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.MaxInterval = 10 * time.Second
	return b
}

// sleep waits, and returns the context's error if it ended before, or has ended
// already.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
