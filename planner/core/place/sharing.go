package place

import (
	"math"
	"math/bits"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/together"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// open are the free GPUs of a node that a request's members may be given: of each
// GPU that is offered in time slices only as many as it is expected to be enough
// for. The slices of a GPU are alike, so it is the lowest that are left.
func (c *Catalog) open(r *Request, node int32, row *topo.Row) uint64 {
	shape := c.Tree.Nodes[node].Shape
	if len(shape.Shared) == 0 || !r.shares || r.usage == nil && row.Users == nil {
		return row.GPUs // equal parts fit as often as there are slices
	}
	open := row.GPUs
	for i := range shape.Shared {
		s := &shape.Shared[i]
		if free := s.Mask & row.GPUs; free != 0 {
			n := bits.OnesCount64(free)
			open = open&^s.Mask | lowest(free, s.Room(row.UsersOf(s.Mask), r.usage, n))
		}
	}
	return open
}

// rank says how well a request's next member goes onto a shared GPU, of which some
// slices are open to it: lower is better. First come GPUs that others use at other
// times, so that those that nobody uses stay free for who needs much; then these;
// then those whose users are busy at the same time.
func (r *Request) rank(s *topo.SharedGPU, row *topo.Row) (class int, correlation float64) {
	users := row.UsersOf(s.Mask)
	if len(users) == 0 {
		return 1, 0
	}
	if correlation = together.Worst(r.usage, users); correlation > together.Coincide {
		return 2, correlation
	}
	return 0, correlation
}

// bestSlice is the shared GPU of a node that a request's next member goes onto best,
// nil if there is none.
func (c *Catalog) bestSlice(r *Request, node int32, row *topo.Row, free uint64) (best *topo.SharedGPU, class int, correlation float64) {
	shape := c.Tree.Nodes[node].Shape
	most := 0
	for i := range shape.Shared {
		s := &shape.Shared[i]
		left := bits.OnesCount64(s.Mask & free)
		if left == 0 {
			continue
		}
		k, rho := r.rank(s, row)
		if best == nil || k < class || k == class && (rho < correlation || rho == correlation && left < most) {
			best, class, correlation, most = s, k, rho, left
		}
	}
	return best, class, correlation
}

// The bits of a score that tell the classes of shared GPUs apart; they are those
// of whether something whole would be broken.
const classShift = 18

// sharedScore orders nodes for a request that takes time slices: slices come before
// whole GPUs, by class, then by correlation.
func (c *Catalog) sharedScore(r *Request, node int32, row *topo.Row, free uint64, otherwise uint32) uint32 {
	if r.GPUs != 1 {
		return otherwise
	}
	best, class, correlation := c.bestSlice(r, node, row, free)
	if best == nil {
		return otherwise | acrossBit
	}
	return uint32(class)<<classShift | uint32(math.Round((correlation+1)*100))<<8 | uint32(bits.OnesCount64(best.Mask&free))
}

// sharedFirst orders the shared GPUs of a node before everything else, if the unit's
// members take slices of them: by their slices, the first has the lowest number.
func (a *attempt) sharedFirst(node int32) map[uint64]int {
	shape := a.Catalog.Tree.Nodes[node].Shape
	if len(shape.Shared) == 0 || len(a.order) == 0 {
		return nil
	}
	r := a.unit.Parts[a.order[0]].Request
	if !r.shares || r.GPUs != 1 {
		return nil
	}
	row := a.State.Row(node)
	free, out := a.Catalog.open(r, node, row)&a.Catalog.Usable(r, node), map[uint64]int{}
	for n := -len(shape.Shared); n < 0; n++ {
		best, _, _ := a.Catalog.bestSlice(r, node, row, free)
		if best == nil {
			break
		}
		out[best.Mask] = n
		free &^= best.Mask
	}
	return out
}

// pickSlice gives one member a time slice, if it takes one and there is one.
func (a *attempt) pickSlice(r *Request, node int32, free uint64) (Placed, bool) {
	c := a.Catalog
	if !r.shares || r.GPUs != 1 {
		return Placed{}, false
	}
	free &= c.Usable(r, node)
	best, _, _ := c.bestSlice(r, node, a.State.Row(node), free)
	if best == nil {
		return Placed{}, false
	}
	return Placed{Node: node, GPUs: []int8{int8(bits.TrailingZeros64(best.Mask & free))}}, true
}

// Shares reports whether a member may be given time slices of shared GPUs.
func (r *Request) Shares() bool { return r.shares }

// Usage is what is known of how much a member uses of a GPU that it shares, nil if
// nothing is.
func (r *Request) Usage() *model.Usage { return r.usage }

// Usable are the GPUs of a node that a request may be given, busy or not.
func (c *Catalog) Usable(r *Request, node int32) uint64 {
	_, mask := c.usable(r, node)
	return mask
}
