package core

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// When all jobs that wait have had their turn, elastic gangs grow beyond their
// counts into what lies idle: member by member, the gang first that has the
// higher priority and then the one that has least by its count, so that equals
// end up with equal parts (max-min fairness by water-filling: Bertsekas and
// Gallager, Data Networks, section 6.5.2). What is kept for those who wait is not
// idle. A gang that gains less than the change of its size costs keeps its size.

// grower is an elastic gang that may grow.
type grower struct {
	job      *model.Job
	group    *model.TaskGroup
	priority int
	gang     gang
	// members are those in force, each with gpus GPUs.
	members []model.Member
	gpus    int
	// most is up to how many members it may grow, in all.
	most int
	// placed are the new members so far, and charged what they use.
	placed  []place.Placed
	charged []queue.Vector
	gain    gain
}

// maxFillings is how often idle nodes are given out anew when some gangs turn
// out to gain too little from theirs.
const maxFillings = 3

// resize decides which gangs get another size.
func (c *cycle) resize() []model.Resize {
	out := c.chargeSurplus()
	policy := c.policy.Elastic.WithDefaults()
	if policy.Disabled || len(c.jobsOf(someElastic)) == 0 || c.stands == nil && !c.anyIdleNode() {
		return out
	}
	growers := c.growers(policy)
	if len(growers) == 0 {
		return out
	}
	for range maxFillings {
		mark := c.views[viewNow].State.Mark()
		c.fill(growers)
		if !c.trim(growers, policy) {
			break
		}
		c.views[viewNow].State.Revert(mark)
		growers = slices.DeleteFunc(growers, func(g *grower) bool { return g.most <= len(g.members) })
	}
	left := policy.MaxPerHour - c.resizedLately()
	for _, g := range growers {
		if len(g.placed) > 0 && left > 0 {
			left--
			for _, amount := range g.charged {
				c.ledger.Charge(c.accounts.tree.HomeOf(g.job), amount, g.job.Preempt == model.PreemptNever)
			}
			out = append(out, c.grow(g))
		}
	}
	return append(out, c.retarget(growers, policy)...)
}

// resizedLately counts how often gangs got another size within the last hour.
func (c *cycle) resizedLately() int {
	n := 0
	for _, j := range c.jobsOf(someResized) {
		for _, at := range j.Resized {
			if c.now.Sub(at) < time.Hour {
				n++
			}
		}
	}
	return n
}

// anyIdleNode reports whether a node with GPUs is wholly free, and kept for
// nobody.
func (c *cycle) anyIdleNode() bool {
	now := c.views[viewNow].State
	for node := range int32(now.Len()) {
		if r := now.Row(node); r.GPUs != 0 && r.GPUs == c.tree.Nodes[node].All && r.Owner == 0 && !r.Closed {
			return true
		}
	}
	return false
}

// growers are the gangs that may grow, those first that go first among equals.
func (c *cycle) growers(policy queue.Elastic) []*grower {
	var out []*grower
	for _, j := range c.jobsOf(someElastic) {
		if !c.mayGrow(j, policy) {
			continue
		}
		for i := range j.Groups {
			if g := c.growerOf(j, &j.Groups[i]); g != nil {
				out = append(out, g)
			}
		}
	}
	slices.SortFunc(out, func(a, b *grower) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), a.job.Submitted.Compare(b.job.Submitted), strings.Compare(a.job.Namespace, b.job.Namespace),
			strings.Compare(a.job.ID, b.job.ID), strings.Compare(a.group.Name, b.group.Name))
	})
	return out
}

// mayGrow reports whether gangs of a job may grow now: all of it runs, and it has
// had its present size for a while.
func (c *cycle) mayGrow(j *model.Job, policy queue.Elastic) bool {
	return c.settled(j, policy) && !waits(j) && slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool { return g.Max > g.Count })
}

// settled reports whether the size of a job's gangs may change now.
func (c *cycle) settled(j *model.Job, policy queue.Elastic) bool {
	if j.State != model.StateRunning || j.Hold != "" || j.KeepSize != "" || j.RetryAfter.After(c.now) || gangOf(j) == model.GangNone {
		return false
	}
	if last := lastResize(j); !last.IsZero() && c.now.Sub(last) < policy.MinInterval {
		return false
	}
	return c.yield.chosen(keyOf(j)) == "" && !c.givenTo[keyOf(j)] &&
		!slices.ContainsFunc(j.Members, func(m model.Member) bool { return m.Ended }) &&
		!slices.ContainsFunc(c.jobAllocs(keyOf(j)), func(a *model.Alloc) bool { return a.Lost || a.Stopping })
}

// growerOf is a group's gang if it may have more members; nil if not.
func (c *cycle) growerOf(j *model.Job, group *model.TaskGroup) *grower {
	g := c.wholeGang(j, group)
	if g == nil {
		return nil
	}
	if target := c.targetMembers(j); target > 0 {
		g.most = min(g.most, target)
	}
	if len(g.members) >= g.most {
		return nil
	}
	g.gang = gang{grown: len(g.members)}
	g.gang.add(group, []int{0})
	// A gang is as fast as its slowest member, so it stays on its model.
	g.gang.groups[0] = withDevices(group, onlyModels(c.joinModels(j, &g.gang)))
	return g
}

// wholeGang is a group's gang if its size can change where it runs; nil if not.
// Only members that have their nodes whole and to themselves can be joined by
// others, or left, without starting anew.
func (c *cycle) wholeGang(j *model.Job, group *model.TaskGroup) *grower {
	g := &grower{job: j, group: group, priority: c.queueTree().Priority(j), most: group.Max}
	nodes := map[string]bool{}
	for _, m := range j.Members {
		if m.Group != group.Name {
			continue
		}
		n := c.nodes[m.Node]
		if n == nil || nodes[m.Node] || len(m.GPUs) == 0 || len(m.GPUs) != len(n.GPUs) {
			return nil
		}
		nodes[m.Node] = true
		g.members, g.gpus = append(g.members, m), len(m.GPUs)
	}
	if len(g.members) == 0 {
		return nil
	}
	return g
}

// fill gives idle nodes out, one at a time.
func (c *cycle) fill(growers []*grower) {
	open := slices.Clone(growers)
	for _, g := range growers {
		g.placed, g.charged = nil, nil
		c.placedNow = nil
		c.prepare(g.job, &g.gang)
	}
	trial := c.ledger.Clone()
	for len(open) > 0 {
		next := 0
		for i := range open {
			if open[i].before(open[next]) {
				next = i
			}
		}
		g := open[next]
		if !c.addMember(g, trial) || len(g.members)+len(g.placed) >= g.most {
			open = slices.Delete(open, next, next+1)
		}
	}
}

// before reports whether a gang gets the next node rather than another.
func (g *grower) before(o *grower) bool {
	if g.priority != o.priority {
		return g.priority > o.priority
	}
	// (members + placed) / count, without a division.
	return (len(g.members)+len(g.placed))*o.group.Count < (len(o.members)+len(o.placed))*g.group.Count
}

// addMember finds room for one more member; false if there is none, or the queue
// may not have it.
func (c *cycle) addMember(g *grower, ledger *queue.Ledger) bool {
	if g.gang.astray {
		return false
	}
	if len(g.gang.unit.Quotas) > 0 {
		c.prepare(g.job, &g.gang)
	}
	state := c.views[viewNow].State
	mark := state.Mark()
	var r place.Result
	ok := false
	for i := 0; i < max(1, len(g.gang.options)) && !ok; i++ {
		g.gang.use(i)
		r, ok = c.placeNear(&g.gang)
	}
	if !ok {
		return false
	}
	if ledger != nil {
		home, amount, never := c.accounts.tree.HomeOf(g.job), c.amountOf(&g.gang, r), g.job.Preempt == model.PreemptNever
		if ledger.Check(home, amount, never) != nil {
			state.Revert(mark)
			return false
		}
		ledger.Charge(home, amount, never)
		g.charged = append(g.charged, amount)
	}
	g.placed = append(g.placed, r.Placed[0])
	c.placedNow = append(c.placedNow, other{node: r.Placed[0].Node, group: g.group.Name})
	return true
}

// trim takes from gangs the new members that are not worth it; false if there
// are none.
func (c *cycle) trim(growers []*grower, policy queue.Elastic) bool {
	trimmed := false
	for _, g := range growers {
		n := 0
		if len(g.placed) > 0 {
			n, g.gain = c.worth(g, policy)
		}
		if n < len(g.placed) {
			g.most, trimmed = len(g.members)+n, true
		}
	}
	return trimmed
}

// grow is the decision on a gang that grows.
func (c *cycle) grow(g *grower) model.Resize {
	out := model.Resize{
		Namespace: g.job.Namespace, Job: g.job.ID, Action: model.ActionGrow, Group: g.group.Name,
		From: len(g.members), To: len(g.members) + len(g.placed), Gain: g.gain.factor, Benefit: g.gain.benefit, Cost: g.gain.cost,
	}
	indexes, ranks := map[int]bool{}, map[int]bool{}
	for _, m := range g.job.Members {
		if m.Group == g.group.Name {
			indexes[m.Index] = true
		}
		if gangOf(g.job) == model.GangJob || m.Group == g.group.Name {
			ranks[m.Rank] = true
		}
	}
	free := func(used map[int]bool) int {
		n := 0
		for used[n] {
			n++
		}
		used[n] = true
		return n
	}
	slices.SortStableFunc(g.placed, func(a, b place.Placed) int { return cmp.Compare(a.Node, b.Node) })
	for i := range g.placed {
		p := &g.placed[i]
		node := c.tree.Nodes[p.Node].Model
		m := model.Member{Group: g.group.Name, Index: free(indexes), Rank: free(ranks), Node: node.ID, GPUs: uuids(node, p.GPUs)}
		for _, t := range p.Tasks {
			m.Tasks = append(m.Tasks, uuids(node, t))
		}
		out.Members = append(out.Members, m)
	}
	out.Reason = c.growReason(g, &out)
	return out
}

// chargeSurplus charges to their queues what gangs have beyond their counts. What
// a queue may not have shrinks: while others of it waited, it did not count.
func (c *cycle) chargeSurplus() []model.Resize {
	if c.ledger == nil || !c.anySurplus() {
		return nil
	}
	var list []*model.Job
	for _, j := range c.jobsOf(someElastic) {
		if c.surplusMembers(j) != nil && c.yield.chosen(keyOf(j)) == "" {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *model.Job) int {
		return cmp.Or(cmp.Compare(c.queueTree().Priority(b), c.queueTree().Priority(a)), queue.Compare(a, b))
	})
	var out []model.Resize
	for _, j := range list {
		out = append(out, c.chargeSurplusOf(j)...)
	}
	return out
}

// chargeSurplusOf charges a job's surplus members, those first that would leave
// last.
func (c *cycle) chargeSurplusOf(j *model.Job) []model.Resize {
	home := c.accounts.tree.HomeOf(j)
	leave := map[string]*model.Resize{}
	var refusal *queue.Refusal
	for _, m := range slices.Backward(c.surplusMembers(j)) {
		node, ok := c.tree.Find(m.Node)
		if !ok {
			continue
		}
		h := c.memberHolder(node, jobMember{j, &m})
		amount := c.amountOn(node, h.gpus, h.resources)
		never := j.Preempt == model.PreemptNever
		if refused := c.ledger.Check(home, amount, never); refused != nil && j.KeepSize == "" && j.State == model.StateRunning {
			if leave[m.Group] == nil {
				leave[m.Group] = &model.Resize{Namespace: j.Namespace, Job: j.ID, Action: model.ActionShrink, Group: m.Group}
			}
			leave[m.Group].Members = append(leave[m.Group].Members, m)
			refusal = refused
			continue
		}
		c.ledger.Charge(home, amount, never)
	}
	var out []model.Resize
	for i := range j.Groups {
		r := leave[j.Groups[i].Name]
		if r == nil {
			continue
		}
		r.From = inForce(j, r.Group)
		r.To = r.From - len(r.Members)
		r.Cost = model.Cost{Restart: int64(len(r.Members[0].GPUs)*len(r.Members)) * int64(c.policy.Preempt.WithDefaults().RestartTime/time.Second)}
		r.Reason = shrinkReason(r, refusal.String())
		out = append(out, *r)
	}
	return out
}
