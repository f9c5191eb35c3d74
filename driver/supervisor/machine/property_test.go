package machine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// world answers a machine's actions in any order, at any time, and well or not.
type world struct {
	t   *rapid.T
	m   *Machine
	now time.Duration

	// code is what there is of the user's code, for real.
	code code
	// dying is set when it was killed.
	dying bool
	// pending are the answers that are on their way.
	pending   []Input
	joins     int
	serial    int64
	finished  int
	exit      Exit
	attempts  int
	lastReply []Action
}

func (w *world) step(in Input) {
	w.lastReply = w.m.Step(w.now, in)
	w.take(w.lastReply)
}

func (w *world) take(actions []Action) {
	for _, a := range actions {
		if w.finished > 0 {
			switch a := a.(type) {
			case Tell, StopReports:
			case Report:
				if !a.Final {
					w.t.Fatalf("after the end: %#v", a)
				}
			default:
				w.t.Fatalf("after the end: %#v", a)
			}
			continue
		}
		w.takeOne(a)
	}
	if at, ok := w.m.Next(); ok && at <= w.now {
		w.t.Fatalf("in phase %s the machine wants to be told the time of %s, and it is %s", w.m.Phase(), at, w.now)
	}
	if (w.m.Phase() == Exited) != (w.finished > 0) {
		w.t.Fatalf("phase %s, finished %d", w.m.Phase(), w.finished)
	}
}

func (w *world) takeOne(a Action) {
	switch a := a.(type) {
	case RunPreflight:
		w.pending = append(w.pending, PreflightDone{})
	case Join:
		if w.joins++; w.joins > 1 {
			w.t.Fatal("two polls at once")
		}
		w.attempts = a.Attempt
		w.pending = append(w.pending, w.joinAnswer(a))
	case StopJoin:
		w.joins = 0
		w.drop(func(in Input) bool { _, ok := in.(JoinAnswered); return ok })
	case Prepare:
		w.pending = append(w.pending, Prepared{Attempt: a.Attempt})
	case Launch:
		if w.code != codeNone {
			w.t.Fatalf("the user's code is started while there is some: %d", w.code)
		}
		w.code, w.dying = codeLaunching, false
		var err error
		if rapid.IntRange(0, 9).Draw(w.t, "launch fails") == 9 {
			err = errors.New("launch")
		}
		w.pending = append(w.pending, Launched{PID: 1, Err: err})
	case Kill:
		if w.code == codeUp && !w.dying {
			w.dying = true
			w.pending = append(w.pending, Ended{Signal: 9})
		}
	case Clear:
		if w.code != codeClearing {
			w.t.Fatalf("clear in %d", w.code)
		}
		w.pending = append(w.pending, Cleared{})
	case Freeze, Thaw:
		_, suspended := a.(Freeze)
		w.pending = append(w.pending, Frozen{Suspended: suspended})
	case AskCheckpoint:
		w.pending = append(w.pending, Asked{Serial: a.Serial})
	case Update:
		w.pending = append(w.pending, Updated{Epoch: a.Membership.Epoch, Generation: a.Membership.Generation})
	case Report:
		w.serial = a.Serial
		w.drop(func(in Input) bool { _, ok := in.(ReportAnswered); return ok })
		w.pending = append(w.pending, w.reportAnswer(a))
	case Finish:
		w.finished++
		w.exit = a.Exit
	}
}

func (w *world) drop(which func(Input) bool) {
	kept := w.pending[:0:0]
	for _, in := range w.pending {
		if !which(in) {
			kept = append(kept, in)
		}
	}
	w.pending = kept
}

func (w *world) joinAnswer(a Join) Input {
	in := JoinAnswered{Attempt: a.Attempt}
	switch rapid.IntRange(0, 30).Draw(w.t, "join answer") {
	case 0:
		in.Err = errors.New("unreachable")
	case 1:
		in.Answer.State = "nonsense"
	case 2:
		in.Answer = gangapi.JoinAnswer{State: gangapi.JoinRefused}
	case 3:
		in.Answer = gangapi.JoinAnswer{State: gangapi.JoinAlone}
	case 4, 5:
		in.Answer = gangapi.JoinAnswer{State: gangapi.JoinWaiting, Joined: 1, Size: 2}
	default:
		in.Answer = starts(fmt.Sprintf("e%d", rapid.IntRange(1, 20).Draw(w.t, "epoch")))
	}
	return in
}

func (w *world) reportAnswer(a Report) Input {
	in := ReportAnswered{Serial: a.Serial, At: w.now}
	restart := &gangapi.Order{Sequence: a.Seen + 1, Kind: gangapi.OrderRestart}
	if a.Exit != nil && rapid.Bool().Draw(w.t, "another failed first") {
		in.Answer.Order = restart
		return in
	}
	switch rapid.IntRange(0, 10).Draw(w.t, "report answer") {
	case 0:
		in.Err = errors.New("unreachable")
	case 1:
		in.Answer.Gone = true
	case 2:
		in.Answer.Membership = gang(a.Epoch, a.Generation+1, "a1", "a2")
	case 3, 4:
		in.Answer.Order = restart
	case 5:
		kinds := []gangapi.OrderKind{gangapi.OrderRestart, gangapi.OrderSuspend, gangapi.OrderResume, gangapi.OrderCheckpoint, gangapi.OrderFail, "dance"}
		in.Answer.Order = &gangapi.Order{Sequence: a.Seen + 1, Kind: rapid.SampledFrom(kinds).Draw(w.t, "order"), Urgent: rapid.Bool().Draw(w.t, "urgent")}
	case 6:
		in.Answer.Attached = true
	}
	return in
}

// deliver lets one of the answers arrive.
func (w *world) deliver() {
	if len(w.pending) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.pending)-1).Draw(w.t, "which")
	in := w.pending[i]
	w.pending = append(append([]Input(nil), w.pending[:i]...), w.pending[i+1:]...)
	w.arrive(in)
}

func (w *world) arrive(in Input) {
	switch in := in.(type) {
	case JoinAnswered:
		w.joins = 0
	case Launched:
		w.code = codeUp
		if in.Err != nil {
			w.code = codeNone
		}
	case Ended:
		if w.code != codeUp {
			return
		}
		w.code = codeClearing
	case Cleared:
		w.code = codeNone
	}
	w.step(in)
}

// random lets anything happen.
func (w *world) random() {
	switch rapid.IntRange(0, 9).Draw(w.t, "what") {
	case 0:
		w.now += time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(w.t, "time"))
		w.step(Tick{})
	case 1:
		if at, ok := w.m.Next(); ok {
			w.now = at
			w.step(Tick{})
		}
	case 2:
		if w.code == codeUp {
			w.arrive(Ended{Code: min(1, rapid.IntRange(0, 5).Draw(w.t, "code"))})
		}
	case 3:
		w.step(rapid.SampledFrom([]Input{
			SuspendAsked{}, ResumeAsked{}, AgentSeen{At: w.now}, CheckpointSeen{Answers: w.m.asks}, Frozen{Suspended: true}, Tick{},
			Asked{Serial: 1}, Prepared{Attempt: 1}, Updated{}, ReportAnswered{Serial: w.serial, Err: errors.New("again")},
		}).Draw(w.t, "input"))
	default:
		w.deliver()
	}
}

func newWorld(t *rapid.T) *world {
	c := config()
	c.Preflight = rapid.Bool().Draw(t, "preflight")
	c.Role = rapid.SampledFrom([]Role{Rank, Rank, Rank, Follow, None}).Draw(t, "role")
	c.FenceAfter = rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "fence")
	c.CheckpointSignal = rapid.SampledFrom([]string{"", "SIGUSR1"}).Draw(t, "signal")
	w := &world{t: t, m: New(c)}
	w.take(w.m.Begin(0))
	return w
}

// The user's code is never started twice at once, whatever happens in whatever
// order; take looks after that and after the rest of what always holds.
func TestNeverTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			w.random()
		}
	})
}

// A stop works at once in every phase, and the task ends by the time of the
// kill and what getting rid of processes takes.
func TestStopAlwaysEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			w.random()
		}
		if w.finished > 0 {
			return
		}
		before, code := w.m.Phase(), w.code
		timeout := time.Duration(rapid.Int64Range(0, int64(5*time.Minute)).Draw(t, "timeout"))
		asked := w.now
		w.step(StopAsked{Timeout: timeout})
		switch {
		case code == codeNone && before != Preflight && before != Stopping:
			if w.finished == 0 {
				t.Fatalf("a stop in phase %s without user's code did not end the task at once", before)
			}
		case code == codeUp && before != Stopping && !acts(w.lastReply):
			t.Fatalf("a stop in phase %s did nothing to the user's code: %v", before, render(w.lastReply))
		}
		// From now on answers come, but the user's code ignores everything but a
		// kill, which may hang.
		hangs := rapid.Bool().Draw(t, "hangs")
		for w.finished == 0 {
			switch {
			case len(w.pending) > 0 && !(hangs && isEnd(w.pending[0])):
				in := w.pending[0]
				w.pending = w.pending[1:]
				w.now += 100 * time.Millisecond // reports go on for ever
				w.arrive(in)
			default:
				if len(w.pending) > 0 {
					w.pending = w.pending[1:]
				}
				at, ok := w.m.Next()
				if !ok {
					t.Fatalf("phase %s waits for nothing", w.m.Phase())
				}
				w.now = at
				w.step(Tick{})
			}
		}
		if limit := asked + timeout + 2*giveUpAfter + 2*killEvery + cancelFor; w.now > limit {
			t.Fatalf("asked to stop at %s within %s, ended at %s", asked, timeout, w.now)
		}
	})
}

func isEnd(in Input) bool {
	switch in.(type) {
	case Ended, Cleared:
		return true
	}
	return false
}

func acts(actions []Action) bool {
	for _, a := range actions {
		switch a.(type) {
		case AskCheckpoint, Signal, Kill:
			return true
		}
	}
	return false
}

// Every task ends by itself when its code does and nobody orders a restart, and
// when no planner ever answers.
func TestAlwaysEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			w.random()
		}
		for range 10_000 {
			if w.finished > 0 {
				return
			}
			w.drop(func(in Input) bool {
				switch in := in.(type) {
				case JoinAnswered:
					w.joins = 0
					return true
				case ReportAnswered:
					return true
				case Updated:
					return in.Err == nil
				}
				return false
			})
			switch {
			case w.code == codeUp && !w.dying:
				w.arrive(Ended{Code: 1})
			case len(w.pending) > 0:
				w.deliver()
			default:
				at, ok := w.m.Next()
				if !ok {
					t.Fatalf("phase %s waits for nothing", w.m.Phase())
				}
				w.now = at
				w.step(Tick{})
			}
		}
		t.Fatalf("no end; phase %s", w.m.Phase())
	})
}
