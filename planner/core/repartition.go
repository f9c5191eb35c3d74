package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// MIG geometry follows the queue: what waits for instances of a profile of which
// too few are free has idle GPUs divided for it, and what waits for whole GPUs has
// divided ones made whole that nobody waits for. Only idle GPUs are touched, only
// on nodes whose device plugin says that it may, and no more of them than are
// needed. Like repacking a node's instances for the jobs that wait (Tan et al.,
// Serving DNN Models with Multi-Instance GPUs, 2021, section 5), but without ever
// stopping what runs.

const (
	// maxDivisions is how many GPUs one plan divides otherwise.
	maxDivisions = 16
	// divideAgain is for how long a GPU stays as it was divided, and divideRefused
	// for how long one is left alone of which that was refused, unless its node has
	// named an earlier time.
	divideAgain   = 10 * time.Minute
	divideRefused = 30 * time.Minute
	// divideSoon is how long after a refusal that time is at most for which a gang
	// waits, rather than that another GPU is divided for it.
	divideSoon = 2 * time.Minute
)

// divider divides GPUs in one plan: in the turns of those who wait for instances,
// and of what is idle then in a pass over all who wait.
type divider struct {
	*cycle
	gpus []idleGPU
	// barred are those that are idle, but have been refused, and not to be tried yet.
	barred []idleGPU
	// all are the GPUs of nodes that divide theirs, whoever uses them.
	all []divisible
	// plan are the divisions, also those that nodes have been told before, or are to
	// be told later; of are indexes in gpus of each.
	plan []model.Repartition
	of   []int
	// at are indexes in plan by GPU; spare are, by model of an instance, those of
	// instances that nodes are making and nobody is to have yet.
	at    map[string]int
	spare map[string][]int
	// serving are indexes in plan of what serves the present gang, and claims what it
	// takes of the nodes.
	serving []int
	claims  []claimOn
	// wanted are the models of instances that somebody waits for.
	wanted map[string]bool
	// places are those of the jobs in the order.
	places map[jobKey]int
	// inTurn is what gangs have been given in their turns, coming the GPUs that are kept
	// to be divided once they are idle.
	inTurn map[gangKey]inTurn
	coming []comingGPU
	// instances are, by model, the ones that there are; nil: to be looked for.
	instances map[string][]device
	// names are the models of all, known what device blocks ask for of one.
	names []string
	known map[askKey]asked
	// turn: the present gang is in its turn. anyDivided: some GPU is divided.
	turn, anyDivided bool
}

// idleGPU is a GPU that may be divided otherwise.
type idleGPU struct {
	node     int32
	uuid     string
	model    string
	geometry mig.Geometry
	// mask is the GPU among the devices of its node, or all its instances.
	mask uint64
	// profiles are those of its instances; none if it is whole.
	profiles []string
	// neighbours counts the divided GPUs of its node, wholes the idle whole ones.
	neighbours, wholes int
	// told is what its node was told last, if that has not been done yet: it is
	// doing it, or has refused and is not to be asked again yet.
	told *model.Division
}

// repartition divides idle GPUs for what waits.
func (c *cycle) repartition(plan *model.Plan) []model.Repartition {
	if len(c.divides) == 0 {
		return nil
	}
	d := c.openDivider()
	if len(d.all) == 0 {
		return nil
	}
	d.wanted = map[string]bool{}
	d.places = make(map[jobKey]int, len(plan.Decisions))
	for i := range plan.Decisions {
		d.places[jobKey{plan.Decisions[i].Namespace, plan.Decisions[i].Job}] = i
	}
	idle := len(d.gpus)+len(d.barred) > 0
	type turn struct {
		decision *model.Decision
		job      *model.Job
		gang     gang
	}
	var turns []turn
	for i := range plan.Decisions {
		p := &plan.Decisions[i]
		j := c.jobs[jobKey{p.Namespace, p.Job}]
		if !lacksRoom(p) || j == nil || !idle && len(d.inTurn) == 0 && !neverCode(p.Detail.Code) {
			continue
		}
		for _, g := range c.gangs(j) {
			if !slices.ContainsFunc(p.Members, func(m model.Member) bool { return isGang(j, &g, m.Group, m.Index) }) {
				c.placedNow = nil
				c.prepare(j, &g)
				turns = append(turns, turn{p, j, g})
				d.note(&g)
			}
		}
	}
	said := map[*model.Decision][]string{}
	for i := range turns {
		t := &turns[i]
		given, before := d.inTurn[gangOfIts(t.job, &t.gang)]
		d.serving = given.serving
		served := before && !given.later || !before && d.serve(t.job, &t.gang)
		if served {
			said[t.decision] = append(said[t.decision], d.tellServing()...)
		}
		hopes, never := d.tellBarred(&t.gang), neverCode(t.decision.Detail.Code)
		if never && !served && !given.later && len(hopes) == 0 {
			hopes = d.tellLater(&t.gang)
		}
		said[t.decision] = append(said[t.decision], hopes...)
		if t.decision.Action == model.ActionWait && (served || given.later || never && len(hopes) > 0) {
			t.decision.Detail.Code = codeDividing
		}
	}
	for decision, list := range said {
		decision.Reason += tellSome(list)
	}
	return d.finished()
}

// lacksRoom reports whether a job waits for devices that are not there.
func lacksRoom(d *model.Decision) bool {
	switch d.Detail.Code {
	case codeNoCapacity, codeNoDomain, codeNoNode, codeTooLarge, codePlaced:
		return d.Action == model.ActionWait || len(d.Members) < d.Detail.MembersWanted
	}
	return false
}

// addIdle adds a node's GPUs that nobody uses, whole or divided, and that have not
// been divided just now.
func (d *divider) addIdle(node int32) {
	row := d.views[viewNow].State.Row(node)
	if row.Closed {
		return
	}
	present := d.present[node]
	byGPU := map[string]*idleGPU{}
	var order []string
	busy := map[string]bool{}
	wholes := 0
	for i := range present.GPUs {
		g := &present.GPUs[i]
		whole, profile, _ := strings.Cut(g.Model, mig.Mark)
		geometry, known := mig.Of(whole)
		uuid := cmp.Or(g.Parent, g.UUID)
		if !known || (g.Parent == "") != (profile == "") {
			continue
		}
		if byGPU[uuid] == nil {
			byGPU[uuid] = &idleGPU{node: node, uuid: uuid, model: whole, geometry: geometry}
			order = append(order, uuid)
		}
		byGPU[uuid].mask |= 1 << i
		free := row.GPUs>>i&1 == 1
		if profile != "" {
			byGPU[uuid].profiles = append(byGPU[uuid].profiles, profile)
		} else if free {
			wholes++
		}
		busy[uuid] = busy[uuid] || !free || g.Unhealthy != ""
	}
	divided := 0
	for _, g := range byGPU {
		if len(g.profiles) > 0 {
			divided++
		}
	}
	d.anyDivided = d.anyDivided || divided > 0
	for _, uuid := range order {
		g := byGPU[uuid]
		g.neighbours, g.wholes, g.profiles = divided, wholes, g.geometry.In(g.profiles)
		d.addAsTold(present, *g, busy[uuid])
	}
}

// serve divides GPUs for a gang, if it then has all that it waits for; false if no
// division serves it. Groups are served one by one, each from one model. What it is
// to have is taken from the view.
func (d *divider) serve(j *model.Job, g *gang) bool {
	before, mark := d.keep(), d.views[viewNow].State.Mark()
	d.serving, d.claims = nil, nil
	for part, group := range g.groups {
		if len(g.indexes[part]) > 0 && !d.servePart(j, g, part, group) {
			d.serving = nil
			break
		}
	}
	if len(d.serving) == 0 {
		d.restore(before)
		d.views[viewNow].State.Revert(mark)
		return false
	}
	return true
}

// take takes something of a node for the present gang.
func (d *divider) take(node int32, claim topo.Claim) {
	d.views[viewNow].State.Take(node, claim)
	d.claims = append(d.claims, claimOn{node, claim})
}

// servePart reports whether a group's members have what they wait for.
func (d *divider) servePart(j *model.Job, g *gang, part int, group *model.TaskGroup) bool {
	for _, whole := range d.models() {
		a, ok := d.asked(group, whole)
		switch {
		case !ok:
		case a.profile == "" && d.turn:
			if len(g.groups) == 1 && d.joinInTurn(j, g, a) {
				return true
			}
		case a.profile == "" && len(g.groups) == 1 && d.join(j, g, a):
			return true
		case a.profile != "" && d.divide(j, g, part, a):
			return true
		}
	}
	return false
}

// keep and restore take back what was tried.
func (d *divider) keep() divider {
	out := *d
	out.plan, out.of = slices.Clone(d.plan), slices.Clone(d.of)
	out.at, out.spare = maps.Clone(d.at), maps.Clone(d.spare)
	return out
}

func (d *divider) restore(before divider) {
	d.plan, d.of, d.at, d.spare = before.plan, before.of, before.at, before.spare
}

// divide has instances made for a group's members, as many as are lacking; false if
// there are too few GPUs for that. A GPU of which it would use some instances as they are
// may have room for all that it lacks if it is divided otherwise.
func (d *divider) divide(j *model.Job, g *gang, part int, a asked) bool {
	if a.count > 1 {
		return false // they would have to be on one node; that is left to people
	}
	state := d.views[viewNow].State
	before, mark, serving, claims := d.keep(), state.Mark(), d.serving, d.claims
	wanted := len(g.indexes[part])
	free := d.takeFree(g, part, wanted)
	if d.makeInstances(j, g, part, a, wanted-free) == 0 {
		return true
	}
	if free == 0 || !d.turn {
		return false
	}
	d.restore(before)
	state.Revert(mark)
	d.serving, d.claims = serving, claims
	lacking := d.makeInstances(j, g, part, a, wanted)
	return d.takeFree(g, part, lacking) == lacking
}

// makeInstances has so many more instances made, and returns how many are lacking then.
func (d *divider) makeInstances(j *model.Job, g *gang, part int, a asked, lacking int) int {
	lacking -= d.takeSpare(j, g, part, a, lacking)
	for lacking > 0 {
		made := d.extend(j, g, part, a)
		if made == 0 {
			made = d.open(j, g, part, a, lacking)
		}
		if made == 0 {
			break
		}
		lacking -= made
	}
	return lacking
}

// takeFree takes up to n instances that are there and free, and returns how many.
func (d *divider) takeFree(g *gang, part, n int) int {
	now, r := d.views[viewNow], g.unit.Parts[part].Request
	if g.picky() {
		return min(n, now.Summary(r).GPUs(topo.Root)) // which they get is not known
	}
	placed := now.Fill(r, g.unit.Within, min(n, now.Summary(r).Members(g.unit.Within)))
	for i := range placed {
		placed[i].Part = part
	}
	d.claims = append(d.claims, d.claimsOf(g.unit, placed)...)
	return len(placed)
}

// extend makes one more instance on a GPU that this plan divides anyway.
func (d *divider) extend(j *model.Job, g *gang, part int, a asked) int {
	geometry, _ := mig.Of(a.model)
	for i := range d.gpus {
		at, chosen := d.at[d.gpus[i].uuid]
		if !chosen || d.gpus[i].model != a.model || len(d.plan[at].To) == 0 || d.gpus[i].pending() {
			continue
		}
		if geometry.Most(d.plan[at].To, a.profile) > 0 && d.hasRoom(d.gpus[i].node, j, g, part) && !d.bookedWithin(d.gpus[i].node, d.gpus[i].mask, 0, g) {
			d.take(d.gpus[i].node, topo.Claim{Resources: g.unit.Parts[part].Request.Resources})
			d.plan[at].To = append(slices.Clone(d.plan[at].To), a.profile)
			d.serving = append(d.serving, at)
			return 1
		}
	}
	return 0
}

// open divides one more GPU: first one that is to be asked again soon, then one that
// is divided already, though not as anybody wants it, and else one on a node on which
// others are, or few are whole.
func (d *divider) open(j *model.Job, g *gang, part int, a asked, lacking int) int {
	best := -1
	better := func(x, y *idleGPU) bool {
		divided := func(g *idleGPU) int { return min(len(g.profiles), 1) }
		order := cmp.Or(byTold(x, y), d.byWanted(x, y), cmp.Compare(divided(y), divided(x)), cmp.Compare(min(y.neighbours, 1), min(x.neighbours, 1)), cmp.Compare(x.wholes, y.wholes), cmp.Compare(x.node, y.node))
		return order < 0
	}
	for i := range d.gpus {
		c := &d.gpus[i]
		if c.model != a.model || c.pending() || !d.mayDivide(c) || !d.isIdle(c, g) || !d.mayUse(c.node, j) && !d.isAhead(c.node, j) || !d.hasRoom(c.node, j, g, part) {
			continue
		}
		if best < 0 || better(c, &d.gpus[best]) {
			best = i
		}
	}
	if best < 0 {
		return 0
	}
	c := &d.gpus[best]
	made := 0
	for most := min(c.geometry.Most(nil, a.profile), lacking); made < most && d.hasRoom(c.node, j, g, part); made++ {
		d.take(c.node, topo.Claim{GPUs: c.mask, Resources: g.unit.Parts[part].Request.Resources})
	}
	d.add(best, model.Repartition{
		Node: d.tree.Nodes[c.node].Model.ID, GPU: c.uuid, From: c.profiles, To: slices.Repeat([]string{a.profile}, made),
		For:    model.JobName{Namespace: j.Namespace, ID: j.ID},
		Reason: fmt.Sprintf("%s of job %s for %s, and no idle instance is left", waitFor(len(g.indexes[part])), jobName(keyOf(j)), a.profile),
	})
	return made
}

func waitFor(members int) string {
	if members == 1 {
		return "1 member waits"
	}
	return fmt.Sprintf("%d members wait", members)
}

// finish fills what is left of a GPU with the instances that were asked for last,
// so that the next of their like need no change, and tells all of it.
func (d *divider) finish(p *model.Repartition) {
	if n := len(p.To); n > 0 {
		i := slices.IndexFunc(d.gpus, func(g idleGPU) bool { return g.uuid == p.GPU })
		geometry, last := d.gpus[i].geometry, p.To[n-1]
		for range geometry.Most(p.To, last) {
			p.To = append(p.To, last)
		}
		p.To = geometry.In(p.To)
		p.Reason = fmt.Sprintf("is divided into %s: %s", mig.Tell(p.To), p.Reason)
		return
	}
	p.Reason = "is made whole: " + p.Reason
}
