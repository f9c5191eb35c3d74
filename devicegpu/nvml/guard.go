package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrHangs is wrapped by the errors of a guarded source that does not return.
var ErrHangs = errors.New("the GPU driver hangs")

// Guard returns the source with a limit to how long a call may take. A driver
// whose firmware is stuck blocks its callers, at times for good. A call that
// has not come back is left alone: until it does, calls of the same kind fail
// at once, so that there is never a second one behind it.
func Guard(source Source, limit time.Duration) Source {
	return &guard{source: source, limit: limit}
}

type guard struct {
	source Source
	limit  time.Duration
	// looking, sampling, dividing and listing are set while a call is under way.
	looking, sampling, dividing, listing atomic.Bool
}

func (g *guard) Inventory() (Inventory, error) {
	return within(&g.looking, g.limit, g.source.Inventory)
}

func (g *guard) Samples() ([]Sample, error) { return within(&g.sampling, g.limit, g.source.Samples) }

func (g *guard) Events(ctx context.Context, got func(Event)) error { return g.source.Events(ctx, got) }

func (g *guard) Simulated() bool { return g.source.Simulated() }

// Close leaves a source open that hangs: it would hang too.
func (g *guard) Close() error {
	if g.looking.Load() || g.sampling.Load() || g.dividing.Load() || g.listing.Load() {
		return fmt.Errorf("close GPU source: %w", ErrHangs)
	}
	return g.source.Close()
}

func within[T any](busy *atomic.Bool, limit time.Duration, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if !busy.CompareAndSwap(false, true) {
		return none, fmt.Errorf("%w: the call before has not come back", ErrHangs)
	}
	done := make(chan result, 1)
	go func() {
		defer busy.Store(false)
		value, err := call()
		done <- result{value, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		return none, fmt.Errorf("%w: no answer within %s", ErrHangs, limit)
	}
}
