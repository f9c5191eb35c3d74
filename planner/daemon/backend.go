package daemon

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/recording"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// backend shows a Daemon through its API.
type backend struct{ d *Daemon }

func (b backend) View() *observe.View { return b.d.view.Load() }

func (b backend) Authorize(ctx context.Context, token string, right httpapi.Right, namespace string) error {
	v := b.d.view.Load()
	// While Nomad is away, what it allowed to everybody may still be seen.
	open := v != nil && v.ACLsOff
	if open && !b.d.nomad.get().OK {
		return nil
	}
	err := b.d.auth.check(ctx, token, right, namespace)
	var e *httpapi.Error
	if open && errors.As(err, &e) && e.Status == http.StatusServiceUnavailable {
		return nil
	}
	return err
}

// waiting says what the planner waits for before it can decide; "" if nothing.
func (d *Daemon) waiting() string {
	if !d.cfg.ObserveOnly {
		if why := d.leader.waits(d.Address()); why != "" {
			return why
		}
	}
	if d.view.Load() == nil {
		return "for a first look at the cluster, until Nomad has answered everything that is asked"
	}
	return ""
}

func (b backend) Status() httpapi.Status {
	d := b.d
	term, holder := d.leader.get()
	if term == nil && holder == d.Address() {
		holder = "" // one that ran here before
	}
	st := httpapi.Status{
		Version: Version, Leader: term != nil, LeaderAddress: holder,
		ObserveOnly: d.cfg.ObserveOnly, Policy: d.queues.order().Order, Predictions: d.learner.accuracy(),
		Nomad: d.nomad.get(), Decided: d.decisions.last(), Waiting: d.waiting(),
	}
	st.Nomad.Address = d.cfg.Nomad.Address
	if v := d.view.Load(); v != nil {
		st.ViewTaken, st.ViewIndex = v.Taken, v.Index
		st.Counts = httpapi.CountCluster(v)
		for _, r := range v.Regions {
			st.Regions = append(st.Regions, httpapi.Region(r))
		}
		for _, w := range v.Warnings {
			st.Warnings = append(st.Warnings, httpapi.Warning(w))
		}
	}
	if v := d.view.Load(); v != nil && v.Snapshot != nil {
		st.Warnings = append(st.Warnings, d.nameWarnings(v.Snapshot)...)
	}
	st.Warnings = append(st.Warnings, d.bursts.warnings()...)
	if lacking := d.lacking.Load(); lacking != nil {
		st.Warnings = append(st.Warnings, *lacking...)
	}
	if fault := b.Settings().Fault; fault != "" {
		st.Warnings = append(st.Warnings, httpapi.Warning{Subject: "settings", Text: "what was set cannot be used, the planner's file counts: " + fault})
	}
	if t := d.trouble.get(); t.Error != "" {
		st.Warnings = append(st.Warnings, httpapi.Warning{Subject: "carrying out", Text: t.Error})
	}
	if err := d.leader.trouble(); err != nil {
		st.Warnings = append(st.Warnings, httpapi.Warning{Subject: "leadership", Text: err.Error()})
	}
	return st
}

// Recording is the one of the last decision that was made for the cluster, and
// not for a question.
func (b backend) Recording() *recording.Recording { return b.d.recorded.Load() }

// Divisions implements httpapi.Divider.
func (b backend) Divisions(gpus []string) ([]httpapi.Division, error) {
	if _, leading := b.d.leads(context.Background()); !leading {
		return nil, &httpapi.Error{Status: http.StatusServiceUnavailable, Message: "another planner leads, or none does yet", Do: "ask the one that leads; caravan status names it"}
	}
	return b.d.divisions.asked(gpus), nil
}
func (b backend) Reservations() []model.ReservationUse { return b.d.queues.reservations() }

func (b backend) Queues() []model.QueueUse { return b.d.queues.standing() }

// Queue are the waiting jobs: those that were decided on, in their order, and
// then those that came since, in the order in which they will be decided on.
// Jobs of which a part waits are among them.
func (b backend) Queue() []httpapi.Job {
	v := b.d.view.Load()
	if v == nil {
		return nil
	}
	var waiting []*observe.Managed
	explained := map[*observe.Managed]httpapi.Job{}
	for i := range v.Managed {
		m := &v.Managed[i]
		if released(m) {
			continue
		}
		e, _ := b.Explain(m.Namespace, m.ID)
		if e.State == model.StateQueued || e.Position > 0 {
			waiting, explained[m] = append(waiting, m), e.Job
		}
	}
	slices.SortStableFunc(waiting, func(x, y *observe.Managed) int {
		switch p, q := explained[x].Position, explained[y].Position; {
		case p == q:
			return queue.Compare(&x.Model, &y.Model)
		case p == 0:
			return 1
		case q == 0:
			return -1
		default:
			return p - q
		}
	})
	undecided := b.d.decisions.last().IsZero()
	out := make([]httpapi.Job, len(waiting))
	for i, m := range waiting {
		out[i] = explained[m]
		if undecided {
			out[i].Position = i + 1
		}
	}
	return out
}

func released(m *observe.Managed) bool {
	return m.Record != nil && m.Record.Phase == record.PhaseReleased
}

func (b backend) Explain(namespace, id string) (httpapi.Explain, bool) {
	v := b.d.view.Load()
	if v == nil {
		return httpapi.Explain{}, false
	}
	m, ok := v.Job(namespace, id)
	if !ok {
		return httpapi.Explain{}, false
	}
	e := explainJob(m, v)
	last, known, _ := b.d.decisions.get(namespace, id)
	if released(m) {
		// What was decided before is not about what Nomad does with it.
		e.History = history(m.Record, nil)
		return e, true
	}
	if known && last.specHash == m.SpecHash {
		e.Action, e.Detail, e.Decided = last.decision.Action, last.decision.Detail, last.at
		e.History = last.history
		// The reason of an older decision is not that of what came since.
		partly := last.position > 0 && e.Placed < e.Members
		if last.decision.Action == model.ActionWait && (e.State == model.StateQueued || partly) || b.d.cfg.ObserveOnly {
			e.Reason, e.Position = last.decision.Reason, last.position
		} else if e.State == model.StateQueued && e.Reason == "" {
			e.Reason = last.decision.Reason
		}
		if b.d.cfg.ObserveOnly && last.decision.Action == model.ActionAdmit {
			e.Placement = placed(last.decision.Members, v)
		}
	}
	if would := b.d.decisions.wouldOf(namespace, id); would != "" && b.d.cfg.ObserveOnly {
		e.Reason = strings.TrimPrefix(e.Reason+"; "+would, "; ")
	}
	if beside, known, _ := b.d.decisions.get(namespace, observe.CanaryID(id)); known && observe.CanariesWait(m.Record) && beside.specHash == m.SpecHash {
		e.Reason += "; the canaries wait: " + cmp.Or(beside.problem, beside.decision.Reason)
	}
	e.History = history(m.Record, e.History)
	if known && last.problem != "" {
		e.Reason = last.problem
	}
	if m.Model.Hold != "" {
		e.Reason = m.Model.Hold
	}
	if e.State == model.StateQueued && e.Reason == "" {
		e.Reason = "not decided on yet"
		if why := b.d.waiting(); why != "" {
			e.Reason += "; the planner waits " + why
		}
	}
	return e, true
}

// history joins what the record tells of a job's troubles with the decisions
// that this planner remembers, newest first.
func history(rec *record.Record, decisions []httpapi.Past) []httpapi.Past {
	if rec == nil {
		return decisions
	}
	out := slices.Clone(decisions)
	for _, e := range rec.History {
		out = append(out, httpapi.Past{At: e.At, Action: model.Action(e.Kind), Reason: e.Text})
	}
	slices.SortStableFunc(out, func(a, b httpapi.Past) int { return b.At.Compare(a.At) })
	return slices.CompactFunc(out, func(a, b httpapi.Past) bool { return a.Action == b.Action && a.Reason == b.Reason })
}

// explainJob is what a View knows of a job.
func explainJob(m *observe.Managed, v *observe.View) httpapi.Explain {
	e := httpapi.Explain{
		Job: httpapi.Job{
			Namespace: m.Namespace, ID: m.ID, Region: m.Region, Type: m.Model.Type, State: m.Model.State,
			Queue: m.Model.Queue, Priority: m.Model.Priority, Gang: m.Model.Gang,
			Submitted: m.Model.Submitted, Released: released(m),
		},
		SpecHash: m.SpecHash, Faults: m.Faults, RetryAfter: m.Model.RetryAfter,
		Placement: memberStates(m.Members, v),
	}
	if est := queue.EstimateOf(&m.Model, m.Model.Ran); est.Known {
		e.RunTime = est.String()
	}
	for _, g := range m.Model.Groups {
		e.Members += g.Count
		for _, ask := range g.Devices {
			e.GPUs += g.Count * ask.Count
		}
	}
	for _, s := range m.Members {
		if s.State == observe.AllocPlaced {
			e.Placed++
			e.HeldGPUs += len(s.Member.GPUs)
		}
	}
	until := v.Taken
	if r := m.Record; r != nil {
		e.Home = r.Home
		e.Reason, e.Attempts = r.Reason, r.Attempts
		if !r.Admitted.IsZero() && m.Model.State != model.StateQueued {
			until = r.Admitted
		}
	} else if m.Adopted {
		e.Reason = "Nomad placed it by itself before Caravan saw it; it is left as it is"
	}
	if !m.Model.Submitted.IsZero() {
		e.QueuedMS = max(until.Sub(m.Model.Submitted).Milliseconds(), 0)
	}
	return e
}

func memberStates(members []observe.MemberState, v *observe.View) []httpapi.Placed {
	var out []httpapi.Placed
	for _, s := range members {
		p := httpapi.Placed{Member: s.Member, NodeName: nodeName(v, s.Member.Node), State: string(s.State)}
		p.Index = s.Index()
		if s.Alloc != nil {
			p.Alloc = s.Alloc.ID
		}
		out = append(out, p)
	}
	return out
}

// placed are decided members that nothing was done about.
func placed(members []model.Member, v *observe.View) []httpapi.Placed {
	var out []httpapi.Placed
	for _, m := range members {
		out = append(out, httpapi.Placed{Member: m, NodeName: nodeName(v, m.Node), State: string(observe.AllocNone)})
	}
	return out
}

func nodeName(v *observe.View, id string) string {
	at, ok := slices.BinarySearchFunc(v.Nodes, id, func(n observe.NodeRef, id string) int { return strings.Compare(n.ID, id) })
	if !ok {
		return ""
	}
	return v.Nodes[at].Name
}

func (b backend) WaitDecision(ctx context.Context, namespace, job, specHash string) (httpapi.Explain, error) {
	return b.d.WaitDecision(ctx, namespace, job, specHash)
}

func (b backend) Plan(ctx context.Context, job *api.Job) (httpapi.PlanResult, error) {
	return b.d.Plan(ctx, job)
}

func (b backend) Release(ctx context.Context, token string, req httpapi.ReleaseRequest) (httpapi.ReleaseResult, error) {
	return b.d.release(ctx, token, req)
}

// WaitDecision wakes the planner and returns the first decision on that
// version of a job ("" is any), or ctx's error.
func (d *Daemon) WaitDecision(ctx context.Context, namespace, job, specHash string) (httpapi.Explain, error) {
	if target := d.elsewhere(); target != nil {
		return d.waitAtLeader(ctx, target.String(), namespace, job, specHash)
	}
	if err := d.decisions.wait(ctx, namespace, job, specHash, func() { d.poke(true) }); err != nil {
		return httpapi.Explain{}, err
	}
	e, _ := backend{d}.Explain(namespace, job)
	return e, nil
}

// waitAtLeader asks the planner that decides, with this planner's own token.
func (d *Daemon) waitAtLeader(ctx context.Context, address, namespace, job, specHash string) (httpapi.Explain, error) {
	token, err := d.cfg.Nomad.ReadToken()
	if err != nil {
		return httpapi.Explain{}, err
	}
	c, err := httpapi.NewClient(address, token, d.peers)
	if err != nil {
		return httpapi.Explain{}, err
	}
	return c.WaitDecision(ctx, namespace, job, specHash, d.cfg.Gateway.Wait)
}
