package federate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// counts says whether a job is the federation's where the region has it, and why
// nothing is to be decided on it for now. Of a job that was sent, the region where
// it was sent has it, as soon as it is there.
func (m *merging) counts(r *region, job *observe.Managed) (here bool, hold string) {
	rec := job.Record
	key := jobKey{job.Namespace, job.ID}
	switch {
	case rec == nil:
		return true, ""
	case rec.Route != nil:
		to := m.region(rec.Route.Region)
		if to == nil {
			return true, fmt.Sprintf("it was sent to region %s, which is none of the federation's any more: add the region to the planner's federation block again, so that what runs there can be ended", rec.Route.Region)
		}
		if at := to.jobs[key]; at != nil && at.Record != nil && at.Record.Home == r.Name {
			return false, ""
		}
		if to.held != "" {
			return true, "it was sent to region " + to.Name + ", and may run there: " + to.held
		}
		return true, "it is on its way to region " + to.Name
	case rec.Home != "":
		home := m.region(rec.Home)
		switch {
		case home == nil:
			return true, ""
		case !home.fresh && job.Model.State == model.StateQueued:
			return true, "it was submitted in region " + home.Name + ", and may have been stopped there: " + home.held
		case !home.fresh:
			return true, ""
		}
		at := home.records[key]
		if at == nil {
			return true, ""
		}
		if at.Route == nil || at.Route.Region != r.Name {
			return !quiet(r.view, key), "it ends here, since region " + rec.Home + " has taken it back"
		}
		if at.Route.Recall != "" {
			return true, "region " + rec.Home + " takes it back: " + at.Route.Recall
		}
		return true, ""
	}
	for _, o := range m.regions {
		if left := o.jobs[key]; o != r && left != nil && left.Record != nil && left.Record.Home == r.Name && !quiet(o.view, key) {
			return true, "what ran of it in region " + o.Name + " ends first"
		}
	}
	return true, ""
}

// quiet says whether nothing of a job runs in a region, as far as its servers can
// tell; what is lost is fenced.
func quiet(v *observe.View, key jobKey) bool {
	return !slices.ContainsFunc(v.Snapshot.Allocs, func(a model.Alloc) bool {
		return a.Namespace == key.namespace && a.Job == key.id && !a.Lost
	})
}

// allow says in which regions the job may be placed, and why in none for now.
func (m *merging) allow(r *region, job *observe.Managed, hold string) {
	rec, j := job.Record, &job.Model
	asked := j.Regions
	j.Regions = []string{r.Name}
	hold = cmp.Or(j.Hold, hold)
	switch {
	case hold != "":
	case r.held != "":
		hold = r.held
	case rec == nil || rec.Ran() || j.State != model.StateQueued:
	default:
		j.Regions, hold = m.choice(r, job, asked)
	}
	j.Hold = hold
}

// choice are the regions that a job which waits may go to. asked are those that
// its file names.
func (m *merging) choice(r *region, job *observe.Managed, asked []string) (list []string, hold string) {
	rec := job.Record
	switch {
	case len(asked) > 0:
		list = slices.Clone(asked)
		if only := both(asked, rec.Regions); len(only) > 0 {
			list = only
		}
	case bound(rec.Original):
		list = []string{r.Name}
	case slices.Contains(rec.Regions, record.AnyRegion):
		for _, o := range m.regions {
			list = append(list, o.Name)
		}
	case len(rec.Regions) > 0:
		list = slices.Clone(rec.Regions)
	default:
		list = []string{r.Name}
	}
	if why := together(&job.Model); why != "" && !slices.Equal(list, []string{r.Name}) {
		if !slices.Contains(list, r.Name) {
			return []string{r.Name}, fmt.Sprintf("it may go to %s, and is in region %s, from which it is not sent on, since %s: submit it there (nomad job run -region %s)", strings.Join(list, ", "), r.Name, why, list[0])
		}
		return []string{r.Name}, ""
	}
	var no []string
	able := slices.DeleteFunc(slices.Clone(list), func(name string) bool {
		why := m.unable(r, job, name)
		if why != "" {
			no = append(no, why)
		}
		return why != ""
	})
	if len(able) == 0 && len(no) > 0 {
		return []string{r.Name}, strings.Join(no, "; ")
	}
	return able, ""
}

// bound says whether the job has to do with what its region alone has: volumes with
// their data, and services that others find it by.
func bound(job *api.Job) bool {
	if job == nil {
		return false
	}
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		if len(g.Volumes)+len(g.Services) > 0 || slices.ContainsFunc(g.Tasks, func(t *api.Task) bool { return t != nil && len(t.Services) > 0 }) {
			return true
		}
	}
	return false
}

// both are the names that are in both lists.
func both(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return !slices.Contains(other, name) })
}

// together says why the job's members might go to several regions, so that it
// stays in its own; "" if they cannot.
func together(j *model.Job) string {
	members := 0
	for _, g := range j.Groups {
		members += g.Count
	}
	switch {
	case members == 1, j.Gang == model.GangJob, j.Gang == model.GangGroup && len(j.Groups) == 1:
		return ""
	}
	return "it is not one gang, and a job is in one region"
}

// unable says why a job cannot be sent to a region now; "" if it can.
func (m *merging) unable(r *region, job *observe.Managed, name string) string {
	to := m.region(name)
	key := jobKey{job.Namespace, job.ID}
	switch {
	case to == r:
		return ""
	case to == nil:
		return fmt.Sprintf("region %s is none that the planner plans for", name)
	case to.held != "":
		return to.held
	}
	if why := m.taken(r, to, key); why != "" {
		return why
	}
	return m.refusal(key, name)
}

// taken says why the job's name cannot be used in another region; "" if it can.
func (m *merging) taken(r, to *region, key jobKey) string {
	at := to.records[key]
	if to.Name == homeOf(r, key) {
		return "" // it comes from there
	}
	if at != nil {
		return fmt.Sprintf("region %s has a job of that name", to.Name)
	}
	return ""
}

// homeOf is the region that has sent a job to the region; "" if it was submitted
// there.
func homeOf(r *region, key jobKey) string {
	if rec := r.records[key]; rec != nil {
		return rec.Home
	}
	return ""
}
