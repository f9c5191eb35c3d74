package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Where more than age counts in the order, its discipline looks at all jobs,
// those that run too, once in a decision, and says how each of them stands: the
// order of those that wait, who displaces whom, and how large elastic gangs
// should be.

// lastClass is the class of what no discipline has looked at, since nothing is
// to be decided on it.
const lastClass = 1 << 30

// stand asks the discipline.
func (c *cycle) stand() {
	discipline := c.policy.Discipline()
	if discipline == nil {
		return
	}
	if c.past == nil {
		c.past = queue.NewPast(c.demands)
	}
	if c.standLasting() {
		return
	}
	s := queue.Situation{Now: c.now, Past: c.past, Said: c.said, Jobs: slices.Grow(c.scratch.entries[:0], len(c.jobs)), Memory: c.scratch.stands.list}
	s.GPUs, s.NodeGPUs, s.Models = c.usableGPUs()
	s.CanRun, s.FitsWithout = c.canRun, c.fitsWithout
	for i, a := range c.byAge() {
		a.stands, a.at = -1, i
		if s.Jobs = append(s.Jobs, *c.lastingOf(a)); c.complete(&s.Jobs[len(s.Jobs)-1]) {
			a.stands = len(s.Jobs) - 1
		} else {
			s.Jobs = s.Jobs[:len(s.Jobs)-1]
		}
	}
	var told []queue.Promise
	s.Told = &told
	c.countPlaces(&s)
	c.countPools(&s)
	c.scratch.stands = standings{of: c.agedOf, list: discipline.Stand(s)}
	c.stands = &c.scratch.stands
	c.remember(&s, told)
	c.scratch.entries = s.Jobs
}

// agedJob is one of all jobs by age, with what is kept of it from one decision to the
// next.
type agedJob struct {
	job *model.Job
	// entry is what disciplines see of it, but for what the time changes; nil: to be
	// made.
	entry *queue.Entry
	// stands is its place among the standings of this decision, -1 if it has none, and at
	// the one by age.
	stands, at int
	// waits: it has members to be placed; inLine: it is in the line of those who wait; gone:
	// it is none of the jobs any more.
	waits, inLine, gone bool
	// asks is what it asks for, nil if it is not known.
	asks *request
	// runner is what is kept of it while it runs in an order that is kept.
	runner *queue.Runner
}

func newAged(j *model.Job) *agedJob { return &agedJob{job: j, waits: waits(j)} }

func compareAged(a, b *agedJob) int { return queue.CompareAge(a.job, b.job) }

// standings are how jobs stand, by the job as the cluster has it.
type standings struct {
	of   map[*model.Job]*agedJob
	list []queue.Standing
	// turned are those who wait and have their turns, where the others of them share a
	// standing.
	turned []*waiter
}

// Those who have no standing are behind all others, or are not known.
var (
	lastStanding = queue.Standing{Class: lastClass}
	noStanding   queue.Standing
)

// standing is how a job stands; it must not be changed.
func (c *cycle) standing(j *model.Job) *queue.Standing {
	if c.stands == nil {
		return &noStanding
	}
	if a := c.stands.of[j]; a != nil {
		return c.stands.at(a)
	}
	return &noStanding
}

// standingOf is how one of all jobs stands.
func (c *cycle) standingOf(a *agedJob) *queue.Standing {
	if c.stands == nil {
		return &noStanding
	}
	return c.stands.at(a)
}

// at is how one of them stands.
func (s *standings) at(a *agedJob) *queue.Standing {
	if a.stands < 0 {
		return &lastStanding
	}
	return &s.list[a.stands]
}

// byAge are all jobs, the oldest first.
func (p *Prepared) byAge() []*agedJob {
	if p.aged == nil {
		p.aged, p.agedOf = make([]*agedJob, 0, len(p.jobs)), make(map[*model.Job]*agedJob, len(p.jobs))
		for j := range p.allJobs() {
			a := newAged(j)
			p.aged, p.agedOf[j] = append(p.aged, a), a
		}
		slices.SortFunc(p.aged, compareAged)
	}
	return p.aged
}

// lastingOf is what a discipline sees of a job, but for what the time changes.
func (c *cycle) lastingOf(a *agedJob) *queue.Entry {
	if a.entry != nil {
		return a.entry
	}
	e := c.lastingEntry(a.job)
	if lasts(a.job) {
		a.entry = e
	}
	return e
}

// complete adds to an entry what is another one at each decision; false if nothing is
// to be decided on its job and it does not run.
func (c *cycle) complete(e *queue.Entry) bool {
	j := e.Job
	if !e.Running && (j.State != model.StateQueued || j.Hold != "") {
		return false
	}
	e.Priority = c.queueTree().Priority(j)
	if len(j.Groups) == 1 && j.Groups[0].Max > 0 {
		e.Speed = c.speedOf(j)
	}
	c.times(e)
	return true
}

// lasts reports whether a job's entry hangs on nothing but the job: not on allocations,
// which come and go.
func lasts(j *model.Job) bool {
	if !holdsMembers(j) {
		return j.State == model.StateQueued
	}
	return slices.ContainsFunc(j.Members, func(m model.Member) bool { return !m.Ended && len(m.GPUs) > 0 })
}

// lastingEntry is what of it stays as it is for as long as the job does.
func (c *cycle) lastingEntry(j *model.Job) *queue.Entry {
	e := queue.Entry{Job: j, Waiting: waits(j), Attained: j.AttainedGPUs, Ran: j.Ran}
	for i := range j.Groups {
		g := &j.Groups[i]
		each := askedGPUs(g)
		e.Count += g.Count
		e.Asked += g.Count * each
		if i == 0 {
			e.GPUsPerMember = each
		} else if e.GPUsPerMember != each {
			e.GPUsPerMember = 0
		}
	}
	if len(j.Groups) == 1 && j.Groups[0].Max > 0 {
		e.Min, e.Max = max(1, j.Groups[0].Min), j.Groups[0].Max
	}
	e.Members, e.Held = c.inPlace(j)
	e.Running = e.Members > 0
	if e.Running {
		e.Model = c.modelOf(j)
	}
	return &e
}

// inPlace counts a job's members that have places, and the GPUs there.
func (c *cycle) inPlace(j *model.Job) (members, gpus int) {
	if !holdsMembers(j) {
		return 0, 0
	}
	for i := range j.Members {
		if m := &j.Members[i]; !m.Ended {
			members++
			gpus += len(m.GPUs)
		}
	}
	if len(j.Members) > 0 || j.State != model.StateRunning {
		return members, gpus
	}
	for _, a := range c.jobAllocs(keyOf(j)) { // nobody has said who its members are
		if !a.Stopping && !a.Lost {
			members++
			gpus += len(a.GPUs)
		}
	}
	return members, gpus
}

func askedGPUs(g *model.TaskGroup) int {
	n := 0
	for i := range g.Devices {
		n += g.Devices[i].Count
	}
	return n
}

// times fills in what depends on the time.
func (c *cycle) times(e *queue.Entry) {
	j := e.Job
	started := j.Started
	if started.IsZero() {
		started = j.Submitted
	}
	if e.Running && !started.IsZero() {
		e.Turn = max(0, c.now.Sub(started))
		more := e.Turn
		if j.Accounted.After(started) {
			more = max(0, c.now.Sub(j.Accounted))
		}
		e.Ran += more
		e.Attained += more.Seconds() * float64(e.Held)
	}
	if !j.Submitted.IsZero() {
		e.Waited = max(0, c.now.Sub(j.Submitted)-e.Ran)
	}
	if !e.Running {
		since := j.Submitted
		if j.Accounted.After(since) {
			since = j.Accounted
		}
		if !since.IsZero() {
			e.Rest = max(0, c.now.Sub(since))
		}
	}
	e.Left = queue.EstimateOf(j, e.Ran)
}

// inOrder brings jobs into the order of their standings; those that stand alike
// keep theirs.
func (c *cycle) inOrder(jobs []*model.Job) []*model.Job {
	if c.lasts {
		return c.lastingOrder()
	}
	if c.stands == nil {
		return jobs
	}
	// Nearly all are still in the order of the last decision: so little is to be sorted.
	line := slices.DeleteFunc(c.scratch.line, func(p placeInLine) bool { return p.of.gone })
	for _, a := range c.byAge() {
		if a.waits && !a.inLine {
			a.inLine = true
			line = append(line, placeInLine{of: a, priority: c.queueTree().Priority(a.job), interactive: c.policy.Interactive.Is(a.job)})
		}
	}
	for i := range line {
		st := c.stands.at(line[i].of)
		line[i].class, line[i].key = st.Class, st.Key
	}
	slices.SortFunc(line, placeInLine.compare)
	out := slices.Grow(c.scratch.order[:0], len(line))
	for i := range line {
		out = append(out, line[i].of.job)
	}
	c.scratch.line, c.scratch.order = line, out
	return out
}

// placeInLine is where one stands who waits.
type placeInLine struct {
	of          *agedJob
	priority    int
	interactive bool
	class       int
	key         float64
}

// compare is negative if p goes before o, never 0 for two jobs.
func (p placeInLine) compare(o placeInLine) int {
	switch {
	case p.priority != o.priority:
		return cmp.Compare(o.priority, p.priority)
	case p.interactive != o.interactive:
		return queue.Before(p.interactive, o.interactive)
	case p.class != o.class:
		return cmp.Compare(p.class, o.class)
	case p.key != o.key:
		return cmp.Compare(p.key, o.key)
	}
	return cmp.Compare(p.of.at, o.of.at)
}

// targetMembers is how many members the order would give an elastic gang, within
// its bounds; 0 where it has no wish.
func (c *cycle) targetMembers(j *model.Job) int {
	n := c.standing(j).Members
	if n <= 0 || len(j.Groups) != 1 || j.Groups[0].Max == 0 {
		return 0
	}
	return min(max(n, j.Groups[0].Min, 1), j.Groups[0].Max)
}

// tellStanding adds to a decision how its job stands.
func (c *cycle) tellStanding(j *model.Job, d *model.Decision) {
	standing := *c.standing(j)
	if c.lasts && d.Action == model.ActionAdmit {
		standing = c.lastingStanding(j)
	}
	if c.policy.Interactive.Is(j) {
		standing.Why = "interactive, so it goes first"
	}
	if p := c.boughtFor(j); p != nil && standing.Why != "" && !j.Deadline.IsZero() {
		// Whether those that are here become free in time does not matter to it.
		standing.Why = fmt.Sprintf("its deadline of %s is for the %s of pool %s that were bought for it (purchase %s)", j.Deadline.UTC().Format(time.RFC3339), plural(p.Nodes, "node"), p.Pool, p.ID)
	}
	if use := c.guaranteed[keyOf(j)]; use != nil {
		standing.Why = fmt.Sprintf("reservation %s lets it go first", use.Name)
	}
	d.Detail.Standing, d.Detail.Target = standing.Why, c.targetMembers(j)
	d.Forgets = standing.Forgets && d.Action == model.ActionAdmit
	if standing.Why != "" && !(c.terse && d.Action == model.ActionWait) {
		d.Reason += "; its place in the order: " + standing.Why
	}
}

// rank is by what a job asks others to give way.
type rank struct{ priority, class int }

// beyond reports whether one rank may get what the other may not.
func (r rank) beyond(o rank) bool { return r.priority > o.priority || r.class < o.class }

// rankOf is a job's rank.
func (c *cycle) rankOf(j *model.Job) rank {
	if c.policy.Interactive.Is(j) {
		return rank{j.Priority, interactiveClass}
	}
	return rank{j.Priority, c.standing(j).Class}
}

// interactiveClass is below any that a discipline gives.
const interactiveClass = -1

// outranks reports whether a job may take another's room because it is
// interactive, or its class is lower.
func (c *cycle) outranks(j, victim *model.Job) bool {
	interactive := c.policy.Interactive.Is(j)
	if !c.policy.Preempt.Enabled || !interactive && (c.stands == nil || !c.policy.Preemptive()) || c.policy.Interactive.Protects(victim, c.now) {
		return false
	}
	if interactive && c.claimsReserve(j) {
		return true
	}
	tree := c.queueTree()
	if tree.Priority(j) < tree.Priority(victim) {
		return false
	}
	if c.limited() {
		other := tree.HomeOf(victim)
		if !tree.HomeOf(j).SameQueue(other) || c.yield.waive == waiveNothing && !victim.Started.IsZero() && c.now.Sub(victim.Started) < tree.MinRun(other) {
			return false
		}
	}
	if interactive {
		return true
	}
	mine, theirs := c.standing(j), c.standing(victim)
	return mine.Class < theirs.Class && theirs.Class != lastClass
}

// outrankWords says why it does.
func (c *cycle) outrankWords(j, victim *model.Job) string {
	switch {
	case c.claimsReserve(j):
		return "somebody waits in front of it, and what is kept for interactive jobs is lent"
	case c.policy.Interactive.Is(j):
		return "somebody waits in front of it"
	}
	mine, theirs := c.standing(j), c.whyOf(victim)
	if victim.Deadline.IsZero() && !mine.Latest.IsZero() { // its deadline is what counts
		theirs = "no deadline"
	}
	if theirs == "" {
		return c.whyOf(j)
	}
	return fmt.Sprintf("%s against %s", c.whyOf(j), theirs)
}

// byClass is the policy for jobs that give way to a lower class.
func (c *cycle) byClass(p preempt.Policy) preempt.Policy {
	p.MayReturn = c.policy.MayReturn()
	if c.policy.TakesTurns() {
		p.MaxPerJob = math.MaxInt
	}
	return p
}

// mayBecause says why a job may displace another one.
func (c *cycle) mayBecause(j, victim *model.Job) string {
	if c.yield.rights.MayDisplace(j, victim) {
		return c.yield.rights.Why(j, victim)
	}
	if may, why := c.overstays(j, victim); may {
		return why
	}
	return c.outrankWords(j, victim)
}
