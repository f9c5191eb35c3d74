package gangspec

import (
	"fmt"
	"reflect"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Rolls says whether a running service job can go from one version to the next
// where it is, a few gangs at a time: both ask for the same members on the same
// nodes. levels names the operator's levels, as for Parse.
func Rolls(before, next *api.Job, levels ...string) bool {
	if before == nil || next == nil || Type(before) != api.JobTypeService || Type(next) != api.JobTypeService {
		return false
	}
	from, err := Parse(before, levels...)
	if err != nil {
		return false
	}
	to, err := Parse(next, levels...)
	if err != nil {
		return false
	}
	return reflect.DeepEqual(shape(before, from), shape(next, to))
}

// CountChange is another count of a group.
type CountChange struct {
	Group    string
	From, To int
}

// Resizes lists the groups whose counts change from one version to the next,
// in the order of the job; false if anything else changes too, or nothing
// does. levels names the operator's levels, as for Parse.
func Resizes(before, next *api.Job, levels ...string) (changes []CountChange, ok bool) {
	if before == nil || next == nil || len(before.TaskGroups) != len(next.TaskGroups) {
		return nil, false
	}
	from, errFrom := Parse(before, levels...)
	to, errTo := Parse(next, levels...)
	if errFrom != nil || errTo != nil || from.Gang != to.Gang {
		return nil, false
	}
	same, err := WithCounts(next, before)
	if err != nil || Hash(same) != Hash(before) {
		return nil, false
	}
	for i, b := range from.Groups {
		if n := to.Groups[i].Count; n != b.Count {
			changes = append(changes, CountChange{Group: b.Group, From: b.Count, To: n})
		}
	}
	return changes, len(changes) > 0
}

// WithCounts is a copy of a job in which the groups have the counts that those
// of the same names have in another one.
func WithCounts(job, counts *api.Job) (*api.Job, error) {
	out, err := Copy(job)
	if err != nil {
		return nil, err
	}
	for _, g := range out.TaskGroups {
		for _, o := range counts.TaskGroups {
			if g != nil && o != nil && deref(g.Name) == deref(o.Name) {
				g.Count = new(Count(o))
			}
		}
	}
	return out, nil
}

// shape is what a placement depends on.
func shape(job *api.Job, spec Spec) model.Job {
	out := ToModel(Explicit(job), spec)
	out.Priority, out.PriorityClass, out.Queue, out.Duration, out.Deadline, out.Preempt = 0, "", "", 0, time.Time{}, ""
	return out
}

// Warnings says what of a managed job's file Caravan does otherwise than Nomad
// would, one sentence each, for whoever submits it.
func Warnings(job *api.Job) []string {
	if job == nil || Type(job) != api.JobTypeService {
		return nil
	}
	// Faults elsewhere in the contract do not matter here.
	spec, _ := Parse(job)
	var out []string
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		name := deref(g.Name)
		u := UpdateOf(job, name)
		n := deref(u.Canary)
		switch {
		case n <= 0:
		case ownVolume(g):
			out = append(out, fmt.Sprintf("group %q: update.canary = %d is not done: a volume with per_alloc belongs to one member, and a canary beside it would need it too; the update replaces max_parallel = %d gangs at a time", name, n, deref(u.MaxParallel)))
		case spec.Gang == model.GangGroup && n != Count(g):
			out = append(out, fmt.Sprintf("group %q: update.canary = %d is one more gang of %d: the group starts together, so it is tried whole", name, n, Count(g)))
		case spec.Gang == model.GangJob && n != Count(g):
			out = append(out, fmt.Sprintf("group %q: update.canary = %d is one more gang: all groups of the job start together, so it is tried whole", name, n))
		case spec.Gang == model.GangNone && n > Count(g):
			out = append(out, fmt.Sprintf("group %q: update.canary = %d is %d: no more canaries than members", name, n, Count(g)))
		}
	}
	return out
}
