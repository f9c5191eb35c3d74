package preempt

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Victim is something that may give way as a whole.
type Victim struct {
	// Holds are what it would leave behind, by node.
	Holds []Hold
	// Cost is what its stop loses, in GPU-seconds, 0 or more.
	Cost int64
	// After is the victim without which this one cannot be had, -1 if there is
	// none: an elastic gang leaves its last members before the others.
	After int
}

// Hold is what a victim has on one node.
type Hold struct {
	Node  int32
	Claim topo.Claim
}

// Place is where the gang may land as a whole: the nodes in [Lo, Hi).
type Place struct {
	ID     int
	Lo, Hi int32
}

// Problem is a gang that does not fit into any of the places.
type Problem struct {
	// State is what is free. It is the same again when Solve returns.
	State *topo.State
	// Victims are those that may give way, the ones to be preferred first.
	Victims []Victim
	Places  []Place
	// Fits reports whether the gang fits into a place as the state is there now.
	Fits func(Place) bool
	// Count is how many members a node takes that has such a row, and Room how many a
	// place takes as the state is now, where Fits holds for it exactly when those are
	// Members; nil where it does not hang on that alone.
	Count   func(node int32, row *topo.Row) int
	Room    func(Place) int
	Members int
	// GPUs is how many it needs.
	GPUs int
	// MaxVictims is how many may give way for it; 0 is no limit.
	MaxVictims int
	// Budget is how often Fits may be asked; 0 means DefaultBudget.
	Budget int
}

// manyVictims is how many make a question cost one more.
const manyVictims = 8

// DefaultBudget bounds the search for one gang.
const DefaultBudget = 4000

// Solution is who gives way.
type Solution struct {
	// Victims are indexes, in order. The gang does not fit if one of them that
	// no other needs is left out.
	Victims []int
	Place   Place
	Cost    int64
	// Proved: no cheaper choice exists.
	Proved bool
}

// Solve finds the cheapest victims; false if the gang fits nowhere even without
// all of them, or the budget was too small to find out.
//
// The places are looked at in the order of a lower bound of what they cost, and
// only as long as that is below the best found. In a place, whole nodes are
// cleared, the cheapest for what they give first, and whoever is not needed
// after all is put back; a branch and bound then looks for something cheaper.
func Solve(p Problem) (Solution, bool) {
	s := newSearch(p)
	s.run(s.passes)
	return s.best, s.best.Cost >= 0
}

// Held says, by node, where some victim holds something: elsewhere nobody makes
// room.
func (p *Problem) Held() []bool {
	held := make([]bool, p.State.Len())
	for i := range p.Victims {
		for k := range p.Victims[i].Holds {
			held[p.Victims[i].Holds[k].Node] = true
		}
	}
	return held
}

func newSearch(p Problem) *search {
	s := &search{Problem: p, budget: p.Budget, best: Solution{Cost: -1}, proved: true}
	if s.budget == 0 {
		s.budget = DefaultBudget
	}
	s.index()
	return s
}

// run looks at one place after the other, but for those that pass.
func (s *search) run(passes func(Place) bool) {
	options := make(options, 0, len(s.Places))
	for i, place := range s.Places {
		if bound, ok := s.bound(place); ok {
			options = append(options, option{bound, i})
		}
	}
	options.order()
	for len(options) > 0 {
		o := options.next()
		if s.best.Cost >= 0 && o.bound >= s.best.Cost {
			break
		}
		if s.budget <= 0 {
			s.proved = false
			break
		}
		if place := s.Places[o.place]; !passes(place) {
			s.look(place)
		}
	}
	s.best.Proved = s.proved
}

// search is one Solve.
type search struct {
	Problem
	budget int
	best   Solution
	proved bool
	// held are the victims by node, in their order: those of a node begin where
	// from says, and end where those of the next one begin.
	held []int
	from []int32
	// needs are, by victim, those that must go before it, and itself.
	needs [][]int
	// among and offers are memory that one bound after the other uses.
	among  []int
	offers []offer
	// slots says, by node, which one it is of those that a counter counts on.
	slots []int
}

// offer is what a victim gives in a place, and costs.
type offer struct {
	cost int64
	gpus int
}

func (s *search) index() {
	s.needs = make([][]int, len(s.Victims))
	self := make([]int, len(s.Victims))
	s.from = make([]int32, s.State.Len()+1)
	last := make([]int32, s.State.Len()) // by node, the last victim there, from 1
	s.eachHeld(last, func(node int32, _ int) { s.from[node+1]++ })
	for node := range last {
		s.from[node+1] += s.from[node]
		last[node] = 0
	}
	s.held = make([]int, s.from[len(last)])
	next := slices.Clone(s.from)
	s.eachHeld(last, func(node int32, v int) {
		s.held[next[node]] = v
		next[node]++
	})
	for i := range s.Victims {
		self[i] = i
		s.needs[i] = self[i : i+1 : i+1]
		for v := s.Victims[i].After; v >= 0 && len(s.needs[i]) <= len(s.Victims); v = s.Victims[v].After {
			s.needs[i] = append(s.needs[i], v)
		}
	}
}

// eachHeld calls f with every node of every victim, once.
func (s *search) eachHeld(last []int32, f func(node int32, v int)) {
	for i := range s.Victims {
		for _, h := range s.Victims[i].Holds {
			if last[h.Node] != int32(i+1) {
				last[h.Node] = int32(i + 1)
				f(h.Node, i)
			}
		}
	}
}

// on are the victims that hold something on a node.
func (s *search) on(node int32) []int { return s.held[s.from[node]:s.from[node+1]] }

// in lists the victims that hold something in a place, and those that must go
// before them.
func (s *search) in(place Place) []int { return s.addIn(nil, place) }

// addIn lists them in the memory of another list.
func (s *search) addIn(out []int, place Place) []int {
	for _, v := range s.held[s.from[place.Lo]:s.from[place.Hi]] {
		out = append(out, s.needs[v]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// give lets a victim go from a place, on trial. What it leaves elsewhere is of no use there.
func (s *search) give(v int, place Place) {
	s.eachIn(v, place, func(h *Hold) { s.State.Give(h.Node, h.Claim) })
}

// eachIn calls f with what a victim holds in a place.
func (s *search) eachIn(v int, place Place, f func(*Hold)) {
	for i := range s.Victims[v].Holds {
		if h := &s.Victims[v].Holds[i]; place.Lo <= h.Node && h.Node < place.Hi {
			f(h)
		}
	}
}

// fits asks whether the gang fits without some victims. The more there are, the
// more the question costs.
func (s *search) fits(place Place, without []int) bool {
	s.spend(len(without))
	mark := s.State.Mark()
	for _, v := range without {
		s.give(v, place)
	}
	ok := s.Fits(place)
	s.State.Revert(mark)
	return ok
}

// spend counts a question about so many victims.
func (s *search) spend(victims int) { s.budget -= 1 + victims/manyVictims }

// worse reports whether a choice that costs so much with one more is no better than
// the best so far.
func (s *search) worse(chosen []int, cost int64) bool {
	return s.best.Cost >= 0 && (cost > s.best.Cost || cost == s.best.Cost && len(chosen)+1 > len(s.best.Victims))
}

// passes passes a place over where nothing better can be found: only one victim is
// there, who costs more than the best so far. It costs of the budget what looking
// would.
func (s *search) passes(place Place) bool {
	const looked = 4 // with him, without him in both orders, and in the branch
	v := s.alone(place)
	if s.best.Cost < 0 || s.budget <= looked || v < 0 {
		return false
	}
	if cost := s.Victims[v].Cost; cost < s.best.Cost || cost == s.best.Cost && len(s.best.Victims) > 1 {
		return false
	}
	if s.fits(place, s.needs[v]) {
		s.budget -= looked - 1
	}
	return true
}

// look looks for the cheapest victims in a place.
func (s *search) look(place Place) {
	victims := s.in(place)
	if !s.fits(place, victims) {
		return
	}
	for _, order := range [][]int{s.byNode(place), s.byCost(victims)} {
		if s.budget <= 0 {
			break
		}
		s.offer(place, s.prune(place, s.prefix(place, order)))
	}
	if !s.branch(place, victims) {
		s.proved = false
	}
}

// offer takes a choice if it is better than the best so far: it is cheaper, or
// costs the same and takes fewer.
func (s *search) offer(place Place, chosen []int) {
	if len(chosen) == 0 || s.MaxVictims > 0 && len(chosen) > s.MaxVictims {
		return
	}
	cost := s.cost(chosen)
	if s.best.Cost < 0 || cost < s.best.Cost || cost == s.best.Cost && len(chosen) < len(s.best.Victims) {
		slices.Sort(chosen)
		s.best = Solution{Victims: chosen, Place: place, Cost: cost}
	}
}

func (s *search) cost(victims []int) int64 {
	var sum int64
	for _, v := range victims {
		sum += s.Victims[v].Cost
	}
	return sum
}

// byCost orders victims by what a GPU of theirs costs with all that must go
// before; equals stay in their order.
func (s *search) byCost(victims []int) []int {
	out := slices.Clone(victims)
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(s.cost(s.needs[a]), s.cost(s.needs[b])) })
	return s.withNeeds(out)
}

// byNode orders the victims of a place node by node: first those nodes whose
// GPUs are had for least.
func (s *search) byNode(place Place) []int {
	type bundle struct {
		victims []int
		cost    int64
		gpus    int
	}
	var bundles []bundle
	for node := place.Lo; node < place.Hi; node++ {
		on := s.on(node)
		if len(on) == 0 {
			continue
		}
		b := bundle{gpus: bits.OnesCount64(s.State.Row(node).GPUs)}
		for _, v := range on {
			b.victims = append(b.victims, s.needs[v]...)
			for _, h := range s.Victims[v].Holds {
				if h.Node == node {
					b.gpus += bits.OnesCount64(h.Claim.GPUs)
				}
			}
		}
		slices.Sort(b.victims)
		b.victims = slices.Compact(b.victims)
		b.cost = s.cost(b.victims)
		b.gpus = max(1, b.gpus)
		bundles = append(bundles, b)
	}
	slices.SortStableFunc(bundles, func(a, b bundle) int { return cmp.Compare(a.cost*int64(b.gpus), b.cost*int64(a.gpus)) })
	var out []int
	for _, b := range bundles {
		out = append(out, b.victims...)
	}
	return s.withNeeds(out)
}

// withNeeds lists victims once each, and each after those it needs.
func (s *search) withNeeds(victims []int) []int {
	seen := make(map[int]bool, len(victims))
	out := make([]int, 0, len(victims))
	for _, v := range victims {
		for _, need := range slices.Backward(s.needs[v]) {
			if !seen[need] {
				seen[need] = true
				out = append(out, need)
			}
		}
	}
	return out
}

// prefix is the shortest beginning of a list that leaves room enough; all of
// it does.
func (s *search) prefix(place Place, list []int) []int {
	lo, hi := 1, len(list)
	for lo < hi && s.budget > 0 {
		mid := (lo + hi) / 2
		if s.fits(place, list[:mid]) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return list[:hi]
}
