package server

import (
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// PromoteDeployment makes healthy canaries members of their groups, of all or
// of those named.
func (s *Server) PromoteDeployment(id string, all bool, groups []string) error {
	return s.update(state.EventDeploymentPromotion, func(tx *state.Tx) error {
		d := tx.Deployment(id)
		switch {
		case d == nil:
			return errorf(500, "deployment not found")
		case !state.DeploymentActive(d):
			return errorf(500, "can't promote terminal deployment")
		}
		c := copyDeployment(d)
		if err := promote(tx, c, func(g string) bool { return all || slices.Contains(groups, g) }); err != nil {
			return err
		}
		tx.PutDeployment(c)
		if job := tx.Job(state.Key{Namespace: d.Namespace, ID: d.JobID}); job != nil {
			e := newEval(job, sched.TriggerDeployment)
			e.DeploymentID = d.ID
			tx.PutEval(e)
		}
		return nil
	})
}

// promote promotes the groups that are wanted, or says which of them lack
// healthy canaries.
func promote(tx *state.Tx, d *api.Deployment, wanted func(group string) bool) error {
	var lacking []string
	for _, g := range sortedGroups(d) {
		st := d.TaskGroups[g]
		if have := len(healthyCanaries(&tx.View, d, g)); wanted(g) && have < st.DesiredCanaries {
			lacking = append(lacking, "Task group \""+g+"\" has "+itoa(uint64(have))+"/"+itoa(uint64(st.DesiredCanaries))+" healthy allocations")
		}
	}
	if len(lacking) > 0 {
		return errorf(500, "%s", strings.Join(lacking, "; "))
	}
	waits := false
	for _, g := range sortedGroups(d) {
		st := d.TaskGroups[g]
		if !wanted(g) {
			waits = waits || st.DesiredCanaries > 0 && !st.Promoted
			continue
		}
		for _, a := range healthyCanaries(&tx.View, d, g) {
			x, h := *a, *a.DeploymentStatus
			h.Canary, h.ModifyIndex = false, tx.Index
			x.DeploymentStatus = &h
			tx.PutAlloc(&x)
		}
		if st.ProgressDeadline > 0 {
			st.RequireProgressBy = tx.Now.Add(st.ProgressDeadline)
		}
		st.Promoted = true
	}
	if !waits && d.Status == api.DeploymentStatusRunning {
		d.StatusDescription = "Deployment is running"
	}
	return nil
}

func sortedGroups(d *api.Deployment) []string {
	var out []string
	for g := range d.TaskGroups {
		out = append(out, g)
	}
	slices.Sort(out)
	return out
}

// healthyCanaries are a group's that may be promoted.
func healthyCanaries(v *state.View, d *api.Deployment, group string) []*api.Allocation {
	var out []*api.Allocation
	for _, a := range v.AllocsOfJob(state.Key{Namespace: d.Namespace, ID: d.JobID}) {
		h := a.DeploymentStatus
		if a.TaskGroup == group && a.DeploymentID == d.ID && !state.Terminal(a) && h != nil && h.Canary && h.Healthy != nil && *h.Healthy {
			out = append(out, a)
		}
	}
	return out
}

// waitsForPromotion says whether a group's canaries are well and nothing else
// is to be done before their promotion.
func waitsForPromotion(v *state.View, d *api.Deployment, group string) bool {
	st := d.TaskGroups[group]
	return st.DesiredCanaries > 0 && !st.Promoted && len(healthyCanaries(v, d, group)) >= st.DesiredCanaries
}

// autoPromote promotes a deployment whose canaries are all well, if its job
// wants that of all groups with canaries.
func autoPromote(tx *state.Tx, d *api.Deployment) bool {
	job := tx.Job(state.Key{Namespace: d.Namespace, ID: d.JobID})
	if job == nil || *job.Version != d.JobVersion {
		return false
	}
	waiting := false
	for g, st := range d.TaskGroups {
		if st.DesiredCanaries == 0 || st.Promoted {
			continue
		}
		tg := job.LookupTaskGroup(g)
		if tg == nil || tg.Update == nil || !deref(tg.Update.AutoPromote) || !waitsForPromotion(&tx.View, d, g) {
			return false
		}
		waiting = true
	}
	return waiting && promote(tx, d, func(string) bool { return true }) == nil
}
