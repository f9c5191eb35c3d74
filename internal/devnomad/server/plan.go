package server

import (
	"maps"
	"strconv"

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
	warnings, err := s.Admit(job)
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

// annotate adds what will happen to a diff's groups, counts and tasks.
func annotate(d *api.JobDiff, ann *api.PlanAnnotations) {
	for _, g := range d.TaskGroups {
		if u := ann.DesiredTGUpdates[g.Name]; u != nil {
			g.Updates = groupUpdates(u)
		}
		for _, f := range g.Fields {
			if f.Name == "Count" {
				annotateCount(f)
			}
		}
		for _, t := range g.Tasks {
			t.Annotations = append(t.Annotations, taskAnnotation(g, t))
		}
	}
}

func groupUpdates(u *api.DesiredUpdates) map[string]uint64 {
	out := map[string]uint64{}
	for kind, n := range map[string]uint64{
		"ignore": u.Ignore, "create": u.Place, "migrate": u.Migrate, "destroy": u.Stop,
		"in-place update": u.InPlaceUpdate, "create/destroy update": u.DestructiveUpdate, "canary": u.Canary,
	} {
		if n > 0 {
			out[kind] = n
		}
	}
	return out
}

func annotateCount(f *api.FieldDiff) {
	was, _ := strconv.Atoi(f.Old)
	is, _ := strconv.Atoi(f.New)
	switch {
	case is > was:
		f.Annotations = append(f.Annotations, "forces create")
	case is < was:
		f.Annotations = append(f.Annotations, "forces destroy")
	}
}

// taskAnnotation says what a changed task means: most changes restart it.
func taskAnnotation(g *api.TaskGroupDiff, t *api.TaskDiff) string {
	switch {
	case t.Type == diffAdded && g.Type == diffAdded:
		return "forces create"
	case t.Type == diffDeleted && g.Type == diffDeleted:
		return "forces destroy"
	}
	for _, f := range t.Fields {
		if f.Name != "KillTimeout" {
			return "forces create/destroy update"
		}
	}
	for _, o := range t.Objects {
		switch o.Name {
		case "Service", "Constraint", "Affinity", "Spread", "LogConfig":
		default:
			return "forces create/destroy update"
		}
	}
	return "forces in-place update"
}
