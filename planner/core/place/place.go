package place

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Place finds places for a unit and takes them. If it does not fit, nothing
// is taken and ok is false.
func (e *Engine) Place(u *Unit) (r Result, ok bool) {
	mark := e.State.Mark()
	if r, ok = e.place(u); ok && u.Alike {
		r = e.alike(u, r, mark)
	}
	return r, ok
}

func (e *Engine) place(u *Unit) (r Result, ok bool) {
	start := e.State.Mark()
	e.ban(u)
	a := attempt{Engine: e, unit: u, steps: maxSteps, order: byWeight(u), required: -1}
	if u.Topology.Mode == model.TopologyRequire {
		a.required = levelIndex(e.Catalog.Tree, u.Topology.Level)
	}
	a.openQuotas()
	if !a.run() {
		e.State.Revert(start)
		return Result{}, false
	}
	slices.SortStableFunc(a.placed, func(x, y Placed) int {
		return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(firstGPU(x), firstGPU(y)), cmp.Compare(x.Part, y.Part))
	})
	if len(u.Taken)+len(u.TakenByPart) > 0 || u.Apart {
		// Nodes were kept from the unit's own parts meanwhile.
		e.State.Revert(start)
		e.Take(u, a.placed)
	}
	return Result{Placed: a.placed, Level: a.level, Domain: a.domain}, true
}

func firstGPU(p Placed) int {
	if len(p.GPUs) == 0 {
		return -1
	}
	return int(slices.Min(p.GPUs))
}

// Take takes what a placement needs.
func (e *Engine) Take(u *Unit, placed []Placed) topo.Undo {
	undo := e.State.Mark()
	for i := range placed {
		p := &placed[i]
		e.State.Take(p.Node, e.Claim(u, p))
	}
	return undo
}

// selfOwner keeps nodes from the unit that is being placed.
const selfOwner = -1

// ban keeps the nodes that distinct_hosts forbids to all parts.
func (e *Engine) ban(u *Unit) {
	for _, node := range u.Taken {
		e.State.Keep(node, selfOwner)
	}
}

// byWeight orders parts: the hardest to place first.
func byWeight(u *Unit) []int {
	order := make([]int, 0, len(u.Parts))
	for i := range u.Parts {
		if u.Parts[i].Count > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int {
		a, b := u.Parts[x].Request, u.Parts[y].Request
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.Resources.MemoryMiB, a.Resources.MemoryMiB), cmp.Compare(b.Resources.CPUMHz, a.Resources.CPUMHz))
	})
	return order
}

// attempt is one search.
type attempt struct {
	*Engine
	unit  *Unit
	order []int
	// required is the level of the tree that a node must have, if not negative.
	required int
	// steps is what is left of the exhaustive search's budget.
	steps         int
	placed        []Placed
	quotas        []quota
	counted       []quotaUse
	level, domain string
}

// maxSteps bounds the exhaustive search of one unit. Only units of unequal
// members, or with distinct properties, ever use it.
const maxSteps = 8000

// run tries domains, tightest level first.
func (a *attempt) run() bool {
	if len(a.order) == 0 {
		return true
	}
	want := a.unit.Topology
	if a.single() && want.Mode != model.TopologyRequire {
		want = model.Topology{} // all levels are as near to one member
	}
	for _, level := range a.Catalog.levelsFor(want) {
		if a.tryLevel(level) {
			return true
		}
	}
	return false
}

// The levels beside the tree's own.
const (
	atIsland  = -3
	atNode    = -2
	atCluster = -1
)

func (c *Catalog) levelsFor(want model.Topology) []int {
	list, known := c.levels[want]
	if !known {
		list = levels(c.Tree, want)
		c.levels[want] = list
	}
	return list
}

// levels lists the levels to try: up to the one required; from the one
// preferred on; else all, from the inside out.
func levels(t *topo.Tree, want model.Topology) []int {
	all := []int{atIsland, atNode}
	for l := len(t.Levels) - 1; l >= 0; l-- {
		all = append(all, l)
	}
	all = append(all, atCluster)
	at := slices.Index(all, levelIndex(t, want.Level))
	switch {
	case want.Mode == model.TopologyRequire:
		return all[:at+1]
	case want.Level != "":
		return all[max(at, 0):]
	default:
		return all
	}
}

// levelIndex is a level's index in the tree, or one of the constants above.
func levelIndex(t *topo.Tree, level string) int {
	switch level {
	case model.LevelIsland:
		return atIsland
	case model.LevelNode:
		return atNode
	case "":
		return atCluster
	}
	if l := t.LevelIndex(level); l >= 0 {
		return l
	}
	return unknownLevel
}

// unknownLevel is no level: what requires it fits nowhere.
const unknownLevel = -4

// single reports whether the unit is one member, to which every domain is as
// tight as another.
func (a *attempt) single() bool {
	return len(a.order) == 1 && a.unit.Parts[a.order[0]].Count == 1
}

func (a *attempt) tryLevel(level int) bool {
	if a.unit.Only != nil {
		return level < atCluster && a.tryNode(a.unit.Only.Node, level == atIsland)
	}
	if level < atCluster && a.single() && len(a.unit.Quotas)+len(a.unit.TakenByPart) == 0 {
		return a.tryOne(level)
	}
	switch level {
	case atIsland:
		return a.tryNodes(true)
	case atNode:
		return a.tryNodes(false)
	}
	domains := []int32{topo.Root}
	if level >= 0 {
		domains = a.Catalog.Tree.ByLevel[level]
	}
	return a.tryDomains(domains)
}

// tryOne places a single member on the best node there is.
func (a *attempt) tryOne(level int) bool {
	part := a.order[0]
	p := a.profile(a.unit.Parts[part].Request)
	node, score, ok := int32(0), uint32(0), false
	if a.required < 0 {
		node, score, ok = a.bestNode(p, a.unit.Within)
	} else {
		fullest := 0
		for _, d := range a.Catalog.Tree.ByLevel[a.required] {
			if d = a.clip(d); !a.within(d) {
				continue
			}
			n, s, any := a.bestNode(p, d)
			if m := p.summary.Members(d); any && (!ok || s < score || s == score && m < fullest) {
				node, score, fullest, ok = n, s, m, true
			}
		}
	}
	if !ok || level == atIsland && score&acrossBit != 0 {
		return false
	}
	if !slices.ContainsFunc(a.limits(node, level == atIsland, a.need()), func(limit uint64) bool { return a.put(part, node, 1, limit) }) {
		return false
	}
	if len(a.placed[0].GPUs) < 2 {
		level = atNode // a GPU by itself is in an island anyway
	}
	a.name(level, node)
	return true
}

// clip is what of a domain is inside the one that the unit is limited to.
func (a *attempt) clip(domain int32) int32 {
	d, w := &a.Catalog.Tree.Domains[domain], &a.Catalog.Tree.Domains[a.unit.Within]
	if d.Lo <= w.Lo && w.Hi <= d.Hi && d.Level < w.Level {
		return a.unit.Within
	}
	return domain
}

// within reports whether a domain may be used: it lies in the one that the unit
// is limited to, and has the level required.
func (a *attempt) within(domain int32) bool {
	tree := a.Catalog.Tree
	d, w := &tree.Domains[domain], &tree.Domains[a.unit.Within]
	if d.Lo < w.Lo || d.Hi > w.Hi {
		return false
	}
	for a.required >= 0 && d.Level != a.required {
		if d.Parent < 0 {
			return false
		}
		d = &tree.Domains[d.Parent]
	}
	return true
}

// name records the node or island chosen. An island's path ends in its number
// in the node.
func (a *attempt) name(level int, node int32) {
	t := a.Catalog.Tree
	n := &t.Nodes[node]
	a.level, a.domain = model.LevelNode, n.Model.Name
	if a.domain == "" {
		a.domain = n.Model.ID
	}
	if outer := t.Domains[n.Leaf].Path; outer != "" {
		a.domain = outer + "/" + a.domain
	}
	if level != atIsland {
		return
	}
	for i := range a.placed {
		if gpus := a.placed[i].GPUs; len(gpus) > 0 {
			a.level = model.LevelIsland
			a.domain += "/" + strconv.Itoa(n.Model.GPUs[gpus[0]].Island)
			return
		}
	}
}

// tryDomains tries the domains in which every part fits by itself, the
// fullest first.
func (a *attempt) tryDomains(domains []int32) bool {
	type option struct {
		domain int32
		spare  int
	}
	summaries := make([]*topo.Summary, len(a.order))
	for k, i := range a.order {
		summaries[k] = a.profile(a.unit.Parts[i].Request).summary
	}
	var options []option
	exact := len(a.order) == 1 && len(a.unit.Quotas)+len(a.unit.TakenByPart) == 0
	first := &a.unit.Parts[a.order[0]]
	plain := exact && first.Slices.Size == 0
	for _, d := range domains {
		if plain && summaries[0].Members(d) < first.Count {
			continue
		}
		d = a.clip(d)
		spare, ok := 0, true
		for k, i := range a.order {
			part := &a.unit.Parts[i]
			left := a.Catalog.RoomFor(part, summaries[k], d) - part.Count
			ok = ok && left >= 0
			if part.Slices.Size > 0 && part.Slices.Level >= 0 && a.Catalog.Tree.Domains[d].Level >= part.Slices.Level {
				left = summaries[k].Members(d) - part.Count // it is inside of one slice's domain
			}
			spare += left
		}
		if !ok || exact && len(options) > 0 && (spare > options[0].spare || spare == options[0].spare && len(a.wants) == 0) || !a.within(d) || !a.quotasLet(summaries, a.Catalog.Tree.Domains[d].Lo, a.Catalog.Tree.Domains[d].Hi, false) {
			continue
		}
		if exact && len(options) > 0 && spare < options[0].spare {
			options = options[:0] // equal members fit: only the best count
		}
		options = append(options, option{d, spare})
	}
	slices.SortStableFunc(options, func(x, y option) int { return cmp.Compare(x.spare, y.spare) })
	tree := a.Catalog.Tree
	if exact && len(options) > 1 {
		part := &a.unit.Parts[a.order[0]]
		at := a.least(len(options), func(i int) float64 {
			return a.gradient(options[i].domain, tree.Domains[options[i].domain].Lo, part.Request.GPUs, part.Count)
		})
		options = options[at : at+1]
	}
	for _, o := range options {
		dom := &tree.Domains[o.domain]
		if a.tryRange(o.domain, dom.Lo, dom.Hi, ^uint64(0)) {
			a.domain = dom.Path
			a.level = ""
			if dom.Level >= 0 {
				a.level = tree.Levels[dom.Level]
			}
			return true
		}
	}
	return false
}
