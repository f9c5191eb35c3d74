package server

import (
	"maps"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// dry is the state as it would be with another version of one job.
type dry struct {
	*state.View
	key state.Key
	job *api.Job
}

func (d dry) Job(k state.Key) *api.Job {
	if k == d.key {
		return d.job
	}
	return d.View.Job(k)
}

// Plan says what registering a job would do, and changes nothing.
func (s *Server) Plan(job *api.Job, diff bool) (*api.JobPlanResponse, error) {
	warnings, err := Admit(job)
	if err != nil {
		return nil, err
	}
	resp := &api.JobPlanResponse{Warnings: warnings}
	k := state.JobKey(job)
	s.work.Lock() // the scheduler's random numbers belong to the worker
	defer s.work.Unlock()
	s.store.View(func(v *state.View) {
		old := v.Job(k)
		d := dry{View: v, key: k, job: job}
		switch {
		case old == nil:
			job.Version, job.CreateIndex, job.ModifyIndex, job.JobModifyIndex = ptr(uint64(0)), ptr(uint64(100)), ptr(uint64(100)), ptr(uint64(100))
		case sched.SpecChanged(old, job):
			resp.JobModifyIndex = *old.JobModifyIndex
			job.Version, job.CreateIndex = ptr(*old.Version+1), old.CreateIndex
			job.ModifyIndex, job.JobModifyIndex = ptr(*old.JobModifyIndex+1), ptr(*old.JobModifyIndex+1)
		default:
			resp.JobModifyIndex = *old.JobModifyIndex
			d.job = old
		}
		eval := newEval(job, sched.TriggerJobRegister)
		out := sched.Process(d, eval, s.Now(), s.rng)
		resp.FailedTGAllocs, resp.Annotations = out.Failed, out.Annotations
		if len(out.Failed) > 0 {
			resp.CreatedEvals = append(resp.CreatedEvals, &api.Evaluation{
				Namespace: k.Namespace, JobID: k.ID, Priority: eval.Priority, Type: eval.Type, TriggeredBy: sched.TriggerQueued,
				Status: api.EvalStatusBlocked, StatusDescription: sched.DescBlocked,
				FailedTGAllocs: out.Failed, ClassEligibility: maps.Clone(out.Classes), EscapedComputedClass: out.Escaped,
			})
		}
		resp.CreatedEvals = append(resp.CreatedEvals, out.Followups...)
		if diff {
			resp.Diff = Diff(old, job)
			annotate(resp.Diff, out.Annotations)
		}
	})
	return resp, nil
}

// annotate adds what will happen to a diff's groups.
func annotate(d *api.JobDiff, ann *api.PlanAnnotations) {
	for _, g := range d.TaskGroups {
		u := ann.DesiredTGUpdates[g.Name]
		if u == nil {
			continue
		}
		g.Updates = map[string]uint64{}
		for kind, n := range map[string]uint64{
			"ignore": u.Ignore, "create": u.Place, "migrate": u.Migrate, "destroy": u.Stop,
			"in-place update": u.InPlaceUpdate, "create/destroy update": u.DestructiveUpdate, "canary": u.Canary,
		} {
			if n > 0 {
				g.Updates[kind] = n
			}
		}
	}
}
