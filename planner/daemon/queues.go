package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	known "github.com/caravan-sched/caravan/planner/history"
	"github.com/caravan-sched/caravan/planner/record"
)

// queues are the queues as configured, how they stood after the last plan, and
// what they have used.
type queues struct {
	store documents

	mu       sync.Mutex
	list     []model.Queue
	halfLife time.Duration
	policy   core.Policy
	// apart are the reservations, and uses how they stood after the last plan.
	apart []model.Reservation
	uses  []model.ReservationUse
	stand []model.QueueUse
	past  known.Queues
	// loaded: past continues what is stored, with that index.
	loaded bool
	index  uint64
	saved  time.Time
}

// documents keeps the usage.
type documents interface {
	Get(ctx context.Context, names ...string) (record.Document, error)
	Put(ctx context.Context, index uint64, doc []byte, names ...string) (uint64, error)
}

// The names of the document that the usage is kept in.
var usageNames = []string{"queues", "usage"}

// saveEvery is how seldom the usage is written: losing so little of the past
// changes nothing.
const saveEvery = time.Minute

// configure takes queues and policy; the past stays.
func (q *queues) configure(c *config.Config) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list, q.halfLife, q.policy = c.Queues, c.Policy.HalfLife, c.Policy.Policy
	q.apart = c.Reservations
}

// order is the policy of the next decision.
func (q *queues) order() core.Policy {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.policy
}

// settings are policy, half-life and queues as they count now.
func (q *queues) settings() (core.Policy, time.Duration, []model.Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.policy, q.halfLife, slices.Clone(q.list)
}

// at are the queues with what they have used up to a time.
func (q *queues) at(now time.Time) []model.Queue {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		return nil
	}
	return q.past.With(q.list, now, q.halfLife)
}

// standing is how the queues stand.
func (q *queues) standing() []model.QueueUse {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stand
}

// forget is for a planner that does not lead: another one writes the past.
func (q *queues) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.loaded = false
}

// load reads the past that another planner, or this one, has left.
func (q *queues) load(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.loaded || len(q.list) == 0 {
		return nil
	}
	doc, err := q.store.Get(ctx, usageNames...)
	q.past, q.index = known.Queues{}, doc.Index
	switch {
	case err == nil:
		if err := json.Unmarshal(doc.JSON, &q.past); err != nil {
			q.past = known.Queues{}
		}
	case !errors.Is(err, record.ErrNotFound) && !errors.Is(err, record.ErrDamaged):
		return fmt.Errorf("read what queues have used: %w", err)
	}
	q.loaded = true
	return nil
}

// note takes in how the queues stand after a plan, and writes the past where
// that is due.
func (q *queues) note(ctx context.Context, now time.Time, stand []model.QueueUse, write bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stand = stand
	if len(q.list) == 0 {
		return nil
	}
	next := q.past.Note(now, q.halfLife, stand)
	q.past = next
	if !write || !q.loaded || now.Sub(q.saved) < saveEvery || q.halfLife <= 0 {
		return nil
	}
	doc, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("write what queues have used: %w", err)
	}
	index, err := q.store.Put(ctx, q.index, doc, usageNames...)
	if err != nil {
		q.loaded = false // somebody else has written it
		return fmt.Errorf("write what queues have used: %w", err)
	}
	q.index, q.saved = index, now
	return nil
}
