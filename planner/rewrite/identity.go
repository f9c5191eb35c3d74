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
				t.Identities = append(t.Identities, identityLike(lookupTask(was[nameOf(g)], t.Name)))
			}
		}
	}
}

// mayRun are the groups of a job, by name, in which something may run: those that
// are pinned, and those that Nomad may place by itself.
func mayRun(cur *api.Job) map[string]*api.TaskGroup {
	out := forms(cur)
	if cur == nil || hasGate(cur.Constraints) {
		return out
	}
	for _, g := range cur.TaskGroups {
		if g != nil && !hasGate(g.Constraints) {
			out[nameOf(g)] = g
		}
	}
	return out
}

// identityLike is the identity in the form that the task has which runs, nil
// for none: it has not always had the same.
func identityLike(was *api.Task) *api.WorkloadIdentity {
	if was != nil {
		for _, id := range was.Identities {
			if gangspec.IsMemberIdentity(was, id) {
				same := *id
				same.Audience = slices.Clone(id.Audience)
				return &same
			}
		}
	}
	return gangspec.MemberIdentity()
}

// lookupTask is the group's task of that name, nil for none.
func lookupTask(g *api.TaskGroup, name string) *api.Task {
	if g == nil {
		return nil
	}
	at := slices.IndexFunc(g.Tasks, func(t *api.Task) bool { return t != nil && t.Name == name })
	if at < 0 {
		return nil
	}
	return g.Tasks[at]
}

func hasIdentity(t *api.Task) bool {
	return slices.ContainsFunc(t.Identities, func(id *api.WorkloadIdentity) bool {
		return id != nil && id.Name == gangspec.IdentityName
	})
}

// runsWithout says whether the task runs, and has had no identity so far.
func runsWithout(g *api.TaskGroup, t *api.Task) bool {
	was := lookupTask(g, t.Name)
	return was != nil && was.Driver == t.Driver && !hasIdentity(was)
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
		for _, t := range g.Tasks {
			if o := lookupTask(was, t.Name); o != nil && hasIdentity(o) && !hasIdentity(t) {
				t.Identities = append(t.Identities, identityLike(o))
			}
		}
	}
}

// Unidentified names the first task of a job, as it is in Nomad, that waits for
// its gang and has no workload identity to join it with, so that it waits in
// vain; both are "" if there is none. Such a job came past the gateway.
func Unidentified(job *api.Job) (group, task string) {
	if job == nil {
		return "", ""
	}
	for _, g := range job.TaskGroups {
		if g == nil || gangspec.Count(g) == 0 {
			continue
		}
		for _, t := range g.Tasks {
			if t != nil && t.Driver == gangspec.DriverName && t.Config["member"] != "none" && !hasIdentity(t) {
				return nameOf(g), t.Name
			}
		}
	}
	return "", ""
}
