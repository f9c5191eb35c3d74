package place

import (
	"math"
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// chooser picks the GPUs of a member within a node. It prefers, in this order,
// a set inside one NVLink island, the best bandwidth for its collective, and the
// set whose rest is worth most: what is broken already is used up before anything
// whole, pairs stay pairs. Its
// answers are kept, since nodes built alike meet the same masks again.
type chooser struct {
	// allToAll: every member of the set talks to every other one at once, so the
	// weakest of all links sets the pace; else it is the weakest in a ring.
	allToAll bool
	known    map[chooserKey][]int8
}

type chooserKey struct {
	shape *topo.Shape
	mask  uint64
	count int
}

// Exhaustive search is limited to so many sets, and rings are computed exactly
// up to so many GPUs; beyond, both are built greedily.
const (
	maxSets     = 5000
	maxRingGPUs = 9
)

// choose returns count GPUs out of mask, as indexes in ring order. The result
// is shared: it must not be changed. There must be enough.
func (c *chooser) choose(shape *topo.Shape, mask uint64, count int) []int8 {
	key := chooserKey{shape, mask, count}
	if got, ok := c.known[key]; ok {
		return got
	}
	if c.known == nil {
		c.known = map[chooserKey][]int8{}
	}
	set := c.chooseSet(shape, mask, count)
	order, _ := ring(shape, set)
	c.known[key] = order
	return order
}

// chooseSet picks the set.
func (c *chooser) chooseSet(s *topo.Shape, mask uint64, count int) uint64 {
	if bits.OnesCount64(mask) == count {
		return mask
	}
	best := candidate{allToAll: c.allToAll}
	for k, island := range s.Islands {
		free := island & mask
		if bits.OnesCount64(free) < count {
			continue
		}
		if s.Even[k] {
			best.offer(s, mask, lowest(free, count))
			continue
		}
		best.search(s, mask, free, count)
	}
	if best.found {
		return best.set
	}
	if sets(bits.OnesCount64(mask), count) <= maxSets {
		best.search(s, mask, mask, count)
		return best.set
	}
	return acrossIslands(s, mask, count)
}

// candidate is the best set so far.
type candidate struct {
	allToAll bool
	found    bool
	set      uint64
	score    setScore
}

// setScore compares sets: each field, in order, the higher the better.
type setScore struct {
	islands     int // negative: how many islands the set touches
	bottleneck  float64
	sum         float64
	broken      int     // negative: how many whole islands it takes a part of
	restIslands int     // squares of what is left in each island
	restJoins   float64 // see joins
	restNUMA    int
}

func (a setScore) better(b setScore) bool {
	switch {
	case a.islands != b.islands:
		return a.islands > b.islands
	case a.bottleneck != b.bottleneck:
		return a.bottleneck > b.bottleneck
	case a.sum != b.sum:
		return a.sum > b.sum
	case a.broken != b.broken:
		return a.broken > b.broken
	case a.restIslands != b.restIslands:
		return a.restIslands > b.restIslands
	case a.restJoins != b.restJoins:
		return a.restJoins > b.restJoins
	default:
		return a.restNUMA > b.restNUMA
	}
}

func (c *candidate) offer(s *topo.Shape, mask, set uint64) {
	score := rate(s, mask, set)
	if c.allToAll {
		score.bottleneck = weakest(s, set)
	}
	if !c.found || score.better(c.score) {
		c.found, c.set, c.score = true, set, score
	}
}

// search tries every set of count GPUs within from, or builds one greedily if
// there are too many.
func (c *candidate) search(s *topo.Shape, mask, from uint64, count int) {
	if sets(bits.OnesCount64(from), count) > maxSets {
		c.offer(s, mask, grow(s, from, count))
		return
	}
	var walk func(rest, set uint64, need int)
	walk = func(rest, set uint64, need int) {
		if need == 0 {
			c.offer(s, mask, set)
			return
		}
		for ; bits.OnesCount64(rest) >= need; rest &= rest - 1 {
			low := rest & -rest
			walk(rest&^low, set|low, need-1)
		}
	}
	walk(from, 0, count)
}

func rate(s *topo.Shape, mask, set uint64) setScore {
	var score setScore
	for _, island := range s.Islands {
		if island&set != 0 {
			score.islands--
			if island&mask == island && island&^set != 0 {
				score.broken--
			}
		}
		left := bits.OnesCount64(island & mask &^ set)
		score.restIslands += left * left
	}
	_, score.bottleneck = ring(s, set)
	score.sum = pairBandwidth(s, set)
	rest := mask &^ set
	score.restJoins = joins(s, rest)
	numa := map[int]int{}
	topo.Each(rest, func(i int) { numa[s.NUMA[i]]++ })
	for _, n := range numa {
		score.restNUMA += n * n
	}
	return score
}

// weakest is the least bandwidth between any two of a set.
func weakest(s *topo.Shape, set uint64) float64 {
	least := math.Inf(1)
	topo.Each(set, func(i int) {
		topo.Each(set&^(1<<(i+1)-1), func(j int) { least = min(least, s.Bandwidth[i][j]) })
	})
	return least
}

// joins rates what is left: cubes, so that a strong pair kept whole counts for
// more than several weak connections.
func joins(s *topo.Shape, set uint64) float64 {
	total := 0.0
	topo.Each(set, func(i int) {
		topo.Each(set&^(1<<(i+1)-1), func(j int) {
			w := s.Bandwidth[i][j]
			total += w * w * w
		})
	})
	return total
}

func pairBandwidth(s *topo.Shape, set uint64) float64 {
	total := 0.0
	topo.Each(set, func(i int) {
		topo.Each(set&^(1<<(i+1)-1), func(j int) { total += s.Bandwidth[i][j] })
	})
	return total
}

// acrossIslands fills the largest islands, then the smallest that takes the
// remainder.
func acrossIslands(s *topo.Shape, mask uint64, count int) uint64 {
	var set uint64
	for count > 0 {
		var largest, fitting uint64
		for _, island := range s.Islands {
			free := island & mask &^ set
			n := bits.OnesCount64(free)
			if n > bits.OnesCount64(largest) {
				largest = free
			}
			if n >= count && (fitting == 0 || n < bits.OnesCount64(fitting)) {
				fitting = free
			}
		}
		if fitting != 0 {
			return set | grow(s, fitting, count)
		}
		set |= largest
		count -= bits.OnesCount64(largest)
	}
	return set
}

// grow starts with the best-joined GPU and adds the one best joined to those
// already in.
func grow(s *topo.Shape, from uint64, count int) uint64 {
	var set uint64
	for range count {
		best, bestSum := -1, -1.0
		topo.Each(from&^set, func(i int) {
			sum, to := 0.0, set
			if to == 0 {
				to = from &^ (1 << i)
			}
			topo.Each(to, func(j int) { sum += s.Bandwidth[i][j] })
			if sum > bestSum {
				best, bestSum = i, sum
			}
		})
		set |= 1 << best
	}
	return set
}

// ring orders a set so that neighbours, and the last and the first, are well
// joined. It returns the order and the ring's weakest link.
func ring(s *topo.Shape, set uint64) (order []int8, bottleneck float64) {
	members := make([]int8, 0, bits.OnesCount64(set))
	topo.Each(set, func(i int) { members = append(members, int8(i)) })
	n := len(members)
	if n < 2 {
		return members, 0
	}
	if n == 2 {
		return members, s.Bandwidth[members[0]][members[1]]
	}
	if !evenSet(s, members) {
		if n <= maxRingGPUs {
			members = exactRing(s, members)
		} else {
			members = greedyRing(s, members)
		}
	}
	bottleneck = s.Bandwidth[members[n-1]][members[0]]
	for i := 1; i < n; i++ {
		bottleneck = min(bottleneck, s.Bandwidth[members[i-1]][members[i]])
	}
	return members, bottleneck
}

func evenSet(s *topo.Shape, members []int8) bool {
	first := s.Bandwidth[members[0]][members[1]]
	for i, a := range members {
		for _, b := range members[i+1:] {
			if s.Bandwidth[a][b] != first {
				return false
			}
		}
	}
	return true
}

// exactRing finds the ring with the widest bottleneck, among those the one
// with the most bandwidth, by dynamic programming over subsets.
func exactRing(s *topo.Shape, m []int8) []int8 {
	type cell struct {
		narrow, sum float64
		prev        int8
		set         bool
	}
	n := len(m)
	table := make([]cell, n<<n)
	at := func(set, last int) *cell { return &table[set*n+last] }
	const wide = 1e18
	*at(1, 0) = cell{narrow: wide, prev: -1, set: true}
	for set := 1; set < 1<<n; set += 2 {
		for last := range n {
			from := at(set, last)
			if !from.set {
				continue
			}
			for next := 1; next < n; next++ {
				if set&(1<<next) != 0 {
					continue
				}
				w := s.Bandwidth[m[last]][m[next]]
				narrow, sum := min(from.narrow, w), from.sum+w
				to := at(set|1<<next, next)
				if !to.set || narrow > to.narrow || narrow == to.narrow && sum > to.sum {
					*to = cell{narrow, sum, int8(last), true}
				}
			}
		}
	}
	full, end, narrow, sum := 1<<n-1, 0, -1.0, 0.0
	for last := 1; last < n; last++ {
		c := at(full, last)
		w := s.Bandwidth[m[last]][m[0]]
		if c.set && (min(c.narrow, w) > narrow || min(c.narrow, w) == narrow && c.sum+w > sum) {
			end, narrow, sum = last, min(c.narrow, w), c.sum+w
		}
	}
	order := make([]int8, 0, n)
	for set, last := full, end; last >= 0; {
		order = append(order, m[last])
		prev := at(set, last).prev
		set, last = set&^(1<<last), int(prev)
	}
	slices.Reverse(order)
	if order[1] > order[n-1] { // both ways round are the same ring
		slices.Reverse(order[1:])
	}
	return order
}

// greedyRing goes from the first GPU always to the best-joined one left.
func greedyRing(s *topo.Shape, m []int8) []int8 {
	order := slices.Clone(m)
	for i := 1; i < len(order); i++ {
		best := i
		for j := i + 1; j < len(order); j++ {
			if s.Bandwidth[order[i-1]][order[j]] > s.Bandwidth[order[i-1]][order[best]] {
				best = j
			}
		}
		next := order[best]
		copy(order[i+1:best+1], order[i:best])
		order[i] = next
	}
	return order
}

// lowest is the count lowest bits of mask.
func lowest(mask uint64, count int) uint64 {
	var set uint64
	for range count {
		set |= mask & -mask
		mask &= mask - 1
	}
	return set
}

// sets is n over k, or more than maxSets if it is.
func sets(n, k int) int {
	k = min(k, n-k)
	total := 1
	for i := 1; i <= k; i++ {
		total = total * (n - k + i) / i
		if total > maxSets {
			return total
		}
	}
	return total
}
