package model

import (
	"math/bits"
	"slices"
)

// gpuAt is where a GPU is, and its number among all.
type gpuAt struct{ node, number int32 }

// owners finds GPUs by UUID.
type owners struct {
	nodes []Node
	// offset is, by node, the number of its first GPU.
	offset []int32
	// hashes are those of the UUIDs, by number.
	hashes []uint64
	// slots are found by a hash; the next free one follows. At most half are
	// taken. Each is the upper half of a hash and, below, a number plus one.
	slots []uint64
	// twice: some UUID is listed twice.
	twice bool
}

func newOwners(nodes []Node) *owners {
	o := &owners{nodes: nodes, offset: make([]int32, len(nodes)+1)}
	for i := range nodes {
		o.offset[i+1] = o.offset[i] + int32(len(nodes[i].GPUs))
	}
	size := 2
	for size < 2*o.len() {
		size *= 2
	}
	o.hashes, o.slots = make([]uint64, o.len()), make([]uint64, size)
	return o
}

// len is how many GPUs there are, those without a UUID too.
func (o *owners) len() int { return int(o.offset[len(o.nodes)]) }

// hash hashes the UUIDs of a node. Different nodes may be hashed at the same time.
func (o *owners) hash(node int) {
	gpus := o.nodes[node].GPUs
	for k := range gpus {
		o.hashes[int(o.offset[node])+k] = hashOf(gpus[k].UUID)
	}
}

// add puts a node's k-th GPU in, unless its UUID is there already; then it says
// where. The node has been hashed.
func (o *owners) add(node, k int) (first gpuAt, dup bool) {
	number := o.offset[node] + int32(k)
	slot := o.slot(o.hashes[number], o.nodes[node].GPUs[k].UUID)
	if *slot != 0 {
		o.twice = true
		return o.at(*slot), true
	}
	*slot = o.hashes[number]&^slotNumber | uint64(number+1)
	return gpuAt{}, false
}

func (o *owners) find(uuid string) (gpuAt, bool) {
	slot := o.slot(hashOf(uuid), uuid)
	return o.at(*slot), *slot != 0
}

// slotNumber is the part of a slot that is a number.
const slotNumber = 1<<32 - 1

// slot is the one that a UUID has, or would have.
func (o *owners) slot(hash uint64, uuid string) *uint64 {
	mask := uint64(len(o.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &o.slots[i]
		if *s == 0 {
			return s
		}
		if (*s^hash)>>32 == 0 {
			if at := o.at(*s); o.nodes[at.node].GPUs[at.number-o.offset[at.node]].UUID == uuid {
				return s
			}
		}
	}
}

// at is the GPU of a slot.
func (o *owners) at(slot uint64) gpuAt {
	number := int32(slot&slotNumber) - 1
	node, _ := slices.BinarySearch(o.offset, number+1)
	return gpuAt{int32(node - 1), number}
}

// findNear is find, and quick if the GPU is on a certain node.
func (o *owners) findNear(node int, uuid string) (gpuAt, bool) {
	if gpus := o.nodes[node].GPUs; !o.twice && uuid != "" {
		for k := range gpus {
			if gpus[k].UUID == uuid {
				return gpuAt{int32(node), o.offset[node] + int32(k)}, true
			}
		}
	}
	return o.find(uuid)
}

// hashOf mixes a text eight bytes at a time.
func hashOf(s string) uint64 {
	const a, b = 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93
	h := uint64(len(s)) ^ b
	for ; len(s) >= 8; s = s[8:] {
		word := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		high, low := bits.Mul64(h^word, a)
		h = high ^ low
	}
	last := uint64(0)
	for i := range len(s) {
		last |= uint64(s[i]) << (8 * i)
	}
	high, low := bits.Mul64(h^last^b, a)
	return high ^ low ^ h
}
