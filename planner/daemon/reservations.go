package daemon

import (
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// reserved are the reservations that count at any time: those of the file and
// those that were set. One that is over is told of until it is taken out.
func (q *queues) reserved(time.Time) []model.Reservation {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]model.Reservation{}, q.apart...)
}

// reservations is how they stood after the last plan.
func (q *queues) reservations() []model.ReservationUse {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.uses)
}

// noteApart keeps how they stand.
func (q *queues) noteApart(uses []model.ReservationUse) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.uses = uses
}
