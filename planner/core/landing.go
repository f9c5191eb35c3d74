package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// A gang that is moved is stopped, and started again where a place is kept for
// it. The place is in its job's Moving, so every decision until it lands keeps
// it: whoever is decided on first takes what is left.

const codeMoving = "moving"

// landing is a place that is kept for a gang which is on its way.
type landing struct {
	moving *model.Moving
	job    *model.Job
	gang   gang
	placed []place.Placed
	home   queue.Home
	amount queue.Vector
	// landed: it has its place in this plan.
	landed bool
	// waits is what it waits for there; "" if nothing.
	waits string
}

// setOut notes that gangs of a job are on their way, if they are.
func (p *Prepared) setOut(j *model.Job) {
	if len(j.Moving) > 0 {
		p.onTheWay[keyOf(j)] = true
	}
}

// keepPlaces keeps the places of all gangs that are on their way, before anybody is
// decided on. A place that is not there any more is not kept.
func (c *cycle) keepPlaces() {
	var jobs []*model.Job
	for key := range c.onTheWay {
		jobs = append(jobs, c.jobs[key])
	}
	slices.SortFunc(jobs, func(a, b *model.Job) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID))
	})
	for _, j := range jobs {
		for i := range j.Moving {
			if l := c.landingFor(j, &j.Moving[i]); l != nil {
				c.keepLanding(l)
			}
		}
	}
}

func (c *cycle) keepLanding(l *landing) {
	c.views[viewNow].Take(l.gang.unit, l.placed)
	c.landings = append(c.landings, l)
	c.takesFromNow(l.job, &l.gang, l.placed)
	if c.ledger != nil && !c.stillStops(l.job, l.moving) { // what stops is charged itself
		l.home, l.amount = c.accounts.tree.HomeOf(l.job), c.amountOf(&l.gang, place.Result{Placed: l.placed})
		c.ledger.Charge(l.home, l.amount, l.job.Preempt == model.PreemptNever)
	}
}

// takesFromNow notes, for who looks ahead, that a place is somebody's.
func (c *cycle) takesFromNow(j *model.Job, g *gang, placed []place.Placed) {
	if !c.looksAhead() {
		return
	}
	runs, _ := c.expected(j)
	c.starts = append(c.starts, start{keyOf(j), c.claimsOf(g.unit, placed), runs})
}

// landingFor is the place that is kept for a gang, nil if it is not to be kept: it
// is too late, the gang has changed or runs, or somebody else has the place.
func (c *cycle) landingFor(j *model.Job, m *model.Moving) *landing {
	if !m.Until.After(c.now) || j.Hold != "" {
		return nil
	}
	gangs := c.gangs(j)
	at := slices.IndexFunc(gangs, func(g gang) bool { return isGang(j, &g, m.Group, m.Index) && g.grown == 0 })
	if at < 0 {
		return nil
	}
	l := &landing{moving: m, job: j, gang: gangs[at]}
	c.prepare(j, &l.gang)
	var ok bool
	if l.placed, ok = c.placedAs(&l.gang, m.Members); !ok {
		return nil
	}
	state := c.views[viewNow].State
	mark := state.Mark()
	defer state.Revert(mark)
	free := c.fitsAsPlaced(l)
	given := map[int32]bool{}
	for i := range l.placed {
		node := l.placed[i].Node
		for _, h := range c.holders(node) {
			if !given[node] && isLeaving(c.jobs[h.job], &h) {
				state.Give(node, c.claimOf(node, &h))
			}
		}
		given[node] = true
	}
	switch {
	case free:
	case c.fitsAsPlaced(l):
		l.waits = "those who leave it have stopped"
	default:
		return nil
	}
	if c.stillStops(j, m) {
		l.waits = "it has stopped where it was"
	}
	return l
}

// isGang reports whether a gang is the one that a group and an index name; see
// model.Preempted.
func isGang(j *model.Job, g *gang, group string, index int) bool {
	switch gangOf(j) {
	case model.GangJob:
		return true
	case model.GangGroup:
		return g.groups[0].Name == group
	default:
		return g.groups[0].Name == group && g.indexes[0][0] == index
	}
}

// stillStops reports whether something of a gang has not stopped yet.
func (c *cycle) stillStops(j *model.Job, m *model.Moving) bool {
	if j.State == model.StateStopping {
		return true
	}
	return slices.ContainsFunc(c.jobAllocs(keyOf(j)), func(a *model.Alloc) bool {
		switch gangOf(j) {
		case model.GangJob:
			return !a.Lost
		case model.GangGroup:
			return !a.Lost && a.Group == m.Group
		default:
			return !a.Lost && a.Group == m.Group && a.Index == m.Index
		}
	})
}

// placedAs are a gang's places where its members are given; false if they are not
// just those that it lacks, or their nodes or GPUs are unknown.
func (c *cycle) placedAs(g *gang, members []model.Member) ([]place.Placed, bool) {
	if len(members) != g.members {
		return nil, false
	}
	out := make([]place.Placed, 0, len(members))
	for part, group := range g.groups {
		for _, index := range g.indexes[part] {
			at := slices.IndexFunc(members, func(m model.Member) bool { return m.Group == group.Name && m.Index == index })
			if at < 0 {
				return nil, false
			}
			p, ok := c.placedOn(&members[at], group)
			if !ok {
				return nil, false
			}
			p.Part = part
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(x, y place.Placed) int {
		return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(maskOf(x.GPUs), maskOf(y.GPUs)), cmp.Compare(x.Part, y.Part))
	})
	return out, true
}

// placedOn is a member's place.
func (c *cycle) placedOn(m *model.Member, group *model.TaskGroup) (place.Placed, bool) {
	node, ok := c.tree.Find(m.Node)
	if !ok {
		return place.Placed{}, false
	}
	gpus := c.tree.Nodes[node].Model.GPUs
	number := func(ids []string) (out []int8, ok bool) {
		for _, id := range ids {
			at := slices.IndexFunc(gpus, func(g model.GPU) bool { return g.UUID == id })
			if at < 0 {
				return nil, false
			}
			out = append(out, int8(at))
		}
		return out, true
	}
	p := place.Placed{Node: node}
	if p.GPUs, ok = number(m.GPUs); !ok {
		return p, false
	}
	want := 0
	for _, d := range group.Devices {
		want += d.Count
	}
	if bits.OnesCount64(maskOf(p.GPUs)) != want {
		return p, false
	}
	for _, task := range m.Tasks {
		list, ok := number(task)
		if !ok {
			return p, false
		}
		p.Tasks = append(p.Tasks, list)
	}
	return p, true
}

// fitsAsPlaced reports whether a gang's place is free as the state is now.
func (c *cycle) fitsAsPlaced(l *landing) bool {
	e := c.views[viewNow]
	mark := e.State.Mark()
	defer e.State.Revert(mark)
	for i := range l.placed {
		p := &l.placed[i]
		row, mask := *e.State.Row(p.Node), maskOf(p.GPUs)
		r := l.gang.unit.Parts[p.Part].Request
		if row.Closed || row.GPUs&mask != mask || !row.PortsFree(r.Ports) || !r.Verdicts.Eligible(int(p.Node)) {
			return false
		}
		e.Take(l.gang.unit, l.placed[i:i+1])
		if free := e.State.Row(p.Node).Free; min(free.CPUMHz, free.Cores, free.MemoryMiB, free.DiskMiB) < 0 {
			return false
		}
	}
	return true
}

// landingOf is the place that is kept for a gang, nil if none is.
func (c *cycle) landingOf(j *model.Job, g *gang) *landing {
	for _, l := range c.landings {
		if l.job == j && !l.landed && isGang(j, g, l.moving.Group, l.moving.Index) {
			return l
		}
	}
	return nil
}

// lands reports whether places are kept for a job: it does not wait for others.
func (c *cycle) lands(j *model.Job) bool {
	return slices.ContainsFunc(c.landings, func(l *landing) bool { return l.job == j })
}

// release gives a kept place back, for the gang that it was kept for.
func (c *cycle) release(e *place.Engine, l *landing) {
	for i := range l.placed {
		p := &l.placed[i]
		e.State.Give(p.Node, e.Claim(l.gang.unit, p))
	}
}

// land places a gang where a place is kept for it.
func (c *cycle) land(l *landing) (place.Result, bool) {
	if l.waits != "" {
		return place.Result{}, false
	}
	now := c.views[viewNow]
	c.release(now, l)
	now.Take(l.gang.unit, l.placed)
	r := place.Result{Placed: slices.Clone(l.placed)}
	at := make([]other, len(l.placed))
	for i := range l.placed {
		at[i].node = l.placed[i].Node
	}
	r.Level, r.Domain = c.around(at)
	return r, true
}

// hasLanded notes that a gang has got the place that was kept for it.
func (c *cycle) hasLanded(l *landing) {
	l.landed = true
	if c.truthful {
		c.release(c.views[viewTrue], l)
	}
}

// stillFlying says what a gang waits for whose place is kept.
func (c *cycle) stillFlying(l *landing) wait {
	at := make([]other, len(l.placed))
	var held []string
	for i := range l.placed {
		at[i].node = l.placed[i].Node
		if id := c.tree.Nodes[l.placed[i].Node].Model.ID; !slices.Contains(held, id) {
			held = append(held, id)
		}
	}
	level, domain := c.around(at)
	why := "so that job " + jobName(jobKey{l.moving.Namespace, l.moving.For}) + " has room"
	if l.moving.For == comesHome {
		why = "off the nodes that were bought for it"
	}
	w := wait{reason: fmt.Sprintf("moves to %s, %s; starts there as soon as %s; the place is kept for it until %s",
		domainName(level, domain), why, l.waits, l.moving.Until.UTC().Format("15:04:05"))}
	w.detail = model.Detail{Code: codeMoving, Level: level, Domain: domain, MembersFit: l.gang.members, Held: held}
	return w
}

// promiseLandings keeps the places of those on their way from whoever displaces
// others.
func (c *cycle) promiseLandings(y *yield) {
	for _, l := range c.landings {
		for i := range l.placed {
			y.keepFrom(l.placed[i].Node, maskOf(l.placed[i].GPUs), l.gang.unit.Parts[l.placed[i].Part].Request.Ports)
		}
	}
}

// keepFrom keeps what somebody is to have of a node, when it is free, from all
// others.
func (y *yield) keepFrom(node int32, gpus uint64, ports []uint16) {
	claim := y.promised[node]
	claim.GPUs |= gpus
	claim.Ports = topo.MergePorts(claim.Ports, ports)
	y.promised[node] = claim
	y.pledged[node] = true
}
