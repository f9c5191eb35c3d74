package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// domainFit is how near a domain, or a node, is to taking a gang.
type domainFit struct {
	domain int32 // -1: node is meant
	node   int32
	lo, hi int32
	level  string
	// path is set by name.
	path string
	// fit counts the members that it can take, gpus the free GPUs of the kind;
	// apart counts those that it could take one group by one, and with no heed
	// of what tells them apart.
	fit, gpus, apart int
}

func (f domainFit) nearer(o domainFit) bool {
	return f.fit > o.fit || f.fit == o.fit && f.gpus > o.gpus
}

// meter measures domains for one gang on one view.
type meter struct {
	engine *place.Engine
	gang   *gang
	island bool
	// first is the summary of the first part, more are those of the others.
	first *topo.Summary
	more  []*topo.Summary
}

func newMeter(e *place.Engine, g *gang) meter {
	t := g.unit.Topology
	m := meter{engine: e, gang: g, island: t.Mode == model.TopologyRequire && t.Level == model.LevelIsland}
	for i, part := range g.unit.Parts {
		if i == 0 {
			m.first = e.Summary(part.Request)
		} else {
			m.more = append(m.more, e.Summary(part.Request))
		}
	}
	return m
}

func (m meter) summary(part int) *topo.Summary {
	if part == 0 {
		return m.first
	}
	return m.more[part-1]
}

func (m meter) members(part int, f domainFit) int {
	on := func(most int32) int { return m.engine.Catalog.RoomOn(&m.gang.unit.Parts[part], f.node, int(most)) }
	switch only := m.gang.unit.Only; {
	case f.domain >= 0:
		return m.engine.Catalog.RoomFor(&m.gang.unit.Parts[part], m.summary(part), f.domain)
	case only != nil:
		return on(m.engine.FitOn(m.gang.unit.Parts[part].Request, f.node, only.GPUs).Members)
	case m.island:
		return on(m.summary(part).Fit(f.node).Island)
	default:
		return on(m.summary(part).Fit(f.node).Members)
	}
}

// takes reports whether the domain takes every part by itself.
func (m meter) takes(f domainFit) bool {
	for i, part := range m.gang.unit.Parts {
		if m.members(i, f) < part.Count {
			return false
		}
	}
	return true
}

// measure sets f's numbers.
func (m meter) measure(f *domainFit) {
	f.fit, f.gpus = 0, 0
	only := m.gang.unit.Only
	for i, part := range m.gang.unit.Parts {
		if part.Count == 0 {
			continue
		}
		f.fit += min(part.Count, m.members(i, *f))
		switch {
		case f.domain >= 0:
			f.gpus = max(f.gpus, m.summary(i).GPUs(f.domain))
		case only != nil:
			f.gpus = max(f.gpus, int(m.engine.FitOn(part.Request, f.node, only.GPUs).GPUs))
		default:
			f.gpus = max(f.gpus, int(m.summary(i).Fit(f.node).GPUs))
		}
	}
}

// unsliced is how many members the domain would take if they did not come in
// slices.
func (m meter) unsliced(f domainFit) int {
	loose, unit := *m.gang, *m.gang.unit
	unit.Parts = slices.Clone(unit.Parts)
	for i := range unit.Parts {
		unit.Parts[i].Slices = place.Slices{}
	}
	loose.unit, m.gang = &unit, &loose
	m.measure(&f)
	return f.fit
}

// refine counts anew what the domain takes, all parts together and with what
// tells the gang's members apart.
func (c *cycle) refine(e *place.Engine, g *gang, f *domainFit) {
	m := newMeter(e, g)
	m.measure(f)
	f.apart = f.fit
	if g.sliced() {
		f.apart = m.unsliced(*f)
	}
	if u := g.unit; len(u.Parts) > 1 || len(u.Quotas)+len(u.Taken)+len(u.TakenByPart) > 0 {
		f.fit = min(f.fit, e.Most(u, f.domain, f.lo, f.hi, m.island))
	}
}

// bestDomain finds the domain that is nearest to taking the gang, of those
// that its topology allows. A single member may be anywhere: then the cluster
// is measured.
func (c *cycle) bestDomain(e *place.Engine, g *gang) domainFit {
	m := newMeter(e, g)
	if g.members == 1 && g.unit.Topology.Mode != model.TopologyRequire {
		within := &c.tree.Domains[g.unit.Within]
		f := domainFit{domain: g.unit.Within, lo: within.Lo, hi: within.Hi, path: within.Path, level: c.levelOf(within)}
		m.measure(&f)
		return f
	}
	best, any := domainFit{}, false
	c.eachDomain(g, func(f domainFit) {
		m.measure(&f)
		if !any || f.nearer(best) {
			best, any = f, true
		}
	})
	if any && best.domain < 0 {
		best.path = c.nodePath(best.node)
	}
	return best
}

func (c *cycle) nodePath(node int32) string {
	n := &c.tree.Nodes[node]
	if outer := c.tree.Domains[n.Leaf].Path; outer != "" {
		return outer + "/" + nodeName(n.Model)
	}
	return nodeName(n.Model)
}

// eachDomain calls f with everything in which the gang may be as a whole:
// nodes for what needs only one, else domains of the level required.
func (c *cycle) eachDomain(g *gang, f func(domainFit)) {
	t := g.unit.Topology
	require := t.Mode == model.TopologyRequire
	within := c.tree.Domains[g.unit.Within]
	level := c.tree.LevelIndex(t.Level)
	switch only := g.unit.Only; {
	case only != nil:
		f(domainFit{domain: -1, node: only.Node, lo: only.Node, hi: only.Node + 1, level: t.Level})
	case require && level < 0:
		c.eachNode(within, t.Level, f)
	case require:
		for _, d := range c.tree.ByLevel[level] {
			if dom := &c.tree.Domains[d]; within.Lo <= dom.Lo && dom.Hi <= within.Hi {
				f(domainFit{domain: d, lo: dom.Lo, hi: dom.Hi, level: t.Level, path: dom.Path})
			}
		}
	case g.members == 1:
		c.eachNode(within, model.LevelNode, f)
	default:
		f(domainFit{domain: g.unit.Within, lo: within.Lo, hi: within.Hi, path: within.Path, level: c.levelOf(&within)})
	}
}

func (c *cycle) eachNode(within topo.Domain, level string, f func(domainFit)) {
	for node := within.Lo; node < within.Hi; node++ {
		f(domainFit{domain: -1, node: node, lo: node, hi: node + 1, level: level})
	}
}

// levelOf names a domain's level; "" is the cluster's.
func (c *cycle) levelOf(d *topo.Domain) string {
	if d.Level < 0 {
		return ""
	}
	return c.tree.Levels[d.Level]
}

func nodeName(n *model.Node) string {
	if n.Name != "" {
		return n.Name
	}
	return n.ID
}

func jobName(k jobKey) string {
	if k.namespace == "" || k.namespace == "default" {
		return k.id
	}
	return k.namespace + "/" + k.id
}
