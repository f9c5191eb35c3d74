package rendezvous

import (
	"cmp"
	"slices"
	"strings"
)

// Placed is a member with the place of its node in the topology tree.
type Placed struct {
	Member
	// Path names the domains that the node is in, outermost first: region, zone,
	// block, rack, whatever levels the cluster has. All members' paths have the
	// same levels; "" is a level that the node does not have.
	Path []string
}

// Order puts members into the order of their ranks: by the domains of the tree
// from the outermost inwards, then by node, then by group and index.
//
// Collectives send most between neighbours in rank, and from the last to the
// first. Walking the tree from domain to domain, each one to its end before the
// next begins, crosses the border of every domain exactly twice in such a ring,
// once in and once out, and no ring can do with less. Names with numbers are
// compared by their numbers (rack-2 before rack-10), because racks with near
// numbers usually stand, and are cabled, near each other.
//
// The order depends on the members alone and not on the order they come in, so
// that a planner which takes over computes the same one, and members that stay
// keep their relative order when others come or go. first is the allocation
// that is to have rank 0, if it is among them: at each level its domain comes
// first, which changes nothing about the borders. A gang that changes its size
// while it runs keeps its rank 0 that way, and so the address where the others
// meet. "" asks for none.
func Order(members []Placed, first string) []Member {
	var head *Placed
	if at := slices.IndexFunc(members, func(p Placed) bool { return first != "" && p.Alloc == first }); at >= 0 {
		head = &members[at]
	}
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Placed) int { return compare(a, b, head) })
	out := make([]Member, len(sorted))
	for i, p := range sorted {
		out[i] = p.Member
	}
	return out
}

// compare orders two members. head, if not nil, comes first with all that is
// near it: as long as the two agree with it so far, the one that agrees further
// goes before the other.
func compare(a, b Placed, head *Placed) int {
	for i := range max(len(a.Path), len(b.Path)) {
		x, y := level(a, i), level(b, i)
		if x != y {
			if head != nil {
				h := level(*head, i)
				if c := preferred(x == h, y == h); c != 0 {
					return c
				}
			}
			return natural(x, y)
		}
		if head != nil && x != level(*head, i) {
			head = nil // the domain that both are in is not the head's
		}
	}
	if a.Node != b.Node {
		if head != nil {
			if c := preferred(a.Node == head.Node, b.Node == head.Node); c != 0 {
				return c
			}
		}
		return cmp.Or(natural(a.NodeName, b.NodeName), strings.Compare(a.Node, b.Node))
	}
	if head != nil {
		if c := preferred(a.Alloc == head.Alloc, b.Alloc == head.Alloc); c != 0 {
			return c
		}
	}
	return cmp.Or(natural(a.Group, b.Group), cmp.Compare(a.Index, b.Index), strings.Compare(a.Alloc, b.Alloc))
}

func preferred(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}

func level(p Placed, i int) string {
	if i < len(p.Path) {
		return p.Path[i]
	}
	return ""
}

// natural compares names with runs of digits as numbers. It is 0 only for equal
// strings: where only leading zeros differ, the strings decide.
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		dx, dy := digits(x), digits(y)
		if dx == 0 || dy == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		nx, ny := strings.TrimLeft(x[:dx], "0"), strings.TrimLeft(y[:dy], "0")
		if c := cmp.Or(cmp.Compare(len(nx), len(ny)), strings.Compare(nx, ny)); c != 0 {
			return c
		}
		x, y = x[dx:], y[dy:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits counts the digits that s begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
