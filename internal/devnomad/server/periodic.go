package server

import (
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// periodicTime is when a version of a periodic job runs next.
type periodicTime struct {
	version uint64
	next    time.Time // zero is never
}

// nextLaunch is the first time after t that a job's cron expressions name, in
// its time zone; zero is never.
func nextLaunch(job *api.Job, t time.Time) (time.Time, error) {
	zone, err := job.Periodic.GetLocation()
	if err != nil {
		return time.Time{}, fmt.Errorf("find next launch of %s: %w", *job.ID, err)
	}
	next, err := job.Periodic.Next(t.In(zone))
	if err != nil {
		return time.Time{}, fmt.Errorf("find next launch of %s: %w", *job.ID, err)
	}
	return next, nil
}

// runsPeriodically says whether a job is launched by the clock.
func runsPeriodically(job *api.Job) bool {
	return job.IsPeriodic() && !deref(job.Stop) && job.Periodic.Enabled != nil && *job.Periodic.Enabled && !job.IsParameterized()
}

// watchPeriodic launches the periodic jobs whose time has come.
func (s *Server) watchPeriodic(now time.Time) bool {
	var due []*api.Job
	seen := map[state.Key]bool{}
	s.store.View(func(v *state.View) {
		for _, job := range v.Jobs("*") {
			if !runsPeriodically(job) {
				continue
			}
			k := state.JobKey(job)
			seen[k] = true
			at, ok := s.launches[k]
			if !ok || at.version != *job.Version {
				at = periodicTime{version: *job.Version, next: s.launchAfter(job, now)}
			}
			if !at.next.IsZero() && !at.next.After(now) {
				due = append(due, job)
				at.next = s.launchAfter(job, now)
			}
			s.launches[k] = at
		}
	})
	for k := range s.launches {
		if !seen[k] {
			delete(s.launches, k)
		}
	}
	for _, job := range due {
		err := s.store.Update(state.EventJobRegistered, now, func(tx *state.Tx) error {
			if *job.Periodic.ProhibitOverlap && hasLiveChild(tx, job) {
				return nil
			}
			_, err := launch(tx, job)
			return err
		})
		if err != nil {
			s.logf("launch periodic job %s: %v", *job.ID, err)
		}
	}
	return len(due) > 0
}

// launchAfter is nextLaunch for a job that was admitted: its expressions are
// sound.
func (s *Server) launchAfter(job *api.Job, t time.Time) time.Time {
	next, err := nextLaunch(job, t)
	if err != nil {
		s.logf("%v", err)
	}
	return next
}

func hasLiveChild(tx *state.Tx, parent *api.Job) bool {
	for _, job := range tx.Jobs(*parent.Namespace) {
		if deref(job.ParentID) == *parent.ID && deref(job.Status) != state.JobDead {
			return true
		}
	}
	return false
}

// launch makes a child of a periodic job, named after the time in seconds.
func launch(tx *state.Tx, parent *api.Job) (*api.Evaluation, error) {
	child, err := CopyJob(parent)
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%s/periodic-%d", *parent.ID, tx.Now.Unix())
	child.ID, child.Name, child.ParentID, child.Periodic = &id, &id, parent.ID, nil
	child.SubmitTime = ptr(tx.Now.UnixNano())
	tx.PutJob(child, nil)
	e := newEval(child, sched.TriggerPeriodic)
	e.JobModifyIndex = tx.Index
	tx.PutEval(e)
	return e, nil
}

// ForcePeriodic launches a periodic job now.
func (s *Server) ForcePeriodic(k state.Key) (string, uint64, error) {
	id, index := "", uint64(0)
	err := s.update(state.EventJobRegistered, func(tx *state.Tx) error {
		job := tx.Job(k)
		switch {
		case job == nil:
			return errorf(500, "job not found")
		case !job.IsPeriodic():
			return errorf(500, "can't force launch non-periodic job")
		case !runsPeriodically(job):
			return errorf(500, "force launch for job %q failed: can't force run non-tracked job %q (%s)", k.ID, k.ID, k.Namespace)
		}
		e, err := launch(tx, job)
		if err != nil {
			return err
		}
		id, index = e.ID, tx.Index
		return nil
	})
	return id, index, err
}
