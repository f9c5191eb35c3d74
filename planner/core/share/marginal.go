package share

import (
	"cmp"
	"container/heap"
)

// What is left beside all minimum satisfactory shares goes where it saves most
// (ElasticFlow, section 4.2; Or, Zhang, Freedman, Resource Elasticity in
// Distributed Deep Learning, MLSys'20): the marginal return of one more member is
// the GPU time that the task would need with its least members for what that one
// gets done, by the GPU time that it takes for it. It is 1 where speed grows with
// the members, and falls as it grows less.

// Grower is an elastic task that may have more members or fewer.
type Grower struct {
	// GPUs is what each member takes; Members how many it has, Min and Max how
	// many it may.
	GPUs, Members, Min, Max int
	// Speed is how fast it is with so many.
	Speed func(members int) float64
}

// Return is the marginal return of one member more than n.
func (g *Grower) Return(n int) float64 {
	least := max(1, g.Min)
	slow := g.Speed(least)
	if !(slow > 0) {
		return 0
	}
	return (g.Speed(n+1) - g.Speed(n)) / slow * float64(least)
}

// Spread hands out GPUs, a member at a time to whom it returns most; if there are
// fewer than none it takes as many back, a member at a time from whom it returned
// least. It gives members for each, and the GPUs that are left over; of those that
// are taken back there may be a few too many, or too few if nobody can do without.
func Spread(gpus int, growers []Grower) (members []int, left int) {
	b := &bids{growers: growers, members: make([]int, len(growers)), back: gpus < 0}
	for i := range growers {
		b.members[i] = growers[i].Members
		if b.may(i) {
			b.line = append(b.line, bid{i, b.value(i)})
		}
	}
	heap.Init(b)
	for b.Len() > 0 && (gpus > 0) != b.back && gpus != 0 {
		i := b.line[0].grower
		switch g := &growers[i]; {
		case b.back:
			b.members[i]--
			gpus += g.GPUs
		case g.GPUs <= gpus:
			b.members[i]++
			gpus -= g.GPUs
		default: // it is too large for what is left
			heap.Pop(b)
			continue
		}
		if b.may(i) {
			b.line[0].value = b.value(i)
			heap.Fix(b, 0)
		} else {
			heap.Pop(b)
		}
	}
	return b.members, gpus
}

// bids are the growers that may change, the one that is next first.
type bids struct {
	growers []Grower
	members []int
	back    bool
	line    []bid
}

type bid struct {
	grower int
	value  float64
}

// may reports whether a grower could have one more, or do without one.
func (b *bids) may(i int) bool {
	g, n := &b.growers[i], b.members[i]
	if b.back {
		return n > max(1, g.Min)
	}
	return n > 0 && n < g.Max && g.Return(n) > 0
}

func (b *bids) value(i int) float64 {
	if b.back {
		return -b.growers[i].Return(b.members[i] - 1)
	}
	return b.growers[i].Return(b.members[i])
}

// Len implements heap.Interface.
func (b *bids) Len() int { return len(b.line) }

// Less implements heap.Interface: of equals the first in the list gets more, and
// the last gives back.
func (b *bids) Less(i, j int) bool {
	x, y := b.line[i], b.line[j]
	age := cmp.Compare(x.grower, y.grower)
	if b.back {
		age = -age
	}
	return cmp.Or(cmp.Compare(y.value, x.value), age) < 0
}

// Swap implements heap.Interface.
func (b *bids) Swap(i, j int) { b.line[i], b.line[j] = b.line[j], b.line[i] }

// Push implements heap.Interface.
func (b *bids) Push(x any) { b.line = append(b.line, x.(bid)) }

// Pop implements heap.Interface.
func (b *bids) Pop() any {
	last := b.line[len(b.line)-1]
	b.line = b.line[:len(b.line)-1]
	return last
}
