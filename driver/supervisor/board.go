package supervisor

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// keptEvents is how many events are kept, the newest.
const keptEvents = 256

// board shows how the task stands to those who ask, and gives the store what
// has to be kept. It is safe for concurrent use.
type board struct {
	mu     sync.Mutex
	status Status
	events []Event
	// freezes counts what came of attempts to suspend and resume.
	freezes   int
	freezeErr error
	// changed is closed and replaced whenever anything changes.
	changed chan struct{}
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

// update changes the board; f reports whether it did.
func (b *board) update(f func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f() {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}

// show takes in the machine's part of the status.
func (b *board) show(s Status) {
	b.update(func() bool {
		old := b.status
		b.status.Version, b.status.PID, b.status.Run = s.Version, os.Getpid(), s.Run
		b.status.Phase, b.status.Attempt, b.status.Reason = s.Phase, s.Attempt, s.Reason
		b.status.Epoch, b.status.Generation = s.Epoch, s.Generation
		now := b.status
		return old.Phase != now.Phase || old.Attempt != now.Attempt || old.Reason != now.Reason ||
			old.Epoch != now.Epoch || old.Generation != now.Generation
	})
}

func (b *board) started(pid int, at time.Time) {
	b.update(func() bool {
		b.status.WorkloadPID = pid
		if pid != 0 {
			b.status.StartedAt = at
		}
		return true
	})
}

func (b *board) progress(p *gangapi.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status.Progress = p
}

func (b *board) frozen(err error) {
	b.update(func() bool {
		b.freezes++
		b.freezeErr = err
		return true
	})
}

// tell adds an event, and numbers it.
func (b *board) tell(e Event) {
	b.update(func() bool {
		b.status.Events++
		e.Sequence = b.status.Events
		if len(b.events) >= keptEvents {
			b.events = append(b.events[:0:0], b.events[len(b.events)-keptEvents+1:]...)
		}
		b.events = append(b.events, e)
		return true
	})
}

func (b *board) exit(e Exit) {
	b.update(func() bool {
		b.status.Exit = &e
		return true
	})
}

// note tells the operator of the supervisor's own trouble; "" ends it.
func (b *board) note(text string) {
	b.update(func() bool {
		b.status.Notes = nil
		if text != "" {
			b.status.Notes = []string{text}
		}
		return true
	})
}

// look returns the status, the events after a Sequence, and what is closed at
// the next change.
func (b *board) look(since int64) (Status, []Event, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var after []Event
	for i, e := range b.events {
		if e.Sequence > since {
			after = append(after, b.events[i:]...)
			break
		}
	}
	return b.status, after, b.changed
}

func (b *board) lastFreeze() (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.freezes, b.freezeErr
}

// await waits until ok holds. It reports false when ctx ended before.
func (b *board) await(ctx context.Context, ok func(s Status) bool) bool {
	for {
		s, _, changed := b.look(0)
		if ok(s) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
