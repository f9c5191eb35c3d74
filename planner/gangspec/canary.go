package gangspec

import (
	"maps"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// UpdateOf is a group's update block as Nomad completes it.
func UpdateOf(job *api.Job, group string) *api.UpdateStrategy {
	out := api.DefaultUpdateStrategy()
	out.Merge(job.Update)
	for _, g := range job.TaskGroups {
		if g != nil && deref(g.Name) == group {
			out.Merge(g.Update)
		}
	}
	return out
}

// Canaries says how many members of each group of a service job are to run the
// version next beside the version before until they are promoted; nil for
// none. Only groups have canaries that the new version restarts, as in Nomad.
// Where members stand alone it is the update block's canary, at most all of
// them. A gang is one, so whatever canary says above 0 is one gang more: the
// group's members, or all of the job's.
func Canaries(before, next *api.Job) map[string]int {
	if before == nil || next == nil || Type(next) != api.JobTypeService {
		return nil
	}
	// Faults elsewhere in the contract do not matter here.
	spec, _ := Parse(next)
	out, all, lone := map[string]int{}, map[string]int{}, false
	for _, g := range next.TaskGroups {
		if g == nil || Count(g) == 0 {
			continue
		}
		name := deref(g.Name)
		all[name] = Count(g)
		lone = lone || ownVolume(g)
		switch n := deref(UpdateOf(next, name).Canary); {
		case n <= 0, ownVolume(g), !restarts(before, next, g):
		case spec.Gang == model.GangNone:
			out[name] = min(n, Count(g))
		default:
			out[name] = Count(g)
		}
	}
	switch {
	case len(out) == 0, lone && spec.Gang == model.GangJob:
		return nil
	case spec.Gang == model.GangJob:
		return all
	}
	return out
}

// restarts says whether the members of a group of the version next run
// something else than those of the version before. What only says where, how
// many and how they are updated does not.
func restarts(before, next *api.Job, g *api.TaskGroup) bool {
	for _, old := range before.TaskGroups {
		if old != nil && deref(old.Name) == deref(g.Name) {
			return Hash(running(before, old)) != Hash(running(next, g))
		}
	}
	return true
}

// running is a job of what a group's members are started with.
func running(job *api.Job, g *api.TaskGroup) *api.Job {
	own := *g
	own.Count, own.Update, own.Migrate, own.Scaling = nil, nil, nil, nil
	own.Constraints, own.Affinities, own.Spreads = nil, nil, nil
	own.ReschedulePolicy, own.Disconnect = nil, nil
	own.Meta = maps.Clone(job.Meta)
	if own.Meta == nil {
		own.Meta = map[string]string{}
	}
	maps.Copy(own.Meta, g.Meta)
	return &api.Job{ID: job.ID, Name: job.Name, Type: job.Type, TaskGroups: []*api.TaskGroup{&own}}
}

// ownVolume says whether each member of a group has a volume of its own, which
// a canary could not have beside it.
func ownVolume(g *api.TaskGroup) bool {
	if g == nil {
		return false
	}
	for _, v := range g.Volumes {
		if v != nil && v.PerAlloc {
			return true
		}
	}
	return false
}

// PromotesItself says whether healthy canaries of a job become part of it
// without a person: every group with canaries says auto_promote, as in Nomad.
func PromotesItself(job *api.Job) bool {
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		if u := UpdateOf(job, deref(g.Name)); deref(u.Canary) > 0 && !deref(u.AutoPromote) {
			return false
		}
	}
	return true
}
