package observe

import (
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// canaryMark is behind the ID of a job in the name that its canaries are
// decided on by. Nomad allows no space in an ID, so no job has such a name.
const canaryMark = " (canaries)"

// CanaryID is the name by which the Snapshot has the canaries of a job: a job of
// their own, since they are placed beside the job's members.
func CanaryID(job string) string { return job + canaryMark }

// CanaryOf is the job of which id names the canaries; false for any other.
func CanaryOf(id string) (job string, ok bool) { return strings.CutSuffix(id, canaryMark) }

// canaryJob is the canaries of a job as the core decides on them; false while
// it has none to place or to keep. Their indexes count from 0 in each group.
func canaryJob(m *Managed) (model.Job, bool) {
	rec := m.Record
	if rec == nil || rec.Rollout == nil || !rec.Rollout.Canary.Open() || m.Model.State != model.StateRunning {
		return model.Job{}, false
	}
	ro, c := rec.Rollout, rec.Rollout.Canary
	over := ro.Failed != "" || ro.GivenUp != "" || ro.Paused
	if len(c.Wanted) == 0 || over && len(c.Members) == 0 {
		return model.Job{}, false
	}
	out := m.Model
	out.ID, out.State, out.Hold, out.Submitted, out.RetryAfter, out.Members, out.Groups = CanaryID(m.ID), model.StateQueued, "", ro.Began, c.RetryAfter, nil, nil
	index := map[string]int{}
	for _, s := range m.Canaries {
		s.Member.Index = index[s.Member.Group]
		index[s.Member.Group]++
		out.Members = append(out.Members, s.Member)
		out.State = model.StateRunning
	}
	apart := feasible.DistinctHosts(out.Constraints)
	for _, g := range m.Model.Groups {
		g.Count, g.Min, g.Max = c.Wanted[g.Name], 0, 0
		if over {
			g.Count = index[g.Name]
		}
		if g.Count == 0 {
			continue
		}
		if apart || feasible.DistinctHosts(g.Constraints) {
			g.Constraints = slices.Concat(g.Constraints, notBeside(m, g.Name, apart))
		}
		out.Groups = append(out.Groups, g)
	}
	return out, len(out.Groups) > 0
}

// nameCanaries gives the allocations of canaries to the job that the core knows
// them by.
func nameCanaries(allocs []model.Alloc, m *Managed) {
	for _, s := range m.Canaries {
		if s.Alloc == nil {
			continue
		}
		for i := range allocs {
			if allocs[i].ID == s.Alloc.ID {
				allocs[i].Job = CanaryID(m.ID)
			}
		}
	}
}

// notBeside keeps canaries off the nodes of the members that they must not
// share a node with: those of their group, or of the whole job. To the core the
// two are different jobs.
func notBeside(m *Managed, group string, whole bool) []model.Constraint {
	nodes := map[string]bool{}
	var out []model.Constraint
	for _, s := range m.Members {
		if (whole || s.Member.Group == group) && !nodes[s.Member.Node] {
			nodes[s.Member.Node] = true
			out = append(out, model.Constraint{Left: "${node.unique.id}", Operand: "!=", Right: s.Member.Node})
		}
	}
	return out
}

// CanariesWait says whether an update's canaries lack a place.
func CanariesWait(rec *record.Record) bool {
	return rec != nil && rec.Rollout != nil && rec.Rollout.Canary.Open() && len(rec.Rollout.Canary.Lacking()) > 0
}
