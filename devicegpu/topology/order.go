package topology

import "slices"

// maxExactOrder is the largest set whose best order is searched exactly: the
// search takes n²·2ⁿ steps.
const maxExactOrder = 14

// Order returns the indexes in topology order: as a ring (the last is a
// neighbour of the first, as collectives use them) whose slowest link is as
// fast as can be, then with the most bandwidth in sum, then with neighbours
// behind one PCIe switch or on one NUMA node, then in ascending order. Sets
// above 14 GPUs are ordered step by step to the nearest instead. The indexes
// must be valid and distinct.
func (m Matrix) Order(gpus []int) []int {
	set := slices.Clone(gpus)
	slices.Sort(set)
	if len(set) < 4 || m.uniform(set) {
		// Three make the same ring in any order.
		return set
	}
	if len(set) > maxExactOrder {
		return m.nearestOrder(set)
	}
	return m.exactOrder(set)
}

// closeness is what a ring's sum is made of: bandwidth first, then a little
// for what the bandwidth does not tell.
func (m Matrix) closeness(i, j int) int64 {
	c := int64(m.Links[i][j].GBs*1000)*16 - int64(m.Links[i][j].Kind.Distance())
	a, b := m.GPUs[i], m.GPUs[j]
	if a.Switch >= 0 && a.Switch == b.Switch {
		c += 4
	}
	if len(a.NUMA) > 0 && len(b.NUMA) > 0 && a.NUMA[0] == b.NUMA[0] {
		c += 2
	}
	return c
}

// uniform reports whether every pair of the set is equally close.
func (m Matrix) uniform(set []int) bool {
	want := m.closeness(set[0], set[1])
	for a, i := range set {
		for _, j := range set[:a] {
			if m.closeness(i, j) != want {
				return false
			}
		}
	}
	return true
}

func (m Matrix) nearestOrder(set []int) []int {
	order := []int{set[0]}
	left := slices.Clone(set[1:])
	for len(left) > 0 {
		last, best := order[len(order)-1], 0
		for k := range left {
			if m.closeness(last, left[k]) > m.closeness(last, left[best]) {
				best = k
			}
		}
		order = append(order, left[best])
		left = slices.Delete(left, best, best+1)
	}
	return order
}

// exactOrder tries the bandwidths of the set's links as the ring's slowest,
// fastest first; the first one that admits a ring is the best bottleneck.
func (m Matrix) exactOrder(set []int) []int {
	var bottlenecks []float64
	for a, i := range set {
		for _, j := range set[:a] {
			bottlenecks = append(bottlenecks, m.Links[i][j].GBs)
		}
	}
	slices.Sort(bottlenecks)
	bottlenecks = slices.Compact(bottlenecks)
	slices.Reverse(bottlenecks)
	for _, floor := range bottlenecks {
		if order := m.ring(set, floor); order != nil {
			return order
		}
	}
	return set // unreachable: the slowest link admits every ring
}

// noRing marks states from which no ring can be closed.
const noRing = -1 << 62

// ring finds the ring through the set with the greatest sum of closeness whose
// links all have the bandwidth floor, or nil: dynamic programming over the
// GPUs still to be visited (Held and Karp), from the end, so that reading it
// from the start can prefer the lowest index among equals.
func (m Matrix) ring(set []int, floor float64) []int {
	n := len(set)
	weight := make([][]int64, n)
	for a := range n {
		weight[a] = make([]int64, n)
		for b := range n {
			weight[a][b] = noRing
			if m.Links[set[a]][set[b]].GBs >= floor {
				weight[a][b] = m.closeness(set[a], set[b])
			}
		}
	}
	// best[left][at]: the most that can be gained from at, with the GPUs of
	// left (a bit mask without GPU 0) still to come, back to GPU 0.
	best := make([]int64, (1<<(n-1))*n)
	for left := range 1 << (n - 1) {
		for at := range n {
			v := int64(noRing)
			if left == 0 {
				v = weight[at][0]
			}
			for next := 1; next < n; next++ {
				if bit := 1 << (next - 1); left&bit != 0 && weight[at][next] != noRing {
					if rest := best[(left^bit)*n+next]; rest != noRing {
						v = max(v, weight[at][next]+rest)
					}
				}
			}
			best[left*n+at] = v
		}
	}
	left, at := 1<<(n-1)-1, 0
	if best[left*n] == noRing {
		return nil
	}
	order := []int{set[0]}
	for left != 0 {
		for next := 1; next < n; next++ {
			bit := 1 << (next - 1)
			if left&bit == 0 || weight[at][next] == noRing || best[(left^bit)*n+next] == noRing {
				continue
			}
			if weight[at][next]+best[(left^bit)*n+next] == best[left*n+at] {
				order = append(order, set[next])
				left, at = left^bit, next
				break
			}
		}
	}
	return order
}
