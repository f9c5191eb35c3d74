package preempt

import (
	"cmp"
	"slices"
)

// prune puts back whoever is not needed, the dearest first. It does so whatever
// is left of the budget: nobody gives way for nothing.
func (s *search) prune(place Place, chosen []int) []int {
	kept := make(map[int]bool, len(chosen))
	needed := map[int]int{} // by how many of those kept
	for _, v := range chosen {
		kept[v] = true
		if after := s.Victims[v].After; after >= 0 {
			needed[after]++
		}
	}
	order := slices.Clone(chosen)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.Victims[b].Cost, s.Victims[a].Cost) })
	start := s.State.Mark()
	for _, v := range chosen {
		s.give(v, place)
	}
	for again := true; again; {
		again = false
		for _, v := range order {
			if !kept[v] || needed[v] > 0 {
				continue
			}
			mark := s.State.Mark()
			s.eachIn(v, place, func(h *Hold) { s.State.Take(h.Node, h.Claim) })
			if s.budget--; !s.Fits(place) {
				s.State.Revert(mark)
				continue
			}
			delete(kept, v)
			if after := s.Victims[v].After; after >= 0 {
				needed[after]--
				again = true // what it needed may stay now
			}
		}
	}
	s.State.Revert(start)
	return slices.DeleteFunc(slices.Clone(chosen), func(v int) bool { return !kept[v] })
}
