package apply

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// Caravan gives elastic gangs members beyond the counts that their users gave,
// and takes them back. The counts in the user's own job stay as they are: the
// record says how many a group may have, beside them. New members are given as
// those of a larger count are, all of them or none, and a planner that ends in
// between is finished or undone by the next one in the same way. A user's change
// of the counts ends it.

// short says whether a gang has fewer members than its count: it got those for
// which there was room, and the others are for later.
func (j *job) short(members []model.Member) bool {
	has := map[string]int{}
	for _, m := range members {
		has[m.Group]++
	}
	for _, g := range j.rec.Original.TaskGroups {
		if n := has[deref(g.Name)]; n > 0 && n < gangspec.Count(g) {
			return true
		}
	}
	return false
}

// size gives a gang another size; nil if there is nothing left to do.
func (e *Executor) size(ctx context.Context, r *round, size *model.Resize) *Result {
	namespace := cmp.Or(size.Namespace, api.DefaultNamespace)
	m, ok := r.view.Job(namespace, size.Job)
	if !ok || m.Record == nil {
		return nil
	}
	if size.Action == model.ActionShrink {
		result := e.giveWay(ctx, r, model.Preemption{
			Namespace: namespace, Job: size.Job, Action: model.ActionShrink, Members: size.Members, Reason: size.Reason, Cost: size.Cost,
		})
		if result != nil {
			result.Kind = KindResize
		}
		return result
	}
	a := &admission{executor: e, round: r, sized: true,
		decision: model.Decision{Namespace: namespace, Job: size.Job, Action: model.ActionAdmit, Reason: size.Reason, Members: size.Members}}
	if has := count(r.job(m).states, size.Group); has != size.From {
		return &Result{Namespace: namespace, Job: size.Job, Kind: KindResize,
			Reason: fmt.Sprintf("group %q has %d members by now, and not %d", size.Group, has, size.From)}
	}
	result := a.run(ctx, key{namespace, size.Job})
	if result != nil {
		result.Kind = KindResize
	}
	return result
}
