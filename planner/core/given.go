package core

import (
	"maps"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// take takes over nodes, jobs and allocations.
func (p *Prepared) take(s *model.Snapshot) {
	p.nodes = make(map[string]*model.Node, len(s.Nodes))
	p.jobs = make(map[jobKey]*model.Job, len(s.Jobs))
	p.allocs = make(map[string]*model.Alloc, len(s.Allocs))
	for i := range s.Nodes {
		p.nodes[s.Nodes[i].ID] = &s.Nodes[i]
	}
	for i := range s.Jobs {
		p.jobs[keyOf(&s.Jobs[i])] = &s.Jobs[i]
		p.setOut(&s.Jobs[i])
	}
	for i := range s.Allocs {
		p.allocs[s.Allocs[i].ID] = &s.Allocs[i]
	}
}

// allJobs are the jobs in no particular order: as they lie in memory, if that is
// known.
func (p *Prepared) allJobs() func(yield func(*model.Job) bool) {
	if p.given == nil {
		return maps.Values(p.jobs)
	}
	return each(p.given)
}

// each goes through a list.
func each[T any](list []T) func(yield func(*T) bool) {
	return func(yield func(*T) bool) {
		for i := range list {
			if !yield(&list[i]) {
				return
			}
		}
	}
}
