package place

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Want is a shape of gang that the queue asks for again and again: so many
// members in one domain of a level.
type Want struct {
	Request *Request
	Members int
	// Level is an index into the tree's levels.
	Level int
	// Weight is how many gangs of this shape there are.
	Weight float64
}

// gpus is how many GPUs a gang of this shape takes.
func (w *Want) gpus() int { return w.Members * w.Request.GPUs }

// SetWants says for what shapes the domains are to be kept whole, by
// fragmentation gradient descent (Weng et al., "Beware of Fragmentation", ATC
// '23, section 4), with domains and gangs in place of nodes and tasks.
//
// The paper's F_n(M) = Σ p_m F_n(m) sums up, over the tasks m of a workload with
// their popularity p_m, the free GPUs of node n that m cannot use. Here F_d(m)
// is what of a domain's free GPUs no whole gang of shape m can use: all of it
// where the domain has room for fewer members than a gang has, what is left
// beside as many gangs as fit otherwise. Of domains that are equally tight the
// one is taken in which the sum grows least.
func (e *Engine) SetWants(wants []Want) { e.wants, e.wanted = wants, e.wanted[:0] }

// wantedBy is the up-to-date summary of the i-th shape.
func (e *Engine) wantedBy(i int) *topo.Summary {
	if now := e.State.Version(); len(e.wanted) != len(e.wants) || e.wantedAt != now {
		list := make([]*profile, 0, len(e.wants))
		for k := range e.wants {
			list = append(list, e.profile(e.wants[k].Request))
		}
		e.wanted, e.wantedAt = list, now
	}
	return e.wanted[i].summary
}

// Fragmentation is F_d(M) of a domain as it is now, in GPUs, over the shapes
// given; the weights are used as they are.
func (e *Engine) Fragmentation(domain int32, shapes []Want) float64 {
	sum := 0.0
	for i := range shapes {
		w := &shapes[i]
		s := e.profile(w.Request).summary
		gangs := s.Members(domain) / w.Members
		sum += w.Weight * float64(s.GPUs(domain)-gangs*w.gpus())
	}
	return sum
}

// gradient is by how much fragmentation grows, beyond the GPUs that are taken
// anyway, when count members with so many GPUs each go into a domain, or, if that
// is not known yet, where the node is. It counts the GPUs of the gangs that fit
// no more. What happens inside the domain is not known yet: shapes that fit into
// less than it do not count.
func (e *Engine) gradient(domain, node int32, gpus, count int) float64 {
	sum := 0.0
	for i := range e.wants {
		w := &e.wants[i]
		around := e.Catalog.Tree.DomainAt(node, w.Level)
		if around < 0 || domain >= 0 && e.Catalog.Tree.Domains[domain].Level < w.Level {
			continue
		}
		s := e.wantedBy(i)
		lost := 0
		if domain >= 0 {
			lost = min(lostMembers(gpus*count, gpus, w.Request.GPUs), s.Members(domain))
		} else if f := s.Fit(node); f.Members > 0 {
			lost = int(f.GPUs)/w.Request.GPUs - max(0, int(f.GPUs)-gpus*count)/w.Request.GPUs
		}
		if lost == 0 {
			continue
		}
		room := s.Members(around)
		sum += w.Weight * float64(w.gpus()*(room/w.Members-max(0, room-lost)/w.Members))
	}
	return sum
}

// lostMembers estimates how many members of size there is no room for any more
// when members of another size take total GPUs.
func lostMembers(total, gpus, size int) int {
	if size <= gpus {
		return total / gpus * (gpus / size)
	}
	return (total + size - 1) / size
}

// Natural is the tightest level at which some domain has room for all members
// of a gang when it is empty, as an index into the tree's levels; -1 if only the
// cluster has. Gangs that fit on one node have none either.
func (c *Catalog) Natural(r *Request, members int) int {
	most, known := c.reach[r]
	if !known {
		most = c.reachOf(r)
		c.reach[r] = most
	}
	if members <= most[0] {
		return -1
	}
	for level := len(c.Tree.Levels) - 1; level >= 0; level-- {
		if most[level+1] >= members {
			return level
		}
	}
	return -1
}

// reachOf is how many members fit on one empty node at most, and in one empty
// domain of each level.
func (c *Catalog) reachOf(r *Request) []int {
	most := make([]int, len(c.Tree.Levels)+1)
	sums := make([]int, len(c.Tree.Domains))
	for node := range c.Tree.Nodes {
		if !r.Verdicts.Eligible(node) || r.GPUs == 0 {
			continue
		}
		n := c.capacity(r, int32(node), c.Tree.Nodes[node].All)
		most[0] = max(most[0], n)
		sums[c.Tree.Nodes[node].Leaf] += n
	}
	for d := len(sums) - 1; d > topo.Root; d-- {
		dom := &c.Tree.Domains[d]
		sums[dom.Parent] += sums[d]
		most[dom.Level+1] = max(most[dom.Level+1], sums[d])
	}
	return most
}

// least is the index of the option of the smallest gradient, the first of
// equals.
func (e *Engine) least(n int, gradient func(i int) float64) int {
	if n < 2 || len(e.wants) == 0 {
		return 0
	}
	best, value := 0, gradient(0)
	for i := 1; i < n && value > 0; i++ {
		if g := gradient(i); g < value {
			best, value = i, g
		}
	}
	return best
}

// MostWants bounds the shapes that are looked at.
const MostWants = 6

// HeaviestWants are the shapes that ask for most of the GPUs, in falling order.
func HeaviestWants(wants []Want) []Want {
	slices.SortStableFunc(wants, func(a, b Want) int {
		switch x, y := a.Weight*float64(a.gpus()), b.Weight*float64(b.gpus()); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return wants[:min(len(wants), MostWants)]
}
