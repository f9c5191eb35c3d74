package gangspec

import (
	"slices"

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

// Canaries says how many members of each group of a service job are to run a
// new version beside the old ones before it is rolled out; nil for a job
// without canaries. Where members stand alone it is the update block's canary,
// at most all of them. A gang is one, so whatever canary says above 0 is one
// gang more: the group's members, or all of the job's.
func Canaries(job *api.Job) map[string]int {
	if job == nil || Type(job) != api.JobTypeService {
		return nil
	}
	// Faults elsewhere in the contract do not matter here.
	spec, _ := Parse(job)
	out, all, any := map[string]int{}, map[string]int{}, false
	for _, g := range job.TaskGroups {
		if g == nil || Count(g) == 0 {
			continue
		}
		name, n := deref(g.Name), max(deref(UpdateOf(job, deref(g.Name)).Canary), 0)
		all[name] = Count(g)
		switch {
		case n == 0:
		case ownVolume(g) && spec.Gang == model.GangJob:
			return nil
		case ownVolume(g):
		case spec.Gang == model.GangNone:
			out[name], any = min(n, Count(g)), true
		default:
			out[name], any = Count(g), true
		}
	}
	switch {
	case !any:
		return nil
	case spec.Gang != model.GangJob:
		return out
	case slices.ContainsFunc(job.TaskGroups, ownVolume):
		return nil
	}
	return all
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
