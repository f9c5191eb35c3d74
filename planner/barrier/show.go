package barrier

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
)

// Status is how a gang is, for people.
type Status struct {
	Gang string `json:"gang,omitempty"`
	// Phase is "waiting" (at the barrier), "running", "suspended" or "failed".
	Phase      string    `json:"phase"`
	Reason     string    `json:"reason,omitempty"`
	Epoch      string    `json:"epoch,omitempty"`
	Generation int       `json:"generation,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	// Suspended is since when the gang is suspended; zero while it is not.
	Suspended time.Time `json:"suspended,omitzero"`
	Joined    int       `json:"joined"`
	Size      int       `json:"size"`
	// Members are in the order of their ranks.
	Members []MemberStatus `json:"members,omitempty"`
	Events  []Event        `json:"events,omitempty"`
}

// MemberStatus is what a member has told last; what it did not tell is nil.
type MemberStatus struct {
	Group    string              `json:"group"`
	Index    int                 `json:"index"`
	NodeName string              `json:"node_name"`
	Alloc    string              `json:"alloc,omitempty"`
	State    gangapi.MemberState `json:"state,omitempty"`
	// Why says what the others wait for, while it has not joined.
	Why        string    `json:"why,omitempty"`
	Told       time.Time `json:"told,omitzero"`
	Step       *int64    `json:"step,omitempty"`
	Loss       *float64  `json:"loss,omitempty"`
	Throughput *float64  `json:"throughput,omitempty"`
	// CheckpointAgeMS is the age of the last complete checkpoint now.
	CheckpointAgeMS *int64 `json:"checkpoint_age_ms,omitempty"`
	CheckpointStep  *int64 `json:"checkpoint_step,omitempty"`
}

// Gangs are the job's gangs at the barrier or running, by name.
func (s *Service) Gangs(namespace, job string) []Status {
	var out []Status
	for _, g := range s.of(namespace, job) {
		g.mu.Lock()
		if st, ok := g.gang.Status(s.opts.Now()); ok {
			out = append(out, st)
		}
		g.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Gang, b.Gang) })
	return out
}

func (s *Service) of(namespace, job string) []*served {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*served
	for key, g := range s.gangs {
		if key.Namespace == namespace && key.Job == job {
			out = append(out, g)
		}
	}
	return out
}

// Status is how the gang is; false if it has no placement.
func (g *Gang) Status(now time.Time) (Status, bool) {
	if g.plan == nil {
		return Status{}, false
	}
	sum := g.sum(now)
	st := Status{Gang: g.key.Group, Phase: "waiting", Reason: sum.reason, Joined: sum.joined, Size: sum.size, Events: slices.Clone(g.state.Events)}
	switch {
	case g.failed() != "":
		st.Phase, st.Reason = "failed", g.failed()
	case g.suspended() != "":
		st.Phase, st.Reason, st.Suspended = "suspended", g.suspended(), g.state.SuspendedAt
	case g.running():
		st.Phase, st.Reason = "running", ""
	}
	if m := g.state.Membership; m != nil && g.running() {
		st.Epoch, st.Generation, st.Started = m.Epoch, m.Generation, g.state.StartAt
	}
	for i := range g.plan.Members {
		st.Members = append(st.Members, g.memberStatus(&g.plan.Members[i], now))
	}
	if g.running() {
		// Those that have no rank yet come last.
		rank := func(m MemberStatus) int {
			if at, ok := g.inEpoch[m.Alloc]; ok {
				return at
			}
			return len(g.inEpoch)
		}
		slices.SortStableFunc(st.Members, func(a, b MemberStatus) int { return rank(a) - rank(b) })
	}
	return st, true
}

func (g *Gang) memberStatus(p *Planned, now time.Time) MemberStatus {
	m := MemberStatus{Group: p.Group, Index: p.Index, NodeName: p.NodeName, Alloc: p.Alloc, Why: g.missing(p, now)}
	r := g.reports[p.Alloc]
	if r == nil {
		return m
	}
	m.State, m.Told = r.state, r.at
	if pr := r.progress; pr != nil {
		m.Step, m.Loss, m.Throughput = pr.Step, pr.Loss, pr.Throughput
		if c := pr.Checkpoint; c != nil {
			age := c.AgeMS + now.Sub(r.at).Milliseconds()
			m.CheckpointAgeMS, m.CheckpointStep = &age, c.Step
		}
	}
	return m
}

// Work is what a member has told of its work; what it did not tell is nil.
type Work struct {
	// SinceCheckpoint is how many seconds it has worked since its last complete
	// checkpoint.
	SinceCheckpoint      *int64
	CheckpointStep, Step *int64
	// Progress is all that it has told, nil if that is nothing; Running says that
	// it works, and is neither suspended nor stopping.
	Progress *gangapi.Progress
	Running  bool
}

// Works are what the members of all gangs have told, by allocation.
func (s *Service) Works() map[string]Work {
	s.mu.Lock()
	gangs := slices.Collect(maps.Values(s.gangs))
	s.mu.Unlock()
	out := map[string]Work{}
	now := s.opts.Now()
	for _, g := range gangs {
		g.mu.Lock()
		for alloc, r := range g.gang.reports {
			if w, ok := r.work(now); ok {
				out[alloc] = w
			}
		}
		g.mu.Unlock()
	}
	return out
}

// work is what a member has told; false if that is nothing. A step that cannot
// be is not told on.
func (r *report) work(now time.Time) (w Work, told bool) {
	pr := r.progress
	if pr == nil {
		return w, false
	}
	w.Step, w.Progress, w.Running = plausible(pr.Step), pr, r.state == gangapi.MemberRunning
	if c := pr.Checkpoint; c != nil {
		lost := time.Duration(c.AgeMS) * time.Millisecond
		if r.suspended.IsZero() {
			lost += max(now.Sub(r.at), 0)
		} else {
			lost = max(lost-r.at.Sub(r.suspended), 0)
		}
		seconds := int64(lost / time.Second)
		w.SinceCheckpoint, w.CheckpointStep = &seconds, plausible(c.Step)
	}
	return w, w.Step != nil || w.SinceCheckpoint != nil || pr.Throughput != nil
}

func plausible(step *int64) *int64 {
	if step == nil || *step < 0 {
		return nil
	}
	return step
}

// Suspend suspends or resumes all gangs of a job; reason says who wants that.
// It returns how many gangs that changes, once it is stored.
func (s *Service) Suspend(ctx context.Context, namespace, job string, on bool, reason string) (int, error) {
	gangs := s.of(namespace, job)
	changed, placed := 0, 0
	for _, g := range gangs {
		done, there, err := s.suspend(ctx, g, on, reason)
		if err != nil {
			return changed, err
		}
		if there {
			placed++
		}
		if done {
			changed++
		}
	}
	if placed == 0 {
		return 0, fmt.Errorf("%w of job %q in namespace %q whose members have joined", ErrNoGang, job, namespace)
	}
	return changed, nil
}

func (s *Service) suspend(ctx context.Context, g *served, on bool, reason string) (done, there bool, err error) {
	for {
		g.mu.Lock()
		if g.gang.plan == nil {
			g.mu.Unlock()
			return false, false, nil
		}
		ch := g.changed
		if !g.writing {
			next := g.gang.Suspend(on, reason, s.opts.Now())
			if next == nil {
				g.mu.Unlock()
				return done, true, nil
			}
			s.store(g, next)
			done = true
		}
		g.mu.Unlock()
		select {
		case <-ctx.Done():
			return false, true, ctx.Err()
		case <-ch:
		}
	}
}

// place is the place that a member's allocation fills.
func (s *Service) place(who identity.Claims) (Planned, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[jobName{who.Namespace, who.Job}]
	if j == nil {
		return Planned{}, false
	}
	at, ok := j.members[who.Alloc]
	if !ok {
		return Planned{}, false
	}
	m := j.all[at]
	for _, g := range j.m.Model.Groups {
		if g.Name == m.Member.Group {
			return planned(m, g.Devices, s.view), true
		}
	}
	return planned(m, nil, s.view), true
}

// viewing is closed with the next view.
func (s *Service) viewing() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.viewed
}

// tellUnfit passes on what a preflight has found. The gang is locked.
func (s *Service) tellUnfit(g *served, key Key, who Member, req gangapi.JoinRequest) {
	at, ok := g.gang.byAlloc[who.Alloc]
	if req.Fault == nil || !ok || s.opts.Unfit == nil {
		return
	}
	p := &g.gang.plan.Members[at]
	s.opts.Unfit(Unfit{Namespace: key.Namespace, Job: key.Job, Node: p.Node, NodeName: p.NodeName, Fault: *req.Fault})
}
