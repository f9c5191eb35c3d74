package apply

import (
	"errors"
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/record"
)

// refusals remember what Nomad would not have, so that it is not asked the
// same at every turn: until the job changes, or the wait is over.
type refusals struct {
	index uint64
	count int
	until time.Time
	err   error
}

// waiting returns the last refusal while it still stands.
func (e *Executor) waiting(k key, index uint64, now time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.refused[k]
	switch {
	case !ok || index == 0 || now.Equal(r.until) || now.After(r.until):
		return nil
	case r.index != index:
		delete(e.refused, k)
		return nil
	}
	return fmt.Errorf("not tried again before %s: %w", r.until.Format(time.RFC3339), r.err)
}

// note remembers what became of a registration or a dry-run.
func (e *Executor) note(k key, index uint64, now time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !errors.Is(err, ErrRefused) && !errors.Is(err, ErrForbidden) {
		delete(e.refused, k)
		return
	}
	r := e.refused[k]
	if r.index != index {
		r = refusals{index: index}
	}
	r.count++
	r.err, r.until = err, now.Add(e.opts.backoff(r.count))
	e.refused[k] = r
}

// isGone says whether what was to be changed is not there any more.
func isGone(err error) bool { return errors.Is(err, ErrChanged) }

// variablesError says what went wrong with the records.
func variablesError(doing string, err error) error {
	if err == nil || errors.Is(err, record.ErrConflict) || errors.Is(err, record.ErrDamaged) {
		return err
	}
	return classify(doing, `the rights list, read, write and destroy on the Variables "caravan/*"`, err)
}
