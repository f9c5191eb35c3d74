package queue

import (
	"cmp"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Shortest job first: of what waits, that which ends soonest. It makes the
// average wait the least there can be as long as durations are known (Smith,
// Various optimizers for single-stage production, Naval Research Logistics
// Quarterly 3, 1956). Who says nothing comes last; who says too little gains by
// it once, and is found out by its run time.

// compareShortest is negative if a goes before b, which have one priority.
func compareShortest(a, b *model.Job) int {
	x, y := Duration(a), Duration(b)
	switch {
	case x == y:
	case x == 0:
		return 1
	case y == 0:
		return -1
	}
	return cmp.Or(cmp.Compare(x, y), CompareAge(a, b))
}

// Duration is how long a job runs, as far as it is known: as its author says,
// else as others like it did.
func Duration(j *model.Job) time.Duration {
	if j.Duration > 0 {
		return j.Duration
	}
	return j.Estimate
}
