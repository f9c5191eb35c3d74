package daemon

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// Plan says what submitting a job would do now. One that is there already may be
// unchanged, or stay where it runs; any other is decided on as the last in its
// queue. Nothing is changed.
func (d *Daemon) Plan(_ context.Context, job *api.Job) (httpapi.PlanResult, error) {
	return d.planOf(job, true)
}

// preview is Plan for a version that takes the place of what is there.
func (d *Daemon) preview(_ context.Context, job *api.Job) (httpapi.PlanResult, error) {
	return d.planOf(job, false)
}

// planOf says what would be decided on a job; beside is whether what is there of
// it may stay.
func (d *Daemon) planOf(job *api.Job, beside bool) (httpapi.PlanResult, error) {
	own, err := rewrite.Strip(job, nil)
	if err != nil {
		return httpapi.PlanResult{}, &httpapi.Error{Status: http.StatusBadRequest, Message: "the job cannot be read: " + err.Error()}
	}
	if why := d.leaves(own); why != "" {
		return httpapi.PlanResult{Why: why}, nil
	}
	v := d.view.Load()
	if v == nil {
		return httpapi.PlanResult{}, &httpapi.Error{Status: http.StatusServiceUnavailable, Message: "the planner has not seen the cluster yet", Do: "try again in a moment"}
	}
	spec, err := gangspec.Parse(own, d.cfg.LevelNames()...)
	if err != nil {
		return httpapi.PlanResult{Managed: true, Faults: gangspec.Sentences(err)}, nil
	}
	snap := *v.Snapshot
	snap.Now = d.now().UTC()
	candidate := gangspec.ToModel(own, spec)
	candidate.State, candidate.Submitted = model.StateQueued, snap.Now
	candidate.Deadline = spec.DeadlineFor(snap.Now)
	d.learner.predict(&candidate)
	there := present{}
	if beside {
		there = d.present(v, own, spec, &candidate)
	}
	if there.only {
		return d.leftAsIs(v, &snap, &candidate, there)
	}
	if there.what == httpapi.PresentResized {
		resize(&snap, candidate)
	} else {
		replace(&snap, candidate)
	}
	plan, err := d.decideOn(v, &snap)
	if err != nil {
		return httpapi.PlanResult{}, &httpapi.Error{Status: http.StatusBadRequest, Message: "the job cannot be decided on: " + err.Error()}
	}
	without := *v.Snapshot
	without.Now = snap.Now
	before, err := d.decideOn(v, &without)
	if err != nil {
		return httpapi.PlanResult{}, &httpapi.Error{Status: http.StatusInternalServerError, Message: "the cluster cannot be decided on without the job: " + err.Error()}
	}
	out := httpapi.PlanResult{Managed: true, Present: there.what, Preemptions: preemptionsFor(plan, &candidate), Effects: effects(before, plan, &candidate)}
	for _, decision := range plan.Decisions {
		if decision.Namespace == candidate.Namespace && decision.Job == candidate.ID {
			out.Decision, out.Placement = decision, placed(decision.Members, v)
		}
	}
	there.tell(&out)
	return out, nil
}

// preemptionsFor are those who give way to a job.
func preemptionsFor(plan *model.Plan, j *model.Job) []model.Preemption {
	var out []model.Preemption
	for i := range plan.Preemptions {
		if to := plan.Preemptions[i].For; to.Namespace == j.Namespace && to.ID == j.ID {
			out = append(out, plan.Preemptions[i])
		}
	}
	return out
}

// effects are what a job changes for the others that wait.
func effects(before, with *model.Plan, j *model.Job) []httpapi.Effect {
	now := make(map[jobKey]model.Action, len(before.Decisions))
	for i := range before.Decisions {
		now[jobKey{before.Decisions[i].Namespace, before.Decisions[i].Job}] = before.Decisions[i].Action
	}
	var out []httpapi.Effect
	for i := range with.Decisions {
		d := &with.Decisions[i]
		key := jobKey{d.Namespace, d.Job}
		if was, waits := now[key]; waits && was != d.Action && key != (jobKey{j.Namespace, j.ID}) {
			out = append(out, httpapi.Effect{Namespace: d.Namespace, Job: d.Job, Now: was, Then: d.Action, Reason: d.Reason})
		}
	}
	return out
}

// leaves says why Caravan leaves a job to Nomad; "" when it manages it.
func (d *Daemon) leaves(job *api.Job) string {
	if !gangspec.Asks(job, d.cfg.Managed.Devices) {
		return fmt.Sprintf("it asks for none of the managed devices %q", d.cfg.Managed.Devices)
	}
	if why := gangspec.Unmanageable(job); why != "" {
		return why
	}
	return d.cfg.Managed.Exempt(orDefault(job.Namespace, api.DefaultNamespace), orDefault(job.NodePool, api.NodePoolDefault))
}

func orDefault(s *string, otherwise string) string {
	if s == nil || *s == "" {
		return otherwise
	}
	return *s
}

// replace puts a job into a snapshot in place of the one of its name, which
// would give up what it holds. The snapshot's lists are copied.
func replace(snap *model.Snapshot, job model.Job) {
	snap.Jobs = slices.DeleteFunc(slices.Clone(snap.Jobs), func(j model.Job) bool {
		return j.Namespace == job.Namespace && j.ID == job.ID
	})
	snap.Jobs = append(snap.Jobs, job)
	snap.Allocs = slices.DeleteFunc(slices.Clone(snap.Allocs), func(a model.Alloc) bool {
		return a.Namespace == job.Namespace && a.Job == job.ID
	})
}

// release takes Caravan's hands off one job, or all.
func (d *Daemon) release(ctx context.Context, token string, req httpapi.ReleaseRequest) (httpapi.ReleaseResult, error) {
	term, leading := d.leads(ctx)
	if !leading || d.cfg.ObserveOnly {
		return httpapi.ReleaseResult{}, &httpapi.Error{Status: http.StatusConflict, Message: "this planner does not carry anything out", Do: "ask the one that leads; see " + httpapi.Prefix + "/status"}
	}
	d.acting.Lock()
	defer d.acting.Unlock()
	// The request's end must not leave a job half released; the term's may.
	v, err := d.refresh(term)
	if err != nil {
		return httpapi.ReleaseResult{}, &httpapi.Error{Status: http.StatusServiceUnavailable, Message: err.Error(), Do: "try again when Nomad answers"}
	}
	out := httpapi.ReleaseResult{Jobs: []httpapi.Released{}}
	for i := range v.Managed {
		m := &v.Managed[i]
		if !req.All && (m.Namespace != req.Namespace || m.ID != req.Job) {
			continue
		}
		r := httpapi.Released{Namespace: m.Namespace, Job: m.ID, Done: true}
		if r.Note, err = d.carry.Release(term, token, m); err != nil {
			r.Done, r.Note = false, err.Error()
		}
		out.Jobs = append(out.Jobs, r)
	}
	if len(out.Jobs) == 0 && !req.All {
		return out, &httpapi.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("Caravan manages no job %q in namespace %q", req.Job, req.Namespace)}
	}
	d.poke(true)
	return out, nil
}
