package place

import (
	"cmp"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// share is how many members a node is given.
type share struct {
	node  int32
	count int
}

// spread distributes n members over a domain that has room for them, over as
// few of its parts as possible: one that takes all, the fullest of them; else
// the largest part whole, and the rest again.
func (e *Engine) spread(p *profile, domain int32, n int, out []share) []share {
	if n == 1 {
		node, _, _ := e.bestNode(p, domain)
		return append(out, share{node, 1})
	}
	if d := &e.Catalog.Tree.Domains[domain]; len(d.Kids) == 0 && d.Hi-d.Lo > maxSorted {
		return spreadFlat(p.summary, d.Lo, d.Hi, n, out)
	}
	children := e.children(p, domain)
	for i := 0; n > 0; i++ {
		if children[i].members < n {
			n -= children[i].members
			out = e.whole(p, children[i], out)
			continue
		}
		// They are in falling order: the last that is large enough is the fullest.
		end, _ := slices.BinarySearchFunc(children[i:], n, func(c child, n int) int {
			if c.members >= n {
				return -1
			}
			return 1
		})
		at := i + end - 1
		equal := 1
		for at > i && children[at-1].members == children[at].members {
			at, equal = at-1, equal+1
		}
		at += e.leastOf(p, children[at:at+equal], n)
		if c := children[at]; c.node {
			return append(out, share{c.id, n})
		} else {
			return e.spread(p, c.id, n, out)
		}
	}
	return out
}

// maxSorted is up to how many nodes in one domain are sorted for every gang.
const maxSorted = 64

// spreadFlat is spread over many nodes with no domain between them.
func spreadFlat(s *topo.Summary, lo, hi int32, n int, out []share) []share {
	start := len(out)
	unused := func(node int32) bool {
		return !slices.ContainsFunc(out[start:], func(s share) bool { return s.node == node })
	}
	s.Falling(lo, hi, func(node int32) bool {
		members := int(s.Fit(node).Members)
		if members < n {
			out = append(out, share{node, members})
			n -= members
			return true
		}
		if members > n {
			if last, ok := s.Tightest(lo, hi, n, false, unused); ok {
				node = last
			}
		}
		out = append(out, share{node, n})
		return false
	})
	return out
}

// child is a node or domain directly below a domain.
type child struct {
	id      int32
	node    bool
	members int
	score   uint32
}

// children lists what takes members, the largest first. The list is good until
// the next one.
func (e *Engine) children(p *profile, domain int32) []child {
	d := &e.Catalog.Tree.Domains[domain]
	out := e.kids[:0]
	for node := d.Lo; node < d.Own; node++ {
		if f := p.summary.Fit(node); f.Members > 0 {
			out = append(out, child{node, true, int(f.Members), f.Score})
		}
	}
	for _, kid := range d.Kids {
		if m := p.summary.Members(kid); m > 0 {
			out = append(out, child{kid, false, m, 0})
		}
	}
	slices.SortFunc(out, func(x, y child) int {
		if c := cmp.Compare(y.members, x.members); c != 0 {
			return c
		}
		if x.node != y.node {
			if x.node {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(x.score, y.score), cmp.Compare(x.id, y.id))
	})
	e.kids = out
	return out
}

// leastOf is the index of the domain, of some as full as each other, that is
// best given n members.
func (e *Engine) leastOf(p *profile, equals []child, n int) int {
	if equals[0].node {
		return 0
	}
	return e.least(len(equals), func(i int) float64 {
		return e.gradient(equals[i].id, e.Catalog.Tree.Domains[equals[i].id].Lo, p.request.GPUs, n)
	})
}

// whole gives a child as many members as it takes.
func (e *Engine) whole(p *profile, c child, out []share) []share {
	if c.node {
		return append(out, share{c.id, c.members})
	}
	d := &e.Catalog.Tree.Domains[c.id]
	for node := d.Lo; node < d.Hi; node++ {
		if f := p.summary.Fit(node); f.Members > 0 {
			out = append(out, share{node, int(f.Members)})
		}
	}
	return out
}

// acrossBit is set in the score of a node on which the next member would not
// be inside one island.
const acrossBit = 1 << 20

// bestNode finds the node in a domain that strands least by taking one member.
// Among equals it goes where the gradient is least, then into the fullest domain
// of each level.
func (e *Engine) bestNode(p *profile, domain int32) (node int32, score uint32, ok bool) {
	tree := e.Catalog.Tree
	for {
		d := &tree.Domains[domain]
		node, score, ok = p.summary.Best(d.Lo, d.Own)
		next, fullest := int32(-1), 0
		at, least := int32(0), -1.0 // the best node of next, and its gradient once it is asked for
		for _, kid := range d.Kids {
			m := p.summary.Members(kid)
			if m == 0 {
				continue
			}
			n, s, _ := p.summary.Best(tree.Domains[kid].Lo, tree.Domains[kid].Hi)
			if ok && (s > score || s == score && next < 0) {
				continue
			}
			if ok && s == score {
				if least < 0 {
					least = e.gradient(-1, at, p.request.GPUs, 1)
				}
				if least == 0 && m >= fullest {
					continue // no gradient is less
				}
				gradient := e.gradient(-1, n, p.request.GPUs, 1)
				if gradient > least || gradient == least && m >= fullest {
					continue
				}
				least = gradient
			} else {
				least = -1
			}
			next, at, score, fullest, ok = kid, n, s, m, true
		}
		if next < 0 {
			return node, score, ok
		}
		domain = next
	}
}
