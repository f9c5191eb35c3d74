package daemon

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/observe"
)

// withWork is the view with what members have told of their work, by allocation,
// which Nomad does not know; the view itself where nobody has told anything.
func withWork(v *observe.View, told map[string]barrier.Work) *observe.View {
	if len(told) == 0 {
		return v
	}
	managed := make(map[jobKey]*observe.Managed, len(v.Managed))
	for i := range v.Managed {
		m := &v.Managed[i]
		managed[jobKey{m.Namespace, m.ID}] = m
	}
	out, snap := *v, *v.Snapshot
	snap.Jobs = slices.Clone(snap.Jobs)
	out.Snapshot = &snap
	for i := range snap.Jobs {
		j := &snap.Jobs[i]
		m := managed[jobKey{j.Namespace, j.ID}]
		if m == nil || len(m.Members) != len(j.Members) {
			continue
		}
		j.Members = slices.Clone(j.Members)
		for k := range j.Members {
			if a := m.Members[k].Alloc; a != nil {
				w := told[a.ID]
				j.Members[k].SinceCheckpoint, j.Members[k].CheckpointStep, j.Members[k].Step = w.SinceCheckpoint, w.CheckpointStep, w.Step
			}
		}
	}
	return &out
}
