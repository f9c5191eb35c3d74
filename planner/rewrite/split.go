package rewrite

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// The variables that Nomad sets for every task and that a split would change.
// In a split group the task's own environment restores them.
const (
	envIndex     = "NOMAD_ALLOC_INDEX"
	envGroup     = "NOMAD_GROUP_NAME"
	envAllocName = "NOMAD_ALLOC_NAME"
)

// SplitName returns the name of the task group that a member gets for its own:
// GROUP-INDEX, with underscores behind it if the job has a group of that name.
func SplitName(orig *api.Job, group string, index int) string {
	name := fmt.Sprintf("%s-%d", group, index)
	for lookup(orig, name) != nil {
		name += "_"
	}
	return name
}

// Origin says which of the user's groups a task group of a rewritten job
// belongs to, whatever its slot; for one that was split off, with the member's
// index and split set.
func Origin(g *api.TaskGroup) (group string, index int, split bool) {
	if g == nil {
		return "", 0, false
	}
	i, err := strconv.Atoi(g.Meta[gangspec.KeyIndex])
	switch name := g.Meta[gangspec.KeyGroup]; {
	case name != "" && err == nil && i >= 0:
		return name, i, true
	case name != "" && strings.HasPrefix(nameOf(g), name+restMark):
		return name, 0, false
	}
	if Slot(g) > 0 {
		return g.Meta[gangspec.KeyGroup], 0, false
	}
	return nameOf(g), 0, false
}

// OriginByName is Origin for a group that the job may not have any more, by
// the group's name alone.
func OriginByName(orig *api.Job, name string) (group string, index int, split bool) {
	base, _ := cutSlot(orig, name)
	return originByName(orig, base)
}

func originByName(orig *api.Job, name string) (group string, index int, split bool) {
	if orig == nil || lookup(orig, name) != nil {
		return name, 0, false
	}
	bare := strings.TrimRight(name, "_")
	if group, is := strings.CutSuffix(bare, restMark); is && lookup(orig, group) != nil && restName(orig, group) == name {
		return group, 0, false
	}
	at := strings.LastIndexByte(bare, '-')
	if at < 0 {
		return name, 0, false
	}
	index, err := strconv.Atoi(bare[at+1:])
	if err != nil || lookup(orig, bare[:at]) == nil || SplitName(orig, bare[:at], index) != name {
		return name, 0, false
	}
	return bare[:at], index, true
}

// splitOff returns a group of one member. What the member's tasks see of
// their group's name and their index is what they would see without the
// split.
func splitOff(orig *api.Job, g *api.TaskGroup, index int) (*api.TaskGroup, error) {
	out, err := copyGroup(g)
	if err != nil {
		return nil, err
	}
	total := gangspec.Count(g)
	out.Name, out.Count, out.Scaling = new(SplitName(orig, nameOf(g), index)), new(1), nil
	setMeta(out, gangspec.KeyGroup, nameOf(g))
	setMeta(out, gangspec.KeyIndex, strconv.Itoa(index))
	setMeta(out, gangspec.KeyCount, strconv.Itoa(total))
	for _, v := range out.Volumes {
		if v.PerAlloc {
			v.Source, v.PerAlloc = perAllocSource(v.Source, index), false
		}
	}
	nameServices(orig, g, out.Services, "")
	for _, t := range out.Tasks {
		nameServices(orig, g, t.Services, t.Name)
		restoreEnv(t, splitEnv(orig, nameOf(g), index))
	}
	return out, nil
}

func splitEnv(orig *api.Job, group string, index int) map[string]string {
	return map[string]string{
		envIndex:     strconv.Itoa(index),
		envGroup:     group,
		envAllocName: fmt.Sprintf("%s.%s[%d]", orEmpty(orig.ID), group, index),
	}
}

func perAllocSource(source string, index int) string { return fmt.Sprintf("%s[%d]", source, index) }

// nameServices writes out the names that Nomad would make of the group's name.
func nameServices(orig *api.Job, g *api.TaskGroup, services []*api.Service, task string) {
	within := task
	if within == "" {
		within = "group"
	}
	job := orEmpty(orig.ID)
	if name := orEmpty(orig.Name); name != "" {
		job = name
	}
	for _, s := range services {
		switch {
		case s.Name != "":
			s.Name = strings.NewReplacer(
				"${TASKGROUP}", nameOf(g), "${BASE}", job+"-"+nameOf(g)+"-"+within,
			).Replace(s.Name)
		case task != "":
			s.Name = job + "-" + nameOf(g) + "-" + task
		default:
			s.Name = job + "-" + nameOf(g)
		}
	}
}

func setMeta(g *api.TaskGroup, key, value string) {
	if g.Meta == nil {
		g.Meta = map[string]string{}
	}
	g.Meta[key] = value
}

func copyGroup(g *api.TaskGroup) (*api.TaskGroup, error) {
	job, err := gangspec.Copy(&api.Job{TaskGroups: []*api.TaskGroup{g}})
	if err != nil {
		return nil, err
	}
	return job.TaskGroups[0], nil
}
