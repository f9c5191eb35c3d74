package server

import (
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

const enforcePrefix = "Enforcing job modify index"

// Register stores a job, as PUT /v1/jobs does. The request's job is taken
// over.
func (s *Server) Register(req *api.JobRegisterRequest, token string) (*api.JobRegisterResponse, error) {
	job := req.Job
	if _, err := s.Admit(job); err != nil {
		return nil, err
	}
	resp := &api.JobRegisterResponse{Warnings: warnings(job)}
	err := s.update(state.EventJobRegistered, func(tx *state.Tx) error {
		if tx.SchedulerConfig().RejectJobRegistration {
			return errorf(403, "Job registration, dispatch, and scale are disabled by the scheduler configuration")
		}
		var gone faults // since the job was admitted
		if gone.scopes(&tx.View, job); len(gone) > 0 {
			return gone.err()
		}
		old := tx.Job(state.JobKey(job))
		if req.EnforceIndex {
			if err := enforceIndex(old, req.JobModifyIndex); err != nil {
				return err
			}
		}
		if err := checkTransition(old, job); err != nil {
			return err
		}
		if token != "" {
			job.NomadTokenID = &token
		}
		if req.PreserveCounts && old != nil {
			preserveCounts(old, job)
		}
		s.register(tx, old, job, req.Submission, req.EvalPriority, resp)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (s *Server) register(tx *state.Tx, old, job *api.Job, sub *api.JobSubmission, priority int, resp *api.JobRegisterResponse) {
	job.SubmitTime = ptr(tx.Now.UnixNano())
	if sched.SpecChanged(old, job) {
		resp.JobModifyIndex = tx.Index
		tx.PutJob(job, sub)
	} else {
		// Registering what is there makes no version, but an evaluation.
		resp.JobModifyIndex = *old.ModifyIndex
		job = old
	}
	resp.LastIndex = tx.Index
	if job.IsPeriodic() || job.IsParameterized() {
		return
	}
	e := newEval(job, sched.TriggerJobRegister)
	e.JobModifyIndex = *job.JobModifyIndex
	if priority > 0 {
		e.Priority = priority
	}
	tx.PutEval(e)
	resp.EvalID, resp.EvalCreateIndex = e.ID, tx.Index
}

func enforceIndex(old *api.Job, index uint64) error {
	switch {
	case old == nil && index != 0:
		return errorf(500, "%s %d: job does not exist", enforcePrefix, index)
	case old != nil && index == 0:
		return errorf(500, "%s 0: job already exists", enforcePrefix)
	case old != nil && index != *old.JobModifyIndex:
		return errorf(500, "%s %d: job exists with conflicting job modify index: %d", enforcePrefix, index, *old.JobModifyIndex)
	}
	return nil
}

func checkTransition(old, job *api.Job) error {
	switch {
	case old == nil && job.Dispatched:
		return errorf(500, "job can't be submitted with 'Dispatched' set")
	case old == nil:
		return nil
	case *old.Type != *job.Type:
		return errorf(500, "cannot update job from type %q to %q", *old.Type, *job.Type)
	case old.IsPeriodic() && !job.IsPeriodic():
		return errorf(500, "cannot update periodic job to being non-periodic")
	case job.IsPeriodic() && !old.IsPeriodic():
		return errorf(500, "cannot update non-periodic job to being periodic")
	case old.IsParameterized() && !job.IsParameterized():
		return errorf(500, "cannot update parameterized job to being non-parameterized")
	case job.IsParameterized() && !old.IsParameterized():
		return errorf(500, "cannot update non-parameterized job to being parameterized")
	case old.Dispatched != job.Dispatched:
		return errorf(500, "field 'Dispatched' is read-only")
	}
	return nil
}

func preserveCounts(old, job *api.Job) {
	for _, tg := range job.TaskGroups {
		for _, was := range old.TaskGroups {
			if *was.Name == *tg.Name {
				tg.Count = ptr(*was.Count)
			}
		}
	}
}

// Deregister stops a job, or purges it.
func (s *Server) Deregister(k state.Key, purge bool, priority int) (*api.JobDeregisterResponse, error) {
	resp := &api.JobDeregisterResponse{}
	err := s.update(state.EventJobDeregistered, func(tx *state.Tx) error {
		job := tx.Job(k)
		if job == nil {
			// Nomad makes an evaluation all the same, which cleans up.
			return nil
		}
		resp.JobModifyIndex, resp.LastIndex = tx.Index, tx.Index
		if purge {
			tx.DeleteJob(k)
		} else {
			// A stop is a version of its own: whoever enforces the index of the one
			// before it comes too late.
			stopped := *job
			stopped.Stop, stopped.SubmitTime = ptr(true), ptr(tx.Now.UnixNano())
			tx.PutJob(&stopped, nil)
		}
		if job.IsPeriodic() || job.IsParameterized() {
			return nil
		}
		e := newEval(job, sched.TriggerJobDeregister)
		e.JobModifyIndex = tx.Index
		if priority > 0 {
			e.Priority = priority
		}
		tx.PutEval(e)
		resp.EvalID, resp.EvalCreateIndex = e.ID, tx.Index
		return nil
	})
	return resp, err
}

// Evaluate makes a new evaluation of a job.
func (s *Server) Evaluate(k state.Key, force bool) (*api.JobRegisterResponse, error) {
	resp := &api.JobRegisterResponse{}
	err := s.update(state.EventAllocDesired, func(tx *state.Tx) error {
		job := tx.Job(k)
		switch {
		case job == nil:
			return errorf(500, "job not found")
		case job.IsPeriodic():
			return errorf(500, "can't evaluate periodic job")
		case job.IsParameterized():
			return errorf(500, "can't evaluate parameterized job")
		}
		if force {
			for _, a := range tx.AllocsOfJob(k) {
				if sched.Reschedules(a) && a.ClientStatus == api.AllocClientStatusFailed && a.DesiredStatus == api.AllocDesiredStatusRun && a.NextAllocation == "" {
					c := *a
					c.DesiredTransition.ForceReschedule = ptr(true)
					tx.PutAlloc(&c)
				}
			}
		}
		e := newEval(job, sched.TriggerJobRegister)
		e.JobModifyIndex = *job.ModifyIndex
		tx.PutEval(e)
		resp.EvalID, resp.EvalCreateIndex, resp.JobModifyIndex, resp.LastIndex = e.ID, tx.Index, *job.ModifyIndex, tx.Index
		return nil
	})
	return resp, err
}

// Scale changes a group's count.
func (s *Server) Scale(k state.Key, req *api.ScalingRequest) (*api.JobRegisterResponse, error) {
	resp := &api.JobRegisterResponse{}
	group := req.Target["Group"]
	if group == "" {
		return nil, errorf(400, "missing task group name for scaling action")
	}
	err := s.update(state.EventJobRegistered, func(tx *state.Tx) error {
		old := tx.Job(k)
		if old == nil {
			return errorf(404, "job %q not found", k.ID)
		}
		job, err := CopyJob(old)
		if err != nil {
			return err
		}
		tg := job.LookupTaskGroup(group)
		if tg == nil {
			return errorf(400, "task group %q specified for scaling does not exist in job", group)
		}
		if req.Count == nil {
			resp.JobModifyIndex = *job.ModifyIndex
			return nil
		}
		if err := checkScale(tx, job, tg, req); err != nil {
			return err
		}
		tg.Count = ptr(int(*req.Count))
		job.SubmitTime = ptr(tx.Now.UnixNano())
		tx.PutJob(job, nil)
		e := newEval(job, sched.TriggerScaling)
		e.JobModifyIndex = tx.Index
		tx.PutEval(e)
		resp.EvalID, resp.EvalCreateIndex, resp.JobModifyIndex, resp.LastIndex = e.ID, tx.Index, tx.Index, tx.Index
		return nil
	})
	return resp, err
}

func checkScale(tx *state.Tx, job *api.Job, tg *api.TaskGroup, req *api.ScalingRequest) error {
	n := *req.Count
	switch d := tx.LatestDeployment(state.JobKey(job)); {
	case n < 0:
		return errorf(400, "scaling action count can't be negative")
	case deref(job.Type) == api.JobTypeSystem && n > 1:
		return errorf(400, "jobs of type \"system\" can only be scaled between 0 and 1")
	case n > maxCount || totalCount(job)-deref(tg.Count)+int(n) > maxCount:
		return errorf(500, "total count was greater than configured job_max_count: %d > %d", totalCount(job)-deref(tg.Count)+int(n), maxCount)
	case tg.Scaling != nil && tg.Scaling.Min != nil && n < *tg.Scaling.Min:
		return errorf(400, "group count was less than scaling policy minimum: %d < %d", n, *tg.Scaling.Min)
	case tg.Scaling != nil && tg.Scaling.Max != nil && n > *tg.Scaling.Max:
		return errorf(400, "group count was greater than scaling policy maximum: %d > %d", n, *tg.Scaling.Max)
	case d != nil && state.DeploymentActive(d) && d.JobCreateIndex == *job.CreateIndex:
		return errorf(400, "job scaling blocked due to active deployment")
	case req.JobModifyIndex > 0 && req.JobModifyIndex != *job.JobModifyIndex:
		return enforceIndex(job, req.JobModifyIndex)
	}
	return nil
}

// Revert registers an older version again.
func (s *Server) Revert(k state.Key, version uint64, prior *uint64) (*api.JobRegisterResponse, error) {
	resp := &api.JobRegisterResponse{}
	err := s.update(state.EventJobRegistered, func(tx *state.Tx) error {
		cur := tx.Job(k)
		if cur == nil {
			return errorf(500, "job %q not found", k.ID)
		}
		if *cur.Version == version {
			return errorf(500, "can't revert to current version")
		}
		if prior != nil && *prior != *cur.Version {
			return errorf(500, "Current job has version %d; enforcing version %d", *cur.Version, *prior)
		}
		return s.revert(tx, cur, version, resp)
	})
	return resp, err
}

func (s *Server) revert(tx *state.Tx, cur *api.Job, version uint64, resp *api.JobRegisterResponse) error {
	k := state.JobKey(cur)
	old := tx.JobVersion(k, version)
	if old == nil {
		return errorf(500, "job %q in namespace %q at version %d not found", k.ID, k.Namespace, version)
	}
	job, err := CopyJob(old)
	if err != nil {
		return err
	}
	job.VersionTag = nil
	s.register(tx, cur, job, tx.Submission(k, version), 0, resp)
	return nil
}

// SetStable marks a version stable or not.
func (s *Server) SetStable(k state.Key, version uint64, stable bool) error {
	return s.update(state.EventJobRegistered, func(tx *state.Tx) error {
		if !tx.EditVersion(k, version, func(j *api.Job) { j.Stable = &stable }) {
			return errorf(500, "job %q in namespace %q at version %d not found", k.ID, k.Namespace, version)
		}
		return nil
	})
}

// TagVersion names a version, or takes the name back when tag is nil.
func (s *Server) TagVersion(k state.Key, version *uint64, name string, tag *api.JobVersionTag) error {
	return s.update(state.EventJobRegistered, func(tx *state.Tx) error {
		var v uint64
		if job := tx.Job(k); job != nil {
			v = *job.Version
		}
		if version != nil {
			v = *version
		}
		tagged := false
		for _, j := range tx.JobVersions(k) {
			if j.VersionTag == nil || j.VersionTag.Name != name {
				continue
			}
			if tag != nil && *j.Version != v {
				return errorf(500, "tag %q already exists on a different version of job %q", name, k.ID)
			}
			v, tagged = *j.Version, true
		}
		if tag == nil && !tagged {
			return errorf(500, "tag %q not found on job %q", name, k.ID)
		}
		if !tx.EditVersion(k, v, func(j *api.Job) { j.VersionTag = tag }) {
			return errorf(500, "job %q version %d not found", k.ID, v)
		}
		return nil
	})
}
