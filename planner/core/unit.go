package core

import (
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// gang is one unit of a job, with the names of what it places.
type gang struct {
	unit *place.Unit
	// groups and indexes are, by part, the task group and the indexes of the
	// members to be placed.
	groups  []*model.TaskGroup
	indexes [][]int
	// members and gpus are how many it wants.
	members, gpus int
	// named: its job has other gangs, so it is to be told by its group's name.
	named bool
	// astray: a level is required that its members in force do not share.
	astray bool
	// halved: several of its slices lack members, so it is astray.
	halved bool
	// nowhere says why there is no region for it, so it is astray.
	nowhere string
	// grown is how many members the gang has already, which it is to run beside.
	grown int
	// near is the smallest domain around those.
	near int32
	// within limits it to a domain, topo.Root to none.
	within int32
	// promised is the domain in which its job was promised its deadline, topo.Root for
	// none: it is to be there.
	promised int32
	// replaces: it gets members anew whose nodes have failed.
	replaces bool
	// runs is how long it is expected to, and queue its queue where that has
	// standing capacity.
	runs  time.Duration
	queue string
	// outlook is when it is expected to start, where it has a reservation; lent is
	// set on one that is placed where others will start.
	outlook *outlook
	lent    bool
	// landing is the place that is kept for it, nil if none is.
	landing *landing
	// refused is why its queue may not have so much.
	refused *queue.Refusal
	// heldBack says why those do not give way whom it goes before.
	heldBack string
	// short is set on one that has fewer members than it asks for.
	short *shorter
	// options are the ways to serve it where its job names models of GPUs; unit is
	// that of the one at, and took is the one that placed it.
	options  []option
	at, took int
	// request is what the members of a job's group ask for, as far as it is known
	// already.
	request    *place.Request
	requestOf  *model.TaskGroup
	requestFor *model.Job
	// answers are where gangs alike find what they were answered, and answersFor is the
	// unit for which that was found out.
	answers    *answered
	answersFor *place.Unit
}

// gangs splits a job into what starts together.
func (p *Prepared) gangs(j *model.Job) []gang {
	var out []gang
	whole := gang{}
	groups := 0
	for i := range j.Groups {
		g := &j.Groups[i]
		lacking := missing(j, g)
		if g.Count > 0 {
			groups++
		}
		switch gangOf(j) {
		case model.GangJob:
			whole.add(g, lacking)
		case model.GangGroup:
			if len(lacking) > 0 {
				one := gang{}
				one.add(g, lacking)
				if g.Max > 0 {
					one.grown = inForce(j, g.Name)
				}
				out = append(out, one)
			}
		default:
			for _, index := range lacking {
				one := gang{}
				one.add(g, []int{index})
				out = append(out, one)
			}
		}
	}
	if whole.members > 0 {
		whole.grown = inForce(j, "")
		out = append(out, whole)
	}
	for i := range out {
		out[i].named = groups > 1
	}
	return out
}

func (g *gang) add(group *model.TaskGroup, indexes []int) {
	if g.groups == nil { // most have one
		one := new(struct {
			groups  [1]*model.TaskGroup
			indexes [1][]int
		})
		g.groups, g.indexes = one.groups[:0], one.indexes[:0]
	}
	g.groups = append(g.groups, group)
	g.indexes = append(g.indexes, indexes)
	g.members += len(indexes)
	for _, d := range group.Devices {
		g.gpus += d.Count * len(indexes)
	}
}

// exact reports whether a placement is found whenever there is one.
func (g *gang) exact() bool { return len(g.unit.Parts) == 1 && len(g.unit.Quotas) < 2 }

// prepare compiles a gang's unit, or one for each way to serve it.
func (c *cycle) prepare(j *model.Job, g *gang) {
	g.options, g.at = g.options[:0], 0
	routes, none := c.routes(j, g)
	sites := c.sites(j, g)
	if len(routes) > 0 || len(sites) > 0 || len(j.Models) > 0 && g.gpus > 0 {
		c.prepareOptions(j, g, routes, sites)
		if none != "" {
			g.nowhere, g.astray = none, true
		}
		return
	}
	c.prepareUnit(j, g)
	if g.nowhere = none; none != "" {
		g.astray = true
	}
}

func (c *cycle) prepareUnit(j *model.Job, g *gang) {
	one := new(struct {
		unit  place.Unit
		parts [1]place.Part
	})
	u := &one.unit
	g.promised = c.standing(j).Domain
	*u = place.Unit{Parts: one.parts[:0], Topology: j.Topology, Within: g.home()}
	g.runs, _ = c.expected(j)
	if g.short != nil && g.grown == 0 {
		g.runs = c.atSize(j, g.runs, g.members, g.gpus)
	}
	g.queue = c.apartFor(j)
	g.replaces = c.replaces(j)
	distinct := false
	for i, group := range g.groups {
		part := place.Part{Request: c.requestOf(j, g, group), Count: len(g.indexes[i])}
		if s := group.Slice; s.Size > 0 && gangOf(j) != model.GangNone {
			part.Slices = place.Slices{Size: s.Size, Level: c.catalog.SliceLevel(s.Level)}
		}
		u.Parts = append(u.Parts, part)
		distinct = distinct || needsOthers(group.Constraints)
	}
	g.unit = u
	if distinct || needsOthers(j.Constraints) {
		c.distinguish(j, g)
	}
	if u.Topology.Mode == model.TopologyRequire && (gangOf(j) == model.GangGroup || g.grown > 0) {
		c.joinOthers(j, g)
	}
	c.joinSlices(j, g)
	c.likeOthers(j, g)
	if g.within != topo.Root {
		u.Within = g.within
	}
	switch {
	case g.grown > 0:
		c.onlyWhole(j, g)
	case g.short != nil:
		c.keepWhole(g)
	}
}

// requestOf compiles a group of a gang, unless that is what was compiled last: where
// queues take turns most gangs are prepared several times.
func (c *cycle) requestOf(j *model.Job, g *gang, group *model.TaskGroup) *place.Request {
	if g.requestFor != j || g.requestOf != group {
		g.request, g.requestFor, g.requestOf = c.catalog.Compile(j, group), j, group
	}
	return g.request
}

func needsOthers(constraints []model.Constraint) bool {
	return slices.ContainsFunc(constraints, func(c model.Constraint) bool {
		return c.Operand == feasible.OperandDistinctHosts || c.Operand == feasible.OperandDistinctProperty
	})
}

// other is a member of the job that is somewhere already.
type other struct {
	node     int32
	group    string
	stopping bool
}

// others lists where the job has members: its allocations, and members placed
// earlier, in this decision too.
func (c *cycle) others(j *model.Job) []other {
	var out []other
	for _, a := range c.jobAllocs(keyOf(j)) {
		if at, ok := c.tree.Find(a.Node); ok {
			out = append(out, other{at, a.Group, a.Stopping})
		}
	}
	if holdsMembers(j) {
		for i := range j.Members {
			m := &j.Members[i]
			if m.Ended {
				continue
			}
			if at, ok := c.tree.Find(m.Node); ok && !slices.ContainsFunc(out, func(o other) bool { return o.node == at && o.group == m.Group }) {
				out = append(out, other{at, m.Group, false})
			}
		}
	}
	return append(out, c.placedNow...)
}

// distinguish sets what distinct_hosts and distinct_property ask. A stopping
// allocation still counts for hosts, but not for properties, as in Nomad.
func (c *cycle) distinguish(j *model.Job, g *gang) {
	u, others := g.unit, c.others(j)
	u.Apart = feasible.DistinctHosts(j.Constraints)
	if u.Apart {
		for _, o := range others {
			u.Taken = append(u.Taken, o.node)
		}
	}
	for i, group := range g.groups {
		if !u.Apart && feasible.DistinctHosts(group.Constraints) {
			if u.TakenByPart == nil {
				u.TakenByPart = make([][]int32, len(g.groups))
			}
			for _, o := range others {
				if o.group == group.Name {
					u.TakenByPart[i] = append(u.TakenByPart[i], o.node)
				}
			}
		}
		c.addQuotas(u, feasible.Properties(group.Constraints), i, group.Name, others)
	}
	c.addQuotas(u, feasible.Properties(j.Constraints), -1, "", others)
}

func (c *cycle) addQuotas(u *place.Unit, properties []feasible.Property, part int, group string, others []other) {
	for _, property := range properties {
		q := place.Quota{Target: property.Target, Limit: property.Count, Part: part, Used: map[string]int{}}
		for _, o := range others {
			if o.stopping || part >= 0 && o.group != group {
				continue
			}
			if text, found := c.catalog.Nodes.Value(q.Target, int(o.node)); found {
				q.Used[text]++
			}
		}
		u.Quotas = append(u.Quotas, q)
	}
}

// joinOthers limits a gang to the domain of the level required in which its
// members in force are. Those that have ended are nowhere any more.
func (c *cycle) joinOthers(j *model.Job, g *gang) {
	if !holdsMembers(j) {
		return
	}
	level, members := c.tree.LevelIndex(j.Topology.Level), inOrderOf(j.Members)
	for i := range members {
		m := &members[i]
		at, ok := c.tree.Find(m.Node)
		if m.Ended || gangOf(j) == model.GangGroup && m.Group != g.groups[0].Name || !ok {
			continue
		}
		joined := false
		if level >= 0 {
			joined = g.joinDomain(c.tree.DomainAt(at, level))
		} else {
			joined = g.joinSpot(c.spot(at, m, j.Topology.Level == model.LevelIsland))
		}
		if !joined {
			g.astray = true
			return
		}
	}
}

// joinDomain limits the gang to a domain; false if there is none, or another
// one is set already.
func (g *gang) joinDomain(d int32) bool {
	if d < 0 || g.unit.Within != g.home() && g.unit.Within != d {
		return false
	}
	g.unit.Within = d
	return true
}

// joinSpot limits the gang to a spot; false if it is at another one already.
func (g *gang) joinSpot(s place.Spot) bool {
	only := g.unit.Only
	switch {
	case s.GPUs == 0 || only != nil && only.Node != s.Node:
		return false
	case only == nil:
		g.unit.Only = &s
		return true
	}
	only.GPUs &= s.GPUs // a member without GPUs is in every island of its node
	return only.GPUs != 0
}

// spot is a member's node or, in it, the island that it is in; no GPUs if it is
// in several.
func (c *cycle) spot(node int32, m *model.Member, island bool) place.Spot {
	s := place.Spot{Node: node, GPUs: ^uint64(0)}
	mask := c.gpuMask(node, m.GPUs)
	if !island || mask == 0 {
		return s
	}
	for _, i := range c.tree.Nodes[node].Shape.Islands {
		if mask&i != 0 {
			s.GPUs &= i
		}
	}
	return s
}
