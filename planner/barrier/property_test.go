package barrier

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
)

// player plays members, planner, cluster and operator against one gang.
type player struct {
	*rapid.T
	gang *Gang
	plan Plan
	now  time.Time
	// runs are the requests with which each allocation's task asks, open those
	// of the polls that wait, told the last membership that each was given.
	runs map[string]gangapi.JoinRequest
	open map[string][]gangapi.JoinRequest
	told map[string]*rendezvous.Membership
	seen map[string]int64
	// spoke is when each allocation's member was last heard of at the barrier.
	spoke map[string]time.Time
	// given are all memberships by epoch and generation.
	given map[string]*rendezvous.Membership
	next  int
}

func newPlayer(t *rapid.T) *player {
	p := &player{T: t, now: time.Unix(1000, 0), runs: map[string]gangapi.JoinRequest{}, open: map[string][]gangapi.JoinRequest{},
		told: map[string]*rendezvous.Membership{}, seen: map[string]int64{}, spoke: map[string]time.Time{}, given: map[string]*rendezvous.Membership{}}
	p.plan = Plan{Key: Key{Namespace: "ns", Job: "job"}, Min: 2, Max: 5, Bounded: rapid.Bool().Draw(t, "elastic"),
		OnFailure: rapid.SampledFrom([]string{gangspec.FailureRestart, gangspec.FailureContinue, gangspec.FailureFail}).Draw(t, "on failure"),
		OnResize:  gangspec.ResizeNotify}
	p.gang = NewGang(p.plan.Key, nil)
	for i := range rapid.IntRange(2, 4).Draw(t, "members") {
		p.place(i)
	}
	p.replan()
	return p
}

// place gives place i a new allocation.
func (p *player) place(i int) {
	p.next++
	m := Planned{Group: "w", Index: i, Node: fmt.Sprintf("node-%d", i), NodeName: fmt.Sprintf("n%d", i), Alloc: fmt.Sprintf("a%d", p.next), State: observe.AllocPlaced}
	if i < len(p.plan.Members) {
		p.plan.Members[i] = m
	} else {
		p.plan.Members = append(p.plan.Members, m)
	}
	p.restart(m.Alloc)
}

// restart gives an allocation's task another run.
func (p *player) restart(alloc string) {
	p.next++
	p.runs[alloc] = gangapi.JoinRequest{Run: fmt.Sprintf("r%d", p.next), Attempt: 1, Address: "10.0.0.1", Port: 1000 + p.next}
}

func (p *player) replan() {
	next := p.plan
	next.Members = slices.Clone(p.plan.Members)
	p.gang.SetPlan(&next)
}

func (p *player) any() string {
	return rapid.SampledFrom(p.plan.Members).Draw(p.T, "member").Alloc
}

func (p *player) ask(alloc string) {
	req := p.runs[alloc]
	if p.gang.Open(Member{alloc, "rank"}, req, p.now) {
		p.open[alloc] = append(p.open[alloc], req)
		p.spoke[alloc] = p.now
	}
	a, final := p.gang.Answer(Member{alloc, "rank"}, req, p.now)
	if !final || a.State != gangapi.JoinStart {
		return
	}
	p.take(alloc, a.Membership)
	at := p.gang.inEpoch[alloc]
	if r := p.gang.State().Runs[at]; r.Run != req.Run || r.Attempt != req.Attempt {
		p.Fatalf("%s starts as %+v, and asked as %+v", alloc, r, req)
	}
}

// take is a membership that a member was given.
func (p *player) take(alloc string, m *rendezvous.Membership) {
	key := fmt.Sprint(m.Epoch, "/", m.Generation)
	if old := p.given[key]; old != nil && !cmp.Equal(old, m) {
		p.Fatalf("two memberships of %s:\n%s", key, cmp.Diff(old, m))
	}
	p.given[key], p.told[alloc] = m, m
	if err := rendezvous.Validate(*m); err != nil {
		p.Fatalf("%s: %v", key, err)
	}
	if _, err := m.Find(alloc); err != nil {
		p.Fatalf("%s was given %s without itself: %v", alloc, key, err)
	}
}

func (p *player) leave(alloc string) {
	if list := p.open[alloc]; len(list) > 0 {
		p.gang.Close(Member{alloc, "rank"}, list[0], p.now)
		p.open[alloc], p.spoke[alloc] = list[1:], p.now
	}
}

func (p *player) report(alloc string, state gangapi.MemberState, exit *gangapi.Exit) {
	m := p.told[alloc]
	if m == nil {
		return
	}
	req := gangapi.ReportRequest{Run: p.runs[alloc].Run, State: state, Epoch: m.Epoch, Generation: m.Generation, Seen: p.seen[alloc], Exit: exit}
	p.gang.Report(Member{alloc, "rank"}, req, p.now)
	a, _ := p.gang.Orders(Member{alloc, "rank"}, req)
	if a.Membership != nil {
		if a.Membership.Epoch != m.Epoch || a.Membership.Generation <= m.Generation {
			p.Fatalf("%s has %s/%d and was given %s/%d", alloc, m.Epoch, m.Generation, a.Membership.Epoch, a.Membership.Generation)
		}
		p.take(alloc, a.Membership)
	}
	if o := a.Order; o != nil {
		if o.Sequence < p.seen[alloc] {
			p.Fatalf("%s has seen order %d and was given %+v", alloc, p.seen[alloc], o)
		}
		p.seen[alloc] = o.Sequence
		if o.Kind == gangapi.OrderRestart || o.Kind == gangapi.OrderFail {
			delete(p.told, alloc)
			req := p.runs[alloc]
			req.Attempt++
			p.runs[alloc] = req
		}
	}
}

// drive stores what follows, through JSON as the Variable has it.
func (p *player) drive() bool {
	next, _ := p.gang.Next(p.now)
	if next == nil {
		return false
	}
	p.commit(next)
	return true
}

func (p *player) commit(next *State) {
	was := p.gang.State()
	if next.Sequence < was.Sequence || next.Epochs < was.Epochs {
		p.Fatalf("the state goes back: %+v after %+v", next, was)
	}
	if next.Running && next.epoch() != was.epoch() {
		p.together(next)
	}
	raw, err := json.Marshal(next)
	if err != nil {
		p.Fatal(err)
	}
	read, err := decodeState(raw)
	if err != nil {
		p.Fatal(err)
	}
	p.gang.Commit(read)
}

// together: a common start is of all members planned, each of whom waits, or
// did a moment ago, with the run that starts.
func (p *player) together(next *State) {
	if len(next.Membership.Members) != len(p.plan.Members) {
		p.Fatalf("%d members start, %d are planned", len(next.Membership.Members), len(p.plan.Members))
	}
	for i, m := range next.Membership.Members {
		if !slices.ContainsFunc(p.plan.Members, func(q Planned) bool { return q.Alloc == m.Alloc && q.State == observe.AllocPlaced }) {
			p.Fatalf("%s starts and is not placed", m.Alloc)
		}
		if len(p.open[m.Alloc]) == 0 && p.now.Sub(p.spoke[m.Alloc]) > PollGrace {
			p.Fatalf("%s starts and was last heard of %s ago", m.Alloc, p.now.Sub(p.spoke[m.Alloc]))
		}
		if req := p.runs[m.Alloc]; req.Run != next.Runs[i].Run && len(p.open[m.Alloc]) > 0 && p.open[m.Alloc][len(p.open[m.Alloc])-1].Run == req.Run {
			p.Fatalf("%s starts as %s, and waits as %s", m.Alloc, next.Runs[i].Run, req.Run)
		}
	}
}

// TestGangProperties plays at random, with planners that take over at any time,
// and then lets everybody come: they all start together.
func TestGangProperties(t *testing.T) {
	starts, regroups := 0, 0
	play := func(t *rapid.T) {
		p := newPlayer(t)
		ask := func(*rapid.T) { p.ask(p.any()) }
		t.Repeat(map[string]func(*rapid.T){
			"ask":       ask,
			"ask again": ask,
			"all ask": func(*rapid.T) {
				for _, m := range p.plan.Members {
					p.ask(m.Alloc)
				}
			},
			"leave":   func(*rapid.T) { p.leave(p.any()) },
			"report":  func(*rapid.T) { p.report(p.any(), gangapi.MemberRunning, nil) },
			"fail":    func(*rapid.T) { p.report(p.any(), gangapi.MemberExited, &gangapi.Exit{Code: 1}) },
			"restart": func(*rapid.T) { a := p.any(); delete(p.told, a); p.restart(a) },
			"drive":   func(*rapid.T) { p.drive() },
			"wait":    func(t *rapid.T) { p.now = p.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "s")) * time.Second) },
			"replace": func(t *rapid.T) { p.place(rapid.IntRange(0, len(p.plan.Members)-1).Draw(t, "place")); p.replan() },
			"lose, or find": func(t *rapid.T) {
				m := &p.plan.Members[rapid.IntRange(0, len(p.plan.Members)-1).Draw(t, "place")]
				m.State = rapid.SampledFrom([]observe.AllocState{observe.AllocLost, observe.AllocPlaced}).Draw(t, "state")
				p.replan()
			},
			"shrink": func(*rapid.T) {
				if len(p.plan.Members) > 2 {
					p.plan.Members = p.plan.Members[:len(p.plan.Members)-1]
					p.replan()
				}
			},
			"grow": func(*rapid.T) {
				if len(p.plan.Members) < 5 {
					p.place(len(p.plan.Members))
					p.replan()
				}
			},
			"suspend": func(t *rapid.T) {
				if next := p.gang.Suspend(rapid.Bool().Draw(t, "on"), "because", p.now); next != nil {
					p.commit(next)
				}
			},
			"take over": func(*rapid.T) {
				raw, _ := json.Marshal(p.gang.State())
				st, err := decodeState(raw)
				if err != nil {
					p.Fatal(err)
				}
				p.gang, p.open = NewGang(p.plan.Key, st), map[string][]gangapi.JoinRequest{}
				p.replan()
			},
			"": func(*rapid.T) {
				if m := p.gang.State().Membership; m != nil && m.Generation > 1 {
					regroups++
				}
			},
		})
		starts += p.gang.State().Epochs
		p.calm()
	}
	for range 5 { // short plays seldom regroup
		if rapid.Check(t, play); starts > 0 && regroups > 0 {
			break
		}
	}
	if starts == 0 || regroups == 0 {
		t.Errorf("%d starts and %d regroupings were seen; nothing was tested", starts, regroups)
	}
}

// calm places everybody anew, lets them all ask, and wants them all started.
func (p *player) calm() {
	if next := p.gang.Suspend(false, "calm", p.now); next != nil {
		p.commit(next)
	}
	for i := range p.plan.Members {
		p.place(i)
	}
	p.replan()
	for _, m := range p.plan.Members {
		p.ask(m.Alloc)
	}
	for p.drive() {
	}
	epoch := ""
	for _, m := range p.plan.Members {
		a, final := p.gang.Answer(Member{m.Alloc, "rank"}, p.runs[m.Alloc], p.now)
		if !final || a.State != gangapi.JoinStart || epoch != "" && a.Membership.Epoch != epoch {
			p.Fatalf("in the end %s is told %+v; the state is %+v", m.Alloc, a, p.gang.State())
		}
		epoch = a.Membership.Epoch
		p.take(m.Alloc, a.Membership)
	}
}
