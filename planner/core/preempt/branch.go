package preempt

import (
	"cmp"
	"math/bits"
	"slices"
)

// branch looks for something cheaper than the best with branch and bound:
// victim by victim, taken or left. It is false if the budget ended first.
func (s *search) branch(place Place, victims []int) bool {
	order := slices.Clone(victims)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(s.Victims[b].Cost, s.Victims[a].Cost) // what is dear is decided first
	})
	b := &brancher{search: s, place: place, order: s.withNeeds(order), left: map[int]bool{}}
	b.free = make([]int, len(b.order)+1)
	for node := place.Lo; node < place.Hi; node++ {
		if r := s.State.Row(node); r.Owner == 0 && !r.Closed {
			b.base += bits.OnesCount64(r.GPUs)
		}
	}
	if counter := s.newCounter(place, b.order); counter != nil {
		return counter.at(0, nil, 0, b.base)
	}
	return b.at(0, nil, 0, b.base)
}

type brancher struct {
	*search
	place Place
	order []int
	// left are those that are left where they are.
	left map[int]bool
	free []int
	base int
}

// at decides on the victims from i on, with chosen taken, which cost so much and
// leave so many GPUs free. What is certain is that the gang fits if all that are
// not left go.
func (b *brancher) at(i int, chosen []int, cost int64, free int) bool {
	if b.budget <= 0 {
		return false
	}
	rest := b.order[i:]
	least, ok := b.fraction(slices.DeleteFunc(slices.Clone(rest), func(v int) bool { return b.excluded(v) }), b.place, b.GPUs-free)
	if !ok || b.worse(chosen, cost+least) {
		return true
	}
	if len(chosen) > 0 && b.fits(b.place, chosen) {
		b.offer(b.place, slices.Clone(chosen))
		return true // whoever else goes, it costs no less
	}
	if i == len(b.order) {
		return true
	}
	v := b.order[i]
	if b.excluded(v) {
		b.left[v] = true
		done := b.at(i+1, chosen, cost, free)
		delete(b.left, v)
		return done
	}
	// Left where it is, if that is possible at all.
	b.left[v] = true
	done := true
	var others []int
	for _, o := range rest[1:] {
		if !b.excluded(o) {
			others = append(others, o)
		}
	}
	if b.fits(b.place, append(slices.Clone(chosen), others...)) {
		done = b.at(i+1, chosen, cost, free)
	}
	delete(b.left, v)
	return b.at(i+1, append(chosen[:len(chosen):len(chosen)], v), cost+b.Victims[v].Cost, free+b.gives(v, b.place)) && done
}

// excluded: it or something that it needs is left.
func (b *brancher) excluded(v int) bool {
	return slices.ContainsFunc(b.needs[v], func(n int) bool { return b.left[n] })
}
