package topo

import (
	"cmp"
	"math"
	"slices"
)

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
	// Room is what is free for each of Members beside GPUs.
	Room Room
}

// Room is an amount of CPU in MHz, memory in MiB and disk in MiB. What is more than
// MostRoom is MostRoom.
type Room [3]int32

// MostRoom is more than nodes have: 2 PiB, as MiB.
const MostRoom = math.MaxInt32

// RoomOf is so much.
func RoomOf(cpuMHz, memoryMiB, diskMiB int) Room {
	most := func(n int) int32 { return int32(max(-MostRoom, min(n, MostRoom))) }
	return Room{most(cpuMHz), most(memoryMiB), most(diskMiB)}
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
	// room is, by kind of resource, a segment tree over Fit.Room's least.
	room [3][]int32
	// byMembers and byIsland find nodes by Fit.Members and Fit.Island.
	byMembers, byIsland buckets
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
	for k := range s.room {
		s.room[k] = slices.Repeat([]int32{MostRoom}, 2*base)
	}
	s.byMembers.nodes, s.byIsland.nodes = len(t.Nodes), len(t.Nodes)
	s.why[0] = len(t.Nodes)
	return s
}

// SetAll replaces every node's fit.
func (s *Summary) SetAll(fit func(node int32) Fit) {
	clear(s.sum)
	clear(s.gpus)
	s.why = [256]int{}
	s.byMembers.clear()
	s.byIsland.clear()
	for i := range s.fits {
		f := fit(int32(i))
		s.fits[i] = f
		s.least[s.base+i] = key(f, int32(i))
		s.why[f.Why]++
		if f.Members > 0 {
			s.byMembers.add(bucketOf(f.Members, f.Score), int32(i))
			s.byIsland.add(bucketOf(f.Island, f.Score), int32(i))
		}
		for k := range s.room {
			s.room[k][s.base+i] = roomOf(f, k)
		}
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
		for k := range s.room {
			s.room[k][i] = min(s.room[k][2*i], s.room[k][2*i+1])
		}
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
	if old.Members > 0 {
		s.byMembers.drop(bucketOf(old.Members, old.Score), node)
		s.byIsland.drop(bucketOf(old.Island, old.Score), node)
	}
	if f.Members > 0 {
		s.byMembers.add(bucketOf(f.Members, f.Score), node)
		s.byIsland.add(bucketOf(f.Island, f.Score), node)
	}
	lift(s.least, s.base+int(node), key(f, node))
	for k := range s.room {
		lift(s.room[k], s.base+int(node), roomOf(f, k))
	}
}

// lift sets a leaf of a segment tree of minima.
func lift[T cmp.Ordered](tree []T, i int, v T) {
	for ; i > 0 && tree[i] != v; i /= 2 {
		tree[i] = v
		if i > 1 {
			v = min(v, tree[i^1])
		}
	}
}

func roomOf(f Fit, k int) int32 {
	if f.Members <= 0 {
		return MostRoom
	}
	return f.Room[k]
}

// HasRoom reports whether every node has at least that much room for each of
// the members that it takes. Of MostRoom it may say no where they have.
func (s *Summary) HasRoom(want Room) bool {
	for k := range want {
		if want[k] > 0 && (want[k] == MostRoom || s.room[k][1] < want[k]) {
			return false
		}
	}
	return true
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

// Why counts the nodes by Fit.Why. It is valid until the next change.
func (s *Summary) Why() *[256]int { return &s.why }

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

// Tightest returns the node in [lo, hi) with room for the fewest members, but
// at least for that many, that strands least, of those that ok accepts; island
// counts members in one island. There is none for more than MaxGPUs members.
func (s *Summary) Tightest(lo, hi int32, members int, island bool, ok func(node int32) bool) (int32, bool) {
	b := &s.byMembers
	if island {
		b = &s.byIsland
	}
	for bucket := members * classes; bucket < len(b.sets); bucket++ {
		for node := b.next(bucket, lo); node >= 0 && node < hi; node = b.next(bucket, node+1) {
			if ok(node) {
				return node, true
			}
		}
	}
	return 0, false
}

// Falling calls yield with the nodes in [lo, hi) that take members, those that
// take most first, until it returns false.
func (s *Summary) Falling(lo, hi int32, yield func(node int32) bool) {
	for members := MaxGPUs; members > 0; members-- {
		for bucket := members * classes; bucket < (members+1)*classes; bucket++ {
			for node := s.byMembers.next(bucket, lo); node >= 0 && node < hi; node = s.byMembers.next(bucket, node+1) {
				if !yield(node) {
					return
				}
			}
		}
	}
}
