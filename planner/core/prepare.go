// Package core decides for the whole cluster: Decide takes a snapshot and says
// what is to be done. It has no clock, does no I/O, writes no log, and gives
// the same plan for the same snapshot, however its nodes, jobs and allocations
// are ordered.
package core

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/beside"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Policy is how the queue is worked.
type Policy = queue.Policy

// Decide validates a snapshot and makes its plan: one decision for every job
// that waits for a place. An error names every fault of the snapshot.
func Decide(snapshot *model.Snapshot, policy Policy) (*model.Plan, error) {
	p, err := Prepare(snapshot, policy)
	if err != nil {
		return nil, err
	}
	return p.Decide(snapshot.Now), nil
}

// Prepared is a cluster made ready for deciding many times, with changes in
// between. It is not safe for concurrent use.
type Prepared struct {
	// chosen is the policy as it was given, policy as it is in force (see setTurns).
	chosen, policy Policy
	levels         []string
	queues         []model.Queue
	// demands are what jobs that have ended have had, past the same in order; nil: to
	// be put in order.
	demands []float64
	past    *queue.Past
	// regions are what is known of regions.
	regions []model.Region
	// burst is where nodes can be bought, and fits on how many of a pool's a job fits.
	burst model.Burst
	fits  map[fitKey]fit
	// queueBurst: some queue says whether nodes are bought for its jobs.
	queueBurst bool
	nodes      map[string]*model.Node
	jobs       map[jobKey]*model.Job
	allocs     map[string]*model.Alloc
	// onTheWay are the jobs of which gangs are being moved.
	onTheWay map[jobKey]bool
	// divides are the nodes whose GPUs are divided as they are told to.
	divides map[int32]bool

	// What follows is derived. It is made anew when nodes come, go, or change
	// in more than health and eligibility.
	catalog *place.Catalog
	tree    *topo.Tree
	// present are the nodes as they are now: the tree's, but for eligibility
	// and health.
	present []*model.Node
	// bought are the nodes that were bought.
	bought []int32
	// allocsOn and membersOn are, by node, what holds something there.
	allocsOn  [][]*model.Alloc
	membersOn [][]jobMember
	// named are, by node, the GPUs that were named last.
	named []namedSet
	// empty is, by node, what there is if nobody holds anything of it.
	empty []topo.Row
	// usable is what GPUs may be used; nil: to be counted again.
	usable *usable
	// held is, by node, what holders makes of these; ending whether it is known of
	// any of them when it ends, and endings counts those nodes.
	held    [][]holder
	ending  []bool
	endings int
	// turned counts, by node, how often who holds what of it was found out.
	turned []uint32
	// given are the jobs as they were handed over; nil once they have changed.
	given []model.Job
	// timed counts the jobs of which it is known how long they run; -1: to be
	// counted again.
	timed int
	// views are the states that decisions are tried on.
	views [viewCount]*place.Engine
	// allocsOf are the allocations by job, made when a constraint asks.
	allocsOf map[jobKey][]*model.Alloc
	// pending are the jobs to decide on, in order, as far as that depends on the
	// jobs alone; nil: to be made again.
	pending []*model.Job
	// aged are all jobs by age, agedOf the same by job; nil: to be made again.
	aged   []*agedJob
	agedOf map[*model.Job]*agedJob
	// lasting is the order of those who wait, where it is kept; nil where it is not.
	lasting *lasting
	// said is what disciplines have said of jobs.
	said map[*model.Job]queue.Said
	// askings are what jobs ask for that wait, as far as it was found out.
	askings map[*model.Job]*request
	// refusals are how many had to keep what they are to keep until gangs alike had no
	// place behind them, the last time.
	refusals map[possibleKey]int
	// wants are the shapes of gangs that there are; nil: to be made again.
	wants []place.Want
	// shapes counts them; nil: to be made again.
	shapes map[wantKey]*place.Want
	// some are the jobs of kinds that are few; nil: to be made again.
	some [someCount]map[jobKey]*model.Job
	// apart are the reservations, and apartNodes the nodes of each; nil: to be
	// found again.
	apart      []model.Reservation
	apartNodes [][]int32
	// possible remembers whether units fit into an emptier cluster.
	possible map[toldKey]possibility
	// speeds are the curves of jobs, by what they were made of.
	speeds map[jobKey]knownSpeed
	// accounts is what jobs use, by queue; nil where there are no queues.
	accounts *accounts
	// terse: plans leave out why gangs wait.
	terse bool
	// trusts: changes are not checked.
	trusts bool
	// still is what is known of the last plan if it starts nobody.
	still still
	// scratch is what decisions use again.
	scratch scratch
}

type jobKey struct{ namespace, id string }

func keyOf(j *model.Job) jobKey { return jobKey{j.Namespace, j.ID} }

type jobMember struct {
	job    *model.Job
	member *model.Member
}

// The states on which placements are tried.
const (
	// viewNow: what is free, minus what jobs ahead keep for themselves.
	viewNow = iota
	// viewTrue: what is free.
	viewTrue
	// viewCalm: what will be free when everything that ends by itself has.
	viewCalm
	// viewEmpty: the usable nodes, empty.
	viewEmpty
	// viewWhole: all nodes, empty, as if everything were healthy.
	viewWhole
	// viewAhead: what will be free at some time, on the nodes looked at.
	viewAhead
	// viewLent: what is free, and may be used by who ends in time.
	viewLent
	viewCount
)

// Prepare validates a snapshot and makes it ready. The snapshot must not be
// changed afterwards.
func Prepare(snapshot *model.Snapshot, policy Policy) (*Prepared, error) {
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	p := &Prepared{chosen: policy, policy: policy, onTheWay: map[jobKey]bool{}, given: snapshot.Jobs}
	var tree *topo.Tree
	err := snapshot.ValidateAnd(func() {
		wait := beside.Do(func() { p.take(snapshot) })
		tree = topo.New(snapshot)
		wait()
	})
	if err != nil {
		return nil, err
	}
	p.setRest(snapshot)
	p.build(tree, each(snapshot.Allocs))
	return p, nil
}

// setRest takes over what is not nodes, jobs or allocations.
func (p *Prepared) setRest(s *model.Snapshot) {
	p.levels, p.queues, p.regions = s.Levels, s.Queues, s.Regions
	if !slices.Equal(p.demands, s.History.Demands) {
		p.past = nil
	}
	p.demands = s.History.Demands
	p.setBurst(&s.Burst)
	p.apart, p.apartNodes = slices.Clone(s.Reservations), nil
	slices.SortFunc(p.apart, func(a, b model.Reservation) int { return strings.Compare(a.Name, b.Name) })
	p.reserveInteractive()
}

// build derives everything from the nodes, jobs and allocs, which may come in any
// order.
func (p *Prepared) build(tree *topo.Tree, allocs func(yield func(*model.Alloc) bool)) {
	n := len(tree.Nodes)
	p.tree, p.catalog = tree, place.NewCatalog(tree)
	p.divides, p.scratch.ahead = map[int32]bool{}, nil
	p.allocsOn, p.membersOn, p.held, p.empty = make([][]*model.Alloc, n), make([][]jobMember, n), make([][]holder, n), make([]topo.Row, n)
	p.named, p.apartNodes = make([]namedSet, n), nil
	p.ending, p.endings, p.timed, p.turned = make([]bool, n), 0, -1, make([]uint32, n)
	p.openAccounts()
	p.scratch.line = nil
	p.allocsOf, p.pending, p.lasting, p.aged, p.agedOf, p.possible = nil, nil, nil, nil, nil, map[toldKey]possibility{}
	p.some = [someCount]map[jobKey]*model.Job{}
	p.wants, p.shapes, p.usable = nil, nil, nil
	p.said, p.askings, p.refusals = map[*model.Job]queue.Said{}, map[*model.Job]*request{}, map[possibleKey]int{}
	p.forgetAnswers()
	for a := range allocs {
		if at, ok := tree.Find(a.Node); ok {
			p.allocsOn[at] = append(p.allocsOn[at], a)
		}
	}
	for j := range p.allJobs() {
		p.addMembers(j)
	}
	p.present, p.bought = make([]*model.Node, n), nil
	for i := range tree.Nodes {
		p.present[i] = tree.Nodes[i].Model
		if p.present[i].Bought != nil {
			p.bought = append(p.bought, int32(i))
		}
	}
	for v := range p.views {
		p.views[v] = place.NewEngine(p.catalog, topo.NewState(n))
	}
	p.setAllRows()
}

// addMembers notes where a job's members in force are, and returns the nodes.
func (p *Prepared) addMembers(j *model.Job) []int32 {
	if !holdsMembers(j) {
		return nil
	}
	var nodes []int32
	for k := range j.Members {
		if j.Members[k].Ended {
			continue
		}
		if at, ok := p.tree.Find(j.Members[k].Node); ok {
			p.membersOn[at] = append(p.membersOn[at], jobMember{j, &j.Members[k]})
			nodes = append(nodes, at)
		}
	}
	return nodes
}

// holdsMembers reports whether a job's members hold their places even before
// an allocation is there.
func holdsMembers(j *model.Job) bool {
	return j.State == model.StateAdmitted || j.State == model.StateRunning || j.State == model.StateQueued && gangOf(j) != model.GangJob
}

func gangOf(j *model.Job) model.Gang {
	if j.Gang == "" {
		return model.GangNone
	}
	return j.Gang
}

// Terse leaves out of plans from now on why gangs wait, what they lack, and, as far
// as nobody else's place hangs on it, what they keep and when they are expected to
// start: nobody reads that while a cluster is simulated. What is decided is the same. A
// plan that would be the last one again, which started nobody, is empty.
func (p *Prepared) Terse() { p.terse = true }

// Trust leaves changes unchecked from now on: whoever makes them answers for it that they
// are valid.
func (p *Prepared) Trust() { p.trusts = true }

// Decide makes the plan for a moment. It changes nothing: to carry on from the
// plan, apply what came of it.
func (p *Prepared) Decide(now time.Time) *model.Plan {
	if p.tree == nil {
		p.build(topo.New(p.snapshot()), maps.Values(p.allocs))
	}
	c := newCycle(p, now)
	defer c.revert()
	return c.decide()
}

func (c *cycle) decide() *model.Plan {
	c.setTurns()
	list := c.Prepared.queue()
	c.keepBought()
	c.keepPlaces()
	c.stand()
	c.setApart()
	c.evict()
	c.keepSpares()
	c.postponing = c.mayPostpone()
	c.passesAlike = c.mayPassAlike()
	c.leavesBehind = c.mayLeaveBehind()
	plan := &model.Plan{Decisions: []model.Decision{}}
	if !c.passesAlike && !c.leavesBehind { // else few of those who wait are told
		plan.Decisions = slices.Grow(plan.Decisions, len(list))
	}
	order := c.guaranteedFirst(c.promisedFirst(c.inOrder(list)))
	if c.staysStill(order) {
		return plan
	}
	c.work(c.comeBack(order, plan), plan)
	c.noteStill(order)
	c.settleMoves()
	c.comeHome()
	plan.Repartitions = c.repartition(plan)
	plan.Preemptions = c.yield.preemptions()
	plan.Resizes = c.resize()
	plan.Promises = c.promises
	plan.Demand = c.wantNodes(plan)
	plan.Queues = c.report(plan)
	plan.Reservations = c.reservations(plan)
	return plan
}

// queue returns the jobs to be decided on, in order.
func (p *Prepared) queue() []*model.Job {
	if p.pending == nil {
		p.pending = make([]*model.Job, 0, len(p.jobs))
		for j := range p.allJobs() {
			if waits(j) {
				p.pending = append(p.pending, j)
			}
		}
		p.policy.Sort(p.queueTree(), p.pending)
	}
	return p.pending
}

// waits reports whether a job has members to be placed.
func waits(j *model.Job) bool {
	switch j.State {
	case model.StateQueued:
		return true
	case model.StateAdmitted, model.StateRunning:
		if gangOf(j) == model.GangJob && !growable(j) {
			return false
		}
		for i := range j.Groups {
			if lacks(j, &j.Groups[i]) > 0 {
				return true
			}
		}
	}
	return false
}

// lacks counts the members that a group lacks. A gang that was resized may have
// members beyond its count, and fewer within.
func lacks(j *model.Job, g *model.TaskGroup) int {
	if j.State == model.StateAdmitted && gangOf(j) == model.GangGroup && g.Max > 0 && inForce(j, g.Name) > 0 {
		return 0 // while it starts it does not grow
	}
	if !holdsMembers(j) {
		return max(0, g.Count)
	}
	have := 0
	var low [8]uint64 // indexes below 512: who asks does so often
	var high map[int]bool
	for i := range j.Members {
		switch m := &j.Members[i]; {
		case m.Group != g.Name:
		case m.Index >= 0 && m.Index < 64*len(low):
			if bit := uint64(1) << (m.Index % 64); low[m.Index/64]&bit == 0 {
				low[m.Index/64] |= bit
				have++
			}
		case !high[m.Index]:
			if high == nil {
				high = map[int]bool{}
			}
			high[m.Index] = true
			have++
		}
	}
	return max(0, g.Count-have)
}

// missing lists the lowest free indexes for the members that a group lacks.
func missing(j *model.Job, g *model.TaskGroup) []int {
	lacking := lacks(j, g)
	if lacking == 0 {
		return nil
	}
	var have map[int]bool
	if holdsMembers(j) && len(j.Members) > 0 {
		have = make(map[int]bool, len(j.Members))
		for i := range j.Members {
			if m := &j.Members[i]; m.Group == g.Name {
				have[m.Index] = true
			}
		}
	}
	out := make([]int, 0, lacking)
	for i := 0; len(out) < lacking; i++ {
		if !have[i] {
			out = append(out, i)
		}
	}
	return out
}

// snapshot lists the nodes again, for a new tree.
func (p *Prepared) snapshot() *model.Snapshot {
	s := &model.Snapshot{Levels: p.levels, Nodes: make([]model.Node, 0, len(p.nodes))}
	for _, n := range p.nodes {
		s.Nodes = append(s.Nodes, *n)
	}
	slices.SortFunc(s.Nodes, func(a, b model.Node) int { return strings.Compare(a.ID, b.ID) })
	return s
}
