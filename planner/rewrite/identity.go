package rewrite

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// identify gives every task of Caravan's driver the workload identity that it
// joins its gang with, unless its author wrote one of that name. It is there
// from the first gate on, and what runs keeps the form it has: a task whose
// identities change is restarted. was are the groups as they run, by name.
func identify(groups []*api.TaskGroup, was map[string]*api.TaskGroup) {
	for _, g := range groups {
		for _, t := range g.Tasks {
			if t.Driver == gangspec.DriverName && !hasIdentity(t) && !runsWithout(was[nameOf(g)], t) {
				t.Identities = append(t.Identities, gangspec.MemberIdentity())
			}
		}
	}
}

func hasIdentity(t *api.Task) bool {
	return slices.ContainsFunc(t.Identities, func(id *api.WorkloadIdentity) bool {
		return id != nil && id.Name == gangspec.IdentityName
	})
}

// runsWithout says whether the task runs, and has had no identity so far.
func runsWithout(g *api.TaskGroup, t *api.Task) bool {
	if g == nil {
		return false
	}
	at := slices.IndexFunc(g.Tasks, func(o *api.Task) bool { return o != nil && o.Name == t.Name })
	return at >= 0 && g.Tasks[at].Driver == t.Driver && !hasIdentity(g.Tasks[at])
}

// unidentify takes the identity out again. Who has written the very same gets
// it back with the next gate or pin.
func unidentify(g *api.TaskGroup) {
	for _, t := range g.Tasks {
		t.Identities = slices.DeleteFunc(t.Identities, func(id *api.WorkloadIdentity) bool { return gangspec.IsMemberIdentity(t, id) })
		if len(t.Identities) == 0 {
			t.Identities = nil
		}
	}
}

// keepIdentities leaves the tasks of a job that is stripped the identities that
// they have: some of them may run.
func keepIdentities(job, cur *api.Job) {
	for _, g := range job.TaskGroups {
		was := lookup(cur, nameOf(g))
		if was == nil {
			continue
		}
		for _, t := range g.Tasks {
			for _, o := range was.Tasks {
				if o != nil && o.Name == t.Name && hasIdentity(o) && !hasIdentity(t) {
					t.Identities = append(t.Identities, gangspec.MemberIdentity())
				}
			}
		}
	}
}
