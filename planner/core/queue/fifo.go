package queue

import (
	"cmp"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// First come, first served, within a priority: fifo and besteffort. What a
// waiting gang keeps is the reservation that EASY gives to the head of the line
// (Lifka, The ANL/IBM SP Scheduling System, JSSPP'95), given in space and not
// in time.

// Compare is negative if a goes before b: by priority, highest first, then by
// submission, then by namespace and ID.
func Compare(a, b *model.Job) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), CompareAge(a, b))
}

// CompareAge orders jobs by submission, and any two jobs somehow.
func CompareAge(a, b *model.Job) int {
	return cmp.Or(a.Submitted.Compare(b.Submitted), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID))
}
