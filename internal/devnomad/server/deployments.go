package server

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// healthyAt is when a service allocation will have run long enough to count
// as healthy, by the update block in a deployment and by the migrate block
// without one; zero is never, as it stands.
func healthyAt(a *api.Allocation) time.Time {
	if a.ClientStatus != api.AllocClientStatusRunning || a.Job == nil || *a.Job.Type != api.JobTypeService {
		return time.Time{}
	}
	tg := a.Job.LookupTaskGroup(a.TaskGroup)
	if tg == nil {
		return time.Time{}
	}
	least := defaultMinHealthy
	switch {
	case a.DeploymentID != "" && tg.Update != nil && tg.Update.MinHealthyTime != nil:
		least = *tg.Update.MinHealthyTime
	case a.DeploymentID == "" && tg.Migrate != nil && tg.Migrate.MinHealthyTime != nil:
		least = *tg.Migrate.MinHealthyTime
	}
	var since time.Time
	for _, t := range a.TaskStates {
		if t.StartedAt.After(since) {
			since = t.StartedAt
		}
	}
	return since.Add(least)
}

const defaultMinHealthy = 10 * time.Second

func undecided(a *api.Allocation) bool {
	return a.DeploymentStatus == nil || a.DeploymentStatus.Healthy == nil
}

// deploymentTimes are the times at which something about a deployment is due.
func deploymentTimes(v *state.View) []time.Time {
	var out []time.Time
	for _, d := range v.Deployments() {
		if d.Status != api.DeploymentStatusRunning {
			continue
		}
		for g, st := range d.TaskGroups {
			if st.HealthyAllocs < st.DesiredTotal && st.ProgressDeadline > 0 && !waitsForPromotion(v, d, g) {
				out = append(out, st.RequireProgressBy)
			}
		}
	}
	for _, a := range v.Allocs() {
		if !state.Terminal(a) && undecided(a) {
			out = append(out, healthyAt(a))
		}
	}
	return out
}

// endedUnhealthy says whether a member of a service ended by itself before it
// was found healthy: then it never will be.
func endedUnhealthy(a *api.Allocation) bool {
	ended := a.ClientStatus == api.AllocClientStatusFailed || a.ClientStatus == api.AllocClientStatusComplete
	return ended && undecided(a) && a.DesiredStatus == api.AllocDesiredStatusRun && a.Job != nil && *a.Job.Type == api.JobTypeService
}

// watchHealth marks service allocations healthy or not that belong to no
// deployment: a drain looks at it.
func (s *Server) watchHealth(now time.Time) bool {
	did := false
	err := s.store.Update(state.EventAllocUpdated, now, func(tx *state.Tx) error {
		for _, a := range tx.Allocs() {
			bad := endedUnhealthy(a)
			if state.Terminal(a) && !bad || !undecided(a) || a.DeploymentID != "" {
				continue
			}
			if at := healthyAt(a); bad || !at.IsZero() && !at.After(now) {
				x := *a
				x.DeploymentStatus = &api.AllocDeploymentStatus{Healthy: ptr(!bad), Timestamp: now, ModifyIndex: tx.Index}
				tx.PutAlloc(&x)
				did = true
			}
		}
		return nil
	})
	if err != nil {
		s.logf("watch health: %v", err)
	}
	return did
}

// watchDeployments marks members healthy or not, and ends deployments that
// made no progress.
func (s *Server) watchDeployments(now time.Time) bool {
	did := false
	err := s.store.Update(state.EventDeploymentHealth, now, func(tx *state.Tx) error {
		for _, d := range tx.Deployments() {
			if s.watchDeployment(tx, d, now) {
				did = true
			}
		}
		return nil
	})
	if err != nil {
		s.logf("watch deployments: %v", err)
	}
	return did
}

func (s *Server) watchDeployment(tx *state.Tx, d *api.Deployment, now time.Time) bool {
	c := copyDeployment(d)
	changed, failed, revert := decideHealth(tx, c, now)
	if d.Status != api.DeploymentStatusRunning {
		if changed {
			tx.PutDeployment(c)
		}
		return changed
	}
	changed = autoPromote(tx, c) || changed
	for g, st := range c.TaskGroups {
		if st.HealthyAllocs < st.DesiredTotal && st.ProgressDeadline > 0 && !waitsForPromotion(&tx.View, c, g) && !st.RequireProgressBy.After(now) {
			failed, revert = sched.DescDeployFailed, revert || st.AutoRevert
		}
	}
	if !changed && failed == "" {
		return false
	}
	if failed != "" {
		s.failDeployment(tx, c, failed, revert)
	}
	tx.PutDeployment(c)
	if job := tx.Job(state.Key{Namespace: d.Namespace, ID: d.JobID}); job != nil {
		e := newEval(job, sched.TriggerDeployment)
		e.DeploymentID = d.ID
		tx.PutEval(e)
	}
	return true
}

// decideHealth says of a deployment's allocations whether they are healthy, where
// that is known by now, and counts them in it: changed where it is said of any,
// failed why the deployment has failed, and revert whether its job is to be as
// before then.
func decideHealth(tx *state.Tx, d *api.Deployment, now time.Time) (changed bool, failed string, revert bool) {
	for _, a := range tx.AllocsOfJob(state.Key{Namespace: d.Namespace, ID: d.JobID}) {
		st := d.TaskGroups[a.TaskGroup]
		if a.DeploymentID != d.ID || st == nil || !undecided(a) {
			continue
		}
		at := healthyAt(a)
		good := !at.IsZero() && !at.After(now)
		bad := endedUnhealthy(a)
		if !good && !bad {
			continue
		}
		x := *a
		canary := a.DeploymentStatus != nil && a.DeploymentStatus.Canary
		x.DeploymentStatus = &api.AllocDeploymentStatus{Healthy: &good, Canary: canary, Timestamp: now, ModifyIndex: tx.Index}
		tx.PutAlloc(&x)
		changed = true
		if good {
			st.HealthyAllocs++
			st.RequireProgressBy = now.Add(st.ProgressDeadline)
		} else {
			st.UnhealthyAllocs++
			if d.Status != api.DeploymentStatusRunning {
				continue
			}
			if _, again := sched.RescheduleAt(a); st.ProgressDeadline == 0 || !again {
				failed, revert = sched.DescDeployUnhealthy, revert || st.AutoRevert
			} else {
				x.DesiredTransition.Reschedule = ptr(true)
				tx.PutAlloc(&x)
			}
		}
	}
	return changed, failed, revert
}

// failDeployment ends a deployment; to revert is to register the newest stable
// version again, whatever it is, unless it is the same as this one.
func (s *Server) failDeployment(tx *state.Tx, d *api.Deployment, why string, revert bool) {
	d.Status, d.StatusDescription = api.DeploymentStatusFailed, why
	k := state.Key{Namespace: d.Namespace, ID: d.JobID}
	cur := tx.Job(k)
	if !revert || cur == nil || *cur.Version != d.JobVersion {
		return
	}
	for _, j := range tx.JobVersions(k) {
		if !deref(j.Stable) {
			continue
		}
		if !sched.SpecChanged(cur, j) {
			d.StatusDescription = why + " - not rolling back to stable job version " + itoa(*j.Version) + " as current job has same specification"
			return
		}
		d.StatusDescription = why + " - rolling back to job version " + itoa(*j.Version)
		if err := s.revert(tx, cur, *j.Version, &api.JobRegisterResponse{}); err != nil {
			s.logf("revert job %s: %v", k.ID, err)
		}
		return
	}
	d.StatusDescription = why + " - no stable job version to auto revert to"
}

// markStable marks the version of a successful deployment stable.
func markStable(tx *state.Tx, d *api.Deployment) {
	tx.EditVersion(state.Key{Namespace: d.Namespace, ID: d.JobID}, d.JobVersion, func(j *api.Job) { j.Stable = ptr(true) })
}

// FailDeployment and PauseDeployment are what an operator may do to one.
func (s *Server) FailDeployment(id string) error {
	return s.update(state.EventDeployment, func(tx *state.Tx) error {
		d := tx.Deployment(id)
		switch {
		case d == nil:
			return errorf(500, "deployment not found")
		case !state.DeploymentActive(d):
			return errorf(500, "can't fail terminal deployment")
		}
		c := copyDeployment(d)
		revert := false
		for _, st := range d.TaskGroups {
			revert = revert || st.AutoRevert
		}
		s.failDeployment(tx, c, "Deployment marked as failed", revert)
		tx.PutDeployment(c)
		if job := tx.Job(state.Key{Namespace: d.Namespace, ID: d.JobID}); job != nil {
			tx.PutEval(newEval(job, sched.TriggerDeployment))
		}
		return nil
	})
}

// PauseDeployment pauses a deployment or lets it go on.
func (s *Server) PauseDeployment(id string, pause bool) error {
	return s.update(state.EventDeployment, func(tx *state.Tx) error {
		d := tx.Deployment(id)
		switch {
		case d == nil:
			return errorf(500, "deployment not found")
		case !state.DeploymentActive(d) && pause:
			return errorf(500, "can't pause terminal deployment")
		case !state.DeploymentActive(d):
			return errorf(500, "can't resume terminal deployment")
		}
		c := copyDeployment(d)
		c.Status, c.StatusDescription = api.DeploymentStatusRunning, "Deployment is running"
		if pause {
			c.Status, c.StatusDescription = api.DeploymentStatusPaused, "Deployment is paused"
		}
		tx.PutDeployment(c)
		if job := tx.Job(state.Key{Namespace: d.Namespace, ID: d.JobID}); job != nil {
			tx.PutEval(newEval(job, sched.TriggerDeployment))
		}
		return nil
	})
}
