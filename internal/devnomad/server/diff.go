package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/hashicorp/nomad/api"
)

// The kinds of a difference.
const (
	diffNone    = "None"
	diffAdded   = "Added"
	diffDeleted = "Deleted"
	diffEdited  = "Edited"
)

// serverFields are set by the server and never shown as a difference.
var serverFields = []string{
	"Status", "StatusDescription", "Stable", "Version", "SubmitTime", "CreateIndex", "ModifyIndex", "JobModifyIndex",
	"NomadTokenID", "VersionTag", "ID", "TaskGroups", "Tasks",
}

// Diff lists what changes from one version of a job to another; old may be
// nil. It follows Nomad's form, object by object; lists of blocks are compared
// as sets.
func Diff(old, new *api.Job) *api.JobDiff {
	d := &api.JobDiff{Type: diffNone, ID: *new.ID}
	a, b := plainMap(old), plainMap(new)
	d.Fields, d.Objects = diffMaps(a, b)
	d.TaskGroups = diffGroups(a, b)
	switch {
	case old == nil:
		d.Type = diffAdded
	case len(d.Fields)+len(d.Objects) > 0 || slices.ContainsFunc(d.TaskGroups, func(g *api.TaskGroupDiff) bool { return g.Type != diffNone }):
		d.Type = diffEdited
	}
	return d
}

func diffGroups(a, b map[string]any) []*api.TaskGroupDiff {
	was, is := byName(a["TaskGroups"]), byName(b["TaskGroups"])
	var out []*api.TaskGroupDiff
	for _, name := range bothKeys(was, is) {
		g := &api.TaskGroupDiff{Name: name}
		g.Fields, g.Objects = diffMaps(was[name], is[name])
		tasksWas, tasksAre := byName(was[name]["Tasks"]), byName(is[name]["Tasks"])
		for _, task := range bothKeys(tasksWas, tasksAre) {
			t := &api.TaskDiff{Name: task}
			t.Fields, t.Objects = diffMaps(tasksWas[task], tasksAre[task])
			t.Type = kind(tasksWas[task], tasksAre[task], len(t.Fields)+len(t.Objects) > 0)
			if t.Type != diffNone {
				g.Tasks = append(g.Tasks, t)
			}
		}
		g.Type = kind(was[name], is[name], len(g.Fields)+len(g.Objects)+len(g.Tasks) > 0)
		out = append(out, g)
	}
	return out
}

func kind(a, b map[string]any, changed bool) string {
	switch {
	case a == nil:
		return diffAdded
	case b == nil:
		return diffDeleted
	case changed:
		return diffEdited
	}
	return diffNone
}

// diffMaps compares two objects: scalars become fields, all else objects.
func diffMaps(a, b map[string]any) (fields []*api.FieldDiff, objects []*api.ObjectDiff) {
	for _, k := range bothKeys(a, b) {
		if slices.Contains(serverFields, k) || reflect.DeepEqual(a[k], b[k]) {
			continue
		}
		switch {
		case k == "Env" || k == "Meta":
			x, _ := a[k].(map[string]any)
			y, _ := b[k].(map[string]any)
			for _, key := range bothKeys(x, y) {
				if !reflect.DeepEqual(x[key], y[key]) {
					fields = append(fields, diffField(k+"["+key+"]", x[key], y[key]))
				}
			}
		case isObject(a[k]) || isObject(b[k]):
			x, _ := a[k].(map[string]any)
			y, _ := b[k].(map[string]any)
			objects = append(objects, diffObject(k, x, y))
		case isList(a[k]) || isList(b[k]):
			f, o := diffLists(k, a[k], b[k])
			fields, objects = append(fields, f...), append(objects, o...)
		default:
			fields = append(fields, diffField(k, a[k], b[k]))
		}
	}
	return fields, objects
}

func diffObject(name string, a, b map[string]any) *api.ObjectDiff {
	o := &api.ObjectDiff{Name: name, Type: diffEdited}
	if len(a) == 0 {
		o.Type = diffAdded
	} else if len(b) == 0 {
		o.Type = diffDeleted
	}
	o.Fields, o.Objects = diffMaps(a, b)
	return o
}

// diffLists compares lists as sets: what is only in one of them was added or
// deleted.
func diffLists(name string, a, b any) (fields []*api.FieldDiff, objects []*api.ObjectDiff) {
	x, _ := a.([]any)
	y, _ := b.([]any)
	single := map[string]string{"Constraints": "Constraint", "Affinities": "Affinity", "Spreads": "Spread", "Networks": "Network", "Services": "Service", "Devices": "Device"}
	label := cmp.Or(single[name], name)
	only := func(p, q []any, f func(v any)) {
		for _, v := range p {
			if !slices.ContainsFunc(q, func(w any) bool { return reflect.DeepEqual(v, w) }) {
				f(v)
			}
		}
	}
	only(x, y, func(v any) {
		if m, ok := v.(map[string]any); ok {
			objects = append(objects, diffObject(label, m, nil))
		} else {
			fields = append(fields, diffField(label, v, nil))
		}
	})
	only(y, x, func(v any) {
		if m, ok := v.(map[string]any); ok {
			objects = append(objects, diffObject(label, nil, m))
		} else {
			fields = append(fields, diffField(label, nil, v))
		}
	})
	return fields, objects
}

func diffField(name string, a, b any) *api.FieldDiff {
	f := &api.FieldDiff{Name: name, Old: scalar(a), New: scalar(b), Type: diffEdited}
	if f.Old == "" {
		f.Type = diffAdded
	} else if f.New == "" {
		f.Type = diffDeleted
	}
	return f
}

func scalar(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

func isObject(v any) bool { _, ok := v.(map[string]any); return ok }
func isList(v any) bool   { _, ok := v.([]any); return ok }

func byName(v any) map[string]map[string]any {
	out := map[string]map[string]any{}
	list, _ := v.([]any)
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			name, _ := m["Name"].(string)
			out[name] = m
		}
	}
	return out
}

func bothKeys[V any](a, b map[string]V) []string {
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, there := a[k]; !there {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

// plainMap is an object as JSON sees it; nil gives nil.
func plainMap(j *api.Job) map[string]any {
	if j == nil {
		return nil
	}
	raw, err := json.Marshal(j)
	if err != nil {
		return nil
	}
	var out map[string]any
	if json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}
