package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	known "github.com/caravan-sched/caravan/planner/history"
)

// queues are the queues as configured, how they stood after the last plan, and
// what they have used.
type queues struct {
	mu       sync.Mutex
	list     []model.Queue
	halfLife time.Duration
	policy   core.Policy
	// apart are the reservations, and uses how they stood after the last plan.
	apart []model.Reservation
	uses  []model.ReservationUse
	stand []model.QueueUse
	kept  kept[known.Queues]
}

// keepUsage keeps what queues have used.
func keepUsage(store documents) kept[known.Queues] {
	return kept[known.Queues]{store: store, names: []string{"queues", "usage"}, about: "what queues have used", every: saveEvery,
		encode: func(q *known.Queues) ([]byte, error) { return json.Marshal(q) },
		decode: func(doc []byte) (*known.Queues, error) {
			q := new(known.Queues)
			return q, json.Unmarshal(doc, q)
		}}
}

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
	return q.kept.is.With(q.list, now, q.halfLife)
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
	q.kept.forget()
}

// load reads the past that another planner, or this one, has left.
func (q *queues) load(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.list) == 0 {
		return nil
	}
	_, err := q.kept.load(ctx)
	return err
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
	q.kept.is, q.kept.fresh = q.kept.is.Note(now, q.halfLife, stand), true
	if !write || q.halfLife <= 0 {
		return nil
	}
	return q.kept.save(ctx, now)
}
