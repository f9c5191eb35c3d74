package queue

// Fair shares: of all queues the one goes next whose dominant share, by its
// weight, is least, and below it the same. A queue's dominant share is that of
// the resource of which it has the largest part (Ghodsi et al., Dominant
// Resource Fairness, NSDI'11). A parent has what its children have; but a child
// that has most of another resource than the one that asks next and has least
// is scaled down to that one's share, so that what one child has of a resource
// that another does not want is not held against the other (Bhattacharya et
// al., Hierarchical Scheduling for Diverse Datacenter Workloads, SoCC'13). There
// children are scaled that compete for one resource too, which comes to the
// same where tasks are short and shares soon even; with gangs that run for days
// it would let a parent go first in spite of what its other children hold.
//
// What a queue has is what it uses now and what it has used on average, the
// long past counting less: who has had much lately comes later.

// fairDims are the resources that shares are made of: GPUs, CPU, memory.
const fairDims = fixedDims

type amounts [fairDims]float64

// fairLine is a line of jobs by queues.
type fairLine struct {
	tree     *Tree
	ledger   *Ledger
	capacity amounts
	// nodes are by the tree's numbers, asks by job.
	nodes []fairNode
	asks  []Vector
	// last is the leaf whose job was handed out last.
	last int
}

type fairNode struct {
	// waiting are a leaf's jobs, in order; asking counts those at it and below.
	waiting []int
	asking  int
	has     amounts
	share   float64
	// next is the job at it or below whose turn it is, while any asks.
	next int
	// wants is the resource that is dominant in what it has and asks next for.
	wants int
}

func newFairLine(l *Ledger, capacity Vector, homes []Home, asks []Vector) *fairLine {
	f := &fairLine{asks: asks, tree: l.tree, ledger: l, nodes: make([]fairNode, len(l.tree.nodes)), last: unlimited}
	for i := range f.capacity {
		f.capacity[i] = float64(capacity[i])
	}
	for i, h := range homes {
		leaf := &f.nodes[h.leaf]
		leaf.waiting = append(leaf.waiting, i)
		for at := h.leaf; at >= root; at = f.tree.nodes[at].parent {
			f.nodes[at].asking++
		}
	}
	for at := len(f.nodes) - 1; at >= root; at-- { // kids come after their parents
		f.measure(at)
	}
	return f
}

// Next implements Line.
func (f *fairLine) Next() (int, bool) {
	if f.nodes[root].asking == 0 {
		return 0, false
	}
	at := root
	for len(f.tree.nodes[at].kids) > 0 {
		at = f.least(at)
	}
	leaf := &f.nodes[at]
	job := leaf.waiting[0]
	leaf.waiting = leaf.waiting[1:]
	f.last = at
	for up := at; up >= root; up = f.tree.nodes[up].parent {
		f.nodes[up].asking--
	}
	// Who asks for nothing more, or for something else, counts differently.
	f.Charged()
	return job, true
}

// Charged implements Line.
func (f *fairLine) Charged() {
	for at := f.last; at >= root; at = f.tree.nodes[at].parent {
		f.measure(at)
	}
}

// least is the child that asks and has the least share; among equals the one whose
// next job comes first.
func (f *fairLine) least(at int) int {
	best := -1
	for _, k := range f.tree.nodes[at].kids {
		if f.nodes[k].asking == 0 {
			continue
		}
		if best < 0 || f.nodes[k].share < f.nodes[best].share ||
			f.nodes[k].share == f.nodes[best].share && f.nodes[k].next < f.nodes[best].next {
			best = k
		}
	}
	return best
}

// measure computes what a node has and its share, from those below it.
func (f *fairLine) measure(at int) {
	n, config := &f.nodes[at], &f.tree.nodes[at]
	n.has = amounts{}
	if len(config.kids) == 0 {
		for i, used := range f.ledger.at(&f.ledger.used, at)[:fairDims] {
			n.has[i] = float64(used)
		}
	}
	next := f.least(at)
	for _, k := range config.kids {
		kid, scale := &f.nodes[k], 1.0
		if next >= 0 && kid.wants != f.nodes[next].wants && kid.share > f.nodes[next].share {
			scale = f.nodes[next].share / kid.share
		}
		for i := range n.has {
			n.has[i] += kid.has[i] * scale
		}
	}
	for i, past := range f.tree.past(at) {
		n.has[i] += past
	}
	n.share, n.wants = f.dominant(n.has)
	n.share /= config.weight
	switch {
	case next >= 0:
		n.wants, n.next = f.nodes[next].wants, f.nodes[next].next
	case len(n.waiting) > 0:
		n.next = n.waiting[0]
		more := n.has
		for i := range more {
			more[i] += float64(f.asks[n.waiting[0]][i])
		}
		_, n.wants = f.dominant(more)
	}
}

// dominant is the largest part of a resource, and which one it is.
func (f *fairLine) dominant(has amounts) (share float64, of int) {
	for i, n := range has {
		if f.capacity[i] > 0 && n/f.capacity[i] > share {
			share, of = n/f.capacity[i], i
		}
	}
	return share, of
}

// past is what a queue has used on average itself, without the queues below it.
func (t *Tree) past(at int) (out amounts) {
	n := &t.nodes[at]
	if n.history == nil {
		return out
	}
	for i := range out {
		out[i] = n.history[i]
		for _, k := range n.kids {
			if below := t.nodes[k].history; below != nil {
				out[i] -= below[i]
			}
		}
		out[i] = max(out[i], 0)
	}
	return out
}
