package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// comeBack gives those of the jobs that come back their places, before all others
// have their turn, and returns the jobs that are still to have theirs. A gang that
// fits whole elsewhere, and not where it was, has its turn like others.
func (c *cycle) comeBack(jobs []*model.Job, plan *model.Plan) []*model.Job {
	replaced := c.jobsOf(someReplaced)
	if len(replaced) == 0 {
		return jobs
	}
	order := make([]*model.Job, 0, len(replaced))
	for _, j := range replaced {
		order = append(order, j)
	}
	slices.SortFunc(order, func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(c.queueTree().Priority(b), c.queueTree().Priority(a)), queue.Compare(a, b))
	})
	// First all keep their seats, so that no one's new place is another one's seat.
	backs := map[jobKey][]*comeback{}
	for _, j := range order {
		for _, b := range c.comebacks(j) {
			c.sit(b)
			backs[keyOf(j)] = append(backs[keyOf(j)], b)
		}
	}
	done := map[jobKey]bool{}
	starting := c.starting()
	for _, j := range order {
		if list := backs[keyOf(j)]; len(list) > 0 {
			late := !starting.Allow(c.policy.Preempt, j, 0)
			done[keyOf(j)] = c.turnBack(j, list, slices.Contains(jobs, j), late, plan)
			if c.givenTo[keyOf(j)] {
				starting.Add(j, 0)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(jobs), func(j *model.Job) bool { return done[keyOf(j)] })
}

// turnBack is the turn of a job that comes back; false if it is to have another
// one. One that cannot start yet has its new places kept as well; so has one that
// is late: when a rack fails, not all that ran there reads its checkpoints at once.
func (c *cycle) turnBack(j *model.Job, list []*comeback, waiting, late bool, plan *model.Plan) bool {
	var t turn
	ready := false
	if waiting {
		c.begin(&t, j)
		ready = t.d.Reason == ""
		if c.ledger != nil {
			t.home = c.accounts.tree.HomeOf(j)
		}
	}
	if late && ready {
		t.d.Reason = fmt.Sprintf("its members' places are kept; it starts when fewer jobs do, since %s", c.policy.Preempt.Storage(j.CheckpointStorage))
		t.d.Detail.Code, t.rest = codeBehind, nil
		plan.Decisions = append(plan.Decisions, c.end(&t))
	}
	if !ready || late {
		for _, b := range list {
			c.placedNow = b.others()
			m := c.missingGang(b)
			if r, ok := c.placeMissing(b, m); ok {
				c.keepFor(j, m, r)
			}
		}
		return late && ready
	}
	told, elsewhere := c.allBack(&t, list)
	if elsewhere && t.placed == 0 {
		return false
	}
	if len(t.rest) > 0 {
		stage := 0
		if c.ledger != nil {
			stage = c.accounts.tree.Beyond()
		}
		c.serve(&t, stage)
	}
	d := c.end(&t)
	if len(told) > 0 {
		d.Reason = strings.Join(told, "; ") + "; " + d.Reason
	}
	plan.Decisions = append(plan.Decisions, d)
	return true
}

// allBack places a job's gangs that come back: told is how, elsewhere whether one of
// them is to be placed like any other.
func (c *cycle) allBack(t *turn, list []*comeback) (told []string, elsewhere bool) {
	for _, b := range list {
		at := slices.IndexFunc(t.rest, func(g *gang) bool { return b.group == "" || g.groups[0].Name == b.group })
		if at < 0 {
			continue
		}
		text, w, ok := c.back(t, b, t.rest[at])
		switch {
		case ok:
			told = append(told, text)
		case w != nil:
			t.waits = append(t.waits, *w)
		default:
			elsewhere = true
			continue
		}
		t.rest = slices.Delete(slices.Clone(t.rest), at, at+1)
	}
	return told, elsewhere
}

// back places a gang that comes back: told is how. If it cannot be placed yet, the
// wait says for what; without one it is to be placed like any other.
func (c *cycle) back(t *turn, b *comeback, g *gang) (told string, w *wait, ok bool) {
	c.placedNow = slices.Clone(t.placedNow)
	c.prepare(t.job, g)
	m := c.missingGang(b)
	c.placedNow = append(c.placedNow, b.others()...)
	defer func() { c.placedNow = t.placedNow }()
	var r place.Result
	ok = !slices.ContainsFunc(b.seats, func(s seat) bool { return !s.free })
	if ok {
		r, ok = c.placeMissing(b, m)
	}
	switch {
	case ok && c.allowed(t, g):
		return c.takeSeats(t, b, g, m, r), nil, true
	case ok:
		c.letGo(b)
		return "", nil, false // its queue may not have it any more
	}
	if c.fitsElsewhere(b, g) || len(b.lost) > 0 && len(c.widening(b)) == 0 {
		c.letGo(b)
		return "", nil, false
	}
	c.prepare(t.job, m)
	for _, d := range c.widening(b) {
		m.within = d
		c.prepare(t.job, m)
		if !c.mayPreempt(t.job, m) {
			break
		}
		if made, ok := c.makeRoom(t.job, m); ok {
			w := wait{forRoom: true}
			c.tellMade(m, made, &w)
			w.reason = c.backWait(b, m) + w.reason
			return "", &w, false
		}
	}
	m.within = c.widest(b)
	c.prepare(t.job, m)
	if why := c.possibility(m); why.code != "" {
		c.letGo(b)
		return "", nil, false
	}
	waits := c.explain(t.job, m)
	waits.reason = c.backWait(b, m) + waits.reason
	return "", &waits, false
}

// allowed charges a gang to its queue, if that may have so much.
func (c *cycle) allowed(t *turn, g *gang) bool {
	if c.ledger == nil {
		return true
	}
	want := c.demand(g)
	if c.limited() && c.ledger.Check(t.home, want, t.never()) != nil {
		return false
	}
	c.ledger.Charge(t.home, want, t.never())
	return true
}

// missingGang is the part of a gang that needs new places.
func (c *cycle) missingGang(b *comeback) *gang {
	m := &gang{}
	for i := range b.job.Groups {
		group := &b.job.Groups[i]
		var indexes []int
		for _, l := range b.lostOf(group.Name) {
			indexes = append(indexes, l.index)
		}
		if len(indexes) > 0 {
			limited := withDevices(group, onlyModels(c.seatModels(b)))
			limited.Slice = model.Slice{} // they go into the one that lacks them
			m.add(limited, indexes)
		}
	}
	return m
}

// seatModels are the models of GPUs that a gang has: new members get the same.
func (c *cycle) seatModels(b *comeback) []model.ModelSpeed {
	var out []model.ModelSpeed
	for i := range b.seats {
		p := &b.seats[i].placed
		for _, g := range p.GPUs {
			name := c.tree.Nodes[p.Node].Model.GPUs[g].Model
			if !slices.ContainsFunc(out, func(o model.ModelSpeed) bool { return o.Name == name }) {
				out = append(out, model.ModelSpeed{Name: name, Speed: 1})
			}
		}
	}
	slices.SortFunc(out, func(a, b model.ModelSpeed) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// widening are the domains in which new places are looked for, the nearest first.
func (c *cycle) widening(b *comeback) []int32 {
	lo, hi := b.seats[0].placed.Node, b.seats[0].placed.Node
	for i := range b.seats {
		lo, hi = min(lo, b.seats[i].placed.Node), max(hi, b.seats[i].placed.Node)
	}
	widest := c.widest(b)
	if in, sliced := c.sliceLacking(b); sliced {
		if in < 0 {
			return nil
		}
		return []int32{in}
	}
	var out []int32
	for d := c.domainAround(lo, hi); ; d = c.tree.Domains[d].Parent {
		out = append(out, d)
		if d == widest || d == topo.Root {
			return out
		}
	}
}

// widest is the domain that new places must be in.
func (c *cycle) widest(b *comeback) int32 {
	if in, _ := c.sliceLacking(b); in >= 0 {
		return in
	}
	if level := c.tree.LevelIndex(b.job.Topology.Level); b.job.Topology.Mode == model.TopologyRequire && level >= 0 {
		return max(c.tree.DomainAt(b.seats[0].placed.Node, level), topo.Root)
	}
	if c.federated() {
		return c.tree.DomainAt(b.seats[0].placed.Node, c.tree.LevelIndex(model.LevelRegion))
	}
	return topo.Root
}

// placeMissing finds new places for the members that need one, as near to the
// others as can be, and takes them.
func (c *cycle) placeMissing(b *comeback, m *gang) (place.Result, bool) {
	if m.members == 0 {
		return place.Result{}, true
	}
	if t := b.job.Topology; t.Mode == model.TopologyRequire && (t.Level == model.LevelNode || t.Level == model.LevelIsland) {
		return place.Result{}, false
	}
	for _, d := range c.widening(b) {
		m.within = d
		c.prepareUnit(b.job, m)
		m.unit.Topology = model.Topology{} // near the others is what counts
		if r, ok := c.placeWithSpares(m.unit); ok {
			return r, true
		}
	}
	return place.Result{}, false
}

// keepFor keeps new places for a gang that cannot start yet.
func (c *cycle) keepFor(j *model.Job, m *gang, r place.Result) {
	for i := range r.Placed {
		p := &r.Placed[i]
		claim := c.seats[p.Node]
		claim.GPUs |= maskOf(p.GPUs)
		claim.Ports = topo.MergePorts(claim.Ports, m.unit.Parts[p.Part].Request.Ports)
		c.seats[p.Node] = claim
	}
}

// letGo lets go of a gang's seats.
func (c *cycle) letGo(b *comeback) {
	for i := range b.seats {
		s := &b.seats[i]
		if s.free {
			c.views[viewNow].State.Give(s.placed.Node, s.claim)
		}
		claim := c.seats[s.placed.Node]
		claim.GPUs &^= s.claim.GPUs
		c.seats[s.placed.Node] = claim
	}
	c.epoch++
}

// fitsElsewhere reports whether the whole gang fits now, if not to its seats.
func (c *cycle) fitsElsewhere(b *comeback, g *gang) bool {
	mark := c.views[viewNow].State.Mark()
	defer func() { c.views[viewNow].State.Revert(mark) }()
	for i := range b.seats {
		if s := &b.seats[i]; s.free {
			c.views[viewNow].State.Give(s.placed.Node, s.claim)
		}
	}
	for i := range max(1, len(g.options)) {
		g.use(i)
		if _, ok := c.views[viewNow].Place(g.unit); ok {
			return true
		}
	}
	return false
}

// takeSeats puts a gang into its seats and new places, and says so.
func (c *cycle) takeSeats(t *turn, b *comeback, g, m *gang, r place.Result) string {
	type who struct {
		index int
		fresh bool
		from  lostSeat
	}
	names := map[[2]uint64]who{}
	key := func(p *place.Placed) [2]uint64 { return [2]uint64{uint64(p.Node), maskOf(p.GPUs)} }
	partOf := func(group string) int {
		return slices.IndexFunc(g.groups, func(o *model.TaskGroup) bool { return o.Name == group })
	}
	var all []place.Placed
	for i := range b.seats {
		s := &b.seats[i]
		s.placed.Part = partOf(s.member.Group)
		names[key(&s.placed)] = who{index: s.member.Index}
		all = append(all, s.placed)
	}
	next := make([]int, len(m.groups))
	for i := range r.Placed {
		p := r.Placed[i]
		lost := b.lostOf(m.groups[p.Part].Name)[next[p.Part]]
		next[p.Part]++
		p.Part = partOf(lost.group)
		names[key(&p)] = who{lost.index, true, lost}
		all = append(all, p)
	}
	slices.SortStableFunc(all, func(x, y place.Placed) int {
		return cmp.Or(cmp.Compare(x.Node, y.Node), cmp.Compare(x.Part, y.Part))
	})
	t.last = place.Result{Placed: all}
	first := len(t.d.Members)
	c.placedNow = t.placedNow
	c.admitted(t.job, g, t.last, &t.d)
	t.placedNow = c.placedNow
	t.last.Level, t.last.Domain = c.around(t.placedNow)
	t.placed++
	var moved []string
	for i := range all {
		n := names[key(&all[i])]
		t.d.Members[first+i].Index = n.index
		if n.fresh {
			moved = append(moved, c.movedReason(n.from, all[i].Node))
		}
	}
	kept := len(all) - len(moved)
	if len(moved) == 0 {
		return fmt.Sprintf("all %s are sound again; they keep their nodes", plural(kept, "member"))
	}
	slices.Sort(moved)
	return fmt.Sprintf("%s; the other %d keep their nodes", nameList(moved), kept)
}

// movedReason says why and where a member moves.
func (c *cycle) movedReason(l lostSeat, to int32) string {
	text := fmt.Sprintf("member %d moves to %s", l.index, nodeName(c.tree.Nodes[to].Model))
	if path := c.leafPath(to); path != "" {
		text += " in " + path
	}
	if l.node == "" {
		return text
	}
	name := l.node
	if n := c.nodes[l.node]; n != nil {
		name = nodeName(n)
	}
	return fmt.Sprintf("node %s %s, so %s", name, l.why, text)
}

// backWait says what is kept meanwhile.
func (c *cycle) backWait(b *comeback, m *gang) string {
	until := b.job.Replace.At.Add(c.policy.Replace.WithDefaults().KeepFor)
	return fmt.Sprintf("%s lost %s; the places of the other %d are kept until %s; ",
		plural(m.members, "member"), map[bool]string{true: "its place", false: "their places"}[m.members == 1], len(b.seats), until.UTC().Format("15:04:05"))
}
