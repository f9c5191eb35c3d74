package sched

import (
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// back decides about allocations that were unknown and run again: they or
// their replacements go, as the group's reconcile strategy says.
func (r *run) back(s *sets, d *api.DesiredUpdates) {
	for _, a := range s.reconnect {
		rivals := r.replacements(a)
		stale := r.older(a) || flag(a.DesiredTransition.Migrate) || flag(a.DesiredTransition.Reschedule)
		if stale || slices.ContainsFunc(rivals, func(b *api.Allocation) bool { return !keepsOriginal(a, b) }) {
			d.Stop++
			r.stop(Stop{Alloc: a, Description: descNotNeeded})
			s.untainted = slices.DeleteFunc(s.untainted, func(x *api.Allocation) bool { return x == a })
			continue
		}
		u := *a
		u.DesiredDescription, u.FollowupEvalID = "", ""
		d.Reconnect++
		r.put(&u)
		replace(s.untainted, a, &u)
		for _, b := range rivals {
			d.Stop++
			r.stop(Stop{Alloc: b, Description: descReconnected})
			s.untainted = slices.DeleteFunc(s.untainted, func(x *api.Allocation) bool { return x.ID == b.ID })
		}
	}
}

// replacements are the living allocations that were placed instead of one, and
// instead of those.
func (r *run) replacements(a *api.Allocation) []*api.Allocation {
	byID := map[string]*api.Allocation{}
	for _, x := range r.st.AllocsOfJob(r.key) {
		byID[x.ID] = x
	}
	var out []*api.Allocation
	for next := byID[a.NextAllocation]; next != nil; next = byID[next.NextAllocation] {
		if !state.Terminal(next) {
			out = append(out, next)
		}
	}
	return out
}

// keepsOriginal says which of two goes on after a reconnection.
func keepsOriginal(original, replacement *api.Allocation) bool {
	if *replacement.Job.Version > *original.Job.Version || *replacement.Job.CreateIndex > *original.Job.CreateIndex {
		return false
	}
	strategy := ""
	if tg := groupOf(original); tg != nil && tg.Disconnect != nil {
		strategy = deref(tg.Disconnect.Reconcile)
	}
	switch strategy {
	case api.ReconcileOptionKeepOriginal:
		return true
	case api.ReconcileOptionKeepReplacement:
		return false
	case api.ReconcileOptionLongestRunning:
		o, n := runningSince(original), runningSince(replacement)
		if !o.IsZero() && !n.IsZero() {
			return o.Before(n)
		}
		if o.IsZero() != n.IsZero() {
			return !o.IsZero()
		}
	}
	return keepsBestScore(original, replacement)
}

// keepsBestScore prefers the original unless the replacement was placed with a
// better score and runs, or the original does not.
func keepsBestScore(original, replacement *api.Allocation) bool {
	o, hasO := bestScore(original)
	n, hasN := bestScore(replacement)
	better := hasN && (!hasO || n > o)
	return !better || replacement.ClientStatus != api.AllocClientStatusRunning && original.ClientStatus == api.AllocClientStatusRunning
}

func bestScore(a *api.Allocation) (float64, bool) {
	best, ok := 0.0, false
	if a.Metrics != nil {
		for _, m := range a.Metrics.ScoreMetaData {
			if !ok || m.NormScore > best {
				best, ok = m.NormScore, true
			}
		}
	}
	return best, ok
}

// runningSince is the last start of the leader, else the earliest of the
// tasks'; zero if none runs.
func runningSince(a *api.Allocation) time.Time {
	tg := groupOf(a)
	if tg == nil {
		return time.Time{}
	}
	var first time.Time
	for _, t := range tg.Tasks {
		s := a.TaskStates[t.Name]
		if s == nil || s.State != "running" {
			continue
		}
		if t.Leader {
			return s.StartedAt
		}
		if first.IsZero() || s.StartedAt.Before(first) {
			first = s.StartedAt
		}
	}
	return first
}
