package core

import (
	"fmt"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
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
	codePreempting = "preempting"
	codeQuota      = "quota"
	codeTarget     = "target"
	codeDividing   = "dividing"
)

// cycle is one pass over the queue. All that it takes it gives back.
type cycle struct {
	*Prepared
	now   time.Time
	marks [viewCount]topo.Undo
	// ledger is what queues use; nil where there are none.
	ledger *queue.Ledger
	// asking is what the gang asks for that waits for room.
	asking queue.Vector
	// waiting counts the jobs before the present one that stay in the queue.
	waiting int
	// blocked is set once a job waits for room and the policy is strict.
	blocked string
	// holds are the nodes kept by those who wait; takers what was admitted
	// before the view without what is kept was brought up to date, which is
	// truthful from then on.
	holds []hold
	// divider divides GPUs; nil until somebody asks. divided counts the holds of those
	// for whom that is done now, or who share what another one keeps.
	divider *divider
	divided int
	// clearing are the nodes on which jobs that nobody passes any more have a place once
	// the short ones there have ended.
	clearing map[jobKey][]int32
	// draining: a gang keeps nodes from everybody though others reserve times.
	draining bool
	takers   []taker
	truthful bool
	claims   map[possibleKey]claim
	// named counts gangs that keep nothing and are told who is in their way.
	named int
	// epoch grows whenever something is taken or kept, in all decisions; waits are the
	// answers given since to gangs that did not fit.
	epoch int
	waits map[possibleKey]*answered
	// shares are the answers given since to single members that share a claim.
	shares map[possibleKey]sharedWait
	// hopes are the gangs that could be placed later.
	hopes map[toldKey]possibility
	// placedNow are the members of the present job placed in this decision.
	placedNow []other
	// failed are the gangs of the present job that are not placed.
	failed []*gang
	// given is everything placed in this plan; givenOn finds it by node, as far
	// as indexed.
	given   []given
	givenOn [][]int
	indexed int
	// givenTo are the jobs of which this plan places something.
	givenTo map[jobKey]bool
	// holding is what was said of who holds a node.
	holding map[int32]holding
	// starts is what this plan places or promises, with how long it runs.
	starts []start
	// postponed are those who have not kept yet what they are to keep, which is done
	// while postponing is set; late counts those who have since.
	postponed  []postponed
	postponing bool
	// passesAlike: who asks for what was just refused is not looked at.
	passesAlike bool
	// leavesBehind: nobody is looked at who is behind one that waits.
	leavesBehind bool
	late         int
	// unsure: what is decided may be another one as time passes though nothing else
	// changes.
	unsure bool
	// ahead is the time to come; nil until somebody asks. opened is the version of
	// the view of all at the beginning.
	ahead  *ahead
	opened int
	// claimed counts the GPUs that interactive jobs have got of what others use of
	// theirs.
	claimed int
	// uses is how the reservations stand, queuesApart the queues that capacity is
	// kept for, guaranteed the jobs that go first, and evicting the maintenances for
	// which what runs is stopped.
	uses        []model.ReservationUse
	queuesApart []string
	// inShares is what jobs hold that counts for the capacity of their queues.
	inShares   []inShare
	guaranteed map[jobKey]*model.ReservationUse
	evicting   []*model.Reservation
	// closing: nodes are closed for a while, and closed says for what.
	closing bool
	closed  map[int32]string
	// asked is who wants to know what would unblock him; nil is nobody.
	asked *unblocking
	// yield is who gives way; nil until somebody asks for whom somebody may. vain is
	// what is known of those for whom nobody may.
	yield *yield
	vain  vain
	// asks is the number under which it is noted who has asked in vain; it is another one
	// whenever that is forgotten.
	asks int
	// early are the jobs that go before their turn for what others leave to groups of
	// theirs, and those groups.
	early map[jobKey][]string
	// stands is how jobs stand in an order in which more than age counts.
	stands *standings
	// lasts: the order is the one that is kept. Then through is who goes before all others
	// of his priority, nil for nobody, and throughWhy why.
	lasts      bool
	through    *queue.Place
	throughWhy string
	// promises are those that are made, or cannot be kept any more.
	promises []model.Promise
	// seats are the places kept for gangs that come back to theirs, and spares the
	// nodes kept for replacements.
	seats  map[int32]topo.Claim
	spares []int32
	// larger are the nodes with more GPUs than a number, by that.
	larger map[int][]int32
	// surplus says whether gangs have members beyond their counts; nil until
	// somebody asks.
	surplus *bool
	// landings are the places kept for those on their way.
	landings []*landing
	// serving is the turn of the job that is being told why it waits, and stage the
	// stage that it is at; nil: there is none.
	serving *turn
	stage   int
	// compaction is who may be moved; nil until somebody asks.
	compaction *compaction
	// considered is what was found out about moves.
	considered []model.Compaction
	// reserved are the bought nodes that nobody may use, but for the job that they
	// are kept for, if there is one.
	reserved map[int32]reservedNode
}

// waitAnswer is what a gang that did not fit was told, and when.
type waitAnswer struct {
	epoch int
	// known: what follows holds for every gang alike.
	known bool
	wait  wait
	// beside is what is set apart from the gang's queue.
	beside string
	// late is the same for those who keep later what they are to keep; nil: nobody has.
	late *toldLate
}

// answered is what gangs alike were answered last. It is kept from one decision to the
// next for those who ask again, though nothing that it says holds then.
type answered struct {
	waitAnswer
	// failed is the shortest run time with which they could not borrow what others have
	// reserved, in one cycle. What is free only becomes less in it.
	failed   time.Duration
	failedIn uint32
	// asked is up to which rank others were asked in vain to give way, as of a number of
	// cycle.asks.
	asked   rank
	askedIn int
	// roomless is the epoch in which there was no room for them last.
	roomless int
}

// answersOf is where a gang finds what its like were answered; nil if it has no like.
func (c *cycle) answersOf(g *gang) *answered {
	if g.answersFor != g.unit {
		g.answers, g.answersFor = nil, g.unit
		if key, plain := keyOfGang(g); plain {
			g.answers = c.answersTo(key)
		}
	}
	return g.answers
}

// askedInVain reports whether gangs alike, of the same rank or a higher one, have asked
// others in vain to give way.
func (c *cycle) askedInVain(a *answered, r rank) bool {
	return a != nil && a.askedIn == c.asks && !r.beyond(a.asked)
}

// noteVain notes that they have.
func (c *cycle) noteVain(g *gang, r rank) {
	if a := c.answersOf(g); a != nil {
		a.asked, a.askedIn = r, c.asks
	}
}

// forgetVain forgets who has asked in vain.
func (c *cycle) forgetVain() {
	c.scratch.asks++
	c.asks = c.scratch.asks
}

// answersTo is where gangs alike find what they were answered.
func (c *cycle) answersTo(key possibleKey) *answered {
	a := c.waits[key]
	if a == nil {
		a = new(answered)
		c.waits[key] = a
	}
	return a
}

// sharedWait is what single members were told that wait for a node together.
type sharedWait struct {
	waitAnswer
	node int32
}

// holding is who holds a node, in words, as of some length of givenOn: everybody, and
// those that hold some of so many GPUs, of which free are free.
type holding struct {
	given          int
	of             uint64
	jobs           []jobKey
	free           int
	all, holdsGPUs string
}

// given is a member that this plan places.
type given struct {
	job  jobKey
	node int32
	gpus uint64
}

type taker struct {
	unit   *place.Unit
	placed []place.Placed
}

func newCycle(p *Prepared, now time.Time) *cycle {
	c := &cycle{Prepared: p, now: now}
	p.scratch.lend(c)
	c.forgetVain()
	c.ledger = p.openLedger()
	p.views[viewNow].SetWants(p.shapesWanted())
	for v := range p.views {
		c.marks[v] = p.views[v].State.Mark()
	}
	c.opened = p.views[viewNow].State.Version()
	return c
}

func (c *cycle) revert() {
	for v := range c.views {
		c.views[v].State.Revert(c.marks[v])
	}
	c.scratch.takeBack(c)
}

// begin begins a job's turn, and ends it where nothing is to be looked at.
func (c *cycle) begin(t *turn, j *model.Job) {
	d := model.Decision{Namespace: j.Namespace, Job: j.ID, Action: model.ActionWait, Members: []model.Member{}}
	d.Detail.Ahead = c.waiting
	gangs := c.gangs(j)
	for i := range gangs {
		d.Detail.MembersWanted += gangs[i].members
		d.Detail.WantedGPUs += gangs[i].gpus
	}
	rest := t.rest[:0]
	switch {
	case j.Hold != "":
		d.Reason, d.Detail.Code = j.Hold, codeHold
	case c.constraintFaults(j) != "":
		d.Reason = c.constraintFaults(j) + "; correct it and submit the job again"
		d.Detail.Code = codeInvalid
	case len(gangs) == 0:
		d.Reason = "asks for no members: every group's count is 0; raise a count or stop the job"
		d.Detail.Code = codeInvalid
	case j.RetryAfter.After(c.now):
		in := ""
		if rest := j.RetryAfter.Sub(c.now); rest < maxTellable {
			in = fmt.Sprintf("in %s, ", rest.Round(time.Second))
		}
		d.Reason = fmt.Sprintf("its last placement did not hold; is tried again %sat %s", in, j.RetryAfter.UTC().Format(time.RFC3339))
		if j.RetryFor != "" {
			d.Reason = fmt.Sprintf("waits until %s for %s", j.RetryAfter.UTC().Format(time.TimeOnly), j.RetryFor)
		}
		d.Detail.Code = codeRetryLater
	case c.yield.chosen(keyOf(j)) != "":
		d.Reason, d.Detail.Code = c.yield.chosen(keyOf(j)), codeBehind
	case !c.withinTarget(j, gangs):
		d.Reason, d.Detail.Code = c.targetReason(j, gangs[0].grown), codeTarget
	case c.blocked != "" && !c.lands(j):
		d.Reason = fmt.Sprintf("%s is ahead and waits for room; the queue is strict, so nobody passes it", c.blocked)
		d.Detail.Code = codeBehind
	default:
		for i := range gangs {
			gangs[i].landing = c.landingOf(j, &gangs[i])
			rest = append(rest, &gangs[i])
		}
	}
	*t = turn{job: j, gangs: gangs, rest: rest, placedNow: t.placedNow[:0], waits: t.waits[:0], d: d}
}

// maxTellable is up to which a time is told in hours.
const maxTellable = 100 * 24 * time.Hour

// constraintFaults says what is wrong with a job's constraints.
func (c *cycle) constraintFaults(j *model.Job) string {
	var faults []string
	look := func(list []model.Constraint) {
		for _, con := range list {
			if text := c.catalog.Nodes.Checker().Fault(con); text != "" {
				faults = append(faults, fmt.Sprintf("constraint %s: %s", feasible.Describe(con), text))
			}
		}
	}
	look(j.Constraints)
	for i := range j.Groups {
		g := &j.Groups[i]
		look(g.Constraints)
		for k := range g.Devices {
			look(g.Devices[k].Constraints)
		}
	}
	return strings.Join(faults, "; ")
}

// around is the smallest domain that holds all of some members.
func (c *cycle) around(members []other) (level, path string) {
	lo, hi := members[0].node, members[0].node
	for _, m := range members {
		lo, hi = min(lo, m.node), max(hi, m.node)
	}
	if lo == hi {
		return model.LevelNode, c.nodePath(lo)
	}
	d := c.domainAround(lo, hi)
	if d == topo.Root {
		return "", ""
	}
	return c.tree.Levels[c.tree.Domains[d].Level], c.tree.Domains[d].Path
}

// domainAround is the smallest domain that holds two nodes.
func (c *cycle) domainAround(lo, hi int32) int32 {
	d := c.tree.Nodes[lo].Leaf
	for c.tree.Domains[d].Hi <= hi {
		d = c.tree.Domains[d].Parent
	}
	return d
}

// placeUnit places a gang where nobody needs the room later, else where it ends in
// time.
func (c *cycle) placeUnit(g *gang) (place.Result, bool) {
	c.unsure = c.unsure || !g.simple()
	switch {
	case g.astray:
		return place.Result{}, false
	case len(c.postponed) > 0:
		return c.placeBehind(g)
	}
	return c.placeAmong(g)
}

// placeAmong places a gang among those who have kept what they are to keep.
func (c *cycle) placeAmong(g *gang) (place.Result, bool) {
	if c.ahead == nil || g.grown > 0 || g.queue == "" && !c.ahead.overlooks(g.runs) {
		if r, ok := c.placeForGood(g); ok {
			return r, true
		}
	}
	return c.placeInTime(g)
}

// placeForGood places a gang, unless its like did not fit a moment ago.
func (c *cycle) placeForGood(g *gang) (place.Result, bool) {
	a := c.answersOf(g)
	if a != nil {
		if a.epoch == c.epoch {
			return place.Result{}, false
		}
		if key, _ := keyOfGang(g); len(c.possible) > 0 && g.exact() {
			if _, known := c.possible[g.told(key)]; known {
				return place.Result{}, false // not even into an empty cluster
			}
		}
	}
	if g.grown > 0 {
		return c.growNear(g)
	}
	result, ok := c.views[viewNow].Place(g.unit)
	if !ok && a != nil {
		a.waitAnswer = waitAnswer{epoch: c.epoch}
	}
	return result, ok
}

// leafPath is the smallest domain above a node, in words.
func (c *cycle) leafPath(node int32) string {
	d := c.tree.Nodes[node].Leaf
	if d == topo.Root {
		return ""
	}
	return domainName(c.tree.Levels[c.tree.Domains[d].Level], c.tree.Domains[d].Path)
}
