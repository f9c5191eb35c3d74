package core

import (
	"cmp"
	"maps"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// A gang that was stopped because the nodes or GPUs of some of its members failed
// comes back to the places of the others: from when it is told to stop until it
// starts again they are kept for it, so that it costs one restart and one new
// place for each member that failed, however many failures there were until then.

// comeback is a gang that comes back.
type comeback struct {
	job *model.Job
	// group is the gang's group, "" if it is the whole job.
	group string
	// seats are the places that its members keep.
	seats []seat
	// lost are the members that need another place.
	lost []lostSeat
}

// seat is a member's place that is kept.
type seat struct {
	member model.Member
	placed place.Placed
	// free: nothing of the gang is there any more.
	free  bool
	claim topo.Claim
}

// lostSeat is a member that needs another place, and why.
type lostSeat struct {
	group string
	index int
	node  string
	why   string
}

// replaces reports whether members of a job have failed so lately that new places
// for them are replacements.
func (c *cycle) replaces(j *model.Job) bool {
	return j.Replace != nil && len(j.Replace.Failed) > 0 && c.now.Sub(j.Replace.At) < c.policy.Replace.WithDefaults().KeepFor
}

// comebacks are the gangs of a job that come back, as things are now: whose node
// or GPUs have failed since then loses its place, too.
func (c *cycle) comebacks(j *model.Job) []*comeback {
	r := j.Replace
	if r == nil || len(r.Members) == 0 || c.now.Sub(r.At) >= c.policy.Replace.WithDefaults().KeepFor ||
		j.State != model.StateQueued && j.State != model.StateStopping && gangOf(j) != model.GangGroup {
		return nil
	}
	// What it had is for somebody else, or it has another place already. Slices are
	// placed whole.
	if slices.ContainsFunc(j.Preempted, func(gave model.Preempted) bool { return gave.At.After(r.At) }) ||
		slices.ContainsFunc(j.Moving, func(m model.Moving) bool { return m.Until.After(c.now) }) ||
		slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool { return g.Slice.Size > 0 }) {
		return nil
	}
	var out []*comeback
	for i := range j.Groups {
		g := &j.Groups[i]
		if gangOf(j) == model.GangGroup {
			out = append(out, &comeback{job: j, group: g.Name})
		} else if i == 0 {
			out = append(out, &comeback{job: j})
		}
		b := out[len(out)-1]
		if holdsMembers(j) && inForce(j, g.Name) > 0 {
			continue // it runs
		}
		c.addSeats(b, g)
	}
	return slices.DeleteFunc(out, func(b *comeback) bool { return len(b.seats) == 0 })
}

// addSeats adds the places of a group's members, as many as its count says.
func (c *cycle) addSeats(b *comeback, g *model.TaskGroup) {
	var of []model.Member
	for _, m := range b.job.Replace.Members {
		if m.Group == g.Name && !m.Ended {
			of = append(of, m)
		}
	}
	slices.SortFunc(of, func(a, b model.Member) int { return cmp.Compare(a.Index, b.Index) })
	request := c.catalog.Compile(b.job, g)
	kept := 0
	used := map[int]bool{}
	var lost []lostSeat
	for i := range of {
		s, why := c.seatOf(b.job, &of[i], request)
		switch {
		case why != "":
			lost = append(lost, lostSeat{g.Name, of[i].Index, of[i].Node, why})
		case kept < g.Count && of[i].Index < g.Count:
			kept++
			s.placed.Part = 0
			used[of[i].Index] = true
			b.seats = append(b.seats, s)
		}
	}
	for next := 0; kept+len(b.lostOf(g.Name)) < g.Count; next++ {
		if used[next] {
			continue
		}
		l := lostSeat{group: g.Name, index: next}
		if at := slices.IndexFunc(lost, func(l lostSeat) bool { return l.index == next }); at >= 0 {
			l = lost[at]
		}
		b.lost = append(b.lost, l)
	}
}

func (b *comeback) lostOf(group string) (out []lostSeat) {
	for _, l := range b.lost {
		if l.group == group {
			out = append(out, l)
		}
	}
	return out
}

// seatOf is a member's place, or why it is lost.
func (c *cycle) seatOf(j *model.Job, m *model.Member, request *place.Request) (seat, string) {
	for _, f := range j.Replace.Failed {
		if f.Group == m.Group && f.Index == m.Index {
			return seat{}, cmp.Or(f.Why, "has failed")
		}
	}
	node, ok := c.tree.Find(m.Node)
	if !ok {
		return seat{}, "is gone"
	}
	row := c.views[viewEmpty].State.Row(node)
	mask := c.gpuMask(node, m.GPUs)
	switch {
	case row.Closed:
		return seat{}, "is " + c.present[node].Unschedulable
	case mask&^row.GPUs != 0 || len(m.GPUs) != request.GPUs || !c.allListed(node, m.GPUs):
		return seat{}, "has GPUs of it that are unhealthy or gone"
	case !request.Verdicts.Eligible(int(node)):
		return seat{}, "does not suit it any more"
	}
	s := seat{member: *m, free: true, placed: place.Placed{Node: node, GPUs: c.gpuIndexes(node, m.GPUs)}}
	for _, t := range m.Tasks {
		s.placed.Tasks = append(s.placed.Tasks, c.gpuIndexes(node, t))
	}
	s.claim = c.views[viewNow].Claim(&place.Unit{Parts: []place.Part{{Request: request, Count: 1}}}, &s.placed)
	for _, h := range c.holders(node) {
		switch {
		case h.job == keyOf(j):
			s.free = false
		case h.gpus&mask != 0:
			return seat{}, "is in use by others"
		}
	}
	now := c.views[viewNow].State.Row(node)
	if s.free && (mask&^now.GPUs != 0 || now.Owner != 0 || !roomFor(now, s.claim)) {
		return seat{}, "is in use by others"
	}
	return s, ""
}

// roomFor reports whether a row has what a claim takes beside GPUs.
func roomFor(r *topo.Row, c topo.Claim) bool {
	left := minus(r.Free, c.Resources)
	return left.CPUMHz >= 0 && left.Cores >= 0 && left.MemoryMiB >= 0 && left.DiskMiB >= 0 && r.PortsFree(c.Ports)
}

// allListed reports whether a node lists all of some GPUs.
func (c *cycle) allListed(node int32, uuids []string) bool {
	return len(c.gpuIndexes(node, uuids)) == len(uuids)
}

// gpuIndexes are the indexes of GPUs in their node.
func (c *cycle) gpuIndexes(node int32, uuids []string) []int8 {
	out := make([]int8, 0, len(uuids))
	gpus := c.tree.Nodes[node].Model.GPUs
	for _, uuid := range uuids {
		if at := slices.IndexFunc(gpus, func(g model.GPU) bool { return g.UUID == uuid }); at >= 0 {
			out = append(out, int8(at))
		}
	}
	return out
}

// sit keeps the seats of a gang from all others.
func (c *cycle) sit(b *comeback) {
	c.beginHolding()
	if c.seats == nil {
		c.seats = map[int32]topo.Claim{}
	}
	for i := range b.seats {
		s := &b.seats[i]
		if s.free {
			c.views[viewNow].State.Take(s.placed.Node, s.claim)
		}
		claim := c.seats[s.placed.Node]
		claim.GPUs |= s.claim.GPUs
		claim.Ports = topo.MergePorts(claim.Ports, s.claim.Ports)
		c.seats[s.placed.Node] = claim
	}
	if c.looksAhead() {
		claims := make([]claimOn, len(b.seats))
		for i := range b.seats {
			claims[i] = claimOn{b.seats[i].placed.Node, b.seats[i].claim}
		}
		c.starts = append(c.starts, start{keyOf(b.job), claims, eternity})
	}
	c.holds = append(c.holds, hold{job: keyOf(b.job)})
	c.epoch++
}

// seatClaims are the claims of all seats, to be added to.
func (c *cycle) seatClaims() map[int32]topo.Claim {
	if c.seats == nil {
		return map[int32]topo.Claim{}
	}
	return maps.Clone(c.seats)
}

// starting are the jobs that are being placed: they all read their checkpoints.
func (c *cycle) starting() preempt.Loads {
	out := preempt.Loads{}
	for _, j := range c.jobs {
		if j.State == model.StateAdmitted {
			out.Add(j, 0)
		}
	}
	return out
}

// others are the seats as members that are somewhere already.
func (b *comeback) others() (out []other) {
	for i := range b.seats {
		out = append(out, other{node: b.seats[i].placed.Node, group: b.seats[i].member.Group})
	}
	return out
}
