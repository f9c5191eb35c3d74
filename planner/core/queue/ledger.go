package queue

import (
	"fmt"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Ledger is what every queue uses while one plan is made. What it is charged
// with only grows meanwhile, but for a Discharge.
type Ledger struct {
	tree *Tree
	// used is by node, with all below; never is what of it nobody may take away,
	// without what is below; kept is what waits for the end of other jobs of a
	// queue that is at its limit.
	used, never, kept []Vector
}

// NewLedger is a ledger in which nobody uses anything.
func NewLedger(t *Tree) *Ledger { return &Ledger{tree: t} }

// Charge notes that a job uses an amount. never: it may not be taken away.
func (l *Ledger) Charge(h Home, amount Vector, never bool) {
	for at := h.leaf; at >= root; at = l.tree.nodes[at].parent {
		l.at(&l.used, at).Add(amount)
	}
	if never {
		l.at(&l.never, l.holder(h)).Add(amount)
	}
}

// Discharge takes back what the ledger was charged with.
func (l *Ledger) Discharge(h Home, amount Vector, never bool) {
	for at := h.leaf; at >= root; at = l.tree.nodes[at].parent {
		l.used[at].Sub(amount)
	}
	if never {
		l.never[l.holder(h)].Sub(amount)
	}
}

// Clone is a ledger that is charged by itself from here on; nil for nil.
func (l *Ledger) Clone() *Ledger {
	if l == nil {
		return nil
	}
	return &Ledger{tree: l.tree, used: cloneAll(l.used), never: cloneAll(l.never), kept: cloneAll(l.kept)}
}

// cloneAll copies vectors, all into one piece of memory.
func cloneAll(list []Vector) []Vector {
	n := 0
	for _, v := range list {
		n += len(v)
	}
	all, out := make(Vector, 0, n), make([]Vector, len(list))
	for i, v := range list {
		if v != nil {
			at := len(all)
			all = append(all, v...)
			out[i] = all[at:len(all):len(all)]
		}
	}
	return out
}

// Keep keeps, of what the queue that refused a job may use at most, what the
// job needs, so that others do not take it bit by bit as it is given back.
func (l *Ledger) Keep(h Home, r *Refusal, amount Vector) {
	if r.never {
		return
	}
	for at := h.leaf; at > root; at = l.tree.nodes[at].parent {
		l.at(&l.kept, at).Add(amount)
		if at == r.node {
			return
		}
	}
}

// holder is the node that answers for what a home's jobs keep from others.
func (l *Ledger) holder(h Home) int {
	if h.direct {
		return h.leaf
	}
	return h.queue
}

// at is a node's vector; the tree may have grown since.
func (l *Ledger) at(list *[]Vector, node int) Vector {
	for len(*list) <= node {
		*list = append(*list, nil)
	}
	if (*list)[node] == nil {
		(*list)[node] = l.tree.zero()
	}
	return (*list)[node]
}

// Beyond is the Class of what no queue is guaranteed.
func (t *Tree) Beyond() int { return t.depth + 1 }

// Class says by what right a job would take an amount: 0 is its queue's
// guarantee; 1 that of the queue above, of which its queue's siblings leave so
// much idle, and so on; Beyond is nobody's guarantee.
func (l *Ledger) Class(h Home, amount Vector) int {
	class, at := 0, h.queue
	if h.direct {
		if l.within(h.leaf, amount, l.tree.nodes[h.queue].own) {
			return 0
		}
		class = 1
	}
	for ; at > root; at = l.tree.nodes[at].parent {
		if l.within(at, amount, l.tree.nodes[at].guarantee) {
			return class
		}
		class++
	}
	return l.tree.Beyond()
}

func (l *Ledger) within(node int, amount, guarantee Vector) bool {
	used := l.at(&l.used, node)
	for i, n := range amount {
		if n > 0 && guarantee[i] >= 0 && used[i]+n > guarantee[i] {
			return false
		}
	}
	return true
}

// Refusal is why a queue may not take an amount.
type Refusal struct {
	tree   *Tree
	node   int
	dim    int
	never  bool
	used   int64
	kept   int64
	most   int64
	amount int64
}

// Check says what forbids a job to take an amount, nil if nothing does.
func (l *Ledger) Check(h Home, amount Vector, never bool) *Refusal {
	if !l.tree.Limited {
		return nil
	}
	for at := h.leaf; at > root; at = l.tree.nodes[at].parent {
		used, kept, limit := l.at(&l.used, at), l.at(&l.kept, at), l.tree.nodes[at].limit
		for i, n := range amount {
			if n > 0 && limit[i] >= 0 && used[i]+kept[i]+n > limit[i] {
				r := &Refusal{tree: l.tree, node: at, dim: i, used: used[i], kept: kept[i], most: limit[i], amount: n}
				if not := l.checkNever(h, amount, never); r.Ever() && not != nil && !not.Ever() {
					return not // what is given back does not help
				}
				return r
			}
		}
	}
	return l.checkNever(h, amount, never)
}

// checkNever says whether what is never to be preempted is beyond what is granted to
// that.
func (l *Ledger) checkNever(h Home, amount Vector, never bool) *Refusal {
	if !never {
		return nil
	}
	held, guarantee := l.at(&l.never, l.holder(h)), l.tree.nodes[h.queue].guarantee
	if h.direct {
		guarantee = l.tree.nodes[h.queue].own
	}
	for i, n := range amount {
		if n > 0 && guarantee[i] >= 0 && held[i]+n > guarantee[i] {
			return &Refusal{tree: l.tree, node: h.queue, dim: i, never: true, used: held[i], most: guarantee[i], amount: n}
		}
	}
	return nil
}

// Model is the model of GPUs that is short, "" if something else is.
func (r *Refusal) Model() string {
	model, found := strings.CutPrefix(r.tree.names[r.dim], model.ResourceModel)
	if !found {
		return ""
	}
	return model
}

// Ever reports whether the amount could be taken if all others of the queue
// gave back what they have.
func (r *Refusal) Ever() bool { return r.amount <= r.most }

// whose names a queue, or a user of one.
func (t *Tree) whose(node int) string {
	queue, user, isUser := strings.Cut(t.nodes[node].path, userMark)
	switch {
	case !isUser:
		return "queue " + queue
	case user == "":
		return "those who name no user in queue " + queue
	}
	return "user " + user + " of queue " + queue
}

// modelAt is the model that a dimension counts.
func (t *Tree) modelAt(dim int) string { return strings.TrimPrefix(t.names[dim], model.ResourceModel) }

// String says it with numbers, and what would help.
func (r *Refusal) String() string {
	n := &r.tree.nodes[r.node]
	what := resourceName(r.tree.names[r.dim])
	name := r.tree.whose(r.node)
	if r.never {
		text := fmt.Sprintf("asks never to be preempted, which %s grants within its guarantee only, and of that %d of %d %s are held so; it needs %d", name, r.used, r.most, what, r.amount)
		if r.Ever() {
			return text + fmt.Sprintf("; it can start when %d are given back, or with another caravan_preempt", r.used+r.amount-r.most)
		}
		return text + "; set another caravan_preempt, or have the guarantee raised"
	}
	guarantee := max(n.guarantee[r.dim], 0)
	var text string
	if n.config == nil || len(n.config.Borrow) == 0 {
		text = fmt.Sprintf("%s: in use are %d of at most %d %s", name, r.used, r.most, what)
	} else {
		text = fmt.Sprintf("%s uses %d of %d %s guaranteed, borrows %d of %d", name, min(r.used, guarantee), guarantee, what, max(r.used-guarantee, 0), r.most-guarantee)
	}
	if r.kept > 0 {
		text += fmt.Sprintf(", and %d are kept for jobs ahead", r.kept)
	}
	text += fmt.Sprintf("; the job needs %d", r.amount)
	if !r.Ever() {
		return text + "; it never may have so many: ask for fewer, or have the limit raised"
	}
	return text + fmt.Sprintf("; it can start when %d are given back", r.used+r.kept+r.amount-r.most)
}

// Borrowed is how many of an amount's GPUs, charged last, are beyond the
// guarantee of the job's queue.
func (l *Ledger) Borrowed(h Home, amount Vector) int {
	over := l.at(&l.used, h.queue)[dimGPU] - l.tree.nodes[h.queue].guarantee[dimGPU]
	if h.direct {
		over = l.at(&l.used, h.leaf)[dimGPU] - l.tree.nodes[h.queue].own[dimGPU]
	}
	return int(min(max(over, 0), amount[dimGPU]))
}
