package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// servePlan handles POST and PUT on /v1/job/:id/plan: what a submission would
// change, in terms of the user's own versions of the job.
func (g *Gateway) servePlan(w http.ResponseWriter, r *http.Request, pathID string) {
	body, p := readBody(w, r, g.cfg.MaxBody)
	var req api.JobPlanRequest
	if p == nil {
		p = decode(body, &req)
	}
	if p == nil {
		p = checkJob(req.Job, pathID)
	}
	if p != nil {
		refuse(w, p.status, "%s", p.text)
		return
	}
	if !g.takes(r, req.Job, req.WriteRequest) {
		g.pass(w, r, body)
		return
	}
	if g.launches(req.Job) {
		g.planPeriodic(w, r, req)
		return
	}
	s, p := g.newSubmission(r, api.JobRegisterRequest{
		Job: req.Job, PolicyOverride: req.PolicyOverride, WriteRequest: req.WriteRequest,
	})
	if p == nil {
		s.noteUnknown(body, &api.JobPlanRequest{})
		p = g.plan(w, r, s, req.Diff)
	}
	if p != nil {
		refuse(w, p.status, "%s", p.text)
	}
}

// plan answers a plan unless it returns a problem.
func (g *Gateway) plan(w http.ResponseWriter, r *http.Request, s *submission, diff bool) *problem {
	// Nomad checks the job and the user's rights before anything of the last
	// submission is shown. What the gate keeps out is no news.
	gated, err := rewrite.Gate(s.original)
	if err != nil {
		return problemf(http.StatusBadRequest, "Job %q cannot be gated: %v.", s.id, err)
	}
	resp, refused, p := g.dryRun(r, s, gated)
	if p != nil {
		return p
	}
	if refused != nil {
		relay(w, refused)
		return nil
	}
	rec, current, err := g.look(r.Context(), s.namespace, s.id)
	if err != nil {
		return problemf(http.StatusServiceUnavailable, "Caravan could not plan job %q: %v. Try again; if it stays so, see the log of caravan agent.", s.id, err)
	}
	resp.FailedTGAllocs, resp.CreatedEvals = nil, nil
	before := lastSubmission(rec, current)
	if rec != nil {
		if err := s.complete(rec.Original); err != nil {
			return problemf(http.StatusBadRequest, "Job %q cannot be read: %v.", s.id, err)
		}
	}
	change, note, p := g.changeOf(r, s, rec, current, before)
	if p != nil {
		return p
	}
	resp.Annotations = &api.PlanAnnotations{DesiredTGUpdates: change}
	if diff {
		if before != nil && gangspec.Hash(before) == s.hash {
			// As Nomad gives it back it has defaults that nobody wrote.
			before = s.original
		}
		if resp.Diff, err = diffJobs(before, s.original); err != nil {
			return problemf(http.StatusBadRequest, "Job %q cannot be compared with its last submission: %v.", s.id, err)
		}
		annotate(resp.Diff, change)
	}
	resp.Warnings = joinWarnings(s.nomadsWarnings(resp.Warnings), append([]string{note}, s.notes...))
	if err := answer(w, r, resp.JobModifyIndex, resp); err != nil {
		g.log.Debug("answer plan", "namespace", s.namespace, "job", s.id, "error", err)
	}
	return nil
}

// lastSubmission is the job as its user last submitted it, nil if there is none
// that a new one would replace.
func lastSubmission(rec *record.Record, current *api.Job) *api.Job {
	if current == nil {
		return nil
	}
	if rec != nil && rec.Original != nil {
		return rec.Original
	}
	// The record of a job that has ended is gone; gate and pins can be told.
	stripped, err := rewrite.Strip(current, nil)
	if err != nil {
		return current
	}
	return stripped
}

// changeOf counts per group what would become of its members, and says in a
// line what Caravan would do.
func (g *Gateway) changeOf(r *http.Request, s *submission, rec *record.Record, current, before *api.Job) (map[string]*api.DesiredUpdates, string, *problem) {
	if same(s, rec, current) {
		return updates(before, s.original, func(u *api.DesiredUpdates, common int) { u.Ignore = uint64(common) }),
			"Caravan: unchanged; registering it again changes nothing.", nil
	}
	heals := rec != nil && inVain(rec, current)
	if live(current) && rec != nil && !heals {
		size, err := g.resize(r, s, rec, current)
		var p *problem
		switch {
		case errors.As(err, &p):
			return nil, "", p
		case err != nil:
			return nil, "", problemf(http.StatusServiceUnavailable, "Caravan could not plan job %q: %v. Try again in a moment.", s.id, err)
		case size != nil:
			return size.change, strings.Replace(size.note, "Caravan: resized", "Caravan: would be resized", 1), nil
		}
	}
	if live(current) && rec != nil && !heals && g.mayKeep(s, rec) {
		change, err := g.keptChange(r, s, rec, current)
		if err != nil {
			return nil, "", problemf(http.StatusServiceUnavailable, "Caravan could not plan job %q: %v. Try again in a moment.", s.id, err)
		}
		if change != nil {
			return change, "Caravan: the gang would stay on its nodes, since what it asks for is the same.", nil
		}
	}
	if !live(current) {
		before = nil
	}
	change := updates(before, s.original, func(u *api.DesiredUpdates, common int) { u.DestructiveUpdate = uint64(common) })
	return change, g.preview(r.Context(), s), nil
}

// keptChange is Nomad's own forecast for a gang that stays on its nodes, summed
// up by the user's groups; nil if it cannot stay.
func (g *Gateway) keptChange(r *http.Request, s *submission, rec *record.Record, current *api.Job) (map[string]*api.DesiredUpdates, error) {
	pinned, plan, err := g.keep(r, s, rec, current)
	if err != nil || pinned == nil {
		return nil, err
	}
	out := map[string]*api.DesiredUpdates{}
	if plan.Annotations == nil {
		return out, nil
	}
	origin := map[string]string{}
	for _, group := range pinned.TaskGroups {
		name, _, _ := rewrite.Origin(group)
		origin[deref(group.Name)] = name
	}
	for name, u := range plan.Annotations.DesiredTGUpdates {
		if of, ok := origin[name]; ok {
			name = of
		}
		if out[name] == nil {
			out[name] = &api.DesiredUpdates{}
		}
		add(out[name], u)
	}
	return out, nil
}

func add(sum, u *api.DesiredUpdates) {
	sum.Ignore += u.Ignore
	sum.Place += u.Place
	sum.Migrate += u.Migrate
	sum.Stop += u.Stop
	sum.InPlaceUpdate += u.InPlaceUpdate
	sum.DestructiveUpdate += u.DestructiveUpdate
	sum.Canary += u.Canary
	sum.Preemptions += u.Preemptions
}

// updates counts members that come, go, and are in both; both is told how many
// those are.
func updates(before, after *api.Job, both func(u *api.DesiredUpdates, common int)) map[string]*api.DesiredUpdates {
	out := map[string]*api.DesiredUpdates{}
	at := func(name string) *api.DesiredUpdates {
		if out[name] == nil {
			out[name] = &api.DesiredUpdates{}
		}
		return out[name]
	}
	old := map[string]int{}
	if before != nil {
		for _, group := range before.TaskGroups {
			old[deref(group.Name)] = count(group)
		}
	}
	for _, group := range after.TaskGroups {
		name, n := deref(group.Name), count(group)
		common := min(n, old[name])
		u := at(name)
		both(u, common)
		u.Place, u.Stop = uint64(n-common), uint64(old[name]-common)
		delete(old, name)
	}
	for name, n := range old {
		at(name).Stop = uint64(n)
	}
	return out
}

// count is a group's count as Nomad completes it.
func count(group *api.TaskGroup) int {
	if group.Count == nil {
		if group.Scaling != nil && group.Scaling.Min != nil {
			return max(int(*group.Scaling.Min), 0)
		}
		return 1
	}
	return max(*group.Count, 0)
}

// preview says what would be decided on the job now.
func (g *Gateway) preview(ctx context.Context, s *submission) string {
	if g.cfg.Preview == nil {
		return "Caravan: the job would be queued as a whole and placed when all of it fits."
	}
	result, err := g.cfg.Preview(ctx, s.original)
	switch {
	case err != nil:
		return "Caravan: the planner cannot say at the moment what it would decide: " + err.Error() + "."
	case len(result.Faults) > 0:
		return "Caravan: would be held: " + strings.Join(result.Faults, "; ")
	case result.Decision.Action == model.ActionAdmit:
		return "Caravan: would be admitted now: " + result.Decision.Reason
	}
	return "Caravan: would be queued: " + result.Decision.Reason
}

// annotate writes the forecast beside the groups of a diff, where Nomad's CLI
// shows it.
func annotate(d *api.JobDiff, change map[string]*api.DesiredUpdates) {
	for _, group := range d.TaskGroups {
		u := change[group.Name]
		if u == nil {
			continue
		}
		group.Updates = map[string]uint64{}
		for text, n := range map[string]uint64{
			"ignore": u.Ignore, "create": u.Place, "destroy": u.Stop, "migrate": u.Migrate,
			"canary": u.Canary, "in-place update": u.InPlaceUpdate,
			"create/destroy update": u.DestructiveUpdate,
		} {
			if n > 0 {
				group.Updates[text] = n
			}
		}
	}
}
