package place

import (
	"math/bits"
	"slices"
)

// exact searches [lo, hi) for places for the whole unit, member by member,
// with backtracking, within the attempt's budget. It is for units whose
// members differ: there a greedy choice for one part may leave no room for the
// next.
func (a *attempt) exact(lo, hi int32, limit uint64) bool {
	type member struct {
		part  int
		first bool // of its part
		nth   int  // of its part
	}
	var members []member
	for _, i := range a.order {
		for k := range a.unit.Parts[i].Count {
			members = append(members, member{i, k == 0, k})
		}
	}
	var place func(at int, from int32) bool
	place = func(at int, from int32) bool {
		if at == len(members) {
			return true
		}
		m := members[at]
		if m.first {
			from = lo // equal members are placed in the order of the nodes
		}
		var failed []int32
		from, end := a.inSlice(m.part, m.nth, from, hi)
		for node := from; node < end; node++ {
			if a.steps--; a.steps < 0 {
				return false
			}
			if a.likeOne(failed, node, m.part) || !a.mayStartSlice(m.part, node) || !a.mayUse(m.part, node, limit) {
				continue
			}
			if a.leftOn(m.part, node) < 1 {
				continue
			}
			used := len(a.counted)
			a.useQuota(m.part, node, 1)
			for _, p := range a.choices(m.part, node, limit) {
				if a.putChoice(m.part, p, func() bool { return place(at+1, node) }) {
					return true
				}
			}
			a.freeQuotas(used)
			if len(failed) < maxFailed {
				failed = append(failed, node)
			}
		}
		return false
	}
	return place(0, lo)
}

// maxFailed bounds how many nodes another one is compared with.
const maxFailed = 32

// mayUse reports whether one more member of the part fits on the node.
func (a *attempt) mayUse(part int, node int32, limit uint64) bool {
	if a.taken(part, node) {
		return false
	}
	r := a.unit.Parts[part].Request
	row := *a.State.Row(node)
	row.GPUs &= limit
	if a.Catalog.fit(r, node, &row).Members == 0 {
		return false
	}
	for i := range a.placed {
		if a.placed[i].Node == node && (a.unit.Apart || r.OnePerNode && a.placed[i].Part == part) {
			return false
		}
	}
	return true
}

// choices are the ways to serve a member on a node that differ in which device
// groups they draw on.
func (a *attempt) choices(part int, node int32, limit uint64) []Placed {
	r := a.unit.Parts[part].Request
	groups := a.Catalog.Tree.Nodes[node].Groups
	free := a.Catalog.open(r, node, a.State.Row(node)) & limit
	if len(groups) < 2 || r.GPUs == 0 {
		p, ok := a.pick(r, node, free, 1)
		if !ok {
			return nil
		}
		return []Placed{p}
	}
	var out []Placed
	var walk func(ask int, free uint64, tasks [][]int8)
	walk = func(ask int, free uint64, tasks [][]int8) {
		if ask == len(r.asks) {
			p := Placed{Node: node}
			for _, t := range tasks {
				p.GPUs = append(p.GPUs, t...)
			}
			if len(r.asks) > 1 {
				p.Tasks = append(p.Tasks, tasks...)
			}
			out = append(out, p)
			return
		}
		for _, g := range groups {
			can := a.Catalog.mask(&r.asks[ask], node, g) & free
			if need := r.asks[ask].device.Count; bits.OnesCount64(can) >= need {
				set := a.Catalog.chooserFor(r).choose(a.Catalog.Tree.Nodes[node].Shape, can, need)
				walk(ask+1, free&^maskOf(set), append(tasks[:ask:ask], set))
			}
		}
	}
	walk(0, free, nil)
	return out
}

// putChoice takes a choice and undoes it if what follows fails.
func (a *attempt) putChoice(part int, p Placed, then func() bool) bool {
	p.Part = part
	claim := a.Catalog.claim(a.unit.Parts[part].Request, p.Node)
	claim.GPUs = maskOf(p.GPUs)
	undo := a.State.Take(p.Node, claim)
	a.placed = append(a.placed, p)
	if then() {
		return true
	}
	a.placed = a.placed[:len(a.placed)-1]
	a.State.Revert(undo)
	return false
}

// likeOne reports whether a node is like one of those that were tried at this
// place of the search and failed. Only plain nodes are compared.
func (a *attempt) likeOne(failed []int32, node int32, part int) bool {
	if len(a.unit.Quotas) > 0 || a.unit.Apart || a.unit.sliced() || a.unit.Parts[part].Request.perNode() {
		return false
	}
	t := a.Catalog.Tree
	n, row := &t.Nodes[node], a.State.Row(node)
	for _, f := range failed {
		m, other := &t.Nodes[f], a.State.Row(f)
		if m.Shape == n.Shape && row.GPUs == other.GPUs && row.Users == nil && other.Users == nil && row.Free == other.Free && len(row.Ports) == 0 && len(other.Ports) == 0 &&
			row.Owner == other.Owner && row.Closed == other.Closed && slices.Equal(m.Groups, n.Groups) && a.sameVerdicts(f, node) &&
			m.Model.Capacity == n.Model.Capacity && !a.used(f) && !a.used(node) {
			return true
		}
	}
	return false
}

// used reports whether the unit has members on the node already.
func (a *attempt) used(node int32) bool {
	for i := range a.placed {
		if a.placed[i].Node == node {
			return true
		}
	}
	return false
}

func (a *attempt) sameVerdicts(x, y int32) bool {
	for _, i := range a.order {
		v := a.unit.Parts[i].Request.Verdicts
		if v.Eligible(int(x)) != v.Eligible(int(y)) || a.taken(i, x) != a.taken(i, y) {
			return false
		}
	}
	return true
}
