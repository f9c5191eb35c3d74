package place

import (
	"cmp"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Slices says that the members of a part come in slices of Size, each of which
// has to be in one domain of a level while the part may be in several.
type Slices struct {
	// Size is how many members are in a slice; 0 means that there are none.
	Size int
	// Level is an index into the tree's levels, or that of no level of the tree;
	// see SliceLevel.
	Level int
}

// SliceLevel is a level as Slices has it.
func (c *Catalog) SliceLevel(level string) int { return levelIndex(c.Tree, level) }

// RoomFor is how many members of a part fit at once into a domain, in whole
// slices.
func (c *Catalog) RoomFor(part *Part, s *topo.Summary, domain int32) int {
	size := part.Slices.Size
	d := &c.Tree.Domains[domain]
	switch {
	case size == 0:
		return s.Members(domain)
	case part.Slices.Level == atNode:
		n := 0
		for node := d.Lo; node < d.Hi; node++ {
			n += int(s.Fit(node).Members) / size
		}
		return n * size
	case part.Slices.Level < 0:
		return 0 // there is no such level
	case d.Level >= part.Slices.Level:
		if c.Tree.DomainAt(d.Lo, part.Slices.Level) < 0 {
			return 0
		}
		return s.Members(domain) / size * size
	}
	n := 0
	for _, in := range c.sliceDomains(part.Slices.Level, domain) {
		n += s.Members(in) / size
	}
	return n * size
}

// RoomOn is how many members of a part fit at once on a node, of most that would
// in whatever numbers.
func (c *Catalog) RoomOn(part *Part, node int32, most int) int {
	size, level := part.Slices.Size, part.Slices.Level
	switch {
	case size == 0:
		return most
	case level != atNode && (level < 0 || c.Tree.DomainAt(node, level) < 0):
		return 0
	}
	return most / size * size
}

// sliceDomains are the domains of a level inside a wider domain.
func (c *Catalog) sliceDomains(level int, domain int32) []int32 {
	all, d := c.Tree.ByLevel[level], &c.Tree.Domains[domain]
	before := func(in int32, at int32) int { return cmp.Compare(c.Tree.Domains[in].Lo, at) }
	lo, _ := slices.BinarySearchFunc(all, d.Lo, before)
	hi, _ := slices.BinarySearchFunc(all, d.Hi, before)
	return all[lo:hi]
}

// sliced reports whether some part of the unit comes in slices.
func (u *Unit) sliced() bool {
	return slices.ContainsFunc(u.Parts, func(p Part) bool { return p.Slices.Size > 0 })
}

// hasSlices reports whether a node may have slices of all parts that have some.
func (a *attempt) hasSlices(node int32) bool {
	for _, i := range a.order {
		part := &a.unit.Parts[i]
		if part.Slices.Size > 0 && a.Catalog.RoomOn(part, node, part.Count) < part.Count {
			return false
		}
	}
	return true
}

// spreadSlices distributes whole slices, n members in all, over a domain that
// has room for them: as spread does it with members, and inside the domain of a
// slice by spread itself.
func (e *Engine) spreadSlices(p *profile, part *Part, domain int32, n int, out []share) []share {
	if n == 0 {
		return out
	}
	if d := &e.Catalog.Tree.Domains[domain]; part.Slices.Level != atNode && d.Level >= part.Slices.Level {
		return e.spread(p, domain, n, out)
	}
	children := e.sliceChildren(p, part, domain)
	for i, c := range children {
		if c.members >= n {
			// They are in falling order: the last that is large enough is the fullest.
			at := i
			for at+1 < len(children) && children[at+1].members >= n {
				at++
			}
			for at > i && children[at-1].members == children[at].members {
				at--
			}
			c = children[at]
			if c.node {
				return append(out, share{c.id, n})
			}
			return e.spreadSlices(p, part, c.id, n, out)
		}
		if n -= c.members; c.node {
			out = append(out, share{c.id, c.members})
		} else {
			out = e.spreadSlices(p, part, c.id, c.members, out)
		}
	}
	return out
}

// sliceChildren lists what takes slices directly below a domain: what takes most
// of them first, and of equals what has least room beside.
func (e *Engine) sliceChildren(p *profile, part *Part, domain int32) []child {
	d := &e.Catalog.Tree.Domains[domain]
	beside := map[int32]int{}
	var out []child
	for node := d.Lo; node < d.Own && part.Slices.Level == atNode; node++ {
		f := p.summary.Fit(node)
		if m := e.Catalog.RoomOn(part, node, int(f.Members)); m > 0 {
			out = append(out, child{node, true, m, f.Score})
		}
	}
	for _, kid := range d.Kids {
		if m := e.Catalog.RoomFor(part, p.summary, kid); m > 0 {
			beside[kid] = p.summary.Members(kid) - m
			out = append(out, child{kid, false, m, 0})
		}
	}
	slices.SortFunc(out, func(x, y child) int {
		if c := cmp.Or(cmp.Compare(y.members, x.members), compareBool(y.node, x.node)); c != 0 {
			return c
		}
		if x.node {
			return cmp.Or(cmp.Compare(x.score, y.score), cmp.Compare(x.id, y.id))
		}
		return cmp.Or(cmp.Compare(beside[x.id], beside[y.id]), cmp.Compare(x.id, y.id))
	})
	return out
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// inSlice narrows [lo, hi) to where the next member of a part may be: the others
// of its slice are the last ones placed.
func (a *attempt) inSlice(part, nth int, lo, hi int32) (int32, int32) {
	s := a.unit.Parts[part].Slices
	if s.Size == 0 || nth%s.Size == 0 {
		return lo, hi
	}
	last := a.placed[len(a.placed)-1].Node
	if s.Level == atNode {
		return last, last + 1
	}
	in := a.Catalog.Tree.DomainAt(last, s.Level)
	if in < 0 {
		return lo, lo
	}
	return max(lo, a.Catalog.Tree.Domains[in].Lo), min(hi, a.Catalog.Tree.Domains[in].Hi)
}

// mayStartSlice reports whether a node has a domain for slices of a part.
func (a *attempt) mayStartSlice(part int, node int32) bool {
	s := a.unit.Parts[part].Slices
	return s.Size == 0 || s.Level == atNode || s.Level >= 0 && a.Catalog.Tree.DomainAt(node, s.Level) >= 0
}
