package barrier

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/planner/observe"
)

// The barrier's times.
const (
	// PollGrace is how long after its last poll a member counts as waiting: it
	// asks again at once, and that takes a moment.
	PollGrace = 2 * time.Second
	// lead is how long before the common start the answers begin to go out, and
	// leadEach what each of them adds, leadEntry each entry in each of them: n
	// answers have n entries, and must all have arrived by then. See the benchmark
	// in package httpapi.
	lead      = 300 * time.Millisecond
	leadEach  = time.Millisecond
	leadEntry = 300 * time.Nanosecond
	// growWait is how long the first of several new members of a running gang
	// waits for the others.
	growWait = 30 * time.Second
)

// Member says which task of which allocation asks.
type Member struct{ Alloc, Task string }

// Gang is one gang at the barrier and after it. It is pure, and for one
// goroutine at a time.
type Gang struct {
	key   Key
	state *State
	plan  *Plan
	// byAlloc are the indexes into the plan's members, inEpoch those into the
	// membership's.
	byAlloc map[string]int
	inEpoch map[string]int
	// current is set while any allocation of the last membership is planned still:
	// otherwise the gang was placed anew, and that membership is history.
	current bool
	joins   map[string]*join
	reports map[string]*report
	failure *failure
	summary *summary
}

// join is what an allocation's member has said at the barrier.
type join struct {
	task string
	req  gangapi.JoinRequest
	// open counts its polls that wait, seen is when the last one ended.
	open int
	seen time.Time
	// wrong says that its task was not granted the GPUs that were planned; "" if
	// it was.
	wrong string
	// since is when it first asked with this run and attempt.
	since time.Time
	// started is the part that it had in the last epoch that it was in.
	started Run
	// old are runs that a newer one has followed.
	old map[string]bool
}

// begun says whether the run has started with an epoch already at the barrier
// attempt that was told last.
func (j *join) begun(r Run) bool { return j.req.Run == r.Run && j.req.Attempt <= r.Attempt }

// NewGang returns a gang as it was remembered; state may be nil.
func NewGang(key Key, state *State) *Gang {
	g := &Gang{key: key, joins: map[string]*join{}, reports: map[string]*report{}}
	g.Commit(state)
	return g
}

// State is what is remembered; it is not to be changed.
func (g *Gang) State() *State { return g.state }

// Commit makes a state the one in force: the one that Next returned, once it is
// stored, or the one that was found stored.
func (g *Gang) Commit(state *State) {
	if state == nil {
		state = &State{Namespace: g.key.Namespace, Job: g.key.Job, Group: g.key.Group, Slot: g.key.Slot}
	}
	was := g.state
	g.state = state
	g.inEpoch = map[string]int{}
	if state.Membership != nil {
		for i, m := range state.Membership.Members {
			g.inEpoch[m.Alloc] = i
			if j := g.joins[m.Alloc]; j != nil {
				j.started = state.Runs[i]
			}
		}
	}
	// A failure that was told while something else was being stored still counts.
	if f := g.failure; f != nil {
		if _, in := g.inEpoch[f.alloc]; !in || !state.Running || was == nil || was.epoch() != state.epoch() {
			g.failure = nil
		}
	}
	g.refresh()
}

// SetPlan takes the placement in force, nil if there is none, and says whether
// it is news.
func (g *Gang) SetPlan(p *Plan) bool {
	if g.plan.same(p) {
		return false
	}
	g.plan, g.byAlloc = p, map[string]int{}
	if p != nil {
		for i := range p.Members {
			if alloc := p.Members[i].Alloc; alloc != "" {
				g.byAlloc[alloc] = i
			}
		}
	}
	for alloc, j := range g.joins {
		if _, ok := g.byAlloc[alloc]; !ok {
			delete(g.joins, alloc)
			continue
		}
		j.wrong = g.wrongGPUs(Member{alloc, j.task}, j.req)
	}
	for alloc := range g.reports {
		if _, ok := g.byAlloc[alloc]; !ok {
			delete(g.reports, alloc)
		}
	}
	g.refresh()
	return true
}

func (g *Gang) refresh() {
	g.current, g.summary = false, nil
	for alloc := range g.inEpoch {
		if _, ok := g.byAlloc[alloc]; ok {
			g.current = true
			return
		}
	}
}

// running says whether an epoch is in force.
func (g *Gang) running() bool { return g.state.Running && g.current }

// base is the state that the next one is made from.
func (g *Gang) base() *State {
	b := g.state.clone()
	if g.current || b.Membership == nil {
		return b
	}
	b.leave()
	b.Failed, b.Suspended, b.Membership, b.Runs, b.End, b.Pause, b.StartAt = "", "", nil, nil, nil, nil, time.Time{}
	b.EndedBy = ""
	return b
}

// failed and suspended are those of the placement in force.
func (g *Gang) failed() string {
	if g.current {
		return g.state.Failed
	}
	return ""
}

func (g *Gang) suspended() string {
	if g.current || g.state.Membership == nil {
		return g.state.Suspended
	}
	return ""
}

// Open notes that a member's poll has begun to wait, and says whether it
// counts: it does not if the allocation has no place (yet), or if it is an older
// attempt's. Every Open that counts is followed by one Close.
func (g *Gang) Open(who Member, req gangapi.JoinRequest, now time.Time) bool {
	if _, ok := g.byAlloc[who.Alloc]; !ok || req.Follow {
		return false
	}
	j := g.joins[who.Alloc]
	switch {
	case j == nil:
		j = &join{task: who.Task, since: now, old: map[string]bool{}}
		g.joins[who.Alloc] = j
	case j.task != who.Task, j.old[req.Run], j.req.Run == req.Run && req.Attempt < j.req.Attempt:
		return false
	case j.req.Run != req.Run:
		j.old[j.req.Run] = true
		j.open, j.since = 0, now
	case j.req.Attempt != req.Attempt:
		j.open, j.since = 0, now
	}
	if j.open == 0 {
		j.wrong = g.wrongGPUs(who, req)
	}
	j.req = req
	j.open++
	j.seen = now
	return true
}

// Close notes that the poll waits no longer.
func (g *Gang) Close(who Member, req gangapi.JoinRequest, now time.Time) {
	j := g.joins[who.Alloc]
	if j == nil || req.Follow || j.task != who.Task || j.req.Run != req.Run || j.req.Attempt != req.Attempt || j.open == 0 {
		return
	}
	j.open--
	j.seen = now
}

// waits says whether the member with that allocation waits at the barrier for
// another epoch than the one that it has been in.
func (g *Gang) waits(alloc string, now time.Time) bool {
	j := g.joins[alloc]
	if j == nil || j.open == 0 && now.Sub(j.seen) > PollGrace || j.req.Fault != nil || j.begun(j.started) {
		return false
	}
	if at, ok := g.inEpoch[alloc]; ok && j.begun(g.state.Runs[at]) {
		return false
	}
	return j.wrong == ""
}

// wrongGPUs says that a task was not granted the GPUs that were planned for it;
// "" if it was. A task that asks for none, such as one that joins for the
// others of its group, cannot know.
func (g *Gang) wrongGPUs(who Member, req gangapi.JoinRequest) string {
	at, ok := g.byAlloc[who.Alloc]
	if !ok {
		return ""
	}
	want := g.plan.Members[at].ByTask[who.Task]
	if len(want) == 0 && len(req.GPUs) == 0 {
		return ""
	}
	if sameSet(want, req.GPUs) {
		return ""
	}
	return otherGPUs(want, req.GPUs)
}

// Answer is what the member is told now. It is final if there is no use in
// waiting for another one; else it is without what Waiting adds.
func (g *Gang) Answer(who Member, req gangapi.JoinRequest, now time.Time) (a gangapi.JoinAnswer, final bool) {
	if why := g.refusal(who, req); why != "" {
		return gangapi.JoinAnswer{State: gangapi.JoinRefused, Reason: why}, true
	}
	if at, ok := g.inEpoch[who.Alloc]; ok && g.running() {
		r := g.state.Runs[at]
		if req.Follow || r.Run == req.Run && r.Attempt == req.Attempt {
			return gangapi.JoinAnswer{
				State: gangapi.JoinStart, Joined: len(g.inEpoch), Size: len(g.inEpoch), Membership: g.state.Membership,
				StartInMS: max(g.state.StartAt.Sub(now).Milliseconds(), 0),
			}, true
		}
	}
	return gangapi.JoinAnswer{State: gangapi.JoinWaiting}, false
}

// Waiting is what a member is told whose wait is over.
func (g *Gang) Waiting(req gangapi.JoinRequest, now time.Time) gangapi.JoinAnswer {
	s := g.sum(now)
	a := gangapi.JoinAnswer{State: gangapi.JoinWaiting, Joined: s.joined, Size: s.size, Missing: s.missing, Reason: s.reason}
	switch {
	case req.Fault != nil:
		a.Reason = fmt.Sprintf("the preflight found the node unfit (%s); the gang is moved", faultText(*req.Fault))
	case g.suspended() != "":
		a.Reason = "the gang is suspended: " + g.suspended()
	}
	return a
}

// refusal says why the member must not start, whatever comes; "" if it may.
func (g *Gang) refusal(who Member, req gangapi.JoinRequest) string {
	j := g.joins[who.Alloc]
	switch {
	case g.failed() != "":
		return "the gang has failed: " + g.failed()
	case req.Follow || j == nil:
		return ""
	case j.task != who.Task:
		return fmt.Sprintf("task %q is the member of this allocation already, and one task is; let this one follow or start by itself", j.task)
	case j.old[req.Run]:
		return "a newer run of the task has joined"
	case j.req.Run == req.Run && req.Attempt < j.req.Attempt:
		return fmt.Sprintf("attempt %d of this run has joined, this is attempt %d", j.req.Attempt, req.Attempt)
	}
	return g.wrongGPUs(who, req)
}

func faultText(f gangapi.NodeFault) string {
	text := f.Check
	if f.GPU != "" {
		text += " of GPU " + f.GPU
	}
	if f.Detail != "" {
		text += ": " + f.Detail
	}
	return text
}

// complete says whether every member waits.
func (g *Gang) complete(now time.Time) bool {
	if g.plan == nil || len(g.joins) < len(g.plan.Members) {
		return false
	}
	for i := range g.plan.Members {
		m := &g.plan.Members[i]
		if m.State != observe.AllocPlaced || m.Alloc == "" || !g.waits(m.Alloc, now) {
			return false
		}
	}
	return true
}

// members are those allocations in the order of their ranks, as they joined.
// first keeps rank 0.
func (g *Gang) members(allocs []string, first string) ([]rendezvous.Member, []Run) {
	placed := make([]rendezvous.Placed, 0, len(allocs))
	runs := map[string]Run{}
	for _, alloc := range allocs {
		p := &g.plan.Members[g.byAlloc[alloc]]
		m, run := g.member(p)
		runs[alloc] = run
		placed = append(placed, rendezvous.Placed{Member: m, Path: p.Path})
	}
	ordered := rendezvous.Order(placed, first)
	out := make([]Run, len(ordered))
	for i, m := range ordered {
		out[i] = runs[m.Alloc]
	}
	return ordered, out
}

// member is a planned place with what its task said when it joined, or when it
// started with the epoch in force.
func (g *Gang) member(p *Planned) (rendezvous.Member, Run) {
	if g.stays(p.Alloc) {
		at := g.inEpoch[p.Alloc]
		return g.state.Membership.Members[at], g.state.Runs[at]
	}
	j := g.joins[p.Alloc]
	m := rendezvous.Member{
		Group: p.Group, Index: p.Index, Alloc: p.Alloc, Node: p.Node, NodeName: p.NodeName,
		Address: j.req.Address, GPUs: slices.Clone(p.GPUs), Processes: j.req.Processes,
	}
	if own := p.ByTask[j.task]; len(own) > 0 {
		m.GPUs = slices.Clone(own)
	}
	if m.Processes == 0 {
		m.Processes = max(len(m.GPUs), 1)
	}
	return m, Run{Task: j.task, Run: j.req.Run, Attempt: j.req.Attempt, Port: j.req.Port}
}
