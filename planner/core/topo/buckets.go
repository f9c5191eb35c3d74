package topo

import "math/bits"

// classes are how many classes of scores the nodes with room for one number of
// members are divided into.
const classes = 8

// scoreShift leaves the bits of a score that tell whether something whole would
// be broken, or an island left.
const scoreShift = 18

// bucketOf numbers buckets by members, then by class of score.
func bucketOf(members int32, score uint32) int {
	return int(min(members, MaxGPUs))*classes + int(min(score>>scoreShift, classes-1))
}

// buckets are sets of nodes, each made when the first node comes.
type buckets struct {
	nodes int
	sets  [(MaxGPUs + 1) * classes][]uint64
}

func (b *buckets) clear() {
	for _, set := range b.sets {
		clear(set)
	}
}

func (b *buckets) add(bucket int, node int32) {
	if b.sets[bucket] == nil {
		b.sets[bucket] = make([]uint64, (b.nodes+63)/64)
	}
	b.sets[bucket][node/64] |= 1 << (node % 64)
}

func (b *buckets) drop(bucket int, node int32) { b.sets[bucket][node/64] &^= 1 << (node % 64) }

// next returns the first node of a bucket that is not before from, -1 if there
// is none.
func (b *buckets) next(bucket int, from int32) int32 {
	set := b.sets[bucket]
	word := int(from / 64)
	if word >= len(set) {
		return -1
	}
	if rest := set[word] &^ (1<<(from%64) - 1); rest != 0 {
		return int32(word*64 + bits.TrailingZeros64(rest))
	}
	for word++; word < len(set); word++ {
		if set[word] != 0 {
			return int32(word*64 + bits.TrailingZeros64(set[word]))
		}
	}
	return -1
}
