package sim

import "slices"

// ledger knows which GPUs are free, by node, and how large the gangs are that
// wait. It is independent of every scheduler.
type ledger struct {
	perNode int
	// free are the free GPUs by node, as bits; down nodes have none.
	free []uint64
	// nodes counts the nodes by their number of free GPUs.
	nodes []int
	total int
	// sizes are the GPUs that waiting gangs ask for, the smallest first, with how
	// many ask for so many.
	sizes  []int
	counts []int
	// kinds are the same by model; nil: no job names one.
	kinds *freeKinds
}

func newLedger(c *Cluster) *ledger {
	l := &ledger{perNode: c.PerNode, free: make([]uint64, len(c.Nodes)), nodes: make([]int, c.PerNode+1)}
	for i := range c.Nodes {
		var free uint64
		for k, m := range c.modesOf(i) {
			if m.isWhole() {
				free |= 1 << uint(k)
			}
		}
		l.free[i] = free
		l.nodes[ones(free)]++
		l.total += ones(free)
	}
	return l
}

// set changes a node's free GPUs.
func (l *ledger) set(node int, free uint64) {
	before, after := ones(l.free[node]), ones(free)
	l.nodes[before]--
	l.nodes[after]++
	l.total += after - before
	l.free[node] = free
	l.kinds.set(node, before, after)
}

// take takes pieces; false, and nothing is taken, if some of it is not free.
func (l *ledger) take(pieces []Piece) bool {
	for i, p := range pieces {
		mask := maskOf(p.GPUs)
		if ones(mask) != len(p.GPUs) || p.Node < 0 || p.Node >= len(l.free) || l.free[p.Node]&mask != mask {
			l.give(pieces[:i])
			return false
		}
		l.set(p.Node, l.free[p.Node]&^mask)
	}
	return true
}

func (l *ledger) give(pieces []Piece) {
	for _, p := range pieces {
		l.set(p.Node, l.free[p.Node]|maskOf(p.GPUs))
	}
}

// wait notes that one gang more, or less, of a size waits.
func (l *ledger) wait(gpus, change int) {
	at, found := slices.BinarySearch(l.sizes, gpus)
	if !found {
		l.sizes, l.counts = slices.Insert(l.sizes, at, gpus), slices.Insert(l.counts, at, 0)
	}
	if l.counts[at] += change; l.counts[at] == 0 {
		l.sizes, l.counts = slices.Delete(l.sizes, at, at+1), slices.Delete(l.counts, at, at+1)
	}
}

// split divides the free GPUs, while somebody waits, into those that waiting
// gangs could fill now, those that they could fill if the free GPUs were moved
// together, and those that are too few for them in any arrangement. All are 0
// while nobody waits. Gangs are packed largest first, and again smallest first;
// the better packing counts.
func (l *ledger) split() (fillable, fragmented, indivisible int) {
	if l.kinds != nil && len(l.kinds.waiting) > 0 {
		fillable = l.packedByModel(l.kinds.free)
		all := max(fillable, l.packedByModel(l.kinds.together()))
		return fillable, all - fillable, l.total - all
	}
	if len(l.sizes) == 0 || l.total == 0 {
		return 0, 0, 0
	}
	fillable = l.packed(l.nodes)
	together := make([]int, l.perNode+1)
	together[l.perNode] = l.total / l.perNode
	together[l.total%l.perNode]++
	all := max(fillable, l.packed(together))
	return fillable, all - fillable, l.total - all
}

// packed is how many GPUs the waiting gangs can have of nodes with so much free.
func (l *ledger) packed(nodes []int) int {
	best := 0
	for _, largestFirst := range []bool{true, false} {
		best = max(best, l.packAll(slices.Clone(nodes), largestFirst))
	}
	return best
}

// packAll puts the gangs that wait for any GPUs on the nodes, in one of two orders, and
// says how many they get.
func (l *ledger) packAll(nodes []int, largestFirst bool) (got int) {
	for i := range l.sizes {
		if largestFirst {
			i = len(l.sizes) - 1 - i
		}
		got += pack(nodes, l.perNode, l.sizes[i], l.counts[i])
	}
	return got
}

// pack puts up to count gangs of a size, cut into members of so many GPUs, on the nodes,
// and says how many GPUs they get.
func pack(nodes []int, perNode, gpus, count int) int {
	whole, rest := members(gpus, perNode)
	got := 0
	for ; count > 0; count-- {
		if nodes[perNode] < whole {
			break
		}
		nodes[perNode] -= whole
		if rest > 0 {
			at := rest
			for at <= perNode && nodes[at] == 0 {
				at++
			}
			if at > perNode {
				nodes[perNode] += whole
				break
			}
			nodes[at]--
			nodes[at-rest]++
		}
		got += gpus
	}
	return got
}
