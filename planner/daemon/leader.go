package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
)

// lockPath is the Variable whose lock makes a planner the leader.
const lockPath = "caravan/leader"

// The lock's times. Nomad takes no TTL below 10 s. The delay after a lock that
// ran out can be short, because a leader stops writing before its TTL ends.
const (
	lockTTL   = 15 * time.Second
	lockDelay = time.Second
	// lockLife is how long a lock may outlive its holder: Nomad promises not to
	// end it before its TTL, and waits twice as long.
	lockLife = 2*lockTTL + lockDelay
	// lockRetry is how often a planner stands for election while another leads;
	// lockSoon the same when that one seems to be gone.
	lockRetry = lockTTL / 3
	lockSoon  = time.Second
	// askTimeout is when a leader counts as not answering.
	askTimeout = 2 * time.Second
)

// errHeld: another planner holds the lock.
var errHeld = errors.New("another planner leads")

// locker is a lock with a lease. One locker holds it at a time.
type locker interface {
	// Acquire takes the lock and leaves the address for others to see; errHeld
	// when another one has it.
	Acquire(ctx context.Context, address string) error
	// Renew prolongs the lease by a TTL; errHeld when it is lost.
	Renew(ctx context.Context) error
	// Release gives the lock up.
	Release(ctx context.Context) error
	// Holder is the address that the last one to take the lock has left.
	Holder(ctx context.Context) (string, error)
}

// variableLock is the lock of a Nomad Variable.
type variableLock struct {
	client    *api.Client
	namespace string
	id        string
}

func (l *variableLock) variable() *api.Variable {
	return &api.Variable{Namespace: l.namespace, Path: lockPath}
}

func (l *variableLock) options(ctx context.Context) *api.WriteOptions {
	return (&api.WriteOptions{Namespace: l.namespace}).WithContext(ctx)
}

// Acquire first prolongs the lock that it may still hold: a term ends when Nomad
// does not answer for a while, and the lock outlives that.
func (l *variableLock) Acquire(ctx context.Context, address string) error {
	if l.id != "" {
		err := l.Renew(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, errHeld) {
			l.id = ""
		}
	}
	v := l.variable()
	v.Items = api.VariableItems{"address": address}
	v.Lock = &api.VariableLock{TTL: lockTTL.String(), LockDelay: lockDelay.String()}
	got, _, err := l.client.Variables().AcquireLock(v, l.options(ctx))
	if err != nil {
		return lockError("acquire leadership", err)
	}
	if got == nil || got.Lock == nil || got.Lock.ID == "" {
		return errors.New("acquire leadership: Nomad's answer has no lock ID; Nomad 1.7 or later is needed")
	}
	l.id = got.Lock.ID
	return nil
}

func (l *variableLock) Renew(ctx context.Context) error {
	v := l.variable()
	v.Lock = &api.VariableLock{ID: l.id}
	if _, _, err := l.client.Variables().RenewLock(v, l.options(ctx)); err != nil {
		return lockError("renew leadership", err)
	}
	return nil
}

func (l *variableLock) Release(ctx context.Context) error {
	v := l.variable()
	v.Lock = &api.VariableLock{ID: l.id}
	if _, _, err := l.client.Variables().ReleaseLock(v, l.options(ctx)); err != nil {
		return lockError("release leadership", err)
	}
	return nil
}

func (l *variableLock) Holder(ctx context.Context) (string, error) {
	q := (&api.QueryOptions{Namespace: l.namespace}).WithContext(ctx)
	v, _, err := l.client.Variables().Peek(lockPath, q)
	if err != nil {
		return "", fmt.Errorf("read who leads: %w", err)
	}
	if v == nil {
		return "", nil
	}
	return v.Items["address"], nil
}

// lockError marks the answers that mean that the lock is another's.
func lockError(doing string, err error) error {
	var conflict api.ErrCASConflict
	var unexpected api.UnexpectedResponseError
	if errors.As(err, &conflict) || errors.Is(err, api.ErrLockConflict) ||
		(errors.As(err, &unexpected) && unexpected.StatusCode() == http.StatusConflict) {
		return fmt.Errorf("%s: %w", doing, errHeld)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// leadership is who leads, at this moment.
type leadership struct {
	// ask finds out whether a leader answers; nil: nobody is asked.
	ask func(ctx context.Context, address string) error

	mu     sync.Mutex
	term   context.Context // nil while another leads
	holder string
	err    error
	// turned is closed and replaced when a term begins or ends; nil: nobody asked.
	turned chan struct{}
	// silent is why the holder does not answer, since when it holds the lock
	// like that.
	silent error
	since  time.Time
}

// get returns the context of this planner's term, nil when it does not lead,
// and the leader's address.
func (l *leadership) get() (term context.Context, holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != nil && l.term.Err() != nil {
		return nil, l.holder
	}
	return l.term, l.holder
}

// trouble is why nobody may be leading.
func (l *leadership) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *leadership) set(term context.Context, holder string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.holder, l.err, l.silent, l.since = term, holder, err, nil, time.Time{}
	if l.turned != nil {
		close(l.turned)
		l.turned = nil
	}
}

// turn is closed when a term begins or ends.
func (l *leadership) turn() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turned == nil {
		l.turned = make(chan struct{})
	}
	return l.turned
}

// follow notes that another holds the lock, and returns how long to wait
// before the next try. A holder with this planner's own address is one that
// ran here before.
func (l *leadership) follow(ctx context.Context, holder, own string, err error) time.Duration {
	var silent error
	if holder != "" && holder != own && l.ask != nil {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		silent = l.ask(asking, holder)
		cancel()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() || l.holder != holder || (l.silent == nil) != (silent == nil) {
		l.since = time.Now()
	}
	l.term, l.holder, l.err, l.silent = nil, holder, err, silent
	if silent != nil || holder == own {
		return lockSoon
	}
	return lockRetry
}

// waits says what a planner with that address waits for before somebody
// leads; "" if nothing is known to be amiss.
func (l *leadership) waits(own string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term != nil && l.term.Err() == nil {
		return ""
	}
	left := (lockLife + lockSoon - time.Since(l.since)).Truncate(time.Second) + time.Second
	gone := time.Since(l.since) > lockLife+2*lockSoon
	switch {
	case l.holder == own && own != "" && gone:
		return fmt.Sprintf("for a lock that another planner with this one's address %s keeps; give each planner a listen.advertise of its own", own)
	case l.holder == own && own != "":
		return fmt.Sprintf("for the lock that the planner before it at this address has left; it expires within %s, and this planner leads then", left)
	case l.silent != nil && gone:
		return fmt.Sprintf("for the leader at %s, which keeps its lock and cannot be reached from here (%v); check its listen.advertise and the network", l.holder, l.silent)
	case l.silent != nil:
		return fmt.Sprintf("for the leader at %s, which does not answer (%v); if it has ended, its lock expires within %s and another planner leads", l.holder, l.silent, left)
	}
	return ""
}

// elect stands for election until ctx ends, and then gives the lock up. A term
// ends as soon as its lease may have run out, by this planner's own clock
// counted from before the last renewal that succeeded.
func (l *leadership) elect(ctx context.Context, lock locker, address string, log hclog.Logger, changed func()) {
	for ctx.Err() == nil {
		asked := time.Now()
		err := lock.Acquire(ctx, address)
		if err != nil {
			holder, holderErr := lock.Holder(ctx)
			if errors.Is(err, errHeld) {
				err = holderErr
			}
			if err != nil && ctx.Err() == nil {
				log.Warn("cannot stand for leadership", "error", err)
			}
			pause(ctx, l.follow(ctx, holder, address, err))
			continue
		}
		term, cancel := context.WithCancel(ctx)
		l.set(term, address, nil)
		log.Info("leading")
		changed()
		l.hold(term, lock, asked, log)
		cancel()
		l.set(nil, "", nil)
		log.Info("no longer leading")
		changed()
	}
	// ctx is over, but the next leader need not wait for the lease to end.
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTTL/3)
	defer cancel()
	if err := lock.Release(release); err != nil && !errors.Is(err, errHeld) {
		log.Debug("leadership was not released", "error", err)
	}
}

// hold renews the lease until it is lost or term ends.
func (l *leadership) hold(term context.Context, lock locker, asked time.Time, log hclog.Logger) {
	for {
		// A fifth of the lease is the margin for a write that is under way.
		until := asked.Add(lockTTL * 4 / 5)
		pause(term, min(lockTTL/3, time.Until(until)))
		if term.Err() != nil || !time.Now().Before(until) {
			return
		}
		attempt, cancel := context.WithDeadline(term, until)
		now := time.Now()
		err := lock.Renew(attempt)
		cancel()
		switch {
		case err == nil:
			asked = now
		case errors.Is(err, errHeld):
			log.Warn("leadership was lost", "error", err)
			return
		default:
			log.Warn("leadership was not renewed", "error", err)
			pause(term, min(time.Second, time.Until(until)))
		}
	}
}

// pause waits, or returns early when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
