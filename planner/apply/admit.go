package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// admission carries one decision out.
type admission struct {
	executor *Executor
	round    *round
	decision model.Decision
	// record is the job's record if it was only just made.
	record *record.Record
	// promise is what is to be remembered of the job's deadline; nil: as it is.
	promise *model.Promise
	job     *job
	// sized: the members are beyond the counts, by Caravan's own decision.
	sized bool
}

// run admits the job: Nomad is asked whether it would place the members as
// decided, the record is written, the pinned job is registered. A nil result
// means that there was nothing to do.
func (a *admission) run(ctx context.Context, k key) *Result {
	m, ok := a.round.view.Job(k.namespace, k.job)
	if !ok {
		return nil
	}
	a.job = a.round.job(m)
	if a.job.rec == nil {
		a.job.rec = a.record
	}
	result := &Result{Namespace: k.namespace, Job: k.job, Kind: KindAdmit, Reason: a.decision.Reason}
	if why := a.premature(); why != "" {
		result.Reason = why
		return result
	}
	if result.Err = a.executor.waiting(k, deref(m.Current.JobModifyIndex), a.round.view.Taken); result.Err != nil {
		return result
	}
	result.Changed, result.Err = a.admit(ctx)
	return result
}

// premature says why a decision is not carried out although it was made.
func (a *admission) premature() string {
	rec, cur := a.job.rec, a.job.cur
	switch {
	case rec == nil || rec.Original == nil:
		return "the job is not recorded yet"
	case deref(cur.Stop):
		return "the job was stopped"
	case rec.Route != nil:
		return "it was sent to region " + rec.Route.Region
	case rec.Held != "":
		return rec.Held
	case rec.KeepSize != "" && rec.Phase == record.PhaseRunning:
		return rec.KeepSize
	case rec.RetryAfter.After(a.round.view.Taken):
		return fmt.Sprintf("it is tried again after %s", rec.RetryAfter.Format(time.RFC3339))
	case rec.Phase == record.PhaseQueued && len(a.job.live()) > 0:
		return "what runs of an earlier version is stopped first"
	case rec.Phase == record.PhaseQueued:
		return ""
	case rec.Phase == record.PhaseRunning && rec.Unpinned && a.runs():
		return "the members that Nomad placed by itself run on first"
	case rec.Growth != nil && rec.Growth.Undo != "":
		return "what a gang was to grow by is taken back first"
	case rec.Phase == record.PhaseRunning || rec.Phase == record.PhaseAdmitted:
		if a.job.severally() || rec.Phase == record.PhaseRunning {
			return a.job.mayGrow(a.decision.Members)
		}
	}
	return fmt.Sprintf("the job is %s", rec.Phase)
}

// runs says whether any member in force holds something.
func (a *admission) runs() bool {
	return a.job.first(func(s observe.MemberState) bool { return s.State.Holds() }) != nil
}

func (a *admission) admit(ctx context.Context) (changed bool, err error) {
	j := a.job
	inForce := j.pinnable()
	done := j.done()
	fresh := j.inSlots(a.newMembers(inForce, done))
	if len(fresh) == 0 {
		return false, nil
	}
	fit, pinned, why, err := a.rehearse(ctx, inForce, fresh, done)
	if errors.Is(err, rewrite.ErrPlacement) {
		// A group of which a part has ended is not to be touched for now; that
		// is no failed try.
		return false, fmt.Errorf("admit job %q: %w: %w", j.m.ID, ErrNoFit, err)
	}
	if err != nil {
		a.executor.note(j.key(), deref(j.cur.JobModifyIndex), a.round.view.Taken, err)
		return false, err
	}
	if len(fit) == 0 {
		if err := a.executor.put(ctx, a.misfit(why), a.round.view.Taken); err != nil {
			return false, err
		}
		return true, fmt.Errorf("admit job %q: %w: %s", j.m.ID, ErrNoFit, why)
	}
	rec := a.admitted(fit)
	if err := a.executor.put(ctx, rec, a.round.view.Taken); err != nil {
		return false, err
	}
	rewrite.Note(pinned, "Caravan: "+a.decision.Reason, j.link())
	err = a.executor.register(ctx, j.m.Namespace, pinned, deref(j.cur.JobModifyIndex), rec.Source)
	a.executor.note(j.key(), deref(j.cur.JobModifyIndex), a.round.view.Taken, err)
	return true, err
}

// misfit is the record of a job that Nomad has no room for, for a reason.
func (a *admission) misfit(why string) *record.Record {
	rec := a.job.next("it does not fit: " + why)
	keepPromise(rec, a.promise, a.round)
	a.job.count(rec)
	rec.Moving = nil // it takes its turn as others do
	return rec
}

// admitted is the record of a job with the members that fit.
func (a *admission) admitted(fit []model.Member) *record.Record {
	j := a.job
	rec := j.next(a.decision.Reason)
	keepPromise(rec, a.promise, a.round)
	rec.Phase, rec.PlacedHash, rec.Unpinned = record.PhaseAdmitted, rec.SpecHash, false
	rec.Members = nil
	for _, s := range j.states {
		rec.Members = append(rec.Members, s.Member)
	}
	rec.Members = append(rec.Members, fit...)
	rec.Model = a.round.modelOf(rec.Members)
	grown := j.grown(fit)
	if len(grown) > 0 {
		rec.Growth = rec.Growth.With(grown)
		rec.Growth.Index = deref(j.cur.JobModifyIndex)
	}
	rec.Replace = j.replacedBy(fit)
	if a.sized || len(grown) > 0 && j.short(rec.Members) {
		rec.Sized(a.round.view.Taken, j.sizes(rec.Members))
	}
	rec.Moving = j.landed(rec.Moving, fit)
	rec.Rollout = j.turnedTo(fit).Rollout
	j.ended(rec)
	if !j.severally() && len(grown) == 0 {
		rec.PlacedIndex = deref(j.cur.JobModifyIndex)
	}
	rec.Note(a.round.view.Taken, string(KindAdmit), a.decision.Reason)
	if rec.Deadline = a.round.view.Taken.Add(a.executor.opts.Deadline); len(grown) == 0 {
		rec.Admitted, rec.Backfilled = a.round.view.Taken, a.decision.Backfill
	}
	if a.decision.Forgets {
		rec.Service.Forget()
	}
	return rec
}

// newMembers are the decision's members that are not in force yet.
func (a *admission) newMembers(inForce []model.Member, done []rewrite.Place) []model.Member {
	have := map[rewrite.Place]bool{}
	for _, m := range inForce {
		have[rewrite.Place{Group: m.Group, Index: m.Index}] = true
	}
	for _, d := range done {
		have[d] = true
	}
	fresh := slices.DeleteFunc(slices.Clone(a.decision.Members), func(m model.Member) bool {
		return have[rewrite.Place{Group: m.Group, Index: m.Index}]
	})
	if a.job.m.Model.Gang == model.GangNone {
		return fresh
	}
	// What a gang grows by joins its task group.
	slot := map[string]int{}
	for _, m := range inForce {
		slot[m.Group] = m.Slot
	}
	for i := range fresh {
		fresh[i].Slot = slot[fresh[i].Group]
	}
	return fresh
}

// rehearse asks Nomad what it would do. It returns the new members that Nomad
// would place as decided, and the job that pins them: all of a gang or none.
func (a *admission) rehearse(ctx context.Context, inForce, fresh []model.Member, done []rewrite.Place) (fit []model.Member, pinned *api.Job, why string, err error) {
	for len(fresh) > 0 {
		pinned, err = a.job.pin(a.job.turnedTo(fresh), slices.Concat(inForce, fresh), done...)
		if err != nil {
			return nil, nil, "", err
		}
		a.job.hold(pinned, inForce)
		refused, whole, err := a.dryRun(ctx, pinned)
		if err != nil {
			return nil, nil, "", err
		}
		if whole != "" {
			return nil, nil, whole, nil
		}
		if len(refused) == 0 {
			return fresh, pinned, "", nil
		}
		first := slices.Min(slices.Collect(maps.Keys(refused)))
		why = fmt.Sprintf("Nomad would not place group %q: %s", first, refused[first])
		left := a.without(pinned, fresh, refused)
		if len(left) == len(fresh) {
			// It refuses what is in force already.
			return nil, nil, why, nil
		}
		fresh = left
	}
	return nil, nil, why, nil
}

// without drops the members of refused groups: none is left of a gang.
func (a *admission) without(pinned *api.Job, fresh []model.Member, refused map[string]string) []model.Member {
	if !a.job.severally() {
		return nil
	}
	gone := map[string]bool{}
	goneMember := map[rewrite.Place]bool{}
	for _, g := range pinned.TaskGroups {
		if _, ok := refused[deref(g.Name)]; !ok {
			continue
		}
		group, index, split := rewrite.Origin(g)
		if split && a.job.m.Model.Gang == model.GangNone {
			goneMember[rewrite.Place{Group: group, Index: index}] = true
		} else {
			gone[group] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(fresh), func(m model.Member) bool {
		return gone[m.Group] || goneMember[rewrite.Place{Group: m.Group, Index: m.Index}]
	})
}

// dryRun plans the job in Nomad. refused are the groups that would not be
// placed as pinned, with Nomad's reasons; whole is a reason against all of it.
func (a *admission) dryRun(ctx context.Context, pinned *api.Job) (refused map[string]string, whole string, err error) {
	ns := a.job.m.Namespace
	plan, _, err := a.executor.client.Jobs().PlanOpts(pinned, &api.PlanOptions{Diff: false}, (&api.WriteOptions{Namespace: ns}).WithContext(ctx))
	if err != nil {
		return nil, "", classify(fmt.Sprintf("plan job %q", a.job.m.ID), capability("submit-job", ns), err)
	}
	if plan.JobModifyIndex != deref(a.job.cur.JobModifyIndex) {
		return nil, "", fmt.Errorf("plan job %q: %w", a.job.m.ID, ErrChanged)
	}
	if plan.Annotations != nil && len(plan.Annotations.PreemptedAllocs) > 0 {
		p := plan.Annotations.PreemptedAllocs[0]
		return nil, fmt.Sprintf("Nomad would evict %d allocations for it, of job %q among others; turn its own preemption off", len(plan.Annotations.PreemptedAllocs), p.JobID), nil
	}
	if why := a.job.disturbed(plan); why != "" {
		return nil, why, nil
	}
	refused = map[string]string{}
	for _, g := range pinned.TaskGroups {
		metric := plan.FailedTGAllocs[deref(g.Name)]
		if metric != nil && rewrite.MayPlace(g) {
			refused[deref(g.Name)] = explain(metric)
		}
	}
	return refused, "", nil
}

// explain says in words why Nomad would not place a group, leaving out the
// nodes that the pin itself excludes.
func explain(m *api.AllocationMetric) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(m.DimensionExhausted)) {
		parts = append(parts, fmt.Sprintf("%s exhausted on %d nodes", what, m.DimensionExhausted[what]))
	}
	for _, what := range slices.Sorted(maps.Keys(m.ConstraintFiltered)) {
		if !strings.Contains(what, "${node.unique.id}") && what != "computed class ineligible" {
			parts = append(parts, fmt.Sprintf("%s excludes %d nodes", what, m.ConstraintFiltered[what]))
		}
	}
	for _, what := range m.QuotaExhausted {
		parts = append(parts, "quota reached: "+what)
	}
	if len(parts) == 0 {
		return fmt.Sprintf("of %d nodes none is left", m.NodesEvaluated)
	}
	return strings.Join(parts, ", ")
}
