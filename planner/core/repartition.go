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

// divider is one pass over what waits.
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
	// instances that nodes are making and nobody is to have yet, and free counts
	// those that are there already.
	at    map[string]int
	spare map[string][]int
	free  map[string]int
	// serving are indexes in plan of what serves the present gang.
	serving []int
	// wanted are the models of instances that somebody waits for.
	wanted map[string]bool
	// places are those of the jobs in the order.
	places map[jobKey]int
}

// idleGPU is a GPU that may be divided otherwise.
type idleGPU struct {
	node     int32
	uuid     string
	model    string
	geometry mig.Geometry
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
	d := &divider{cycle: c, at: map[string]int{}, spare: map[string][]int{}, free: map[string]int{}, wanted: map[string]bool{}}
	for _, node := range slices.Sorted(maps.Keys(c.divides)) {
		d.addIdle(node)
	}
	if len(d.all) == 0 {
		return nil
	}
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
		if !lacksRoom(p) || j == nil || !idle && !neverCode(p.Detail.Code) {
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
		served := d.serve(t.job, &t.gang)
		if served {
			said[t.decision] = append(said[t.decision], d.tellServing()...)
		}
		hopes, never := d.tellBarred(&t.gang), neverCode(t.decision.Detail.Code)
		if never && !served && len(hopes) == 0 {
			hopes = d.tellLater(&t.gang)
		}
		said[t.decision] = append(said[t.decision], hopes...)
		if t.decision.Action == model.ActionWait && (served || never && len(hopes) > 0) {
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
			d.all = append(d.all, divisible{node, whole})
		}
		free := row.GPUs>>i&1 == 1
		if profile != "" {
			byGPU[uuid].profiles = append(byGPU[uuid].profiles, profile)
			if free && row.Owner == 0 {
				d.free[g.Model]++
			}
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
	for _, uuid := range order {
		g := byGPU[uuid]
		g.neighbours, g.wholes, g.profiles = divided, wholes, g.geometry.In(g.profiles)
		d.addAsTold(present, *g, busy[uuid])
	}
}

// serve divides GPUs for a gang, if it then has all that it waits for; false if no
// division serves it. Groups are served one by one, each from one model.
func (d *divider) serve(j *model.Job, g *gang) bool {
	before := d.keep()
	d.serving = nil
	for part, group := range g.groups {
		if len(g.indexes[part]) > 0 && !d.servePart(j, g, part, group) {
			d.restore(before)
			return false
		}
	}
	return len(d.serving) > 0
}

// servePart reports whether a group's members have what they wait for.
func (d *divider) servePart(j *model.Job, g *gang, part int, group *model.TaskGroup) bool {
	for _, whole := range d.models() {
		geometry, _ := mig.Of(whole)
		a, ok := d.asks(group, whole, geometry)
		switch {
		case !ok:
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
	out.at, out.spare, out.free = maps.Clone(d.at), maps.Clone(d.spare), maps.Clone(d.free)
	return out
}

func (d *divider) restore(before divider) {
	d.plan, d.of, d.at, d.spare, d.free = before.plan, before.of, before.at, before.spare, before.free
}

// divide has instances made for a group's members, as many as are lacking; false if
// there are too few GPUs for that.
func (d *divider) divide(j *model.Job, g *gang, part int, a asked) bool {
	if a.count > 1 {
		return false // they would have to be on one node; that is left to people
	}
	lacking := len(g.indexes[part])
	n := min(lacking, d.free[a.instance()])
	d.free[a.instance()] -= n
	lacking -= n
	lacking -= d.takeSpare(j, g, part, a, lacking)
	for lacking > 0 {
		made := d.extend(a)
		if made == 0 {
			made = d.open(j, g, part, a, lacking)
		}
		if made == 0 {
			break
		}
		lacking -= made
	}
	return lacking == 0
}

// extend makes one more instance on a GPU that this plan divides anyway.
func (d *divider) extend(a asked) int {
	geometry, _ := mig.Of(a.model)
	for i := range d.gpus {
		at, chosen := d.at[d.gpus[i].uuid]
		if !chosen || d.gpus[i].model != a.model || len(d.plan[at].To) == 0 || d.gpus[i].pending() {
			continue
		}
		if geometry.Most(d.plan[at].To, a.profile) > 0 {
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
		order := cmp.Or(byTold(x, y), cmp.Compare(divided(y), divided(x)), cmp.Compare(min(y.neighbours, 1), min(x.neighbours, 1)), cmp.Compare(x.wholes, y.wholes), cmp.Compare(x.node, y.node))
		return order < 0
	}
	for i := range d.gpus {
		c := &d.gpus[i]
		if c.model != a.model || c.pending() || !d.mayDivide(c) || !d.mayUse(c.node, j) && !d.isAhead(c.node, j) || !d.hasRoom(c.node, j, g, part) {
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
	made := c.geometry.Most(nil, a.profile)
	d.add(best, model.Repartition{
		Node: d.tree.Nodes[c.node].Model.ID, GPU: c.uuid, From: c.profiles, To: slices.Repeat([]string{a.profile}, min(made, lacking)),
		For:    model.JobName{Namespace: j.Namespace, ID: j.ID},
		Reason: fmt.Sprintf("%s of job %s for %s, and no idle instance is left", waitFor(len(g.indexes[part])), jobName(keyOf(j)), a.profile),
	})
	return min(made, lacking)
}

func waitFor(members int) string {
	if members == 1 {
		return "1 member waits"
	}
	return fmt.Sprintf("%d members wait", members)
}

// mayDivide reports whether a GPU is still to be had: it is not divided in this
// plan, and nobody waits for the instances that it has.
func (d *divider) mayDivide(g *idleGPU) bool {
	_, chosen := d.at[g.uuid]
	return !chosen && (g.pending() || len(d.plan) < maxDivisions && !slices.ContainsFunc(g.profiles, func(p string) bool { return d.wanted[g.model+mig.Mark+p] }))
}

// mayUse reports whether a node is kept for nobody else than a job.
func (d *divider) mayUse(node int32, j *model.Job) bool {
	return d.isFor(d.views[viewNow].State.Row(node).Owner, j)
}

// isFor reports whether a job may use a node that is kept.
func (d *divider) isFor(owner int32, j *model.Job) bool {
	return owner == 0 || owner > 0 && int(owner) <= len(d.holds) && d.holds[owner-1].job == keyOf(j)
}

// isAhead reports whether a node is kept for a gang that comes after a job in the order.
// A whole GPU would have been the job's before anything was kept; and a queue that
// always keeps all idle GPUs would have none divided ever.
func (d *divider) isAhead(node int32, j *model.Job) bool {
	owner := int(d.views[viewNow].State.Row(node).Owner)
	if owner <= 0 || owner > len(d.holds) {
		return false
	}
	after, known := d.places[d.holds[owner-1].job]
	return known && d.places[keyOf(j)] < after
}

// hasRoom reports whether a member could be on a node but for its GPUs, and for whom it
// is kept.
func (d *divider) hasRoom(node int32, j *model.Job, g *gang, part int) bool {
	r := g.unit.Parts[part].Request
	row := d.views[viewNow].State.Row(node)
	free, want := row.Free, r.Resources
	return r.Verdicts.Eligible(int(node)) && row.PortsFree(r.Ports) && free.CPUMHz >= want.CPUMHz && free.Cores >= want.Cores && free.MemoryMiB >= want.MemoryMiB && free.DiskMiB >= want.DiskMiB
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
