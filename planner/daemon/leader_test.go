package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// fakeLock is a lock whose holder the test decides.
type fakeLock struct {
	mu       sync.Mutex
	holder   string
	own      string
	other    bool // the holder is another process, whatever its address
	fail     error
	renewals int
	releases int
}

func (l *fakeLock) do(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	return f()
}

func (l *fakeLock) Acquire(_ context.Context, address string) error {
	return l.do(func() error {
		if l.other || l.holder != "" && l.holder != address {
			return errHeld
		}
		l.holder, l.own = address, address
		return nil
	})
}

func (l *fakeLock) Renew(context.Context) error {
	return l.do(func() error {
		l.renewals++
		if l.holder != l.own {
			return errHeld
		}
		return nil
	})
}

func (l *fakeLock) Release(context.Context) error {
	return l.do(func() error {
		l.releases++
		if l.holder == l.own {
			l.holder = ""
		}
		return nil
	})
}

func (l *fakeLock) Holder(context.Context) (string, error) {
	var holder string
	err := l.do(func() error { holder = l.holder; return nil })
	return holder, err
}

func (l *fakeLock) set(holder string, fail error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder, l.fail = holder, fail
}

// stand runs an election and returns how to end it.
func stand(t *testing.T, lock locker) (*leadership, func()) {
	ctx, cancel := context.WithCancel(t.Context())
	l := new(leadership)
	var wg sync.WaitGroup
	wg.Go(func() { l.elect(ctx, lock, "me", hclog.NewNullLogger(), func() {}) })
	return l, func() { cancel(); wg.Wait() }
}

func leading(l *leadership) bool {
	term, _ := l.get()
	return term != nil
}

func TestLeaderRenewsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := new(fakeLock)
		l, end := stand(t, lock)
		time.Sleep(10 * lockTTL)
		if !leading(l) {
			t.Error("not leading after ten leases")
		}
		synctest.Wait()
		lock.mu.Lock()
		renewals := lock.renewals
		lock.mu.Unlock()
		if renewals < 20 {
			t.Errorf("%d renewals in ten leases", renewals)
		}
		term, _ := l.get()
		end()
		if term.Err() == nil {
			t.Error("the term outlives the election")
		}
		if lock.releases != 1 || lock.holder != "" {
			t.Errorf("released %d times, held by %q", lock.releases, lock.holder)
		}
	})
}

func TestLeaderWaitsForTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := &fakeLock{holder: "other"}
		l, end := stand(t, lock)
		defer end()
		time.Sleep(lockTTL)
		if _, holder := l.get(); leading(l) || holder != "other" {
			t.Errorf("leading: %v, holder %q; want other to lead", leading(l), holder)
		}
		lock.set("", nil)
		time.Sleep(lockTTL)
		if !leading(l) {
			t.Error("the free lock was not taken")
		}
	})
}

// A leader that cannot renew must stop before Nomad gives the lock away, and
// one whose lock was taken must stop at its next renewal.
func TestLeaderStopsInTime(t *testing.T) {
	for name, trouble := range map[string]struct {
		holder string
		fail   error
	}{
		"Nomad is away":      {"me", errors.New("connection refused")},
		"the lock was taken": {"other", nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lock := new(fakeLock)
				l, end := stand(t, lock)
				defer end()
				time.Sleep(2*lockTTL + time.Second)
				term, _ := l.get()
				if term == nil {
					t.Fatal("not leading")
				}
				lock.set(trouble.holder, trouble.fail)
				time.Sleep(lockTTL * 4 / 5)
				synctest.Wait()
				if term.Err() == nil || leading(l) {
					t.Error("still leading four fifths of a lease after the last renewal")
				}
				lock.set("", nil)
				time.Sleep(lockTTL)
				if !leading(l) {
					t.Error("not leading again after the trouble")
				}
			})
		})
	}
}

func TestLeaderSurvivesOneFailedRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := new(fakeLock)
		l, end := stand(t, lock)
		defer end()
		time.Sleep(time.Second)
		term, _ := l.get()
		lock.set("me", errors.New("500"))
		time.Sleep(lockTTL/3 + time.Second)
		lock.set("me", nil)
		time.Sleep(3 * lockTTL)
		if term.Err() != nil {
			t.Error("the term ended although the lease was renewed in time")
		}
	})
}

func TestFollowerSaysWhatItWaitsFor(t *testing.T) {
	const longest = lockLife + lockSoon
	tests := map[string]struct {
		holder string
		silent error
		after  time.Duration
		want   []string // each in the text; none: nothing
	}{
		"a leader that answers": {holder: "http://other", after: longest},
		"a leader that does not answer": {holder: "http://other", silent: errors.New("refused"),
			want: []string{"for the leader at http://other, which does not answer (refused)", "expires within 33s"}},
		"later": {holder: "http://other", silent: errors.New("refused"), after: 10 * time.Second, want: []string{"expires within 23s"}},
		"a leader that cannot be reached": {holder: "http://other", silent: errors.New("refused"), after: 3 * lockTTL,
			want: []string{"keeps its lock and cannot be reached from here (refused)", "listen.advertise"}},
		"the one before it":    {holder: "me", want: []string{"for the lock that the planner before it at this address has left", "within 33s", "this planner leads then"}},
		"one of the same name": {holder: "me", after: 3 * lockTTL, want: []string{"another planner with this one's address me keeps"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				l := &leadership{ask: func(context.Context, string) error { return test.silent }}
				lock := &fakeLock{holder: test.holder, other: true}
				go l.elect(ctx, lock, "me", hclog.NewNullLogger(), func() {})
				synctest.Wait()
				time.Sleep(test.after)
				synctest.Wait()
				got := l.waits("me")
				if (got == "") != (len(test.want) == 0) {
					t.Errorf("waits %q", got)
				}
				for _, want := range test.want {
					if !strings.Contains(got, want) {
						t.Errorf("waits %q, want %q in it", got, want)
					}
				}
			})
		})
	}
}

// A planner that was killed and started again takes the lock of the one before
// soon after it has expired.
func TestLeaderTakesOverFromItselfSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := &fakeLock{holder: "me", other: true}
		l, end := stand(t, lock)
		defer end()
		time.Sleep(lockTTL + lockDelay)
		lock.mu.Lock()
		lock.holder, lock.other = "", false
		lock.mu.Unlock()
		time.Sleep(lockSoon)
		synctest.Wait()
		if !leading(l) || l.waits("me") != "" {
			t.Errorf("leading: %v, waits %q", leading(l), l.waits("me"))
		}
	})
}
