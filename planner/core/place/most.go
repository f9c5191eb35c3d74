package place

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Most counts the members of a unit that fit at once into the nodes in [lo,
// hi), which are those of domain or, if that is -1, one node; island: into one
// of its islands. It takes nothing. Where the order of the members matters it
// is a lower bound.
func (e *Engine) Most(u *Unit, domain, lo, hi int32, island bool) int {
	start := e.State.Mark()
	e.ban(u)
	a := attempt{Engine: e, unit: u, order: byWeight(u), required: -1}
	a.openQuotas()
	most := 0
	limits := []uint64{^uint64(0)}
	if domain < 0 {
		limits = a.limits(lo, island, a.need())
	}
	for _, limit := range limits {
		if u.Only != nil {
			limit &= u.Only.GPUs
		}
		mark := e.State.Mark()
		a.placed = a.placed[:0]
		a.greedy(domain, lo, hi, limit, true)
		most = max(most, len(a.placed))
		e.State.Revert(mark)
		a.freeQuotas(0)
		if u.sliced() && len(u.Parts) == 1 && len(u.Quotas) > 0 {
			most = max(most, a.mostSlices(lo, hi, limit))
		}
	}
	e.State.Revert(start)
	return most
}

// mostSlices counts the members of the one part that fit, in whole slices, with
// what tells them apart: the greedy choice does not know of both.
func (a *attempt) mostSlices(lo, hi int32, limit uint64) int {
	unit := *a.unit
	defer func(given *Unit) { a.unit = given }(a.unit)
	for n := unit.Parts[0].Count; n > 0; n -= unit.Parts[0].Slices.Size {
		less := unit
		less.Parts = []Part{unit.Parts[0]}
		less.Parts[0].Count = n
		a.unit, a.steps, a.placed = &less, maxSteps, a.placed[:0]
		mark := a.State.Mark()
		fits := a.exact(lo, hi, limit)
		a.State.Revert(mark)
		a.freeQuotas(0)
		if fits {
			return n
		}
	}
	return 0
}

// FitOn says what a node can do for a request with only some of its GPUs.
func (e *Engine) FitOn(r *Request, node int32, gpus uint64) topo.Fit {
	row := *e.State.Row(node)
	row.GPUs &= gpus
	return e.Catalog.fit(r, node, &row)
}

// Fill places count members of a request in a domain that has room for them,
// and takes what they need.
func (e *Engine) Fill(r *Request, domain int32, count int) []Placed {
	if count == 0 {
		return nil
	}
	a := attempt{Engine: e, unit: &Unit{Parts: []Part{{Request: r, Count: count}}}, placed: make([]Placed, 0, count)}
	e.parts = e.spread(e.profile(r), domain, count, e.parts[:0])
	for _, s := range e.parts {
		a.put(0, s.node, s.count, ^uint64(0))
	}
	return a.placed
}

// Put places up to count members of a request on a node, takes what they need,
// and says how many.
func (e *Engine) Put(r *Request, node int32, count int) int {
	n := min(count, int(e.Summary(r).Fit(node).Members))
	a := attempt{Engine: e, unit: &Unit{Parts: []Part{{Request: r, Count: n}}}}
	a.put(0, node, n, ^uint64(0))
	return len(a.placed)
}

// Takes says how many members of a request a node takes when row is what is free on
// it: the answer has no score.
func (e *Engine) Takes(r *Request, node int32, row *topo.Row) topo.Fit {
	f, _, _ := e.Catalog.takes(r, node, row)
	return f
}

// PutInto places up to count members of a request on a node with only some of
// its GPUs, takes what they need, and says how many.
func (e *Engine) PutInto(r *Request, node int32, count int, gpus uint64) int {
	n, claim, all := e.Catalog.Unchosen(r, node, e.State.Row(node), count, gpus)
	switch {
	case n == 0:
		return 0
	case all:
		e.State.Take(node, claim)
		return n
	}
	a := attempt{Engine: e, unit: &Unit{Parts: []Part{{Request: r, Count: n}}}}
	a.put(0, node, n, gpus)
	return len(a.placed)
}

// Unchosen is how many members, up to count, a node takes with only some of the GPUs of
// its row, and if these are all there is, so that there is nothing to choose, what they
// claim.
func (c *Catalog) Unchosen(r *Request, node int32, row *topo.Row, count int, gpus uint64) (n int, claim topo.Claim, all bool) {
	some := *row
	some.GPUs &= gpus
	f, usable, _ := c.takes(r, node, &some)
	if n = min(count, int(f.Members)); n == 0 || r.GPUs == 0 || r.shares || int(f.GPUs) != n*r.GPUs {
		return n, claim, false
	}
	claim = c.claim(r, node)
	claim.GPUs, claim.Resources = some.GPUs&usable, times(claim.Resources, n)
	return n, claim, true
}

func times(r model.Resources, n int) model.Resources {
	return model.Resources{CPUMHz: r.CPUMHz * n, Cores: r.Cores * n, MemoryMiB: r.MemoryMiB * n, DiskMiB: r.DiskMiB * n}
}

// Claim is what a placed member takes of its node.
func (e *Engine) Claim(u *Unit, p *Placed) topo.Claim {
	claim := e.Catalog.claim(u.Parts[p.Part].Request, p.Node)
	for _, g := range p.GPUs {
		claim.GPUs |= 1 << g
	}
	return claim
}
