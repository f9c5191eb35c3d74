package place

import (
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// split chooses the GPUs of a member that asks for several sets, of the given
// sizes, out of mask. No set is across islands if that can be helped; then the
// member is in as few islands as possible. The sets come by ask, and one after
// the other in all.
func (c *chooser) split(s *topo.Shape, mask uint64, counts []int) (all []int8, sets [][]int8) {
	total := 0
	for _, n := range counts {
		total += n
	}
	if len(counts) == 1 {
		return c.choose(s, mask, total), nil
	}
	// The largest choose first: what is left for the small fits them anyway.
	order := make([]int, len(counts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return counts[y] - counts[x] })
	sets = make([][]int8, len(counts))
	serve := func(from uint64, asks []int) {
		for _, i := range asks {
			sets[i] = c.choose(s, from, counts[i])
			from &^= maskOf(sets[i])
		}
	}
	together := maskOf(c.choose(s, mask, total))
	if assigned, ok := assign(s, mask, counts, order); touched(s, together) > 1 && ok {
		for k, island := range s.Islands {
			var asks []int
			sum := 0
			for _, i := range order {
				if assigned[i] == k {
					asks, sum = append(asks, i), sum+counts[i]
				}
			}
			if sum > 0 {
				serve(maskOf(c.choose(s, mask&island, sum)), asks)
			}
		}
	} else {
		serve(together, order)
	}
	for _, set := range sets {
		all = append(all, set...)
	}
	return all, sets
}

func touched(s *topo.Shape, set uint64) int {
	n := 0
	for _, island := range s.Islands {
		if island&set != 0 {
			n++
		}
	}
	return n
}

// maxAssignSteps bounds the search for islands.
const maxAssignSteps = 4096

// assign gives each set an island with room for it: as few islands as
// possible, and of those the fullest. False if there is no way.
func assign(s *topo.Shape, mask uint64, counts, order []int) (best []int, ok bool) {
	room := make([]int, len(s.Islands))
	used := make([]int, len(s.Islands))
	for k, island := range s.Islands {
		room[k] = bits.OnesCount64(island & mask)
	}
	now, steps := make([]int, len(counts)), maxAssignSteps
	bestIslands, bestRest := 0, 0
	var place func(at int)
	place = func(at int) {
		if steps--; steps < 0 {
			return
		}
		if at == len(order) {
			islands, rest := 0, 0
			for k := range room {
				if used[k] > 0 {
					islands++
				}
				rest += room[k] * room[k]
			}
			if !ok || islands < bestIslands || islands == bestIslands && rest > bestRest {
				best, ok, bestIslands, bestRest = slices.Clone(now), true, islands, rest
			}
			return
		}
		i := order[at]
		for k := range room {
			if room[k] < counts[i] {
				continue
			}
			room[k] -= counts[i]
			used[k]++
			now[i] = k
			place(at + 1)
			room[k] += counts[i]
			used[k]--
		}
	}
	place(0)
	return best, ok
}
