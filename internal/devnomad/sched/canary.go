package sched

import (
	"slices"

	"github.com/hashicorp/nomad/api"
)

// What Nomad writes as the description of a deployment with canaries.
const (
	DescDeployPromote     = "Deployment is running but requires manual promotion"
	DescDeployAutoPromote = "Deployment is running pending automatic promotion"
)

// isCanary says whether an allocation waits for its promotion.
func isCanary(a *api.Allocation) bool { return a.DeploymentStatus != nil && a.DeploymentStatus.Canary }

// canaries takes the canaries out of a group's members, which they are no part
// of before their promotion, and returns those of this deployment. Those of
// another, or of one that failed, are stopped. After the promotion they push
// out the older members of the same names.
func (r *run) canaries(tg *api.TaskGroup, s *sets, d *api.DesiredUpdates) []*api.Allocation {
	var out []*api.Allocation
	stop := func(a *api.Allocation) {
		d.Stop++
		r.stop(Stop{Alloc: a, Description: descNotNeeded})
	}
	running := r.deployment != nil && r.deployment.Status != api.DeploymentStatusFailed
	s.untainted = slices.DeleteFunc(s.untainted, func(a *api.Allocation) bool {
		switch {
		case !isCanary(a):
			return false
		case running && a.DeploymentID == r.deployment.ID:
			out = append(out, a)
		default:
			stop(a)
		}
		return true
	})
	promoted := map[string]bool{}
	if st := r.groupState(tg); st != nil && st.Promoted {
		for _, a := range s.untainted {
			if slices.Contains(st.PlacedCanaries, a.ID) {
				promoted[a.Name] = true
			}
		}
	}
	s.untainted = slices.DeleteFunc(s.untainted, func(a *api.Allocation) bool {
		gone := promoted[a.Name] && r.older(a)
		if gone && !a.ClientTerminalStatus() {
			stop(a)
		}
		return gone
	})
	return out
}

// groupState is what the current deployment knows of a group, nil if nothing.
func (r *run) groupState(tg *api.TaskGroup) *api.DeploymentState {
	if r.deployment == nil {
		return nil
	}
	return r.deployment.TaskGroups[*tg.Name]
}

// canarying says whether a group waits for the promotion of its canaries.
func (r *run) canarying(tg *api.TaskGroup) bool {
	st := r.groupState(tg)
	return st != nil && st.DesiredCanaries > 0 && !st.Promoted
}

// newCanaries are the canaries that a group lacks. They bear the names of the
// first members that are to be replaced.
func (r *run) newCanaries(tg *api.TaskGroup, have, breaking []*api.Allocation) []placement {
	if !r.canarying(tg) {
		return nil
	}
	taken := map[string]bool{}
	for _, a := range have {
		taken[a.Name] = true
	}
	var out []placement
	for _, a := range breaking {
		if len(have)+len(out) >= r.groupState(tg).DesiredCanaries {
			break
		}
		if !taken[a.Name] {
			taken[a.Name] = true
			out = append(out, placement{tg: tg, name: a.Name, canary: true})
		}
	}
	return out
}

// wantedCanaries is how many a group's update is to begin with.
func wantedCanaries(tg *api.TaskGroup, breaking int) int {
	if breaking == 0 {
		return 0
	}
	return deref(tg.Update.Canary)
}

// promotion is how a deployment describes that it waits for a promotion.
func (r *run) promotion(d *api.Deployment) string {
	waits, auto := false, true
	for _, tg := range r.job.TaskGroups {
		if st := d.TaskGroups[*tg.Name]; st != nil && st.DesiredCanaries > 0 && !st.Promoted {
			waits = true
			auto = auto && tg.Update != nil && deref(tg.Update.AutoPromote)
		}
	}
	switch {
	case waits && auto:
		return DescDeployAutoPromote
	case waits:
		return DescDeployPromote
	}
	return descDeployRunning
}
