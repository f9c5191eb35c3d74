package join

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/progress"
)

// ErrOrdered: the planner wants the member to stop, because its gang has failed
// or starts anew.
var ErrOrdered = errors.New("stopped with its gang")

const (
	// reportPoll is how long a report waits for an order: progress is never
	// older than that at the planner.
	reportPoll = 10 * time.Second
	// finalFor is how long the planner may take to hear that the member ends.
	finalFor = 2 * time.Second
)

// Stay is a sidecar: it goes on where Wait has ended, in this or in an earlier
// task of the allocation, reports what the task tells of its progress, keeps
// the files up to date, and takes orders. It returns nil when ctx ends, since
// Nomad stops sidecars after their task, and ErrOrdered when the member has to
// stop.
func Stay(ctx context.Context, o Options, planner Planner, tell func(string)) error {
	r, ok := o.joined()
	if !ok {
		var err error
		if r, err = Wait(ctx, o, planner, tell); err != nil {
			return err
		}
	}
	source, err := progress.Open(progress.Config{
		Checkpoints: o.Checkpoints,
		Socket:      r.Socket,
		// The task beside may run as any user.
		SocketMode: 0o666,
		Fault:      func(err error) { tell(err.Error()) },
	})
	if err != nil {
		return fmt.Errorf("start sidecar: %w", err)
	}
	defer func() {
		source.Close()
		if dir := filepath.Dir(r.Socket); dir != o.Dir {
			// It is empty; if not, it is not only ours.
			_ = os.Remove(dir)
		}
	}()
	if source.Socket() != r.Socket {
		tell(r.Socket + " is too long for a Unix socket, so the task cannot tell its progress")
	}
	if r.State == gangapi.JoinAlone {
		<-ctx.Done() // nobody listens, and nobody gives orders
		return nil
	}
	s := sidecar{options: o, planner: planner, tell: tell, result: r, progress: source.Progress}
	return s.report(ctx)
}

type sidecar struct {
	options  Options
	planner  Planner
	tell     func(string)
	result   Result
	progress func() *gangapi.Progress
	seen     int64
	// gone and lost are whether it was told that the allocation is not wanted, and
	// that no planner answers.
	gone, lost bool
}

// report reports until the context ends or the member has to stop. A planner
// that is away changes nothing.
func (s *sidecar) report(ctx context.Context) error {
	pause := newBackoff()
	for {
		asked := time.Now()
		answer, err := s.planner.Report(ctx, s.request(gangapi.MemberRunning, reportPoll))
		if ctx.Err() != nil {
			s.last(ctx)
			return nil
		}
		wait := least - time.Since(asked)
		if err != nil {
			if !s.lost {
				s.tell("the planner gives no answer; going on without it: " + err.Error())
			}
			s.lost = true
			wait = pause.NextBackOff()
		} else {
			s.lost = false
			pause.Reset()
			if err := s.take(answer); err != nil {
				return err
			}
		}
		if sleep(ctx, wait) != nil {
			s.last(ctx)
			return nil
		}
	}
}

func (s *sidecar) request(state gangapi.MemberState, wait time.Duration) gangapi.ReportRequest {
	return gangapi.ReportRequest{
		Run: s.result.Run, WaitMS: wait.Milliseconds(), State: state, Seen: s.seen, Progress: s.progress(),
		Epoch: s.result.Membership.Epoch, Generation: s.result.Membership.Generation,
	}
}

// last says that the member is being stopped. The planner hears of it from
// Nomad as well, so it is tried once.
func (s *sidecar) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalFor)
	defer cancel()
	if _, err := s.planner.Report(ctx, s.request(gangapi.MemberStopping, 0)); err != nil {
		s.tell("the planner was not told of the end: " + err.Error())
	}
}

// take carries out what an answer asks for.
func (s *sidecar) take(a gangapi.ReportAnswer) error {
	if a.Gone && !s.gone {
		s.gone = true
		s.tell("the allocation is not wanted any more; Nomad will stop it: " + a.Reason)
	}
	if m := a.Membership; m != nil {
		s.result.Membership = *m
		env, err := s.options.write(s.result)
		if err != nil {
			s.tell("the gang has changed, but its files could not be written: " + err.Error())
		} else {
			s.result.Env = env
			s.tell(fmt.Sprintf("the gang has %d members now", len(m.Members)))
		}
	}
	o := a.Order
	if o == nil || o.Sequence <= s.seen {
		return nil
	}
	s.seen = o.Sequence
	switch o.Kind {
	case gangapi.OrderRestart, gangapi.OrderFail:
		return fmt.Errorf("%w: %s", ErrOrdered, o.Reason)
	case gangapi.OrderSuspend, gangapi.OrderResume, gangapi.OrderCheckpoint:
		// The task is another driver's: it can be ended with the allocation, and
		// nothing else.
		s.tell(fmt.Sprintf("the planner orders %s, which takes the caravan driver: %s", o.Kind, o.Reason))
	}
	return nil
}
