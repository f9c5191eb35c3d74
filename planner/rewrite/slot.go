package rewrite

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// A canary runs beside the member that it may take the place of, so it needs a
// task group of another name, and keeps it: another name would restart it. The
// slot tells such groups apart. It is the version of the job that brought the
// canary, so no name comes back that Nomad remembers failures of.

// slotMark stands between a group's name and its slot.
const slotMark = "-v"

// GroupName returns the name in Nomad of the task group of a member: the
// user's group, or one split off with an index, in a slot.
func GroupName(orig *api.Job, group string, index int, split bool, slot int) string {
	name := group
	if split {
		name = SplitName(orig, group, index)
	}
	if slot == 0 {
		return name
	}
	name += slotMark + strconv.Itoa(slot)
	for lookup(orig, name) != nil {
		name += "_"
	}
	return name
}

// Slot says which slot a task group of a rewritten job is in.
func Slot(g *api.TaskGroup) int {
	if g == nil {
		return 0
	}
	slot, err := strconv.Atoi(g.Meta[gangspec.KeySlot])
	if err != nil || slot < 0 || g.Meta[gangspec.KeyGroup] == "" {
		return 0
	}
	return slot
}

// SlotByName is Slot for a group that the job may not have any more, by the
// group's name alone.
func SlotByName(orig *api.Job, name string) int {
	_, slot := cutSlot(orig, name)
	return slot
}

// cutSlot takes the slot off a group's name.
func cutSlot(orig *api.Job, name string) (base string, slot int) {
	if orig == nil || lookup(orig, name) != nil {
		return name, 0
	}
	bare := strings.TrimRight(name, "_")
	at := strings.LastIndex(bare, slotMark)
	if at < 0 {
		return name, 0
	}
	slot, err := strconv.Atoi(bare[at+len(slotMark):])
	if err != nil || slot <= 0 {
		return name, 0
	}
	base = bare[:at]
	group, index, split := originByName(orig, base)
	if lookup(orig, group) == nil || GroupName(orig, group, index, split, slot) != name {
		return name, 0
	}
	return base, slot
}

// inSlot puts a group of the user's, or one that was split off, into a slot.
func inSlot(orig *api.Job, g *api.TaskGroup, slot int) {
	if slot == 0 {
		return
	}
	group, index, split := Origin(g)
	name := GroupName(orig, group, index, split, slot)
	if !split {
		// One that was split off has had these from splitOff.
		nameServices(orig, g, g.Services, "")
		for _, t := range g.Tasks {
			nameServices(orig, g, t.Services, t.Name)
			restoreEnv(t, slotEnv(orig, group))
		}
		g.Scaling = nil
	}
	g.Name = &name
	setMeta(g, gangspec.KeyGroup, group)
	setMeta(g, gangspec.KeySlot, strconv.Itoa(slot))
}

func inOneSlot(members []model.Member) bool {
	return !slices.ContainsFunc(members, func(m model.Member) bool { return m.Slot != members[0].Slot })
}

// slotEnv is what the tasks of a group see that is in a slot: what they would
// see in their own.
func slotEnv(orig *api.Job, group string) map[string]string {
	return map[string]string{
		envGroup:     group,
		envAllocName: fmt.Sprintf("%s.%s[${%s}]", orEmpty(orig.ID), group, envIndex),
	}
}

// restoreEnv sets variables that a task has not set by itself.
func restoreEnv(t *api.Task, env map[string]string) {
	if t.Env == nil {
		t.Env = map[string]string{}
	}
	for k, v := range env {
		if _, taken := t.Env[k]; !taken {
			t.Env[k] = v
		}
	}
}
