package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// possibility says whether a gang could be placed in an emptier cluster, and
// which view shows it.
type possibility struct {
	code, reason  string
	level, domain string
	fit           int
	view          int
	// part is the one that makes it impossible.
	part int
	// joined: it could be placed were it not for the job's other members.
	joined bool
}

// never reports whether no waiting helps.
func (p *possibility) never() bool { return p.code == codeNoNode || p.code == codeTooLarge }

// possibleKey identifies gangs that are alike in everything that placing them
// looks at.
type possibleKey struct {
	parts    [maxKeyParts]place.Part
	topology model.Topology
	within   int32
	apart    bool
	// queue is the one for which capacity is kept that they may use.
	queue string
}

// maxKeyParts is up to how many groups gangs are compared with others.
const maxKeyParts = 4

// possibility finds out whether waiting can help at all. For plain gangs the
// answer is kept: that it cannot changes only with the nodes, that it can not in
// this plan.
func (c *cycle) possibility(g *gang) possibility {
	key, plain := keyOfGang(g)
	plain = plain && len(c.queuesApart) == 0 // then the queue counts too
	if plain {
		if known, ok := c.possible[g.told(key)]; ok {
			return known
		}
		if known, ok := c.hopes[g.told(key)]; ok {
			return known
		}
	}
	p := c.findPossibility(g)
	switch {
	case !plain:
	case p.code != "" && !(c.closing && !p.never()):
		c.possible[g.told(key)] = p
	default:
		c.hopes[g.told(key)] = p
	}
	return p
}

// toldKey identifies gangs that are told the same: those alike whose groups have
// the same names, where they are named.
type toldKey struct {
	possibleKey
	names string
}

func (g *gang) told(key possibleKey) toldKey {
	out := toldKey{possibleKey: key}
	if len(g.groups) == 1 && g.named {
		out.names = g.groups[0].Name
	} else if len(g.groups) > 1 {
		for _, group := range g.groups {
			out.names += group.Name + "\n"
		}
	}
	return out
}

// keyOfGang identifies gangs that are alike, quotas too, which the requests
// imply; false for one that depends on
// where other members are, or is too large to compare.
func keyOfGang(g *gang) (possibleKey, bool) {
	u := g.unit
	if g.grown > 0 || len(u.Parts) > maxKeyParts || u.Only != nil || len(u.Taken)+len(u.TakenByPart) > 0 || slices.ContainsFunc(u.Quotas, func(q place.Quota) bool { return len(q.Used) > 0 }) {
		return possibleKey{}, false
	}
	key := possibleKey{topology: u.Topology, within: u.Within, apart: u.Apart, queue: g.queue}
	copy(key.parts[:], u.Parts)
	return key, true
}

func (c *cycle) findPossibility(g *gang) possibility {
	beside := true
	for _, view := range []int{viewCalm, viewEmpty} {
		if !c.placeable(c.views[view], g) {
			continue
		}
		if beside = c.besideApart(view, g); beside {
			return possibility{view: view}
		}
	}
	if !beside {
		return possibility{code: codeBehind, view: viewEmpty}
	}
	whole := c.views[viewWhole]
	if c.placeable(whole, g) {
		// Nodes are missing: what is kept now would lie idle for who knows how
		// long.
		return possibility{code: codeNoCapacity, view: viewWhole}
	}
	if alone, any := g.alone(); any && c.placeable(whole, alone) {
		return possibility{code: codeNoCapacity, view: viewWhole, joined: true}
	}
	return c.impossible(whole, g)
}

// alone is the gang as if its job had no members anywhere yet; false if it has
// none that matter.
func (g *gang) alone() (*gang, bool) {
	u := *g.unit
	any := len(u.Taken)+len(u.TakenByPart) > 0 || u.Within != g.home() || u.Only != nil
	u.Taken, u.TakenByPart, u.Quotas = nil, nil, slices.Clone(u.Quotas)
	u.Within, u.Only = g.home(), nil
	for i := range u.Quotas {
		any = any || len(u.Quotas[i].Used) > 0
		u.Quotas[i].Used = map[string]int{}
	}
	out := *g
	out.unit = &u
	return &out, any
}

// placeable reports whether a gang fits into a view, and takes nothing.
func (c *cycle) placeable(e *place.Engine, g *gang) bool {
	if u := g.unit; len(u.Parts) == 1 && len(u.Quotas)+len(u.Taken)+len(u.TakenByPart) == 0 {
		// Equal members fit into a domain exactly when it has room for their
		// number: no need to try.
		m, fits := newMeter(e, g), false
		if u.Topology.Mode != model.TopologyRequire {
			return m.takes(domainFit{domain: u.Within})
		}
		c.eachDomain(g, func(f domainFit) { fits = fits || m.takes(f) })
		return fits
	}
	mark := e.State.Mark()
	_, ok := e.Place(g.unit)
	e.State.Revert(mark)
	return ok
}
