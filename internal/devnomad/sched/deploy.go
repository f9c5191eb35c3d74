package sched

import (
	"maps"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// What Nomad writes as the description of a deployment.
const (
	descDeployRunning   = "Deployment is running"
	descDeployStopped   = "Cancelled because job is stopped"
	descDeployNewer     = "Cancelled due to newer version of job"
	DescDeployFailed    = "Failed due to progress deadline"
	DescDeployUnhealthy = "Failed due to unhealthy allocations"
)

// currentDeployment finds the deployment of this version, and cancels one of
// another.
func (r *run) currentDeployment() {
	if r.batch() {
		return
	}
	d := r.st.LatestDeployment(r.key)
	if d == nil {
		return
	}
	cancel := func(why string) {
		if state.DeploymentActive(d) {
			c := *d
			c.Status, c.StatusDescription = api.DeploymentStatusCancelled, why
			r.out.DeploymentUpdates = append(r.out.DeploymentUpdates, &c)
		}
	}
	switch {
	case r.stopped():
		cancel(descDeployStopped)
	case d.JobCreateIndex != *r.job.CreateIndex || d.JobVersion != *r.job.Version:
		cancel(descDeployNewer)
	case d.Status != api.DeploymentStatusSuccessful:
		r.deployment = d
	}
}

// updating says whether a group has an update strategy; max_parallel 0 is
// none.
func updating(tg *api.TaskGroup) bool { return tg.Update != nil && deref(tg.Update.MaxParallel) > 0 }

// parallel is how many members of a group may change in this evaluation.
func (r *run) parallel(tg *api.TaskGroup, s sets, breaking []*api.Allocation) int {
	if !updating(tg) || len(breaking)+len(s.migrate) == 0 {
		return *tg.Count
	}
	if r.deployment == nil {
		return *tg.Update.MaxParallel
	}
	n := *tg.Update.MaxParallel
	for _, a := range s.untainted {
		if a.DeploymentID != r.deployment.ID {
			continue
		}
		h := a.DeploymentStatus
		switch {
		case h == nil || h.Healthy == nil:
			n--
		case !*h.Healthy:
			return 0
		}
	}
	return max(0, n)
}

// startDeployment begins a deployment when members of a group with an update
// strategy change, or when the job is new.
func (r *run) startDeployment(tg *api.TaskGroup, s sets, inplace, breaking, place int) {
	total := inplace + breaking + place
	if r.batch() || !updating(tg) || total == 0 {
		return
	}
	if r.deployment != nil {
		if _, there := r.deployment.TaskGroups[*tg.Name]; there {
			return
		}
	}
	for _, a := range r.st.AllocsOfJob(r.key) {
		if a.TaskGroup == *tg.Name && !r.older(a) && inplace+breaking == 0 {
			return
		}
	}
	d := r.out.Deployment
	if d == nil {
		if r.deployment != nil {
			c := *r.deployment
			c.TaskGroups = maps.Clone(c.TaskGroups)
			d = &c
		} else {
			d = &api.Deployment{
				ID: uuid.NewString(), Namespace: r.key.Namespace, JobID: r.key.ID, JobVersion: *r.job.Version,
				JobModifyIndex: *r.job.ModifyIndex, JobSpecModifyIndex: *r.job.JobModifyIndex, JobCreateIndex: *r.job.CreateIndex,
				Status: api.DeploymentStatusRunning, StatusDescription: descDeployRunning,
				TaskGroups: map[string]*api.DeploymentState{},
			}
		}
		r.out.Deployment, r.deployment = d, d
	}
	deadline := deref(tg.Update.ProgressDeadline)
	d.TaskGroups[*tg.Name] = &api.DeploymentState{
		AutoRevert: deref(tg.Update.AutoRevert), ProgressDeadline: deadline, RequireProgressBy: r.now.Add(deadline), DesiredTotal: total,
		DesiredCanaries: wantedCanaries(tg, breaking),
	}
	d.StatusDescription = r.promotion(d)
}

func (r *run) groupHealthy(tg *api.TaskGroup) bool {
	if r.deployment == nil {
		return true
	}
	s := r.deployment.TaskGroups[*tg.Name]
	return s == nil || s.HealthyAllocs >= s.DesiredTotal
}
