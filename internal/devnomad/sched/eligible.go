package sched

import (
	"github.com/hashicorp/nomad/api"
)

type verdict int

const (
	unknown verdict = iota
	ineligible
	eligible
	escaped
)

// eligibility remembers which computed node classes can run a job and its
// groups, for one evaluation. What was found for one node of a class is taken
// for granted for all its others, unless a constraint names something unique
// to a node. Device checks are cached too, although a device constraint may
// name single devices: a pin that stands on the job alone therefore fails at
// random among nodes of one class.
type eligibility struct {
	job         map[string]verdict
	jobEscaped  bool
	groups      map[string]map[string]verdict
	groupEscape map[string]bool
}

func newEligibility(job *api.Job) *eligibility {
	e := &eligibility{job: map[string]verdict{}, groups: map[string]map[string]verdict{}, groupEscape: map[string]bool{}}
	if job == nil {
		return e
	}
	e.jobEscaped = anyEscapes(job.Constraints)
	for _, tg := range job.TaskGroups {
		e.groupEscape[*tg.Name] = anyEscapes(groupConstraints(tg))
	}
	return e
}

// groupConstraints are a group's own and its tasks'.
func groupConstraints(tg *api.TaskGroup) []*api.Constraint {
	out := append([]*api.Constraint(nil), tg.Constraints...)
	for _, t := range tg.Tasks {
		out = append(out, t.Constraints...)
	}
	return out
}

func (e *eligibility) escaped() bool {
	if e.jobEscaped {
		return true
	}
	for _, esc := range e.groupEscape {
		if esc {
			return true
		}
	}
	return false
}

// classes is what a blocked evaluation remembers: classes that it does not
// list are new to it.
func (e *eligibility) classes() map[string]bool {
	out := map[string]bool{}
	for _, classes := range e.groups {
		for class, v := range classes {
			out[class] = out[class] || v == eligible
		}
	}
	for class, v := range e.job {
		if v == ineligible {
			out[class] = false
		} else if _, ok := out[class]; !ok {
			out[class] = true
		}
	}
	return out
}

func (e *eligibility) jobVerdict(class string) verdict {
	if e.jobEscaped {
		return escaped
	}
	return e.job[class]
}

func (e *eligibility) groupVerdict(group, class string) verdict {
	if e.groupEscape[group] {
		return escaped
	}
	return e.groups[group][class]
}

func (e *eligibility) setJob(class string, v verdict) {
	if !e.jobEscaped {
		e.job[class] = v
	}
}

func (e *eligibility) setGroup(group, class string, v verdict) {
	if e.groupEscape[group] {
		return
	}
	if e.groups[group] == nil {
		e.groups[group] = map[string]verdict{}
	}
	e.groups[group][class] = v
}
