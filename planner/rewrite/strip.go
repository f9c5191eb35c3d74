package rewrite

import (
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// Strip returns the job as its user wrote it: without gate and pins, the
// groups that were split put together, and without what Nomad's servers set.
// What a rewrite takes away (update and scaling blocks, the ui block) comes
// back from orig, the original as it is remembered; without one (nil) what is
// there stays.
func Strip(cur, orig *api.Job) (*api.Job, error) {
	job, err := submitted(cur)
	if err != nil {
		return nil, err
	}
	pinned := IsPinned(job)
	job.Constraints = own(job.Constraints)
	var groups []*api.TaskGroup
	byName := map[string]int{}
	job.TaskGroups = slices.DeleteFunc(job.TaskGroups, IsCanary)
	for _, g := range job.TaskGroups {
		if total, ok := userCount(g); ok {
			g.Count = &total
		}
		g.Constraints = own(g.Constraints)
		unpinDevices(g)
		unidentify(g)
		rest := g.Meta[gangspec.KeyCount] != "" && g.Meta[gangspec.KeyIndex] == ""
		unsplit(job, g)
		at, seen := byName[nameOf(g)]
		switch {
		case !seen:
			byName[nameOf(g)] = len(groups)
			groups = append(groups, g)
		case rest:
			// The remainder of a split group is as the user wrote it.
			groups[at] = g
		}
	}
	job.TaskGroups = groups
	if pinned && orig == nil {
		job.AllAtOnce = nil
	}
	if orig != nil {
		restore(job, orig, pinned)
	}
	return job, nil
}

// own returns what is the user's of a list of constraints.
func own(in []*api.Constraint) []*api.Constraint {
	if at := indexOf(in, isMarker); at >= 0 {
		in = in[:at]
	}
	return slices.DeleteFunc(in, isGate)
}

func unpinDevices(g *api.TaskGroup) {
	for _, ask := range asks(g) {
		ask.Constraints = slices.DeleteFunc(ask.Constraints, isDevicePin)
	}
}

// unsplit gives a group that was split off, or what was left of it, its name
// back.
func unsplit(job *api.Job, g *api.TaskGroup) {
	group, index, split := Origin(g)
	switch {
	case split:
		unsetEnv(g, splitEnv(job, group, index))
		for _, v := range g.Volumes {
			if source, ok := strings.CutSuffix(v.Source, perAllocSource("", index)); ok {
				v.Source, v.PerAlloc = source, true
			}
		}
	case Slot(g) > 0:
		unsetEnv(g, slotEnv(job, group))
	}
	g.Name = &group
	for _, key := range []string{gangspec.KeyGroup, gangspec.KeyIndex, gangspec.KeyCount, gangspec.KeySlot} {
		delete(g.Meta, key)
	}
	if len(g.Meta) == 0 {
		g.Meta = nil
	}
}

// unsetEnv takes out of a group's tasks what restoreEnv has set.
func unsetEnv(g *api.TaskGroup, env map[string]string) {
	for _, t := range g.Tasks {
		for k, v := range env {
			if t.Env[k] == v {
				delete(t.Env, k)
			}
		}
		if len(t.Env) == 0 {
			t.Env = nil
		}
	}
}

// restore takes from the original what a rewrite has put aside.
func restore(job, orig *api.Job, pinned bool) {
	job.UI = orig.UI.Copy()
	if pinned {
		job.AllAtOnce = orig.AllAtOnce
	}
	calm := gangspec.Type(job) == api.JobTypeService && isCalm(job)
	if calm {
		job.Update = orig.Update.Copy()
	}
	if calm && pinned {
		job.Migrate = orig.Migrate.Copy()
	}
	for _, g := range job.TaskGroups {
		o := lookup(orig, nameOf(g))
		if o == nil {
			continue
		}
		if calm {
			g.Update = o.Update.Copy()
		}
		if calm && pinned {
			g.Migrate = o.Migrate.Copy()
		}
		if pinned && g.Scaling == nil && o.Scaling != nil {
			scaling := *o.Scaling
			g.Scaling = &scaling
		}
	}
}

// isCalm says whether updates are as calmUpdates leaves them.
func isCalm(job *api.Job) bool {
	calm := func(u *api.UpdateStrategy) bool {
		return u == nil || u.MaxParallel != nil && *u.MaxParallel == 0
	}
	if job.Update == nil || !calm(job.Update) {
		return false
	}
	for _, g := range job.TaskGroups {
		if !calm(g.Update) {
			return false
		}
	}
	return true
}

// Release returns the job as it is in Nomad without gate and pins, so that
// Nomad schedules it by itself from now on and what runs is not touched. kept
// says that something stays that cannot go without restarting members: GPU
// lists and split groups. They go with the user's next submission, and so do
// the members' workload identities.
func Release(cur, orig *api.Job) (job *api.Job, kept bool, err error) {
	if !IsPinned(cur) {
		if job, err = Strip(cur, orig); err == nil {
			keepIdentities(job, cur)
		}
		return job, false, err
	}
	if job, err = submitted(cur); err != nil {
		return nil, false, err
	}
	job.Constraints = own(job.Constraints)
	calm := orig != nil && gangspec.Type(job) == api.JobTypeService && isCalm(job)
	if calm {
		job.Update, job.Migrate = orig.Update.Copy(), orig.Migrate.Copy()
	}
	job.TaskGroups = slices.DeleteFunc(job.TaskGroups, IsCanary)
	for _, g := range job.TaskGroups {
		g.Constraints = own(g.Constraints)
		group, _, split := Origin(g)
		if o := lookup(orNone(orig), group); calm && o != nil {
			g.Update, g.Migrate = o.Update.Copy(), o.Migrate.Copy()
		}
		kept = kept || split || Slot(g) > 0
		for _, ask := range asks(g) {
			kept = kept || slices.ContainsFunc(ask.Constraints, isDevicePin)
		}
	}
	return job, kept, nil
}

func orNone(job *api.Job) *api.Job {
	if job == nil {
		return new(api.Job)
	}
	return job
}

// Note appends a sentence on Caravan's decision and a link to the job's ui
// block; the user's own text and links stay. An empty link adds none. Nomad
// holds a description to 1,000 characters.
func Note(job *api.Job, sentence, link string) {
	const limit = 1000
	ui := job.UI.Copy()
	if ui == nil {
		ui = new(api.JobUIConfig)
	}
	if ui.Description != "" {
		sentence = ui.Description + "\n\n" + sentence
	}
	if len(sentence) <= limit {
		ui.Description = sentence
	}
	if link != "" {
		ui.Links = append(ui.Links, &api.JobUILink{Label: "Caravan's decision", URL: link})
	}
	job.UI = ui
}
