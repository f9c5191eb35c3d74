package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// The codes of Detail.Code.
const (
	codePlaced     = "placed"
	codeNoCapacity = "no_capacity"
	codeNoDomain   = "no_domain"
	codeNoNode     = "no_node"
	codeBehind     = "behind"
	codeHold       = "hold"
	codeRetryLater = "retry_later"
	codeTooLarge   = "too_large"
	codeInvalid    = "invalid"
)

// cycle is one pass over the queue. All that it takes it gives back.
type cycle struct {
	*Prepared
	now   time.Time
	marks [viewCount]topo.Undo
	// waiting counts the jobs before the present one that stay in the queue.
	waiting int
	// blocked is set once a job waits for room and the policy is strict.
	blocked string
	// holds are the nodes kept by those who wait; takers what was admitted
	// before the first of them.
	holds  []hold
	takers []taker
	claims map[*place.Request]claim
	// epoch grows whenever something is taken or kept; waits are the answers
	// given since to gangs that did not fit.
	epoch int
	waits map[possibleKey]waitAnswer
	// placedNow are the members of the present job placed in this decision.
	placedNow []other
}

// waitAnswer is what a gang that did not fit was told, and when.
type waitAnswer struct {
	epoch int
	// known: what follows holds for every gang alike.
	known   bool
	forRoom bool
	detail  model.Detail
	reason  string
}

type taker struct {
	unit   *place.Unit
	placed []place.Placed
}

func newCycle(p *Prepared, now time.Time) *cycle {
	c := &cycle{Prepared: p, now: now, claims: map[*place.Request]claim{}, waits: map[possibleKey]waitAnswer{}}
	for v := range p.views {
		c.marks[v] = p.views[v].State.Mark()
	}
	return c
}

func (c *cycle) end() {
	for v := range c.views {
		c.views[v].State.Revert(c.marks[v])
	}
}

// decide decides on one job.
func (c *cycle) decide(j *model.Job) model.Decision {
	d := model.Decision{Namespace: j.Namespace, Job: j.ID, Action: model.ActionWait}
	d.Detail.Ahead = c.waiting
	gangs := c.gangs(j)
	for i := range gangs {
		d.Detail.MembersWanted += gangs[i].members
		d.Detail.WantedGPUs += gangs[i].gpus
	}
	switch {
	case j.Hold != "":
		d.Reason, d.Detail.Code = j.Hold, codeHold
	case len(gangs) == 0:
		d.Reason = "asks for no members: every group's count is 0; raise a count or stop the job"
		d.Detail.Code = codeInvalid
	case j.RetryAfter.After(c.now):
		d.Reason = fmt.Sprintf("its last placement did not hold; is tried again in %s, at %s",
			j.RetryAfter.Sub(c.now).Round(time.Second), j.RetryAfter.UTC().Format(time.RFC3339))
		d.Detail.Code = codeRetryLater
	case c.blocked != "":
		d.Reason = fmt.Sprintf("%s is ahead and waits for room; the queue is strict, so nobody passes it", c.blocked)
		d.Detail.Code = codeBehind
	default:
		c.placeAll(j, gangs, &d)
	}
	if d.Action == model.ActionWait {
		c.waiting++
	}
	return d
}

// placeAll places a job's gangs one after the other. The first that does not
// fit decides what is said about the rest.
func (c *cycle) placeAll(j *model.Job, gangs []gang, d *model.Decision) {
	c.placedNow = c.placedNow[:0]
	var failed *gang
	var last place.Result
	var failures map[string]bool
	for i := range gangs {
		g := &gangs[i]
		if len(failures) > 0 && gangOf(j) == model.GangNone && failures[g.groups[0].Name] {
			continue // its like did not fit either
		}
		c.prepare(j, g)
		result, ok := c.place(g)
		if !ok {
			if failed == nil {
				failed, failures = g, map[string]bool{}
			}
			failures[g.groups[0].Name] = true
			continue
		}
		last = result
		c.admitted(j, g, result, d)
	}
	d.Detail.MembersFit = len(d.Members)
	if len(d.Members) > 0 {
		d.Action = model.ActionAdmit
		d.Detail.Code = codePlaced
		d.Detail.Level, d.Detail.Domain = last.Level, last.Domain
		d.Reason = c.placedReason(j, d, last)
	}
	if failed == nil {
		return
	}
	if d.Action == model.ActionWait {
		c.explain(j, failed, d)
		return
	}
	rest := model.Decision{Job: j.ID, Namespace: j.Namespace}
	rest.Detail.MembersWanted = failed.members
	c.explain(j, failed, &rest)
	d.Reason += fmt.Sprintf("; %d more wait: %s", d.Detail.MembersWanted-len(d.Members), rest.Reason)
	d.Detail.Filtered, d.Detail.Held = rest.Detail.Filtered, rest.Detail.Held
}

// place places a gang, unless its like did not fit a moment ago.
func (c *cycle) place(g *gang) (place.Result, bool) {
	key, plain := keyOfGang(g)
	if plain {
		if a, asked := c.waits[key]; asked && a.epoch == c.epoch {
			return place.Result{}, false
		}
	}
	result, ok := c.views[viewNow].Place(g.unit)
	if !ok && plain {
		c.waits[key] = waitAnswer{epoch: c.epoch}
	}
	return result, ok
}

// admitted takes note of a placement.
func (c *cycle) admitted(j *model.Job, g *gang, r place.Result, d *model.Decision) {
	c.epoch++
	if len(c.holds) > 0 {
		c.views[viewTrue].Take(g.unit, r.Placed)
	} else {
		c.takers = append(c.takers, taker{g.unit, r.Placed})
	}
	ranks := c.ranks(j, g)
	next := make([]int, len(g.groups))
	for k := range r.Placed {
		p := &r.Placed[k]
		node := c.tree.Nodes[p.Node].Model
		m := model.Member{
			Group: g.groups[p.Part].Name, Index: g.indexes[p.Part][next[p.Part]], Rank: ranks[k],
			Node: node.ID, GPUs: uuids(node, p.GPUs),
		}
		next[p.Part]++
		for _, t := range p.Tasks {
			m.Tasks = append(m.Tasks, uuids(node, t))
		}
		d.Members = append(d.Members, m)
		c.placedNow = append(c.placedNow, other{node: p.Node, group: m.Group})
	}
}

// ranks are the ranks that a gang's members in force leave free.
func (c *cycle) ranks(j *model.Job, g *gang) []int {
	var used map[int]bool
	if holdsMembers(j) && gangOf(j) == model.GangGroup {
		used = make(map[int]bool, len(j.Members))
		for i := range j.Members {
			if j.Members[i].Group == g.groups[0].Name {
				used[j.Members[i].Rank] = true
			}
		}
	}
	out := make([]int, 0, g.members)
	for rank := 0; len(out) < g.members; rank++ {
		if !used[rank] {
			out = append(out, rank)
		}
	}
	return out
}

func uuids(node *model.Node, gpus []int8) []string {
	out := make([]string, len(gpus))
	for i, g := range gpus {
		out[i] = node.GPUs[g].UUID
	}
	return out
}

// explain says why a gang does not fit, and keeps nodes for it if its turn
// gives it the right to.
func (c *cycle) explain(j *model.Job, g *gang, d *model.Decision) {
	key, plain := keyOfGang(g)
	plain = plain && len(g.unit.Parts) == 1 // else the reason names groups
	if a := c.waits[key]; plain && a.known && a.epoch == c.epoch {
		ahead, wanted, gpus := d.Detail.Ahead, d.Detail.MembersWanted, d.Detail.WantedGPUs
		d.Detail, d.Reason = a.detail, a.reason
		d.Detail.Ahead, d.Detail.MembersWanted, d.Detail.WantedGPUs = ahead, wanted, gpus
		c.block(j, a.forRoom)
		return
	}
	forRoom := c.explainAnew(j, g, d)
	c.block(j, forRoom)
	if plain && d.Detail.Held == nil {
		c.waits[key] = waitAnswer{epoch: c.epoch, known: true, forRoom: forRoom, detail: d.Detail, reason: d.Reason}
	}
}

// explainAnew reports whether the gang waits for room that others hold.
func (c *cycle) explainAnew(j *model.Job, g *gang, d *model.Decision) (forRoom bool) {
	truth := c.truth()
	d.Detail.Filtered = truth.Filtered(g.unit.Parts[0].Request)
	d.Detail.FreeGPUs = c.freeGPUs(truth, g)
	why := c.possibility(g)
	switch why.code {
	case codeNoNode, codeTooLarge:
		d.Detail.Code, d.Reason = why.code, why.reason
		d.Detail.Level, d.Detail.Domain, d.Detail.MembersFit = why.level, why.domain, why.fit
		return false
	}
	if len(c.holds) > 0 && c.placeable(truth, g) {
		d.Detail.Code, d.Reason = codeBehind, c.behindReason(g)
		return true
	}
	best := c.bestDomain(truth, g)
	d.Detail.Code = codeNoCapacity
	if c.fitsApart(truth, g) {
		d.Detail.Code = codeNoDomain
	}
	kept := c.keep(j, g, why)
	if kept.in.hi > 0 {
		best = kept.in
	}
	d.Detail.MembersFit, d.Detail.Level, d.Detail.Domain = best.fit, best.level, best.path
	for _, node := range kept.nodes {
		d.Detail.Held = append(d.Detail.Held, c.tree.Nodes[node].Model.ID)
	}
	d.Reason = c.waitReason(g, d, best, kept, why)
	return why.code == ""
}

// block lets nobody pass a job that waits for room, if the policy is strict.
// What waits for nodes to come back, or can never start, blocks nobody.
func (c *cycle) block(j *model.Job, forRoom bool) {
	if c.policy.Strict && forRoom {
		c.blocked = "job " + jobName(keyOf(j))
	}
}

// truth is the view without what is kept for those who wait.
func (c *cycle) truth() *place.Engine {
	if len(c.holds) == 0 {
		return c.views[viewNow]
	}
	return c.views[viewTrue]
}

func (c *cycle) freeGPUs(e *place.Engine, g *gang) int {
	most := 0
	for _, part := range g.unit.Parts {
		if part.Count > 0 {
			most = max(most, e.Summary(part.Request).GPUs(topo.Root))
		}
	}
	return most
}

// fitsApart reports whether every part would fit if its members could be
// anywhere.
func (c *cycle) fitsApart(e *place.Engine, g *gang) bool {
	return !slices.ContainsFunc(g.unit.Parts, func(p place.Part) bool {
		return e.Summary(p.Request).Members(topo.Root) < p.Count
	})
}
