package place

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// tryNodes looks for one node, or one island, that takes the whole unit.
func (a *attempt) tryNodes(island bool) bool {
	if a.need() > a.Catalog.Tree.MostGPUs {
		return false
	}
	if part := a.order[0]; len(a.order) == 1 && len(a.unit.Quotas)+len(a.unit.TakenByPart) == 0 && a.unit.Parts[part].Count <= topo.MaxGPUs {
		within := a.Catalog.Tree.Domains[a.unit.Within]
		s := a.profile(a.unit.Parts[part].Request).summary
		count := a.unit.Parts[part].Count
		node, ok := s.Tightest(within.Lo, within.Hi, count, island, a.inIslands(part, count))
		if !ok {
			node, ok = s.Tightest(within.Lo, within.Hi, count, island, a.hasRequired)
		}
		return ok && a.tryNode(node, island)
	}
	return a.tryEachNode(island)
}

// inIslands accepts nodes on which each of count members has an island for its
// GPUs, so that none is across islands.
func (a *attempt) inIslands(part, count int) func(node int32) bool {
	r := a.unit.Parts[part].Request
	return func(node int32) bool {
		if !a.hasRequired(node) {
			return false
		}
		shape, free := a.Catalog.Tree.Nodes[node].Shape, a.Catalog.open(r, node, a.State.Row(node))
		if r.GPUs < 2 || len(shape.Islands) < 2 {
			return true
		}
		n := 0
		for _, island := range shape.Islands {
			n += a.Catalog.capacity(r, node, free&island)
		}
		return n >= count
	}
}

// hasRequired reports whether a node has the level required.
func (a *attempt) hasRequired(node int32) bool {
	return (a.required < 0 || a.Catalog.Tree.DomainAt(node, a.required) >= 0) && a.hasSlices(node)
}

// tryNode tries to put the whole unit on one node or one of its islands.
func (a *attempt) tryNode(node int32, island bool) bool {
	level := atNode
	if island {
		level = atIsland
	}
	for _, limit := range a.limits(node, island, a.need()) {
		if a.unit.Only != nil {
			limit &= a.unit.Only.GPUs
		}
		if a.tryRange(-1, node, node+1, limit) {
			a.name(level, node)
			return true
		}
	}
	return false
}

// tryEachNode tries all nodes in which every part fits by itself.
func (a *attempt) tryEachNode(island bool) bool {
	type option struct {
		node  int32
		spare int
		score uint32
	}
	var options []option
	summaries := make([]*topo.Summary, len(a.order))
	for k, i := range a.order {
		part := &a.unit.Parts[i]
		summaries[k] = a.profile(part.Request).summary
	}
	within := a.Catalog.Tree.Domains[a.unit.Within]
	for node := within.Lo; node < within.Hi; node++ {
		spare, score, fits := 0, uint32(0), true
		for k, i := range a.order {
			f := summaries[k].Fit(node)
			most := f.Members
			if island {
				most = f.Island
			}
			left := int(most) - a.unit.Parts[i].Count
			if fits = left >= 0; !fits {
				break
			}
			spare, score = spare+left, score+f.Score
		}
		if fits && a.hasRequired(node) && a.quotasLet(summaries, node, node+1, island) {
			options = append(options, option{node, spare, score})
		}
	}
	slices.SortStableFunc(options, func(x, y option) int {
		return cmp.Or(cmp.Compare(x.spare, y.spare), cmp.Compare(x.score, y.score))
	})
	for _, o := range options {
		if a.tryNode(o.node, island) {
			return true
		}
	}
	return false
}

// limits are the GPU sets of a node to be tried for need GPUs: all, or each
// island; first those that are not whole or would be used up, and of them the
// one with the fewest free.
func (a *attempt) limits(node int32, island bool, need int) []uint64 {
	islands := a.Catalog.Tree.Nodes[node].Shape.Islands
	if !island || len(islands) == 0 {
		return []uint64{^uint64(0)}
	}
	free := a.State.Row(node).GPUs
	cost := func(i uint64) int {
		n := bits.OnesCount64(i & free)
		if i&free == i && n > need {
			n += topo.MaxGPUs
		}
		return n
	}
	islands = slices.Clone(islands)
	shared := a.sharedFirst(node)
	slices.SortStableFunc(islands, func(x, y uint64) int {
		return cmp.Or(cmp.Compare(shared[x], shared[y]), cmp.Compare(cost(x), cost(y)))
	})
	return islands
}

// need is how many GPUs the whole unit takes.
func (a *attempt) need() int {
	gpus := 0
	for _, i := range a.order {
		gpus += a.unit.Parts[i].Count * a.unit.Parts[i].Request.GPUs
	}
	return gpus
}

// tryRange places the unit on the nodes in [lo, hi), which are those of domain
// or, if that is -1, one node; limit is which GPUs may be used.
func (a *attempt) tryRange(domain, lo, hi int32, limit uint64) bool {
	start, used := a.State.Mark(), len(a.counted)
	a.placed = a.placed[:0]
	if a.greedy(domain, lo, hi, limit, false) {
		return true
	}
	a.State.Revert(start)
	a.freeQuotas(used)
	a.placed = a.placed[:0]
	if len(a.order) == 1 && len(a.unit.Quotas) < 2 && !(a.unit.sliced() && len(a.unit.Quotas) > 0) {
		return false // the greedy choice was exact
	}
	if a.exact(lo, hi, limit) {
		return true
	}
	a.State.Revert(start)
	a.freeQuotas(used)
	a.placed = a.placed[:0]
	return false
}

// greedy places part after part; partial takes as many as there is room for.
func (a *attempt) greedy(domain, lo, hi int32, limit uint64, partial bool) bool {
	for _, i := range a.order {
		a.banFor(i)
		shares, ok := a.shares(i, domain, lo, hi, partial)
		if !ok && !partial {
			return false
		}
		for _, s := range shares {
			n := s.count
			for !a.put(i, s.node, n, limit) {
				if !partial {
					return false
				}
				n-- // limit may leave room for fewer
			}
		}
		a.unbanFor(i)
		if a.unit.Apart {
			for _, s := range shares {
				a.State.Keep(s.node, selfOwner)
			}
		}
	}
	return true
}

// shares distributes a part over the nodes in [lo, hi); if it does not fit it
// distributes what does, if partial, and reports false. The list is good until
// the next one.
func (a *attempt) shares(part int, domain, lo, hi int32, partial bool) ([]share, bool) {
	count := a.unit.Parts[part].Count
	p := a.profile(a.unit.Parts[part].Request)
	u, size := &a.unit.Parts[part], a.unit.Parts[part].Slices.Size
	if a.hasQuota(part) {
		if size > 0 {
			return nil, false // that takes the exhaustive search
		}
		return a.spreadByQuota(p, part, count, lo, hi)
	}
	room := 0
	if domain < 0 {
		room = a.Catalog.RoomOn(u, lo, int(p.summary.Fit(lo).Members))
	} else {
		room = a.Catalog.RoomFor(u, p.summary, domain)
	}
	n := min(count, room)
	if size > 0 {
		n = n / size * size
	}
	switch {
	case n == 0 || n < count && !partial:
		return nil, false
	case domain < 0:
		return []share{{lo, n}}, n == count
	case size > 0:
		a.parts = a.spreadSlices(p, u, domain, n, a.parts[:0])
		return a.parts, n == count
	default:
		a.parts = a.spread(p, domain, n, a.parts[:0])
		return a.parts, n == count
	}
}

// banFor keeps the nodes that distinct_hosts forbids to one part only.
func (a *attempt) banFor(part int) {
	if part < len(a.unit.TakenByPart) {
		for _, node := range a.unit.TakenByPart[part] {
			if a.State.Row(node).Owner == 0 {
				a.State.Keep(node, selfOwner-1)
			}
		}
	}
}

func (a *attempt) unbanFor(part int) {
	if part < len(a.unit.TakenByPart) {
		for _, node := range a.unit.TakenByPart[part] {
			if a.State.Row(node).Owner == selfOwner-1 {
				a.State.Keep(node, 0)
			}
		}
	}
}

// put places count members of a part on a node if they fit into limit, else
// none.
func (a *attempt) put(part int, node int32, count int, limit uint64) bool {
	r := a.unit.Parts[part].Request
	start, placed := a.State.Mark(), len(a.placed)
	for i := range count {
		free := a.Catalog.open(r, node, a.State.Row(node)) & limit
		p, ok := a.pickSlice(r, node, free)
		if !ok {
			p, ok = a.pickInIsland(r, node, free, count-i)
		}
		if !ok {
			p, ok = a.pick(r, node, free, count-i)
		}
		if !ok {
			a.State.Revert(start)
			a.placed = a.placed[:placed]
			return false
		}
		p.Part = part
		claim := a.Catalog.claim(r, node)
		for _, g := range p.GPUs {
			claim.GPUs |= 1 << g
		}
		a.State.Take(node, claim)
		a.placed = append(a.placed, p)
	}
	return true
}

// pickInIsland chooses the GPUs of one member inside one island, on a node
// whose GPUs differ: there an island may serve it out of several groups.
func (a *attempt) pickInIsland(r *Request, node int32, free uint64, members int) (Placed, bool) {
	if r.GPUs < 2 || len(a.Catalog.Tree.Nodes[node].Groups) < 2 {
		return Placed{}, false
	}
	for _, island := range a.limits(node, true, r.GPUs) {
		if a.Catalog.capacity(r, node, free&island) == 0 {
			continue
		}
		p, ok := a.pick(r, node, free&island, 1)
		if ok && a.Catalog.capacity(r, node, free&^maskOf(p.GPUs)) >= members-1 {
			return p, true
		}
	}
	return Placed{}, false
}

// pick chooses the GPUs of one member such that the members still to come fit
// too.
func (a *attempt) pick(r *Request, node int32, free uint64, members int) (Placed, bool) {
	c := a.Catalog
	p := Placed{Node: node}
	if r.GPUs == 0 {
		return p, true
	}
	n := &c.Tree.Nodes[node]
	if p.GPUs, p.Tasks = c.pickTogether(r, node, free, members); p.GPUs != nil {
		return p, true
	}
	var sets []uint64
	if !c.packs(r, node, free, members, &sets) {
		return Placed{}, false
	}
	for i := range r.asks {
		order, _ := ring(n.Shape, sets[i])
		p.Tasks = append(p.Tasks, order)
		p.GPUs = append(p.GPUs, order...)
	}
	return p, true
}

// pickTogether chooses all GPUs of a member out of one device group, where
// every ask may be given the same, and splits them by ask if there are several;
// nil if they differ or it cannot be done.
func (c *Catalog) pickTogether(r *Request, node int32, free uint64, members int) (gpus []int8, tasks [][]int8) {
	groups, shape := c.Tree.Nodes[node].Groups, c.Tree.Nodes[node].Shape
	bestLeft := 0
	for _, g := range groups {
		mask := c.mask(&r.asks[0], node, g)
		for i := range r.asks[1:] {
			if c.mask(&r.asks[i+1], node, g) != mask {
				return nil, nil
			}
		}
		left := bits.OnesCount64(mask&free) - r.GPUs
		if left < 0 || gpus != nil && left >= bestLeft {
			continue
		}
		set, split := c.chooserFor(r).split(shape, unbroken(shape, mask&free, free, r.GPUs), r.counts)
		if c.capacity(r, node, free&^maskOf(set)) < members-1 {
			continue
		}
		gpus, tasks, bestLeft = set, split, left
	}
	return gpus, tasks
}

// unbroken leaves out of mask the instances of divided GPUs that are free as a
// whole, if a GPU of which some are taken has as many as are needed.
func unbroken(s *topo.Shape, mask, free uint64, need int) uint64 {
	if !s.Divided {
		return mask
	}
	var broken uint64
	for _, island := range s.Islands {
		if island&free != island && bits.OnesCount64(island&mask) >= need {
			broken |= island & mask
		}
	}
	if broken == 0 {
		return mask
	}
	return broken
}

func maskOf(gpus []int8) uint64 {
	var mask uint64
	for _, g := range gpus {
		mask |= 1 << g
	}
	return mask
}
