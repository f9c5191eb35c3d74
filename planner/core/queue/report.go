package queue

import (
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Waiting is a job that waits.
type Waiting struct {
	Home Home
	GPUs int
}

// Report says how every queue stands, without users, by path: those that are
// configured, and those in which there are jobs. capacity is the cluster's.
func (l *Ledger) Report(capacity Vector, waiting []Waiting) []model.QueueUse {
	shares := newFairLine(l, capacity, nil, nil)
	jobs, gpus := make([]int, len(l.tree.nodes)), make([]int, len(l.tree.nodes))
	for _, w := range waiting {
		for at := w.Home.leaf; at > root; at = l.tree.nodes[at].parent {
			jobs[at]++
			gpus[at] += w.GPUs
		}
	}
	var out []model.QueueUse
	for at := root + 1; at < len(l.tree.nodes); at++ {
		n := &l.tree.nodes[at]
		if strings.Contains(n.path, userMark) {
			continue
		}
		used := l.at(&l.used, at)
		if n.config == nil && at != l.tree.fallback && used.Zero() && jobs[at] == 0 {
			continue // a path that nobody names any more
		}
		u := model.QueueUse{
			Path: n.path, Guaranteed: l.tree.byName(n.guarantee, 1), Limit: l.tree.byName(n.limit, 0), Used: l.tree.byName(used, 1),
			Waiting: jobs[at], WaitingGPUs: gpus[at], Share: shares.nodes[at].share,
		}
		if l.tree.fallback == unlimited { // nobody is guaranteed anything, so nobody lends
			u.Guaranteed[model.ResourceGPU] = 0
		} else {
			u.BorrowedGPUs = int(max(used[dimGPU]-n.guarantee[dimGPU], 0))
		}
		if n.limit[dimGPU] == unlimited {
			delete(u.Limit, model.ResourceGPU)
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b model.QueueUse) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// byName is an amount by resource: what is at least least, and GPUs always.
func (d *dims) byName(v Vector, least int64) map[string]int {
	out := map[string]int{model.ResourceGPU: int(v[dimGPU])}
	for i, n := range v {
		if n >= least {
			out[d.names[i]] = int(n)
		}
	}
	return out
}
