package core

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// A job may take several GPU models and run at another speed on each. A gang
// goes as fast as its slowest member, so it is served from one model
// throughout: from the fastest that has room now. Where models may be mixed, a
// mixture comes after the slowest model in it alone, which is as fast and
// leaves the others to those who want them.

// option is one way to serve a gang.
type option struct {
	// models are those that its GPUs may be of, the fastest first; none is any.
	models []model.ModelSpeed
	// to is the region that it goes to, where there are several.
	to *route
	// on says on which nodes, bought ones or others, where there are both.
	on   site
	unit *place.Unit
}

// speed is how fast a gang goes that has some of each.
func (o *option) speed() float64 { return o.models[len(o.models)-1].Speed }

// modelSets lists what a gang may be served from, the fastest first.
func modelSets(models []model.ModelSpeed, mix bool) [][]model.ModelSpeed {
	list := slices.Clone(models)
	slices.SortStableFunc(list, func(a, b model.ModelSpeed) int { return cmp.Compare(b.Speed, a.Speed) })
	var out [][]model.ModelSpeed
	for i := range list {
		out = append(out, list[i:i+1])
		if mix && i > 0 {
			out = append(out, list[:i+1])
		}
	}
	return out
}

// prepareOptions compiles a gang's unit once for each way to serve it: on a
// faster model first, and of equal ones in the region that more speaks for.
func (c *cycle) prepareOptions(j *model.Job, g *gang, routes []route, sites []site) {
	given := g.groups
	defer func() { g.groups = given }()
	sets := [][]model.ModelSpeed{nil}
	if len(j.Models) > 0 && g.gpus > 0 {
		models := j.Models
		if !j.MixModels {
			models = c.joinModels(j, g)
		}
		sets = c.inTime(j, c.preferred(j, modelSets(models, j.MixModels)))
	}
	for _, set := range sets {
		g.groups = given
		if len(set) > 0 {
			only := onlyModels(set)
			g.groups = make([]*model.TaskGroup, len(given))
			for i, group := range given {
				g.groups[i] = withDevices(group, only)
			}
		}
		for i := range max(1, len(routes)) {
			o := option{models: set}
			if len(routes) > 0 {
				o.to = &routes[i]
			}
			c.prepareSites(j, g, o, sites)
		}
	}
	g.use(0)
}

// prepareSites compiles a gang's unit for each of the sites where it may be.
func (c *cycle) prepareSites(j *model.Job, g *gang, o option, sites []site) {
	given := g.groups
	for i := range max(1, len(sites)) {
		if len(sites) > 0 {
			o.on = sites[i]
			g.groups = make([]*model.TaskGroup, len(given))
			for k, group := range given {
				g.groups[k] = o.on.limit(group)
			}
		}
		g.options = append(g.options, o)
		g.at = len(g.options) - 1
		c.prepareUnit(j, g)
		g.options[g.at].unit = g.unit
	}
	g.groups = given
}

// preferred puts the model first that the order would give a job.
func (c *cycle) preferred(j *model.Job, sets [][]model.ModelSpeed) [][]model.ModelSpeed {
	name := c.standing(j).Model
	at := slices.IndexFunc(sets, func(set []model.ModelSpeed) bool { return len(set) == 1 && set[0].Name == name })
	if name == "" || at <= 0 {
		return sets
	}
	return slices.Concat(sets[at:at+1], sets[:at], sets[at+1:])
}

// inTime leaves out the models that are too slow for a promise, unless all are.
func (c *cycle) inTime(j *model.Job, sets [][]model.ModelSpeed) [][]model.ModelSpeed {
	least := c.standing(j).LeastSpeed
	fast := slices.DeleteFunc(slices.Clone(sets), func(set []model.ModelSpeed) bool { return set[len(set)-1].Speed < least })
	if len(fast) == 0 {
		return sets
	}
	return fast
}

// use makes one of its options a gang's present one.
func (g *gang) use(i int) {
	if i < len(g.options) {
		g.at, g.unit = i, g.options[i].unit
	}
}

// onlyModels is the constraint that lets nothing but some models pass.
func onlyModels(set []model.ModelSpeed) model.Constraint {
	if len(set) == 1 {
		return model.Constraint{Left: deviceModel, Operand: "=", Right: set[0].Name}
	}
	names := make([]string, len(set))
	for i, m := range set {
		names[i] = regexp.QuoteMeta(m.Name)
	}
	return model.Constraint{Left: deviceModel, Operand: "regexp", Right: "^(" + strings.Join(names, "|") + ")$"}
}

const deviceModel = "${device.model}"

// withDevices is a task group with more constraints on all of its devices.
func withDevices(group *model.TaskGroup, more ...model.Constraint) *model.TaskGroup {
	limited := *group
	limited.Devices = slices.Clone(group.Devices)
	for k := range limited.Devices {
		d := &limited.Devices[k]
		d.Constraints = slices.Concat(d.Constraints, more)
	}
	return &limited
}

// joinModels are the models that new members of a gang may have: that of the
// members in force, where there are any.
func (c *cycle) joinModels(j *model.Job, g *gang) []model.ModelSpeed {
	if gangOf(j) == model.GangNone || !holdsMembers(j) {
		return j.Models
	}
	var out []model.ModelSpeed
	for i := range j.Members {
		m := &j.Members[i]
		at, ok := c.tree.Find(m.Node)
		if m.Ended || !ok || gangOf(j) == model.GangGroup && m.Group != g.groups[0].Name {
			continue
		}
		mask := c.gpuMask(at, m.GPUs)
		for _, group := range c.tree.Nodes[at].Groups {
			name := c.tree.Kinds[group.Kind].Model
			if group.Mask&mask == 0 || slices.ContainsFunc(out, func(o model.ModelSpeed) bool { return o.Name == name }) {
				continue
			}
			joined := model.ModelSpeed{Name: name, Speed: 1}
			if k := slices.IndexFunc(j.Models, func(o model.ModelSpeed) bool { return o.Name == name }); k >= 0 {
				joined = j.Models[k]
			}
			out = append(out, joined)
		}
	}
	if len(out) == 0 {
		return j.Models
	}
	slices.SortFunc(out, func(a, b model.ModelSpeed) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// likeOthers lets a gang have one model throughout, if there is room, that names
// none: the one that its members in force have, where they have one.
func (c *cycle) likeOthers(j *model.Job, g *gang) {
	if len(j.Models) > 0 || g.gpus == 0 || len(c.tree.Kinds) < 2 || gangOf(j) == model.GangNone || slices.ContainsFunc(g.unit.Parts, func(p place.Part) bool { return p.Request.Shares() }) {
		return
	}
	has := c.joinModels(j, g)
	if g.unit.Alike = g.members > 1 || len(has) == 1; len(has) == 1 {
		g.unit.Model = has[0].Name
	}
}

// place places a gang, on the first of its options that has room: the model that
// the order would give it, else the fastest.
func (c *cycle) place(g *gang) (place.Result, bool) {
	if g.landing != nil {
		g.took = max(0, slices.IndexFunc(g.options, func(o option) bool { return c.serves(o.unit, g.landing.placed) }))
		return c.land(g.landing)
	}
	if len(g.options) == 0 {
		return c.placeUnit(g)
	}
	for i := range g.options {
		g.use(i)
		if r, ok := c.placeUnit(g); ok {
			g.took = i
			return r, true
		}
	}
	g.use(0)
	return place.Result{}, false
}

// serves reports whether a unit's members may be where these are.
func (c *cycle) serves(u *place.Unit, placed []place.Placed) bool {
	return !slices.ContainsFunc(placed, func(p place.Placed) bool {
		r := u.Parts[p.Part].Request
		return !r.Verdicts.Eligible(int(p.Node)) || maskOf(p.GPUs)&^c.catalog.Usable(r, p.Node) != 0
	})
}

// settle decides for which models a gang waits that has no room on any: one on
// which it would fit if nothing were kept for others, else one that could have
// room, and of those the one nearest to it; the faster of equals.
func (c *cycle) settle(g *gang) {
	if len(g.options) < 2 || g.astray {
		return
	}
	c.catchUp(len(c.postponed))
	truth, best, nearest, least := c.truth(), 0, -1, 3
	for i := range g.options {
		g.use(i)
		if len(c.holds) > 0 && c.placeable(truth, g) {
			return
		}
		why, rank, fit := c.possibility(g), 0, 0
		switch {
		case why.never():
			rank = 2
		case why.code != "":
			rank = 1
		default:
			fit = c.bestDomain(c.views[viewNow], g).fit
		}
		if rank < least || rank == least && fit > nearest {
			best, nearest, least = i, fit, rank
		}
	}
	g.use(best)
}

// makeRoomOnAny makes room for a gang on the fastest model on which that can be
// done.
func (c *cycle) makeRoomOnAny(j *model.Job, g *gang) (made, bool) {
	at := g.at
	for i := range max(1, len(g.options)) {
		g.use(i)
		if i > 0 && !c.mayPreempt(j, g) {
			break
		}
		if len(g.options) > 0 && g.options[i].on.bought {
			continue // who has paid for nodes keeps them
		}
		if m, ok := c.makeRoom(j, g); ok {
			return m, true
		}
	}
	g.use(at)
	return made{}, false
}
