package preempt

import (
	"cmp"
	"math/bits"
	"slices"
)

// gives is how many GPUs a victim leaves behind in a place.
func (s *search) gives(v int, place Place) int {
	n := 0
	s.eachIn(v, place, func(h *Hold) { n += bits.OnesCount64(h.Claim.GPUs) })
	return n
}

// bound is the least that room in a place can cost: as if every free GPU were
// of use, and the victims could be had in part. It is false where even all of
// them leave too little.
func (s *search) bound(place Place) (int64, bool) {
	if s.from[place.Lo] == s.from[place.Hi] {
		return 0, false // nobody is there
	}
	lacking := s.GPUs
	for node := place.Lo; node < place.Hi && lacking > 0; node++ {
		if r := s.State.Row(node); r.Owner == 0 && !r.Closed {
			lacking -= bits.OnesCount64(r.GPUs)
		}
	}
	if v := s.alone(place); v >= 0 && lacking > 0 {
		n := s.gives(v, place)
		if n < lacking {
			return 0, false
		}
		return s.Victims[v].Cost * int64(lacking) / int64(n), true
	}
	s.among = s.addIn(s.among[:0], place)
	return s.fraction(s.among, place, lacking)
}

// fraction is the least that so many GPUs of some victims cost.
func (s *search) fraction(victims []int, place Place, lacking int) (int64, bool) {
	if lacking <= 0 {
		return 0, true
	}
	// What an elastic gang gives later is not to be had without what it gives
	// first: the whole of it may be cheaper by the GPU.
	offers := s.offers[:0]
	for _, v := range victims {
		if n := s.gives(v, place); n > 0 {
			offers = append(offers, offer{s.Victims[v].Cost, n})
		}
	}
	s.offers = offers
	slices.SortFunc(offers, func(a, b offer) int { return cmp.Compare(a.cost*int64(b.gpus), b.cost*int64(a.gpus)) })
	var cost int64
	for _, o := range offers {
		if o.gpus >= lacking {
			return cost + o.cost*int64(lacking)/int64(o.gpus), true
		}
		cost, lacking = cost+o.cost, lacking-o.gpus
	}
	return cost, false
}

// alone is the only victim in a place, if there is one and he needs no other, else
// -1.
func (s *search) alone(place Place) int {
	from, to := s.from[place.Lo], s.from[place.Hi]
	if to-from != 1 || len(s.needs[s.held[from]]) != 1 {
		return -1
	}
	return s.held[from]
}
