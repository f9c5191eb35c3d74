package barrier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

var (
	// ErrNotLeading: this planner does not lead, or has just begun to and does
	// not know the gangs yet.
	ErrNotLeading = errors.New("no planner leads that knows the gangs")
	// ErrBusy: as many polls wait as may.
	ErrBusy = errors.New("too many members wait at this planner")
	// ErrNoGang: there is no such gang in force.
	ErrNoGang = errors.New("no gang is placed")
)

// Documents is where the gangs' states are kept; record.Documents is one.
type Documents interface {
	List(ctx context.Context) ([]record.Document, error)
	Get(ctx context.Context, names ...string) (record.Document, error)
	Put(ctx context.Context, index uint64, doc []byte, names ...string) (uint64, error)
	Delete(ctx context.Context, names ...string) error
}

// Options make a Service.
type Options struct {
	Documents Documents
	// Now is the clock.
	Now func() time.Time
	// Wake asks for a new look at the cluster.
	Wake func()
	// Unfit is called when a preflight has found a node unfit for a job, each
	// time that the member says so. It must not block.
	Unfit func(Unfit)
	// Watch is told what happens.
	Watch Watch
	// Levels are custom level names, for reading job files.
	Levels []string
	// ObserveOnly: nothing is gated, so everybody starts alone.
	ObserveOnly bool
	// MaxPolls bounds how many requests may wait at once; 0 is DefaultMaxPolls.
	MaxPolls int
	Log      hclog.Logger
}

// Unfit is a node that a preflight has found unfit.
type Unfit struct {
	Namespace, Job string
	Node, NodeName string
	Fault          gangapi.NodeFault
}

// Why says what was found.
func (u Unfit) Why() string { return faultText(u.Fault) }

// The service's bounds.
const (
	DefaultMaxPolls = 16384
	// MaxWait bounds how long a poll waits, whatever it asks for.
	MaxWait = time.Minute
	// fresh is how old a view may be for its nodes to count as seen by Nomad.
	fresh = 75 * time.Second
	// writeTimeout bounds one write of a state, writeRest is the pause after one
	// that failed.
	writeTimeout = 10 * time.Second
	writeRest    = time.Second
)

// Service is the barrier of all gangs. It may be used by many at once.
type Service struct {
	opts Options

	mu sync.Mutex
	// term is the planner's term in which the gangs were read; nil while it does
	// not lead.
	term  context.Context
	view  *observe.View
	jobs  map[jobName]*job
	sets  map[jobName]specSettings
	gangs map[Key]*served
	polls int
	// viewed is closed and replaced with each new view, and at the end of a term.
	viewed chan struct{}
}

type jobName struct{ namespace, id string }

type specSettings struct {
	hash string
	settings
}

// served is a gang with what surrounds it.
type served struct {
	mu    sync.Mutex
	gang  *Gang
	index uint64
	// taken is the time of the view that the gang's plan is from.
	taken time.Time
	// writing is set while a state is being stored.
	writing bool
	// retry is when a write that failed may be tried again.
	retry time.Time
	// changed is closed and replaced when answers may be others.
	changed chan struct{}
	timer   *time.Timer
	// untold are the allocations of members that are to start and were not told
	// yet.
	untold map[string]bool
	// encoded is the membership's JSON, made once for all members.
	encoded *Encoded
}

// NewService returns a Service that does not lead yet.
func NewService(opts Options) *Service {
	if opts.Log == nil {
		opts.Log = hclog.NewNullLogger()
	}
	if opts.MaxPolls == 0 {
		opts.MaxPolls = DefaultMaxPolls
	}
	return &Service{opts: opts, viewed: make(chan struct{}), sets: map[jobName]specSettings{}, gangs: map[Key]*served{}}
}

// Update takes a new view. term is the planner's term, in which states may be
// written; nil while it does not lead. With the first view of a term the states
// are read; until that has succeeded nobody is answered.
func (s *Service) Update(ctx, term context.Context, v *observe.View) error {
	if term == nil {
		s.standDown()
		return nil
	}
	s.mu.Lock()
	known := s.term == term
	s.mu.Unlock()
	var states map[Key]stored
	if !known {
		var err error
		if states, err = s.load(ctx); err != nil {
			s.standDown()
			return fmt.Errorf("read the gangs' states: %w", err)
		}
	}
	jobs := make(map[jobName]*job, len(v.Managed))
	for i := range v.Managed {
		m := &v.Managed[i]
		jobs[jobName{m.Namespace, m.ID}] = newJob(m)
	}
	s.mu.Lock()
	if !known {
		s.gangs = map[Key]*served{}
		for key, st := range states {
			s.gangs[key] = &served{gang: NewGang(key, st.state), index: st.index, changed: make(chan struct{})}
		}
	}
	s.term, s.view, s.jobs = term, v, jobs
	gangs := maps.Clone(s.gangs)
	for _, key := range slices.SortedFunc(maps.Keys(gangs), compareKeys) {
		if j := jobs[jobName{key.Namespace, key.Job}]; j != nil {
			j.gangs = append(j.gangs, gangs[key])
		}
	}
	maps.DeleteFunc(s.sets, func(n jobName, _ specSettings) bool { return jobs[n] == nil })
	close(s.viewed)
	s.viewed = make(chan struct{})
	s.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(gangs), compareKeys) {
		s.replan(key, gangs[key], jobs[jobName{key.Namespace, key.Job}], v)
	}
	return nil
}

func compareKeys(a, b Key) int { return strings.Compare(a.String(), b.String()) }

// replan gives a gang its plan by a new view, and forgets a gang whose job is
// gone.
func (s *Service) replan(key Key, g *served, j *job, v *observe.View) {
	g.mu.Lock()
	stale := v.Taken.Before(g.taken)
	g.mu.Unlock()
	if j == nil && len(v.Unseen) == 0 && !v.Partial || j != nil && !stale && j.outlived(key) {
		s.forget(key, g)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var p *Plan
	if j != nil {
		p = j.plan(key, v, s.settings(j))
	}
	if v.Taken.Before(g.taken) {
		return
	}
	g.taken = v.Taken
	if g.gang.SetPlan(p) {
		g.bump()
	}
	s.over(g)
	s.drive(g)
}

func (s *Service) forget(key Key, g *served) {
	s.mu.Lock()
	term := s.term
	if s.gangs[key] == g {
		delete(s.gangs, key)
	}
	s.mu.Unlock()
	g.mu.Lock()
	stored := g.index != 0
	g.gang.SetPlan(nil)
	g.bump()
	g.mu.Unlock()
	if stored && term != nil {
		if err := s.opts.Documents.Delete(term, key.names()...); err != nil && term.Err() == nil {
			s.opts.Log.Warn("forget a gang", "gang", key, "error", err)
		}
	}
}

// standDown stops answering, since another planner leads.
func (s *Service) standDown() {
	s.mu.Lock()
	gangs := s.gangs
	if s.term != nil {
		s.term, s.view, s.jobs, s.gangs = nil, nil, nil, map[Key]*served{}
		close(s.viewed)
		s.viewed = make(chan struct{})
	}
	s.mu.Unlock()
	for _, g := range gangs {
		g.mu.Lock()
		if g.timer != nil {
			g.timer.Stop()
		}
		g.bump()
		g.mu.Unlock()
	}
}

// settings are what the job's author wrote about failures and sizes.
func (s *Service) settings(j *job) settings {
	rec := j.m.Record
	name := jobName{j.m.Namespace, j.m.ID}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.sets[name]; ok && rec != nil && known.hash == rec.SpecHash {
		return known.settings
	}
	out := settings{onFailure: gangspec.FailureRestart, onResize: gangspec.ResizeNotify}
	if rec == nil || rec.Original == nil {
		return out
	}
	// Faults in the contract are shown elsewhere, and the defaults hold then.
	spec, _ := gangspec.Parse(rec.Original, s.opts.Levels...)
	out = settings{onFailure: spec.OnFailure, onResize: spec.OnResize}
	s.sets[name] = specSettings{rec.SpecHash, out}
	return out
}

// bump tells all who wait that their answer may be another one.
func (g *served) bump() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// seen is what the newest view says of a member.
type seen struct {
	verdict Verdict
	taken   time.Time
	gang    *served
	// others are the job's gangs where the allocation is not wanted any more.
	others []*served
	ch     <-chan struct{}
}

// ended says why an epoch of one of those gangs has ended; "" if none of them
// knows.
func (at seen) ended(epoch string) string {
	for _, g := range at.others {
		g.mu.Lock()
		why := g.gang.Ended(epoch)
		g.mu.Unlock()
		if why != "" {
			return why
		}
	}
	return ""
}

// look judges a member by the newest view.
func (s *Service) look(who identity.Claims) (seen, error) {
	s.mu.Lock()
	if s.term == nil || s.term.Err() != nil {
		ch := s.viewed
		s.mu.Unlock()
		return seen{ch: ch}, ErrNotLeading
	}
	v, j, taken, known := s.find(who)
	if !known {
		ch := s.viewed
		s.mu.Unlock()
		return seen{ch: ch}, ErrNotLeading
	}
	out := seen{verdict: j.judge(who.Alloc, who.Job), taken: taken, ch: s.viewed}
	member := out.verdict.Member && !out.verdict.Alone
	if member {
		out.gang = s.gangs[out.verdict.Gang]
	}
	if out.verdict.Gone && j != nil {
		out.others = slices.Clone(j.gangs)
	}
	s.mu.Unlock()
	if member && out.gang == nil {
		out.gang = s.open(out.verdict.Gang, j, v)
	}
	return out, nil
}

// find is the job of a member, and when its region was seen. known is false while
// nothing can be said of the member, since its region is not seen. The caller holds
// mu.
func (s *Service) find(who identity.Claims) (v *observe.View, j *job, taken time.Time, known bool) {
	v, j, taken = s.view, s.jobs[jobName{who.Namespace, who.Job}], s.view.Taken
	if len(v.Regions) == 0 {
		return v, j, taken, true
	}
	held := v.Partial
	for i := range v.Regions {
		region := &v.Regions[i]
		held = held || region.Held != ""
		if o := s.jobs[jobName{who.Namespace, observe.InRegion(who.Job, region.Name)}]; o != nil && (j == nil || j.allocs[who.Alloc] == nil) {
			j = o
		}
	}
	if j == nil || j.allocs[who.Alloc] == nil {
		return v, j, taken, !held
	}
	if region := v.State(j.m.Region); region != nil {
		taken = region.Taken
	}
	return v, j, taken, true
}

// open serves a gang that was not served yet.
func (s *Service) open(key Key, j *job, v *observe.View) *served {
	g := &served{gang: NewGang(key, nil), changed: make(chan struct{}), taken: v.Taken}
	g.gang.SetPlan(j.plan(key, v, s.settings(j)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.gangs[key]; other != nil {
		return other
	}
	if s.term != nil {
		s.gangs[key] = g
		if now := s.jobs[jobName{key.Namespace, key.Job}]; now != nil {
			now.gangs = append(now.gangs, g)
		}
	}
	return g
}

// enter takes a place for a poll.
func (s *Service) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polls >= s.opts.MaxPolls {
		return fmt.Errorf("%w: %d", ErrBusy, s.polls)
	}
	s.polls++
	return nil
}

func (s *Service) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls--
}

func waitFor(ms int64) time.Duration {
	return min(max(time.Duration(min(ms, MaxWait.Milliseconds()))*time.Millisecond, 0), MaxWait)
}
