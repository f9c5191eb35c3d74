package topo

import "math"

// Fit is what one node can do for members of one shape.
type Fit struct {
	// Members is how many fit at once; Island how many of them fit into the
	// node's best island.
	Members, Island int32
	// Score orders nodes for one more member: lower strands less.
	Score uint32
	// Why is the caller's code for a node that takes none.
	Why uint8
	// GPUs is how many GPUs of the kind wanted are free and may be used.
	GPUs int32
}

// Summary sums up every domain for members of one shape. A changed node costs
// the depth of the tree and the logarithm of the cluster.
type Summary struct {
	tree  *Tree
	fits  []Fit
	sum   []int64 // members by domain
	gpus  []int64 // free GPUs by domain
	why   [256]int
	least []uint64 // segment tree over (score, node)
	base  int      // index of node 0's leaf in least
}

// nowhere is the key of a node that takes no member.
const nowhere = math.MaxUint64

// NewSummary makes a summary in which nothing fits anywhere.
func NewSummary(t *Tree) *Summary {
	base := 1
	for base < len(t.Nodes) {
		base *= 2
	}
	s := &Summary{tree: t, fits: make([]Fit, len(t.Nodes)), sum: make([]int64, len(t.Domains)), gpus: make([]int64, len(t.Domains)), least: make([]uint64, 2*base), base: base}
	for i := range s.least {
		s.least[i] = nowhere
	}
	s.why[0] = len(t.Nodes)
	return s
}

// SetAll replaces every node's fit.
func (s *Summary) SetAll(fit func(node int32) Fit) {
	clear(s.sum)
	clear(s.gpus)
	s.why = [256]int{}
	for i := range s.fits {
		f := fit(int32(i))
		s.fits[i] = f
		s.least[s.base+i] = key(f, int32(i))
		s.why[f.Why]++
		leaf := s.tree.Nodes[i].Leaf
		s.sum[leaf] += int64(f.Members)
		s.gpus[leaf] += int64(f.GPUs)
	}
	for d := len(s.sum) - 1; d > Root; d-- {
		parent := s.tree.Domains[d].Parent
		s.sum[parent] += s.sum[d]
		s.gpus[parent] += s.gpus[d]
	}
	for i := s.base - 1; i > 0; i-- {
		s.least[i] = min(s.least[2*i], s.least[2*i+1])
	}
}

// Set replaces one node's fit.
func (s *Summary) Set(node int32, f Fit) {
	old := s.fits[node]
	if old == f {
		return
	}
	s.fits[node] = f
	s.why[old.Why]--
	s.why[f.Why]++
	if more, gpus := int64(f.Members-old.Members), int64(f.GPUs-old.GPUs); more != 0 || gpus != 0 {
		for d := s.tree.Nodes[node].Leaf; d >= 0; d = s.tree.Domains[d].Parent {
			s.sum[d] += more
			s.gpus[d] += gpus
		}
	}
	k := key(f, node)
	for i := s.base + int(node); i > 0 && s.least[i] != k; i /= 2 {
		s.least[i] = k
		if i > 1 {
			k = min(k, s.least[i^1])
		}
	}
}

func key(f Fit, node int32) uint64 {
	if f.Members <= 0 {
		return nowhere
	}
	return uint64(f.Score)<<32 | uint64(node)
}

// Fit returns a node's fit.
func (s *Summary) Fit(node int32) *Fit { return &s.fits[node] }

// Members is how many members fit into a domain at once.
func (s *Summary) Members(domain int32) int { return int(s.sum[domain]) }

// GPUs is how many GPUs of the kind wanted are free in a domain.
func (s *Summary) GPUs(domain int32) int { return int(s.gpus[domain]) }

// Why counts the nodes by Fit.Why.
func (s *Summary) Why() [256]int { return s.why }

// Best returns the node in [lo, hi) that strands least by taking a member, and
// its score; false if none takes one.
func (s *Summary) Best(lo, hi int32) (node int32, score uint32, ok bool) {
	least := uint64(nowhere)
	for l, h := s.base+int(lo), s.base+int(hi); l < h; l, h = l/2, h/2 {
		if l&1 == 1 {
			least = min(least, s.least[l])
			l++
		}
		if h&1 == 1 {
			h--
			least = min(least, s.least[h])
		}
	}
	return int32(least & math.MaxUint32), uint32(least >> 32), least != nowhere
}
