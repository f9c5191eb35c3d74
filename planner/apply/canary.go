package apply

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// An update with canaries first places some members more, of the new version,
// beside the old ones. The core decides on them as on a job of its own. When
// they are healthy and promoted they take the places of the members beside
// them, and the rest is rolled as ever.

// canaries is the next step of an update whose canaries are not promoted yet;
// nil if it waits: for room, for their health, or for a person.
func (j *job) canaries() *Step {
	ro := j.rec.Rollout
	c := ro.Canary
	if step, wait := j.watch(j.m.Canaries, c.Index, c.Placed, "the canary of "); step != nil || wait {
		return step
	}
	if len(c.Lacking()) > 0 {
		return nil
	}
	itself := gangspec.PromotesItself(j.rec.Original)
	if c.Promote != "" || itself {
		return j.promote(ro)
	}
	if c.Healthy {
		return nil
	}
	put := j.next(fmt.Sprintf("all canaries of the new version (%d) are healthy and wait to be promoted: nomad job promote %[2]s, or caravan promote %[2]s; to go back: caravan rollback %[2]s", len(c.Members), j.m.ID))
	put.Rollout = changed(ro, func(c *record.Canary) { c.Healthy = true })
	put.Note(j.now(), string(KindRollout), put.Reason)
	step := j.step(KindRollout, put.Reason)
	step.Put = put
	return step
}

// changed is a copy of an update with another canary part.
func changed(ro *record.Rollout, change func(*record.Canary)) *record.Rollout {
	next, canary := *ro, *ro.Canary
	canary.Members = slices.Clone(canary.Members)
	change(&canary)
	next.Canary = &canary
	return &next
}

// promote makes members of the canaries, in the places of those beside them.
func (j *job) promote(ro *record.Rollout) *Step {
	by := ro.Canary.Promote
	if by == "" {
		by = "auto_promote"
	}
	put := j.next(fmt.Sprintf("all canaries of the new version (%d) are healthy and are promoted (%s); the members beside them are stopped", len(ro.Canary.Members), by))
	put.Members = slices.DeleteFunc(slices.Clone(j.rec.Members), func(old model.Member) bool {
		return slices.ContainsFunc(ro.Canary.Members, func(m model.Member) bool {
			// Of a gang all go, also those that it has grown by.
			return old.Group == m.Group && (old.Index == m.Index || j.m.Model.Gang != model.GangNone)
		})
	})
	put.Members = append(put.Members, ro.Canary.Members...)
	slices.SortStableFunc(put.Members, func(a, b model.Member) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Index, b.Index))
	})
	next := changed(ro, func(c *record.Canary) { c.Members, c.Healthy, c.Promote, c.Promoted = nil, true, by, j.now() })
	next.Rolled, next.Batch = slices.Clone(ro.Rolled), nil
	for _, m := range ro.Canary.Members {
		if p := (record.Place{Group: m.Group, Index: m.Index}); !slices.Contains(next.Rolled, p) {
			next.Rolled = append(next.Rolled, p)
		}
	}
	next.Index, next.Step = deref(j.cur.JobModifyIndex), j.now()
	put.Rollout = next
	return j.rolloutStep(put)
}

// canaryTroubles is what befell canaries beside a failure of their own, which
// is the update's.
func (j *job) canaryTroubles() []trouble {
	var out []trouble
	for _, s := range j.m.Canaries {
		if deadline := j.rec.Rollout.Canary.Deadline; s.State == observe.AllocNone && deadline.After(j.now()) {
			j.look(deadline)
			continue
		}
		if t := j.trouble(s); t != nil && t.blame != blameMember {
			t.kind = canaryKind + t.kind
			out = append(out, *t)
		}
	}
	return out
}

// canaryKind starts the kinds of troubles of canaries.
const canaryKind = "canary "

// apart tells the troubles of canaries from those of members.
func apart(all []trouble) (members, canaries []trouble) {
	for _, t := range all {
		if strings.HasPrefix(t.kind, canaryKind) {
			canaries = append(canaries, t)
		} else {
			members = append(members, t)
		}
	}
	return members, canaries
}

// withdraw takes canaries away that the cluster has let down, each with its
// gang. Others are placed in their stead.
func (j *job) withdraw(bad []trouble) *Step {
	delete(j.missing, j.key())
	out := map[rewrite.Place]bool{}
	groups := map[string]bool{}
	for _, t := range bad {
		out[placeOf(t.member)], groups[t.member.Member.Group] = true, true
	}
	put := j.next(fmt.Sprintf("the canary of %s %s; it is placed anew, and the members run on", j.who(bad[0].member), bad[0].text))
	if do := bad[0].do; do != "" {
		put.Reason += "; " + do
	}
	put.Rollout = changed(j.rec.Rollout, func(c *record.Canary) {
		c.Members = slices.DeleteFunc(c.Members, func(m model.Member) bool {
			switch j.m.Model.Gang {
			case model.GangJob:
				return true
			case model.GangGroup:
				return groups[m.Group]
			}
			return out[rewrite.Place{Group: m.Group, Index: m.Index}]
		})
		c.Healthy = false
		if worst(bad) == blamePlacement {
			j.countCanary(c)
		}
	})
	return j.rolloutStep(put)
}

// countCanary notes a placement of canaries that did not hold.
func (j *job) countCanary(c *record.Canary) {
	c.Attempts++
	c.RetryAfter = j.now().Add(j.opts.backoff(c.Attempts))
}

// runCanaries places the canaries that were decided on. A nil result means that
// there was nothing to do.
func (a *admission) runCanaries(ctx context.Context, k key) *Result {
	m, ok := a.round.view.Job(k.namespace, k.job)
	if !ok || m.Record == nil || len(a.decision.Members) == 0 {
		return nil
	}
	a.job = a.round.job(m)
	result := &Result{Namespace: k.namespace, Job: a.decision.Job, Kind: KindAdmit, Reason: a.decision.Reason}
	if why := a.job.noCanaries(); why != "" {
		result.Reason = why
		return result
	}
	if result.Err = a.executor.waiting(k, deref(m.Current.JobModifyIndex), a.round.view.Taken); result.Err != nil {
		return result
	}
	result.Changed, result.Err = a.admitCanaries(ctx)
	return result
}

// noCanaries says why canaries are not placed although it was decided.
func (j *job) noCanaries() string {
	rec, cur := j.rec, j.cur
	switch ro := rec.Rollout; {
	case deref(cur.Stop):
		return "the job was stopped"
	case rec.Phase != record.PhaseRunning || rec.Unpinned || ro == nil || !ro.Canary.Open():
		return fmt.Sprintf("the job is %s, and no update of it waits for canaries", rec.Phase)
	case ro.Failed != "" || ro.GivenUp != "":
		return "the update has failed"
	case ro.Paused:
		return "the update is paused"
	case rewrite.RollingTo(cur) != rec.SpecHash || deref(cur.JobModifyIndex) <= ro.Index:
		return "the update has not begun yet"
	case ro.Canary.RetryAfter.After(j.now()):
		return fmt.Sprintf("the canaries are tried again after %s", ro.Canary.RetryAfter.Format(time.RFC3339))
	}
	return ""
}

func (a *admission) admitCanaries(ctx context.Context) (did bool, err error) {
	j := a.job
	fresh := j.newCanaries(a.decision.Members)
	if len(fresh) == 0 {
		return false, nil
	}
	rec := j.next(fmt.Sprintf("canaries of the new version (%d) are placed beside the members: %s", len(fresh), a.decision.Reason))
	now := a.round.view.Taken
	rec.Rollout = changed(j.rec.Rollout, func(c *record.Canary) {
		if len(c.Members) == 0 {
			c.Index = deref(j.cur.JobModifyIndex)
		}
		c.Members = append(c.Members, fresh...)
		c.Placed, c.Deadline = now, now.Add(a.executor.opts.Deadline)
	})
	pinned, err := Mix(rec, j.cur, j.pins())
	if err != nil {
		return false, fmt.Errorf("place canaries of job %q: %w: %w", j.m.ID, ErrNoFit, err)
	}
	refused, why, err := a.dryRun(ctx, pinned)
	if err != nil {
		a.executor.note(j.key(), deref(j.cur.JobModifyIndex), now, err)
		return false, err
	}
	for _, g := range pinned.TaskGroups {
		if text, no := refused[deref(g.Name)]; no && rewrite.IsCanary(g) && why == "" {
			why = fmt.Sprintf("Nomad would not place group %q: %s", deref(g.Name), text)
		}
	}
	if why != "" {
		rec := j.next("the canaries do not fit: " + why)
		rec.Rollout = changed(j.rec.Rollout, j.countCanary)
		if err := a.executor.put(ctx, rec, a.round.view.Taken); err != nil {
			return false, err
		}
		return true, fmt.Errorf("place canaries of job %q: %w: %s", j.m.ID, ErrNoFit, why)
	}
	rec.Note(now, string(KindRollout), rec.Reason)
	if err := a.executor.put(ctx, rec, a.round.view.Taken); err != nil {
		return false, err
	}
	rewrite.Note(pinned, "Caravan: "+rec.Reason, j.link())
	err = a.executor.register(ctx, j.m.Namespace, pinned, deref(j.cur.JobModifyIndex), rec.Source)
	a.executor.note(j.key(), deref(j.cur.JobModifyIndex), now, err)
	return true, err
}

// newCanaries gives what was decided the indexes of members to run beside: the
// lowest that have not changed to the new version yet.
func (j *job) newCanaries(decided []model.Member) []model.Member {
	ro := j.rec.Rollout
	taken, have := map[record.Place]bool{}, map[string]int{}
	for _, p := range ro.Rolled {
		taken[p] = true
	}
	for _, m := range ro.Canary.Members {
		taken[record.Place{Group: m.Group, Index: m.Index}] = true
		have[m.Group]++
	}
	counts := map[string]int{}
	for _, g := range j.rec.Original.TaskGroups {
		counts[deref(g.Name)] = gangspec.Count(g)
	}
	var out []model.Member
	for _, m := range decided {
		p := record.Place{Group: m.Group}
		for taken[p] {
			p.Index++
		}
		if have[m.Group] == ro.Canary.Wanted[m.Group] || p.Index >= counts[m.Group] {
			continue
		}
		taken[p] = true
		have[m.Group]++
		m.Index, m.Slot = p.Index, int(deref(j.cur.Version))+1
		out = append(out, m)
	}
	return out
}

// canaryAllocs are the IDs of the canaries' allocations.
func (j *job) canaryAllocs() map[string]bool {
	out := map[string]bool{}
	for _, s := range j.m.Canaries {
		if s.Alloc != nil {
			out[s.Alloc.ID] = true
		}
	}
	return out
}
