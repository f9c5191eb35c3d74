package clock

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestManual: calls come in the order of their times, calls asked for by calls
// too, and a cancelled one does not come.
func TestManual(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := NewManual(start)
	var got []string
	note := func(s string) func() {
		return func() { got = append(got, s+" at "+m.Now().Sub(start).String()) }
	}
	m.AfterFunc(3*time.Second, note("third"))
	m.AfterFunc(time.Second, func() {
		note("first")()
		m.AfterFunc(time.Second, note("second"))
	})
	m.AfterFunc(2*time.Second, note("never"))()
	m.AfterFunc(time.Minute, note("later"))
	m.Advance(10 * time.Second)
	want := []string{"first at 1s", "second at 2s", "third at 3s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if now := m.Now(); !now.Equal(start.Add(10 * time.Second)) {
		t.Errorf("the clock stands at %v", now)
	}
}
