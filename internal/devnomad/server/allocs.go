package server

import (
	"maps"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// UpdateAllocs takes a client's report on its allocations: client status,
// description and task states count, all else is the servers'.
func (s *Server) UpdateAllocs(reports []*api.Allocation) error {
	return s.update(state.EventAllocUpdated, func(tx *state.Tx) error {
		for _, r := range reports {
			cur := tx.Alloc(r.ID)
			if n := tx.Node(r.NodeID); cur == nil && n != nil && r.ClientTerminalStatus() {
				s.unblock(tx, n) // of a job that was purged
			}
			if cur == nil {
				continue
			}
			a := *cur
			a.ClientStatus, a.ClientDescription = r.ClientStatus, r.ClientDescription
			a.TaskStates = maps.Clone(r.TaskStates)
			if cur.ClientStatus == api.AllocClientStatusUnknown && a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
				a.DesiredDescription = sched.DescUnknown
			}
			tx.PutAllocFromClient(&a)
			s.afterReport(tx, cur, &a)
		}
		return nil
	})
}

func (s *Server) afterReport(tx *state.Tx, was, a *api.Allocation) {
	job := tx.Job(state.Key{Namespace: a.Namespace, ID: a.JobID})
	if a.ClientTerminalStatus() && !was.ClientTerminalStatus() {
		if n := tx.Node(a.NodeID); n != nil {
			s.unblock(tx, n)
		}
	}
	if job == nil || deref(job.Stop) {
		return
	}
	switch {
	case was.ClientStatus == api.AllocClientStatusUnknown && a.ClientStatus != api.AllocClientStatusUnknown:
		tx.PutEval(newEval(job, sched.TriggerReconnect))
	case a.ClientStatus == api.AllocClientStatusFailed && !was.ClientTerminalStatus() && a.DesiredStatus == api.AllocDesiredStatusRun:
		// What may not be replaced, as nothing of system jobs may, changes nothing.
		if _, again := sched.RescheduleAt(a); again {
			tx.PutEval(newEval(job, sched.TriggerAllocFailure))
		}
	}
}

// StopAlloc tells an allocation to go; the scheduler looks for a new place.
func (s *Server) StopAlloc(id string, noDelay, reschedule bool) (*api.AllocStopResponse, error) {
	resp := &api.AllocStopResponse{}
	err := s.update(state.EventAllocDesired, func(tx *state.Tx) error {
		a := tx.Alloc(id)
		if a == nil {
			return errorf(404, "allocation not found")
		}
		c := *a
		c.DesiredTransition.Migrate, c.DesiredTransition.NoShutdownDelay = ptr(true), &noDelay
		c.DesiredTransition.Reschedule = &reschedule
		tx.PutAlloc(&c)
		job := tx.Job(state.Key{Namespace: a.Namespace, ID: a.JobID})
		if job == nil {
			job = a.Job
		}
		e := newEval(job, sched.TriggerAllocStop)
		tx.PutEval(e)
		resp.EvalID, resp.LastIndex = e.ID, tx.Index
		return nil
	})
	return resp, err
}

// SetSchedulerConfig changes the scheduler configuration; with cas only if the
// index is still this one.
func (s *Server) SetSchedulerConfig(c *api.SchedulerConfiguration, cas bool) (*api.SchedulerSetConfigurationResponse, error) {
	resp := &api.SchedulerSetConfigurationResponse{}
	switch c.SchedulerAlgorithm {
	case "":
		c.SchedulerAlgorithm = api.SchedulerAlgorithmBinpack
	case api.SchedulerAlgorithmBinpack, api.SchedulerAlgorithmSpread:
	default:
		return nil, errorf(400, "invalid scheduler algorithm: %v", c.SchedulerAlgorithm)
	}
	err := s.update(state.EventSchedulerSettings, func(tx *state.Tx) error {
		if cas && c.ModifyIndex != tx.SchedulerConfig().ModifyIndex {
			return nil
		}
		tx.PutSchedulerConfig(c)
		resp.Updated, resp.LastIndex = true, tx.Index
		return nil
	})
	return resp, err
}
