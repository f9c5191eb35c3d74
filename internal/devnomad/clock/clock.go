// Package clock gives the stand-in its time, so that a test can move it by
// hand.
package clock

import (
	"slices"
	"sync"
	"time"
)

// Clock tells the time and calls back.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, d from now, in a goroutine of its own. The
	// result takes the call back if it has not happened yet.
	AfterFunc(d time.Duration, f func()) (cancel func())
}

// Real is the machine's clock.
type Real struct{}

// Now implements Clock.
func (Real) Now() time.Time { return time.Now() }

// AfterFunc implements Clock.
func (Real) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// Manual is a clock that stands still until it is advanced.
type Manual struct {
	mu    sync.Mutex
	now   time.Time
	calls []*call
}

type call struct {
	at time.Time
	f  func()
}

// NewManual returns a clock that stands at now.
func NewManual(now time.Time) *Manual { return &Manual{now: now} }

// Now implements Clock.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// AfterFunc implements Clock.
func (m *Manual) AfterFunc(d time.Duration, f func()) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &call{m.now.Add(d), f}
	m.calls = append(m.calls, c)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls = slices.DeleteFunc(m.calls, func(x *call) bool { return x == c })
	}
}

// Advance moves the clock and makes the calls that became due, in order,
// before it returns. Calls that those calls ask for are made too.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	until := m.now.Add(d)
	for {
		slices.SortStableFunc(m.calls, func(a, b *call) int { return a.at.Compare(b.at) })
		if len(m.calls) == 0 || m.calls[0].at.After(until) {
			break
		}
		c := m.calls[0]
		m.calls = m.calls[1:]
		if c.at.After(m.now) {
			m.now = c.at
		}
		m.mu.Unlock()
		c.f()
		m.mu.Lock()
	}
	m.now = until
	m.mu.Unlock()
}
