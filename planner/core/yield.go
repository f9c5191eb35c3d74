package core

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Gangs that run give way to one that waits for room and may displace them:
// see package preempt for who is chosen. What gives way is told to stop, and
// until its clients have reported it dead its room is promised: the gang that
// it is for waits, keeps exactly the place that it will have, and displaces
// nobody else meanwhile.

// yield is what a cycle knows of who gives way.
type yield struct {
	policy preempt.Policy
	rights preempt.Rights
	// gangs are those that run, the ones to be preferred first.
	gangs []yielder
	// lowest is the lowest priority of them, highest their highest class but that of those whom
	// no discipline has looked at; surplus: some are beyond the counts of others.
	lowest, highest int
	surplus         bool
	// given are the jobs that run of which this plan places something, who are few.
	given map[jobKey]bool
	// taken are those that give way already, or will when others have stopped.
	taken map[int]bool
	// leaving is what has been told to stop, or is in this plan.
	leaving []leaver
	// seen is the last gang that was found running, and seenAs what it is of.
	seen   *yielder
	seenAs runKey
	// left is what they leave.
	left leavers
	// promised is what gangs that wait will have of nodes that are not free yet.
	promised map[int32]topo.Claim
	// pledged are, by node, those of which something may be promised.
	pledged []bool
	// owed are the jobs for which others are to have ended by now that were placed
	// where they are to start.
	owed map[jobKey]bool
	// searches and perHour are how many more there may be.
	searches, perHour int
	// waive is what is not minded, when it is looked who is held back by it; over says
	// of the victims found last that a limit is against them, and heldBack what
	// gangs alike have been told, told of how many.
	waive    waiving
	over     string
	heldBack map[possibleKey]heldBack
	told     int
	// loads are what the gangs that are stopping save to each storage.
	loads preempt.Loads
	// rates are how many gangs of a queue may give way.
	rates *queue.Rates
	plan  []model.Preemption
	// last is, by entry of the plan, the last part of the gang that it is about.
	last []int
	// notes are what jobs are told that give way and wait for a place too.
	notes map[jobKey]string
}

// yielder is a gang that runs, or a part of an elastic one.
type yielder struct {
	job     *model.Job
	members []model.Member
	holds   []preempt.Hold
	gpus    int
	cost    model.Cost
	// saved: the work that it loses is that since a checkpoint.
	saved bool
	// after is the part of the gang that goes first, -1 if there is none. Without
	// the parts up to a whole one nothing of it is left.
	after int
	whole bool
	// surplus: what it is made of is beyond the gang's count, so anybody may have
	// it.
	surplus bool
}

// leaver is something that is stopping.
type leaver struct {
	job jobKey
	// to is whom it gives way to; zero if it leaves for another reason.
	to   jobKey
	gang gangKey
	hold preempt.Hold
}

// maxSearches is for how many gangs room is looked for in one cycle.
const maxSearches = 64

func (y *yield) chosen(k jobKey) string {
	if y == nil {
		return ""
	}
	return y.notes[k]
}

func (y *yield) preemptions() []model.Preemption {
	if y == nil {
		return nil
	}
	return y.plan
}

// mayPreempt reports whether it is worth a try to make room for a gang.
func (c *cycle) mayPreempt(j *model.Job, g *gang) bool {
	// A gang that runs already and would grow displaces nobody.
	if g.landing != nil || (!c.displaces() || g.grown > 0) && !c.anySurplus() {
		return false
	}
	if c.yield == nil {
		if c.inVain(j, g) {
			return false
		}
		c.yield = c.newYield()
		c.yield.searches -= min(c.vain.searches, c.yield.searches)
	}
	y := c.yield
	if !c.limited() && c.askedInVain(c.answersOf(g), c.rankOf(j)) && !y.owed[keyOf(j)] {
		return false
	}
	return y.searches > 0 && len(y.gangs)+len(y.leaving) > 0
}

// displaces reports whether anybody gives way to others, or is moved for them.
func (c *cycle) displaces() bool { return c.policy.Preempt.Enabled || c.policy.Defrag.Enabled }

// newYield finds what runs and what is leaving.
func (c *cycle) newYield() *yield {
	policy := c.policy.Preempt.WithDefaults()
	y := &yield{
		policy: policy, rights: c.rights(policy.MinPriorityGap), gangs: c.scratch.yielders[:0], leaving: c.scratch.leaving[:0],
		given: map[jobKey]bool{}, taken: map[int]bool{}, promised: c.seatClaims(),
		searches: maxSearches, loads: preempt.Loads{}, perHour: policy.MaxPerHour, notes: map[jobKey]string{},
	}
	c.scratch.yielders, c.scratch.leaving = nil, nil // there may be another yield in this cycle
	y.pledged = make([]bool, len(c.tree.Nodes))
	for node := range y.promised {
		y.pledged[node] = true
	}
	y.rates = c.openRates()
	c.promiseLandings(y)
	for k := range c.givenTo {
		if j := c.jobs[k]; j != nil && j.State == model.StateRunning {
			y.given[k] = true
		}
	}
	found := c.scratch.found
	for node := range c.allocsOn {
		c.addHolders(y, int32(node), found)
	}
	c.noteStopping(y)
	y.owed = c.owed()
	for _, j := range c.jobsOf(someGave) {
		for _, gave := range j.Preempted {
			if c.now.Sub(gave.At) < time.Hour && !gave.Returned {
				y.perHour--
			}
		}
	}
	c.addYielders(y, found)
	clear(found)
	return y
}

// addYielders adds gangs, the ones to be preferred first.
func (c *cycle) addYielders(y *yield, found map[runKey]*yielder) {
	type entry struct {
		runKey
		yielder *yielder
		class   int
		key     float64
	}
	list := make([]entry, 0, len(found))
	for key, v := range found {
		standing := c.standing(v.job)
		list = append(list, entry{key, v, standing.Class, standing.Key})
	}
	slices.SortFunc(list, func(a, b entry) int {
		x, y := a.job, b.job
		if first := cmp.Or(cmp.Compare(x.Priority, y.Priority), cmp.Compare(b.class, a.class), cmp.Compare(b.key, a.key)); first != 0 {
			return first
		}
		return cmp.Or(y.Submitted.Compare(x.Submitted), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.ID, y.ID), strings.Compare(a.group, b.group), cmp.Compare(a.index, b.index))
	})
	y.lowest, y.highest = math.MaxInt, math.MinInt
	for i := range list {
		e := &list[i]
		if c.addYielder(y, e.yielder); e.class != lastClass {
			y.highest = max(y.highest, e.class)
		}
		y.lowest = min(y.lowest, e.job.Priority)
	}
	y.surplus = slices.ContainsFunc(y.gangs, func(v yielder) bool { return v.surplus })
}

// addHolders notes what of a node would be left behind by whom. What others
// hold too is left by nobody.
func (c *cycle) addHolders(y *yield, node int32, found map[runKey]*yielder) {
	holders := c.holders(node)
	healthy := c.views[viewEmpty].State.Row(node).GPUs
	for i := range holders {
		h := &holders[i]
		j := h.of
		lost := h.on != nil && h.on.Lost
		leaves := isLeaving(j, h)
		if j == nil && !leaves || lost {
			continue
		}
		claim := topo.Claim{GPUs: h.gpus & healthy, Resources: h.resources, Ports: h.ports}
		for k := range holders {
			o := &holders[k]
			if k == i || claim.GPUs&o.gpus == 0 && (len(claim.Ports) == 0 || len(o.ports) == 0) {
				continue // they have nothing in common, as most often
			}
			same := j != nil && o.job == h.job && gangKeyOf(j, o) == gangKeyOf(j, h)
			if !same && !(leaves && isLeaving(o.of, o) && (o.on == nil || !o.on.Lost)) {
				claim.GPUs &^= o.gpus
				claim.Ports = slices.DeleteFunc(slices.Clone(claim.Ports), func(port uint16) bool { return slices.Contains(o.ports, port) })
			}
		}
		hold := preempt.Hold{Node: node, Claim: claim}
		switch {
		case leaves:
			l := leaver{job: h.job, to: gaveTo(j, h), hold: hold}
			if j != nil {
				l.gang = gangKeyOf(j, h)
			}
			y.leaving = append(y.leaving, l)
		case j.State == model.StateRunning:
			gang := gangKeyOf(j, h)
			key := runKey{j, gang.group, gang.index}
			v := y.seen
			if v == nil || y.seenAs != key { // else it is on the node before, too
				if v = found[key]; v == nil {
					v = c.scratch.newYielder(j)
					found[key] = v
				}
				y.seen, y.seenAs = v, key
			}
			v.holds = append(v.holds, hold)
			if h.member != nil {
				v.members = append(v.members, *h.member)
			} else if h.on != nil {
				v.members = append(v.members, model.Member{Group: h.on.Group, Index: h.on.Index, Node: h.on.Node, GPUs: h.on.GPUs})
			}
		}
	}
}

// gaveTo is whom a holder has given way to since its job was placed; zero if to
// nobody.
func gaveTo(j *model.Job, h *holder) jobKey {
	if j == nil {
		return jobKey{}
	}
	for _, gave := range slices.Backward(j.Preempted) {
		key := gangKey{job: keyOf(j), group: gave.Group, index: -1}
		if gangOf(j) == model.GangNone {
			key.index = gave.Index
		}
		if key == gangKeyOf(j, h) && !gave.At.Before(j.Started) {
			return jobKey{gave.Namespace, gave.By}
		}
	}
	return jobKey{}
}

// noteStopping notes what the gangs save that are stopping to give way.
func (c *cycle) noteStopping(y *yield) {
	gpus := map[gangKey]int{}
	for _, l := range y.leaving {
		// So do those whose nodes are drained.
		if j := c.jobs[l.job]; l.to != (jobKey{}) || j != nil && j.Replace != nil {
			gpus[l.gang] += bits.OnesCount64(l.hold.Claim.GPUs)
		}
	}
	for gang, n := range gpus {
		y.loads.Add(c.jobs[gang.job], n)
	}
}

// isLeaving reports whether a holder will be gone soon.
func isLeaving(j *model.Job, h *holder) bool {
	return h.on != nil && h.on.Stopping || j != nil && j.State == model.StateStopping
}

// addYielder adds a gang that may give way, in parts if it is elastic. One that
// is not all there is left to whoever sees to that, and one of which a member
// has ended could not be started again.
func (c *cycle) addYielder(y *yield, v *yielder) {
	j := v.job
	for _, a := range c.jobAllocs(keyOf(j)) {
		if a.Lost {
			return
		}
	}
	for i := range j.Members {
		m := &j.Members[i]
		if m.Ended && gangOf(j) != model.GangNone && (gangOf(j) == model.GangJob || m.Group == v.members[0].Group) {
			return
		}
	}
	for _, h := range v.holds {
		v.gpus += bits.OnesCount64(h.Claim.GPUs)
	}
	v.cost = c.costOf(y, v)
	slices.SortFunc(v.members, func(a, b model.Member) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), strings.Compare(a.Group, b.Group), cmp.Compare(a.Index, b.Index), strings.Compare(a.Node, b.Node))
	})
	after := -1
	spare := c.spare(v)
	surplus := c.surplusIn(v, spare)
	for i, m := range spare {
		part := v.part(c, m, after)
		part.surplus = i < surplus
		part.cost = model.Cost{Restart: int64(max(1, part.gpus)) * int64(y.policy.RestartTime/time.Second)}
		v.without(part)
		after = len(y.gangs)
		y.gangs = append(y.gangs, part)
	}
	v.after = after
	y.gangs = append(y.gangs, *v)
}

// spare are the members that an elastic gang can do without, in the order in
// which they leave: those with the highest indexes first, as in Nomad. Only
// members that have their nodes whole and to themselves can leave without the
// others having to start anew.
func (c *cycle) spare(v *yielder) []model.Member {
	at := slices.IndexFunc(v.job.Groups, func(g model.TaskGroup) bool { return g.Name == v.members[0].Group })
	if at < 0 || v.job.Groups[at].Max == 0 || gangOf(v.job) == model.GangNone || len(v.holds) != len(v.members) {
		return nil
	}
	nodes := map[string]bool{}
	for i := range v.members {
		m := &v.members[i]
		n := c.nodes[m.Node]
		if m.Group != v.members[0].Group || nodes[m.Node] || n == nil || len(m.GPUs) == 0 || len(m.GPUs) != len(n.GPUs) {
			return nil
		}
		nodes[m.Node] = true
	}
	order := slices.Clone(v.members)
	for i := range order {
		order[i].Index = c.indexOf(v.job, &order[i])
	}
	slices.SortFunc(order, func(a, b model.Member) int { return cmp.Compare(b.Index, a.Index) })
	return order[:max(0, len(order)-max(1, v.job.Groups[at].Min))]
}

// part is one member of a gang.
func (v *yielder) part(c *cycle, m model.Member, after int) yielder {
	out := yielder{job: v.job, members: []model.Member{m}, saved: v.saved, after: after}
	node, _ := c.tree.Find(m.Node)
	for _, h := range v.holds {
		if h.Node == node {
			out.holds = append(out.holds, h)
			out.gpus += bits.OnesCount64(h.Claim.GPUs)
		}
	}
	return out
}

// without leaves to the gang what a part of it has not. What it costs to stop
// the rest too is what the whole costs beyond the part.
func (v *yielder) without(part yielder) {
	m := part.members[0]
	v.members = slices.DeleteFunc(slices.Clone(v.members), func(o model.Member) bool { return o.Group == m.Group && o.Node == m.Node })
	v.holds = slices.DeleteFunc(slices.Clone(v.holds), func(h preempt.Hold) bool { return h.Node == part.holds[0].Node })
	v.gpus -= part.gpus
	v.cost.Restart -= part.cost.Restart
}
