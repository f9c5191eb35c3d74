package core

import (
	"maps"
	"slices"
	"strconv"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// asked is what one member of a task group asks for: whole GPUs of a model, or
// instances of it.
type asked struct {
	model   string
	profile string
	count   int
}

func (a asked) instance() string { return a.model + mig.Mark + a.profile }

// asks finds out which devices of a model a group's members could have. Whoever
// takes whole GPUs too waits for those. It is false if it asks for something else.
func (d *divider) asks(group *model.TaskGroup, whole string, geometry mig.Geometry) (asked, bool) {
	if len(group.Devices) != 1 || group.Devices[0].Count == 0 {
		return asked{}, false
	}
	ask := group.Devices[0]
	checker := d.catalog.Nodes.Checker()
	kind := d.kindOf(whole)
	if checker.MatchesDevice(ask, &kind) {
		return asked{whole, "", ask.Count}, true
	}
	for _, p := range geometry.Profiles {
		instance := d.kindOf(whole + mig.Mark + p.Name)
		if instance.Attributes[attrProfile] == "" {
			instance.Attributes = maps.Clone(kind.Attributes)
			if instance.Attributes == nil {
				instance.Attributes = map[string]string{}
			}
			instance.Attributes[attrProfile], instance.Attributes[attrSlices] = p.Name, strconv.Itoa(p.Compute)
		}
		if checker.MatchesDevice(ask, &instance) {
			return asked{whole, p.Name, ask.Count}, true
		}
	}
	return asked{}, false
}

// The attributes of instances that constraints name.
const (
	attrProfile = "mig_profile"
	attrSlices  = "mig_slices"
)

// kindOf is a device group as constraints see it, of which there may be none now.
func (d *divider) kindOf(name string) feasible.DeviceGroup {
	for i := range d.tree.Kinds {
		if k := &d.tree.Kinds[i]; k.Model == name {
			return feasible.DeviceGroup{Vendor: k.Vendor, Type: k.Type, Model: k.Model, Attributes: k.Attributes, Shared: k.Shared}
		}
	}
	return feasible.DeviceGroup{Vendor: "nvidia", Type: "gpu", Model: name}
}

// note notes which instances a gang waits for.
func (d *divider) note(g *gang) {
	for _, group := range g.groups {
		d.noteGroup(group)
	}
}

func (d *divider) noteGroup(group *model.TaskGroup) {
	for _, whole := range d.models() {
		if a, ok := d.asked(group, whole); ok && a.profile != "" {
			d.wanted[a.instance()] = true
		}
	}
}

// noteWaiting notes for which instances jobs wait that may start.
func (d *divider) noteWaiting() {
	d.wanted = map[string]bool{}
	for _, j := range d.cycle.Prepared.queue() {
		if j.Hold != "" || j.RetryAfter.After(d.now) {
			continue
		}
		for i := range j.Groups {
			d.noteGroup(&j.Groups[i])
		}
	}
}

// models are those of the GPUs that can be divided.
func (d *divider) models() []string {
	if d.names == nil {
		d.names = []string{}
		for i := range d.all {
			if !slices.Contains(d.names, d.all[i].model) {
				d.names = append(d.names, d.all[i].model)
			}
		}
		slices.Sort(d.names)
	}
	return d.names
}

// asked is asks, which is not found out twice of device blocks alike.
func (d *divider) asked(group *model.TaskGroup, whole string) (asked, bool) {
	if len(group.Devices) != 1 {
		return asked{}, false
	}
	ask := &group.Devices[0]
	geometry, _ := mig.Of(whole)
	if len(ask.Constraints) > 0 {
		return d.asks(group, whole, geometry)
	}
	key := askKey{whole, ask.Name, ask.Count}
	known, ok := d.known[key]
	if !ok {
		known, _ = d.asks(group, whole, geometry)
		d.known[key] = known
	}
	return known, known.count > 0
}

// askKey is what a device block without constraints asks for, of GPUs of a model.
type askKey struct {
	model, name string
	count       int
}
