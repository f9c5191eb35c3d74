package server

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// GC forgets what is over, as a forced garbage collection does: dead jobs
// without live allocations, evaluations and allocations that nothing depends
// on, deployments that ended, and nodes that are down with nothing on them.
func (s *Server) GC() error {
	return s.update(state.EventJobDeregistered, func(tx *state.Tx) error {
		for _, job := range tx.Jobs("*") {
			// A service that has come to nothing is its user's to stop; batch jobs end
			// by themselves.
			ends := deref(job.Stop) || *job.Type == api.JobTypeBatch || *job.Type == api.JobTypeSysbatch
			over := ends && deref(job.Status) == state.JobDead && !job.IsPeriodic() && !job.IsParameterized()
			if over && !anyLive(tx.AllocsOfJob(state.JobKey(job))) {
				tx.DeleteJob(state.JobKey(job))
			}
		}
		for _, e := range tx.Evals() {
			if state.EvalTerminal(e) {
				collectEval(tx, e)
			}
		}
		for _, d := range tx.Deployments() {
			if !state.DeploymentActive(d) && !anyOfDeployment(tx, d) {
				tx.DeleteDeployment(d.ID)
			}
		}
		for _, n := range tx.Nodes() {
			if n.Status == api.NodeStatusDown && !anyLive(tx.AllocsOfNode(n.ID)) {
				tx.DeleteNode(n.ID)
			}
		}
		return nil
	})
}

// collectEval forgets those of an evaluation's allocations that may be
// forgotten, and the evaluation if none is left.
func collectEval(tx *state.Tx, e *api.Evaluation) {
	k := state.Key{Namespace: e.Namespace, ID: e.JobID}
	job, left := tx.Job(k), false
	for _, a := range tx.AllocsOfJob(k) {
		if a.EvalID != e.ID {
			continue
		}
		if collectable(e, job, a) {
			tx.DeleteAlloc(a.ID)
		} else {
			left = true
		}
	}
	if !left {
		tx.DeleteEval(e.ID)
	}
}

// collectable says whether an allocation may be forgotten. What a batch job
// that goes on has ended of its newest version is kept, since it would run
// again otherwise, and so is what failed and may yet be replaced.
func collectable(e *api.Evaluation, job *api.Job, a *api.Allocation) bool {
	switch {
	case !state.Terminal(a):
		return false
	case e.Type == api.JobTypeBatch && job != nil && !(deref(job.Status) == state.JobDead && deref(job.Stop)):
		return a.CreateIndex < *job.JobModifyIndex
	case a.ClientStatus == api.AllocClientStatusRunning:
		return false
	case job == nil || deref(job.Stop) || deref(job.Status) == state.JobDead:
		return true
	case a.DesiredStatus == api.AllocDesiredStatusStop || a.ClientStatus != api.AllocClientStatusFailed:
		return true
	}
	return !sched.Reschedules(a) || a.NextAllocation != ""
}

func anyOfDeployment(tx *state.Tx, d *api.Deployment) bool {
	for _, a := range tx.AllocsOfJob(state.Key{Namespace: d.Namespace, ID: d.JobID}) {
		if a.DeploymentID == d.ID && !state.Terminal(a) {
			return true
		}
	}
	return false
}

func anyLive(as []*api.Allocation) bool {
	return slices.ContainsFunc(as, func(a *api.Allocation) bool { return !a.ClientTerminalStatus() })
}
