package queue

import (
	"cmp"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Sort brings jobs into a policy's order, as far as it does not depend on what
// is decided. t is nil where there are no queues.
func (p Policy) Sort(t *Tree, jobs []*model.Job) { slices.SortFunc(jobs, p.Compare(t)) }

// Compare is the order of Sort: negative if a goes before b, never 0 for two
// jobs.
func (p Policy) Compare(t *Tree) func(a, b *model.Job) int {
	return func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(t.Priority(b), t.Priority(a)), p.Interactive.First(a, b), CompareAge(a, b))
	}
}

// Before compares two of which those go first that are something: negative if only x
// is, positive if only y is.
func Before(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}

// NeedsTree reports whether the order is one among queues, even where none are
// configured.
func (p Policy) NeedsTree() bool { return p.Order == OrderFairShare }

// Line hands out the jobs whose turn it is.
type Line interface {
	// Next is the index of the next job; false when all had their turn.
	Next() (int, bool)
	// Charged says that the last job has been given something.
	Charged()
}

// NewLine is a line of jobs that are sorted already, each with its home and what
// it asks for. The ledger's charges move the queues in it. capacity is the
// cluster's.
func (p Policy) NewLine(l *Ledger, capacity Vector, homes []Home, asks []Vector) Line {
	if p.Order == OrderFairShare {
		return newFairLine(l, capacity, homes, asks)
	}
	return &plainLine{len: len(homes)}
}

// plainLine is a line in the order of its list.
type plainLine struct{ at, len int }

func (l *plainLine) Next() (int, bool) {
	if l.at == l.len {
		return 0, false
	}
	l.at++
	return l.at - 1, true
}

func (l *plainLine) Charged() {}
