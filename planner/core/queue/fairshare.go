package queue

import "strings"

// Fair shares: of all queues the one goes next whose dominant share, by its
// weight, is least, and below it the same. A queue's dominant share is that of
// the resource of which it has the largest part (Ghodsi et al., Dominant
// Resource Fairness, NSDI'11). In a tree a parent's share is that of its
// children, scaled down to the least of those that still ask, so that what one
// child has of a resource that another does not want is not held against the
// other (Bhattacharya et al., Hierarchical Scheduling for Diverse Datacenter
// Workloads, SoCC'13). Who asks for nothing counts as it is.
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
	// nodes are by the tree's numbers.
	nodes []fairNode
	// last is the leaf whose job was handed out last.
	last int
}

type fairNode struct {
	// waiting are a leaf's jobs, in order; asking counts those at it and below.
	waiting []int
	asking  int
	has     amounts
	share   float64
}

func newFairLine(l *Ledger, capacity Vector, homes []Home) *fairLine {
	f := &fairLine{tree: l.tree, ledger: l, nodes: make([]fairNode, len(l.tree.nodes)), last: unlimited}
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
	emptied := false
	for up := at; up >= root; up = f.tree.nodes[up].parent {
		f.nodes[up].asking--
		emptied = emptied || f.nodes[up].asking == 0
	}
	if emptied {
		f.Charged()
	}
	return job, true
}

// Charged implements Line.
func (f *fairLine) Charged() {
	for at := f.last; at >= root; at = f.tree.nodes[at].parent {
		f.measure(at)
	}
}

// least is the child that asks and has the least share; among equals the one
// that is first by name.
func (f *fairLine) least(at int) int {
	best := -1
	for _, k := range f.tree.nodes[at].kids {
		if f.nodes[k].asking == 0 {
			continue
		}
		if best < 0 || f.nodes[k].share < f.nodes[best].share ||
			f.nodes[k].share == f.nodes[best].share && strings.Compare(f.tree.nodes[k].path, f.tree.nodes[best].path) < 0 {
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
	floor := f.floor(at)
	for _, k := range config.kids {
		kid := &f.nodes[k]
		scale := 1.0
		if kid.asking > 0 && kid.share > floor {
			scale = floor / kid.share
		}
		for i := range n.has {
			n.has[i] += kid.has[i] * scale
		}
	}
	for i, past := range f.tree.past(at) {
		n.has[i] += past
	}
	n.share = f.shareOf(n.has, config.weight)
}

// floor is the least share above 0 of the children that ask. One that has
// nothing yet says nothing about the others.
func (f *fairLine) floor(at int) float64 {
	floor := 0.0
	for _, k := range f.tree.nodes[at].kids {
		if kid := &f.nodes[k]; kid.asking > 0 && kid.share > 0 && (floor == 0 || kid.share < floor) {
			floor = kid.share
		}
	}
	return floor
}

func (f *fairLine) shareOf(has amounts, weight float64) float64 {
	most := 0.0
	for i, n := range has {
		if f.capacity[i] > 0 {
			most = max(most, n/f.capacity[i])
		}
	}
	return most / weight
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
