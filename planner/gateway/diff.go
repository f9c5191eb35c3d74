package gateway

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// The types of a diff, as Nomad's CLI and UI know them.
const (
	diffNone    = "None"
	diffAdded   = "Added"
	diffDeleted = "Deleted"
	diffEdited  = "Edited"
)

// notCompared are fields that no user wrote, or that stand elsewhere in a diff:
// the ID is the diff's own, and update, migrate and reschedule were merged into
// the groups.
var notCompared = map[string]bool{
	"ID": true, "TaskGroups": true, "Update": true, "Migrate": true, "Reschedule": true,
	"Stop": true, "Dispatched": true, "DispatchIdempotencyToken": true,
	"NomadTokenID": true, "Status": true, "StatusDescription": true, "Stable": true,
	"Version": true, "SubmitTime": true, "CreateIndex": true, "ModifyIndex": true,
	"JobModifyIndex": true, "VersionTag": true,
}

// diffJobs says what a user changed between two submissions of a job, in the
// form that Nomad's plan has: fields, objects, groups, tasks. Neither has a
// gate or pins in it, so neither shows. A nil old is a job that is new.
func diffJobs(old, new *api.Job) (*api.JobDiff, error) {
	after, err := canonicalCopy(new)
	if err != nil {
		return nil, err
	}
	d := &api.JobDiff{ID: *after.ID}
	before, o := &api.Job{}, reflect.Value{}
	if old != nil {
		if before, err = canonicalCopy(old); err != nil {
			return nil, err
		}
		o = reflect.ValueOf(before).Elem()
	}
	d.Fields, d.Objects = diffStruct(o, reflect.ValueOf(after).Elem(), notCompared)
	for _, p := range pairByName(before.TaskGroups, after.TaskGroups, func(g *api.TaskGroup) string { return *g.Name }) {
		if g := diffGroup(p.old, p.new); g.Type != diffNone {
			d.TaskGroups = append(d.TaskGroups, g)
		}
	}
	d.Type = diffType(old != nil, true, len(d.Fields)+len(d.Objects)+len(d.TaskGroups) > 0)
	return d, nil
}

// canonicalCopy completes a job with Nomad's defaults, so that a value written
// out and the same value left out are no difference.
func canonicalCopy(job *api.Job) (*api.Job, error) {
	out, err := gangspec.Copy(job)
	if err != nil {
		return nil, fmt.Errorf("compare job: %w", err)
	}
	out.Canonicalize()
	if deref(out.NodePool) == "" {
		out.NodePool = new(api.NodePoolDefault)
	}
	if len(out.Datacenters) == 0 {
		out.Datacenters = []string{"*"}
	}
	return out, nil
}

var groupSkipped = map[string]bool{"Name": true, "Tasks": true}

func diffGroup(old, new *api.TaskGroup) *api.TaskGroupDiff {
	d := &api.TaskGroupDiff{}
	o, n := reflect.ValueOf(old).Elem(), reflect.ValueOf(new).Elem()
	d.Fields, d.Objects = diffStruct(o, n, groupSkipped)
	var oldTasks, newTasks []*api.Task
	if old != nil {
		d.Name, oldTasks = *old.Name, old.Tasks
	}
	if new != nil {
		d.Name, newTasks = *new.Name, new.Tasks
	}
	for _, p := range pairByName(oldTasks, newTasks, func(t *api.Task) string { return t.Name }) {
		if t := diffTask(p.old, p.new); t.Type != diffNone {
			d.Tasks = append(d.Tasks, t)
		}
	}
	d.Type = diffType(old != nil, new != nil, len(d.Fields)+len(d.Objects)+len(d.Tasks) > 0)
	annotateCount(d.Fields)
	return d
}

func annotateCount(fields []*api.FieldDiff) {
	for _, f := range fields {
		if f.Name != "Count" {
			continue
		}
		// An absent count is the count 0 of a group that is not there.
		before, _ := strconv.Atoi(f.Old)
		after, _ := strconv.Atoi(f.New)
		if before < after {
			f.Annotations = append(f.Annotations, "forces create")
		} else {
			f.Annotations = append(f.Annotations, "forces destroy")
		}
	}
}

var taskSkipped = map[string]bool{"Name": true}

// inPlace are the parts of a task that Nomad changes without restarting it.
var inPlace = map[string]bool{
	"KillTimeout": true, "LogConfig": true, "Service": true, "Constraint": true,
	"Affinity": true, "ScalingPolicy": true,
}

func diffTask(old, new *api.Task) *api.TaskDiff {
	d := &api.TaskDiff{}
	d.Fields, d.Objects = diffStruct(reflect.ValueOf(old).Elem(), reflect.ValueOf(new).Elem(), taskSkipped)
	if old != nil {
		d.Name = old.Name
	}
	if new != nil {
		d.Name = new.Name
	}
	d.Type = diffType(old != nil, new != nil, len(d.Fields)+len(d.Objects) > 0)
	switch d.Type {
	case diffAdded:
		d.Annotations = []string{"forces create"}
	case diffDeleted:
		d.Annotations = []string{"forces destroy"}
	case diffEdited:
		d.Annotations = []string{"forces in-place update"}
		restarts := slices.ContainsFunc(d.Fields, func(f *api.FieldDiff) bool { return !inPlace[f.Name] }) ||
			slices.ContainsFunc(d.Objects, func(o *api.ObjectDiff) bool { return !inPlace[o.Name] })
		if restarts {
			d.Annotations = []string{"forces create/destroy update"}
		}
	}
	return d
}

func diffType(old, new, changed bool) string {
	switch {
	case !old && new:
		return diffAdded
	case old && !new:
		return diffDeleted
	case changed:
		return diffEdited
	}
	return diffNone
}

// pair is one thing before and after; the zero T where it was not there.
type pair[T any] struct{ old, new T }

// pairByName pairs the elements of two lists by name, in the order of the new
// list, then what is gone.
func pairByName[T any](old, new []T, name func(T) string) []pair[T] {
	left := map[string][]T{}
	for _, o := range old {
		left[name(o)] = append(left[name(o)], o)
	}
	var out []pair[T]
	for _, n := range new {
		p := pair[T]{new: n}
		if same := left[name(n)]; len(same) > 0 {
			p.old, left[name(n)] = same[0], same[1:]
		}
		out = append(out, p)
	}
	for _, o := range old {
		if same := left[name(o)]; len(same) > 0 {
			out = append(out, pair[T]{old: same[0]})
			left[name(o)] = same[1:]
		}
	}
	return out
}
