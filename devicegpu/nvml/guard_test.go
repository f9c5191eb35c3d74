package nvml

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// stuck is a source that hangs until it is let go.
type stuck struct {
	fixed
	release chan struct{}
	calls   int
	closed  bool
}

func (s *stuck) Inventory() (Inventory, error) {
	s.calls++
	<-s.release
	return Inventory{DriverVersion: "1"}, nil
}

func (s *stuck) Close() error { s.closed = true; return nil }

func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stuck{release: make(chan struct{})}
		g := Guard(s, 10*time.Second)
		start := time.Now()
		if _, err := g.Inventory(); !errors.Is(err, ErrHangs) || time.Since(start) != 10*time.Second {
			t.Errorf("error %v after %s", err, time.Since(start))
		}
		start = time.Now()
		if _, err := g.Inventory(); !errors.Is(err, ErrHangs) || time.Since(start) != 0 || s.calls != 1 {
			t.Errorf("error %v after %s, %d calls", err, time.Since(start), s.calls)
		}
		if _, err := g.Samples(); err != nil {
			t.Errorf("calls of another kind fail: %v", err)
		}
		if err := g.Close(); !errors.Is(err, ErrHangs) || s.closed {
			t.Errorf("error %v, closed %v", err, s.closed)
		}
		close(s.release)
		synctest.Wait()
		if inv, err := g.Inventory(); err != nil || inv.DriverVersion != "1" {
			t.Errorf("inventory %+v, %v", inv, err)
		}
		if err := g.Close(); err != nil || !s.closed {
			t.Errorf("error %v, closed %v", err, s.closed)
		}
	})
}
