// Package server is the stand-in's server: it takes registrations and client
// reports into the state, runs evaluations, and watches what happens with
// time (lost nodes, delayed evaluations, deployments, drains, locks).
package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// Config is what a server needs.
type Config struct {
	Clock clock.Clock
	// LostAfter is how long a silent node counts as there.
	LostAfter time.Duration
	// Seed makes the scheduler's choices repeatable; 0 is a random seed.
	Seed uint64
	Log  func(string)
	// Region is where the jobs are that it takes; "" is "global".
	Region string
}

// Server is a single Nomad server without a network.
type Server struct {
	cfg   Config
	store *state.Store
	keys  *keyring
	wake  chan struct{}
	rng   *rand.Rand // used by the worker only, under work

	// launches are of periodic jobs; used by the worker only, under work.
	launches map[state.Key]periodicTime

	work sync.Mutex // one step of the worker at a time

	mu      sync.Mutex
	silent  map[string]time.Time // nodes cut off, by ID, since when
	locks   map[state.Key]time.Time
	delays  map[state.Key]time.Time // locks run out, in their delay until
	blocked map[string]*blockedEval
	runs    int
	cancel  func()
}

// New returns a server with an empty state. Run makes it work.
func New(cfg Config) *Server {
	seed := cfg.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	return &Server{
		cfg: cfg, store: state.New(), keys: newKeyring(), wake: make(chan struct{}, 1), rng: rand.New(rand.NewPCG(seed, 1)),
		silent: map[string]time.Time{}, locks: map[state.Key]time.Time{}, delays: map[state.Key]time.Time{},
		blocked: map[string]*blockedEval{}, launches: map[state.Key]periodicTime{},
	}
}

// Store gives access to the state.
func (s *Server) Store() *state.Store { return s.store }

// Now is the server's time.
func (s *Server) Now() time.Time { return s.cfg.Clock.Now() }

// Run works until ctx ends.
func (s *Server) Run(ctx context.Context) {
	for {
		s.Step()
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
	}
}

// Step does everything that is due now. Run calls it; a test without Run may.
func (s *Server) Step() {
	s.work.Lock()
	defer s.work.Unlock()
	for {
		now := s.Now()
		did := s.expireNodes(now)
		did = s.expireLocks(now) || did
		did = s.watchPeriodic(now) || did
		did = s.watchDrains(now) || did
		did = s.watchHealth(now) || did
		did = s.watchDeployments(now) || did
		did = s.runEval(now) || did
		if !did {
			break
		}
	}
	s.armTimer()
}

// kick makes the worker look for work.
func (s *Server) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// armTimer asks the clock for a call at the next time that something is due.
func (s *Server) armTimer() {
	var next time.Time
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	s.store.View(func(v *state.View) {
		for _, e := range v.EvalsWith(api.EvalStatusPending) {
			consider(e.WaitUntil)
		}
		for _, n := range v.Nodes() {
			if n.DrainStrategy != nil {
				consider(n.DrainStrategy.ForceDeadline)
			}
		}
		for _, t := range deploymentTimes(v) {
			consider(t)
		}
	})
	for _, at := range s.launches {
		consider(at.next)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, since := range s.silent {
		consider(since.Add(s.cfg.LostAfter))
	}
	for _, t := range s.locks {
		consider(t)
	}
	for _, t := range s.delays {
		consider(t)
	}
	if s.cancel != nil {
		s.cancel()
		s.cancel = nil
	}
	if !next.IsZero() {
		s.cancel = s.cfg.Clock.AfterFunc(max(0, next.Sub(s.Now())), s.kick)
	}
}

// update is a transaction after which the worker looks for work.
func (s *Server) update(eventType string, f func(tx *state.Tx) error) error {
	err := s.store.Update(eventType, s.Now(), f)
	s.kick()
	return err
}

func (s *Server) logf(format string, args ...any) {
	if s.cfg.Log != nil {
		s.cfg.Log(fmt.Sprintf(format, args...))
	}
}

// newEval is an evaluation of a job.
func newEval(job *api.Job, trigger string) *api.Evaluation {
	return &api.Evaluation{
		ID: uuid.NewString(), Namespace: *job.Namespace, JobID: *job.ID, Priority: deref(job.Priority), Type: *job.Type,
		TriggeredBy: trigger, Status: api.EvalStatusPending,
	}
}

// Error is an error with Nomad's HTTP status.
type Error struct {
	Code int
	Text string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

func errorf(code int, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

func ptr[T any](v T) *T { return &v }

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
