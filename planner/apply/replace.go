package apply

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// A gang that is stopped because the nodes or GPUs of some of its members have
// failed comes back to the places of the others, if it can: its record says which
// these are until it is placed again, so that the core keeps them for it. What
// fails until then is replaced with the rest, in one restart.

// placeTroubles are what befalls a member's place, with what is said of its node.
var placeTroubles = map[string]string{
	"lost": "is lost", "purged": "is gone", "unfit": "was found unfit", "drain": "is drained",
	"sick": "has a GPU that is unhealthy", "vanished": "has a GPU that its device plugin does not list",
}

// failedPlaces are the places that are lost among what is wrong with a job.
func (j *job) failedPlaces(bad []trouble) []model.FailedPlace {
	var out []model.FailedPlace
	for _, t := range bad {
		if why := placeTroubles[t.kind]; why != "" {
			m := t.member.Member
			out = append(out, model.FailedPlace{Group: m.Group, Index: m.Index, Node: m.Node, Why: why})
		}
	}
	return out
}

// noteReplaced notes in a step that stops gangs what they had, if it is nobody's
// fault but that of some members' places.
func (j *job) noteReplaced(step *Step, bad []trouble) {
	if step == nil || step.Put == nil || step.Kind != KindRollback && step.Kind != KindTrim || !j.gangs() || len(j.states) < 2 {
		return
	}
	failed := j.failedPlaces(bad)
	if len(failed) < len(bad) {
		return
	}
	out := &model.Replacement{At: j.now(), Failed: failed}
	stays := map[string]bool{}
	for _, m := range step.Put.Members {
		stays[m.Group] = step.Kind == KindTrim
	}
	for _, s := range j.states {
		if m := s.Member; !stays[m.Group] && !m.Ended {
			out.Members = append(out.Members, m)
		}
	}
	step.Put.Replace = out
}

// replacedBy is what is left of a replacement when members are placed.
func (j *job) replacedBy(placed []model.Member) *model.Replacement {
	if j.rec.Replace == nil || j.m.Model.Gang != model.GangGroup {
		return nil
	}
	out := *j.rec.Replace
	there := func(group string) bool {
		return slices.ContainsFunc(placed, func(m model.Member) bool { return m.Group == group })
	}
	out.Members = slices.DeleteFunc(slices.Clone(out.Members), func(m model.Member) bool { return there(m.Group) })
	out.Failed = slices.DeleteFunc(slices.Clone(out.Failed), func(f model.FailedPlace) bool { return there(f.Group) })
	if len(out.Failed) == 0 {
		return nil
	}
	return &out
}
