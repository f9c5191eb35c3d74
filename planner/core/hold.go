package core

import (
	"maps"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// hold is what one waiting gang keeps.
type hold struct {
	job jobKey
	// divides are the GPUs, in words, that are divided for it, now or once idle.
	divides string
}

// claim is what is left of a node kept by single members alike: a node that
// one of them waits for may have room for more of them.
type claim struct {
	node int32
	left int
}

// kept says what was kept for a gang: all nodes, and those of them that have
// to become free first.
type kept struct {
	nodes []int32
	busy  []int32
	// in is the domain in which it was kept, if one was chosen.
	in domainFit
	// timed: from a time on, and until then others may use it who end before.
	timed bool
	// drained: from now on, and until then they may use it who end within open.
	drained bool
	open    time.Duration
	// postponed: it is kept later.
	postponed bool
	// divides: GPUs are to be divided for it once they are idle; gpus says which.
	divides bool
	gpus    string
}

// keep keeps nodes for a gang that waits: in the domain nearest to taking it,
// room for the members that fit now, and for the others the nodes with the
// most free, whole. What the nodes in a domain have free never shrinks while
// they are kept, so another domain is chosen only when it is nearer still, and
// the gang gets its turn. Nothing is kept if the jobs ahead leave too little, nor
// for a gang that runs already and would grow.
func (c *cycle) keep(j *model.Job, g *gang, why possibility) kept {
	if why.code != "" || g.grown > 0 {
		return kept{}
	}
	if c.postponing {
		c.postponed = append(c.postponed, postponed{j, g, &toldLate{why: why}})
		return kept{postponed: true}
	}
	return c.keepNow(j, g, why)
}

// keepNow does so at once.
func (c *cycle) keepNow(j *model.Job, g *gang, why possibility) kept {
	first := c.guaranteed[keyOf(j)] != nil
	if c.hasBought(j) || c.keepsNothing(j) && !first || !c.mayHold(j) {
		return kept{}
	}
	if c.policy.Backfills() || first || !c.standing(j).Latest.IsZero() {
		overdue := !first && c.overdue(j)
		c.draining = c.draining || overdue
		if k, ok := c.reserve(j, g); ok {
			if overdue && !k.divides {
				nodes := k.nodes
				if soon := c.clearing[keyOf(j)]; soon != nil {
					nodes = soon
				}
				c.drain(j, g, &k, nodes)
			}
			return k
		}
	}
	c.unsure = true
	if k, ok := c.shareClaim(g); ok {
		return k
	}
	c.beginHolding()
	undo := c.lookFor(g, why.view)
	k, ok := c.keepSome(g, why.view)
	if !ok {
		undo()
		return kept{}
	}
	c.holds = append(c.holds, hold{job: keyOf(j)})
	c.keptNow(j, g, k.nodes)
	undo()
	c.epoch++
	return k
}

// maxNamed is for how many gangs that keep nothing, as they displace others once their turn
// has come, it is looked in one plan who is in their way.
const maxNamed = 16

// wouldKeep are the busy nodes that such a gang would keep.
func (c *cycle) wouldKeep(j *model.Job, g *gang, why possibility) []int32 {
	key, plain := keyOfGang(g)
	if !c.keepsNothing(j) || c.hasBought(j) || !plain || c.named >= maxNamed || c.ahead != nil && len(c.ahead.booked) > 0 {
		return nil
	}
	c.named++
	claimed, there := c.claims[key]
	undo := c.lookFor(g, why.view)
	state := c.views[viewNow].State
	mark := state.Mark()
	k, _ := c.keepSome(g, why.view)
	state.Revert(mark)
	undo()
	if there {
		c.claims[key] = claimed
	} else {
		delete(c.claims, key)
	}
	return k.busy
}

// beginHolding brings the view without what is kept up to date, before the
// first thing is kept.
func (c *cycle) beginHolding() {
	if c.truthful {
		return
	}
	c.truthful = true
	for _, t := range c.takers {
		c.views[viewTrue].Take(t.unit, t.placed)
	}
	for _, l := range c.landings {
		if !l.landed {
			c.views[viewTrue].Take(l.gang.unit, l.placed)
		}
	}
}

// maxTargets is how many domains are tried before a gang keeps nothing.
const maxTargets = 8

// keepSome tries the domains, the nearest first. A gang whose members differ,
// come in slices, or are told apart by property, is then placed as if the cluster were empty,
// and keeps what that takes.
func (c *cycle) keepSome(g *gang, view int) (kept, bool) {
	state := c.views[viewNow].State
	mark := state.Mark()
	tried := map[[2]int32]bool{}
	for range maxTargets {
		if len(g.unit.Quotas) > 0 || g.sliced() {
			break
		}
		best, ok := c.target(g, view, tried)
		if !ok {
			break
		}
		if k, ok := c.keepIn(g, best, view); ok {
			return k, true
		}
		state.Revert(mark)
		tried[[2]int32{best.lo, best.hi}] = true
	}
	if len(g.unit.Parts) > 1 || len(g.unit.Quotas) > 0 || g.sliced() {
		return c.keepPlanned(g, view)
	}
	return kept{}, false
}

// keepPlanned keeps, whole, the nodes on which the gang would be if everything
// but what jobs ahead keep were free.
func (c *cycle) keepPlanned(g *gang, view int) (kept, bool) {
	now, later := c.views[viewNow].State, c.views[view]
	mark := later.State.Mark()
	for node := range int32(now.Len()) {
		if owner := now.Row(node).Owner; owner != 0 {
			later.State.Keep(node, owner)
		}
	}
	result, ok := later.Place(g.unit)
	later.State.Revert(mark)
	if !ok {
		return kept{}, false
	}
	var k kept
	for i := range result.Placed {
		if node := result.Placed[i].Node; !slices.Contains(k.nodes, node) {
			now.Keep(node, int32(len(c.holds)+1))
			k.nodes = append(k.nodes, node)
			if len(c.holders(node))+len(c.givenAt(node)) > 0 {
				k.busy = append(k.busy, node)
			}
		}
	}
	return k, true
}

// target chooses the domain to keep nodes in: of those that will have room,
// and were not tried, the one nearest to it.
func (c *cycle) target(g *gang, view int, tried map[[2]int32]bool) (best domainFit, ok bool) {
	now, later := newMeter(c.views[viewNow], g), newMeter(c.views[view], g)
	forbidden := g.forbidden()
	c.eachDomain(g, func(f domainFit) {
		if f.domain < 0 && (forbidden[f.node] || c.views[viewNow].State.Row(f.node).Owner != 0) || tried[[2]int32{f.lo, f.hi}] || !later.takes(f) {
			return
		}
		now.measure(&f)
		if !ok || f.nearer(best) {
			best, ok = f, true
		}
	})
	if ok && best.domain < 0 {
		best.path = c.nodePath(best.node)
	}
	return best, ok
}

// keepIn keeps nodes in a domain; false if jobs ahead have left too few.
func (c *cycle) keepIn(g *gang, f domainFit, view int) (kept, bool) {
	now, later := c.views[viewNow], c.views[view]
	owner := int32(len(c.holds) + 1)
	k := kept{in: f}
	if f.domain < 0 {
		c.keepNode(g, f.node, owner)
		k = kept{nodes: []int32{f.node}, busy: []int32{f.node}, in: f}
		if key, plain := keyOfGang(g); plain && len(g.unit.Parts) == 1 && g.members == 1 {
			r := g.unit.Parts[0].Request
			c.claims[key] = claim{f.node, int(later.Summary(r).Fit(f.node).Members) - 1}
		}
		return k, true
	}
	if len(g.unit.Parts) > 1 {
		return c.keepParts(g, k, view)
	}
	forbidden := g.forbidden()
	part := g.unit.Parts[0]
	fit := min(part.Count, now.Summary(part.Request).Members(f.domain))
	onNode := c.scratch.counts(now.State.Len())
	for _, p := range now.Fill(part.Request, f.domain, fit) {
		if onNode[p.Node]++; onNode[p.Node] == 1 {
			k.nodes = append(k.nodes, p.Node)
		}
	}
	filled := len(k.nodes)
	lacking := part.Count - fit
	summary := later.Summary(part.Request)
	for _, node := range c.byFree(part.Request, f) {
		if lacking <= 0 {
			break
		}
		room := int(summary.Fit(node).Members) - int(onNode[node])
		if room <= 0 || forbidden[node] {
			continue
		}
		lacking -= room
		now.State.Keep(node, owner)
		if onNode[node] == 0 {
			k.nodes = append(k.nodes, node)
		}
		k.busy = append(k.busy, node)
	}
	for _, node := range k.nodes[:filled] {
		onNode[node] = 0
	}
	slices.Sort(k.nodes)
	return k, lacking <= 0
}

// keepParts keeps nodes in a domain for members that differ. What each part
// takes is taken in both views, so that the parts do not count on the same
// room.
func (c *cycle) keepParts(g *gang, k kept, view int) (kept, bool) {
	now, later := c.views[viewNow], c.views[view]
	owner := int32(len(c.holds) + 1)
	mark := later.State.Mark()
	defer later.State.Revert(mark)
	nodes, forbidden := map[int32]bool{}, g.forbidden()
	order := slices.Clone(g.unit.Parts)
	slices.SortStableFunc(order, func(a, b place.Part) int { return b.Request.GPUs - a.Request.GPUs })
	for _, part := range order {
		alone := &place.Unit{Parts: []place.Part{part}}
		fit := now.Fill(part.Request, k.in.domain, min(part.Count, now.Summary(part.Request).Members(k.in.domain)))
		later.Take(alone, fit)
		for _, p := range fit {
			nodes[p.Node] = true
			if g.unit.Apart {
				now.State.Keep(p.Node, owner)
				later.State.Keep(p.Node, owner)
			}
		}
		lacking := part.Count - len(fit)
		candidates := c.byFree(part.Request, k.in)
		if !g.unit.Apart {
			candidates = append(slices.Clone(k.busy), candidates...)
		}
		for _, node := range candidates {
			if lacking <= 0 {
				break
			}
			put := later.Put(part.Request, node, lacking)
			if forbidden[node] || put == 0 {
				continue
			}
			lacking -= put
			nodes[node] = true
			now.State.Keep(node, owner)
			if g.unit.Apart {
				later.State.Keep(node, owner)
			}
			if !slices.Contains(k.busy, node) {
				k.busy = append(k.busy, node)
			}
		}
		if lacking > 0 {
			return kept{}, false
		}
	}
	k.nodes = slices.Sorted(maps.Keys(nodes))
	return k, true
}

// forbidden are the nodes that distinct_hosts forbids to some part.
func (g *gang) forbidden() map[int32]bool {
	if len(g.unit.Taken)+len(g.unit.TakenByPart) == 0 {
		return nil
	}
	out := map[int32]bool{}
	for _, list := range append(slices.Clone(g.unit.TakenByPart), g.unit.Taken) {
		for _, node := range list {
			out[node] = true
		}
	}
	return out
}

// byFree lists a domain's nodes that nobody keeps, those with the most free
// GPUs first. The list is good until the next one.
func (c *cycle) byFree(r *place.Request, f domainFit) []int32 {
	now := c.views[viewNow]
	summary := now.Summary(r)
	var count [topo.MaxGPUs + 1]int32 // by free GPUs: the nodes, then where they begin
	for node := f.lo; node < f.hi; node++ {
		if now.State.Row(node).Owner == 0 {
			count[summary.Fit(node).GPUs]++
		}
	}
	total := int32(0)
	for free := topo.MaxGPUs; free >= 0; free-- {
		count[free], total = total, total+count[free]
	}
	out := slices.Grow(c.scratch.nodes[:0], int(total))[:total]
	for node := f.lo; node < f.hi; node++ {
		if now.State.Row(node).Owner == 0 {
			free := summary.Fit(node).GPUs
			out[count[free]] = node
			count[free]++
		}
	}
	c.scratch.nodes = out
	return out
}

// shareClaim lets a single member wait for a node that its like keeps already.
func (c *cycle) shareClaim(g *gang) (kept, bool) {
	key, plain := keyOfGang(g)
	if !plain || len(g.unit.Parts) != 1 || g.members != 1 || len(g.unit.Quotas) > 0 {
		return kept{}, false
	}
	cl, known := c.claims[key]
	if !known || cl.left <= 0 {
		return kept{}, false
	}
	cl.left--
	c.claims[key] = cl
	f := domainFit{domain: -1, node: cl.node, lo: cl.node, hi: cl.node + 1, level: model.LevelNode, path: c.nodePath(cl.node)}
	newMeter(c.truth(), g).measure(&f)
	return kept{nodes: []int32{cl.node}, busy: []int32{cl.node}, in: f}, true
}

// sortedNodes are nodes in order, each once.
func sortedNodes(nodes []int32) []int32 {
	slices.Sort(nodes)
	return slices.Compact(nodes)
}
