package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Reclaim says whether a job may have back, for the guarantee of its queue or
// of one above it, what a job of another queue has borrowed; and why, or why
// not. Whether that job is one of the borrowers is for the caller to say.
func (l *Ledger) Reclaim(claimant Home, amount Vector, borrower Home) (may bool, reason string) {
	t := l.tree
	name, other := t.Name(claimant), t.Name(borrower)
	own, theirs := t.chain(l.holder(claimant)), t.chain(l.holder(borrower))
	for len(own) > 0 && len(theirs) > 0 && own[len(own)-1] == theirs[len(theirs)-1] {
		own, theirs = own[:len(own)-1], theirs[:len(theirs)-1]
	}
	if len(own) == 0 || len(theirs) == 0 {
		return false, fmt.Sprintf("both are of queue %s", name)
	}
	if !t.reclaims(claimant, other) {
		return false, fmt.Sprintf("queue %s may not reclaim from queue %s", name, other)
	}
	if l.Class(claimant, amount) >= len(own) {
		return false, fmt.Sprintf("queue %s would have more than it is guaranteed", name)
	}
	for _, at := range theirs {
		guarantee := t.nodes[at].guarantee
		if borrower.direct && at == borrower.leaf {
			guarantee = t.nodes[borrower.queue].own
		}
		if !l.over(at, amount, guarantee) {
			return false, fmt.Sprintf("queue %s is within its guarantee", other)
		}
	}
	return true, fmt.Sprintf("guaranteed to queue %s, borrowed by queue %s", name, other)
}

// chain is a node and those above it, without the root.
func (t *Tree) chain(at int) []int {
	var out []int
	for ; at > root; at = t.nodes[at].parent {
		out = append(out, at)
	}
	return out
}

// reclaims reports whether a queue may reclaim from another one, as it is
// configured, or the nearest above it that says so.
func (t *Tree) reclaims(h Home, from string) bool {
	for at := h.queue; at > root; at = t.nodes[at].parent {
		q := t.nodes[at].config
		switch {
		case q == nil || q.Reclaim == "" && len(q.ReclaimFrom) == 0:
		case q.Reclaim == model.ReclaimNone:
			return false
		case len(q.ReclaimFrom) == 0:
			return true
		default:
			return slices.ContainsFunc(q.ReclaimFrom, func(path string) bool { return path == from || strings.HasPrefix(from, path+"/") })
		}
	}
	return true
}

// over reports whether a node uses more than a guarantee of something that is
// in an amount.
func (l *Ledger) over(at int, amount, guarantee Vector) bool {
	used := l.at(&l.used, at)
	for i, n := range amount {
		if n > 0 && guarantee[i] >= 0 && used[i] > guarantee[i] {
			return true
		}
	}
	return false
}

// Use is what a job has.
type Use struct {
	Job    *model.Job
	Amount Vector
}

// Borrowers are those of a list of jobs, by index, that have what their queues
// are not guaranteed: the guarantee goes first to those that are never to be
// preempted, then by priority and submission. A gang that is in it only in part
// has borrowed all of it: it ends whole.
func (t *Tree) Borrowers(list []Use) []bool {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := list[a].Job, list[b].Job
		never := Before(x.Preempt == model.PreemptNever, y.Preempt == model.PreemptNever)
		return cmp.Or(never, t.Priority(y)-t.Priority(x), CompareAge(x, y))
	})
	out, used := make([]bool, len(list)), map[int]int64{}
	for _, i := range order {
		h := t.HomeOf(list[i].Job)
		at, guarantee := h.queue, t.nodes[h.queue].guarantee[dimGPU]
		if h.direct {
			at, guarantee = h.leaf, t.nodes[h.queue].own[dimGPU]
		}
		used[at] += list[i].Amount[dimGPU]
		out[i] = used[at] > guarantee
	}
	return out
}

// SameQueue reports whether two homes are of one queue.
func (h Home) SameQueue(o Home) bool { return h.queue == o.queue && h.direct == o.direct }

// MinRun is how long the jobs of a queue run before they may be displaced.
func (t *Tree) MinRun(h Home) time.Duration {
	for at := h.queue; at > root; at = t.nodes[at].parent {
		if q := t.nodes[at].config; q != nil && q.MinRun > 0 {
			return q.MinRun
		}
	}
	return 0
}
