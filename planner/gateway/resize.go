package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// resized is a submission that changes counts alone, of a job that can be
// resized where it runs.
type resized struct {
	next *record.Record
	// job is to be registered: nobody who stays is touched by it.
	job *api.Job
	// change is the forecast by the user's groups, note says it in a line.
	change map[string]*api.DesiredUpdates
	note   string
}

// resize looks whether a submission changes nothing but counts, and if so,
// whether the job can be resized where it runs; nil if it cannot. The planner
// then lets go of members, and places those that are lacking, when there is
// room.
func (g *Gateway) resize(r *http.Request, s *submission, rec *record.Record, current *api.Job) (*resized, error) {
	if !mayResize(rec, current) {
		return nil, nil
	}
	changes, ok := gangspec.Resizes(rec.Original, s.original, g.cfg.Levels...)
	if !ok {
		return nil, nil
	}
	if rec.Rollout != nil {
		return nil, problemf(http.StatusConflict,
			"Job %q is in the middle of an update, and its counts cannot change meanwhile; nothing was registered. Wait until the update is through, or, if it has failed, submit a corrected job file first.", s.id)
	}
	cluster, err := g.cfg.Cluster(r.Context())
	if err != nil {
		return nil, problemf(http.StatusServiceUnavailable,
			"Job %q runs, and Caravan has not seen the cluster yet, so it cannot say whether the job can be resized where it runs: %v. Nothing was registered; try again in a moment.", s.id, err)
	}
	kept, anew, ok := rewrite.Resize(current, rec.Original, s.original, rec.Members, cluster, g.cfg.Levels...)
	if !ok || len(anew) > 0 && rec.Phase != record.PhaseRunning {
		return nil, nil
	}
	job, err := g.resizedJob(s, kept, current, cluster)
	if err != nil {
		g.log.Info("pin resized job", "namespace", s.namespace, "job", s.id, "error", err)
		return nil, nil
	}
	plan, refused, p := g.dryRun(r, s, job)
	switch {
	case p != nil:
		return nil, p
	case refused != nil:
		return nil, fmt.Errorf("plan job: Nomad answered %d: %s", refused.status, refused.body)
	case !untouched(job, plan):
		return nil, nil
	}
	out := &resized{job: job, change: resizes(s.original, rec.Members, kept, anew)}
	out.note = "Caravan: resized where it runs: " + describe(changes, out.change, anew)
	out.next = g.resizedRecord(r, s, rec, current, kept, out.note)
	return out, nil
}

// resizedJob pins what stays.
func (g *Gateway) resizedJob(s *submission, kept []model.Member, current *api.Job, cluster *rewrite.Cluster) (*api.Job, error) {
	var members []model.Member
	var ended, running []rewrite.Place
	for _, m := range kept {
		if at := (rewrite.Place{Group: m.Group, Index: m.Index}); m.Ended {
			ended = append(ended, at)
		} else {
			members, running = append(members, m), append(running, at)
		}
	}
	job, err := rewrite.Repin(current, s.original, members, cluster, ended...)
	if err != nil {
		return nil, err
	}
	if gangspec.Type(s.original) == api.JobTypeBatch && s.spec.Gang != model.GangJob {
		// Each may end at this very moment, and would run a second time.
		rewrite.Hold(job, running)
	}
	return job, nil
}

// resizedRecord is the record of what is in force, for the new version.
func (g *Gateway) resizedRecord(r *http.Request, s *submission, rec *record.Record, current *api.Job, kept []model.Member, note string) *record.Record {
	sub := g.newRecord(r, s, rec, current)
	next := rec.Resized()
	next.Original, next.Source, next.SpecHash, next.PlacedHash = sub.Original, sub.Source, sub.SpecHash, sub.SpecHash
	next.Submitter, next.PriorIndex, next.Arriving, next.Members = sub.Submitter, sub.PriorIndex, sub.Arriving, kept
	next.Prior, next.Attempts, next.RetryAfter = sub.Prior, 0, time.Time{}
	next.Reason = strings.TrimPrefix(note, "Caravan: ")
	next.Note(g.cfg.Now(), "resize", next.Reason)
	next.Account(g.cfg.Now())
	return next
}

// untouched says whether Nomad would restart nobody who runs: by another
// version, or because a member has completed and would run a second time. Who
// is being replaced already is not looked at.
func untouched(job *api.Job, plan *api.JobPlanResponse) bool {
	if plan.Annotations == nil {
		return true
	}
	again := gangspec.Type(job) == api.JobTypeBatch
	for _, group := range job.TaskGroups {
		u := plan.Annotations.DesiredTGUpdates[deref(group.Name)]
		if u != nil && (u.DestructiveUpdate+u.Canary > 0 || again && rewrite.MayPlace(group) && u.Place > 0) {
			return false
		}
	}
	return len(plan.Annotations.PreemptedAllocs) == 0
}

// resizes counts what becomes of the members of each group.
func resizes(job *api.Job, before, kept []model.Member, anew []string) map[string]*api.DesiredUpdates {
	out := map[string]*api.DesiredUpdates{}
	for _, group := range job.TaskGroups {
		name, n := deref(group.Name), uint64(count(group))
		var had, ended, stay uint64
		for _, m := range before {
			if m.Group == name && !m.Ended {
				had++
			}
		}
		for _, m := range kept {
			switch {
			case m.Group == name && m.Ended:
				ended++
			case m.Group == name:
				stay++
			}
		}
		u := &api.DesiredUpdates{Ignore: ended}
		out[name] = u
		if slices.Contains(anew, name) {
			u.DestructiveUpdate = min(had, n)
		} else {
			u.InPlaceUpdate = min(stay, n-min(n, ended))
		}
		here := u.InPlaceUpdate + u.DestructiveUpdate
		u.Place, u.Stop = n-min(n, here+ended), had-min(had, here)
	}
	return out
}

// describe says a resize in words.
func describe(changes []gangspec.CountChange, change map[string]*api.DesiredUpdates, anew []string) string {
	var parts []string
	for _, c := range changes {
		u := change[c.Group]
		text := fmt.Sprintf("group %q from %d to %d: ", c.Group, c.From, c.To)
		switch {
		case slices.Contains(anew, c.Group):
			text += "its gang is stopped and placed anew as a whole"
		default:
			text += fmt.Sprintf("%d run on", u.InPlaceUpdate)
		}
		if u.Place > 0 && !slices.Contains(anew, c.Group) {
			text += fmt.Sprintf(", %d more %s placed when there is room", u.Place, isOrAre(u.Place))
		}
		if u.Stop > 0 && !slices.Contains(anew, c.Group) {
			text += fmt.Sprintf(", %d stop", u.Stop)
		}
		parts = append(parts, text)
	}
	return cmp.Or(strings.Join(parts, "; "), "nothing changes") + "."
}

// withinBounds checks a count against the elastic bounds of its group.
func withinBounds(id string, job *api.Job, group *api.TaskGroup, n int64, levels []string) *problem {
	spec, err := gangspec.Parse(job, levels...)
	if err != nil {
		return nil // what is wrong is told of the whole job
	}
	for _, b := range spec.Groups {
		if b.Group == deref(group.Name) && b.Elastic() && (n < int64(b.Min) || n > int64(b.Max)) {
			return faultsOf(id, &gangspec.Error{Faults: []gangspec.Fault{{
				Where: fmt.Sprintf("group %q", b.Group), Key: "count", Value: fmt.Sprint(n),
				Allowed: fmt.Sprintf("allowed is %d to %d, as %s and %s say", b.Min, b.Max, gangspec.KeyMin, gangspec.KeyMax),
			}}})
		}
	}
	return nil
}

func isOrAre(n uint64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
