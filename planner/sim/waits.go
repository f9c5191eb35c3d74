package sim

import (
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Waits implements explainer: it decides once more, with all that plans have for people, and
// as if no node was down, which is no reason to wait for ever.
func (p *planner) Waits(now float64) (job int, why string) {
	s := p.rest(now, p.history)
	s.Now = clock(now)
	for i := range p.cluster.homes() {
		n := p.node(i)
		n.Unschedulable = ""
		s.Nodes = append(s.Nodes, n)
	}
	for _, i := range slices.Sorted(maps.Keys(p.jobs)) {
		s.Jobs = append(s.Jobs, *p.jobs[i])
		job = i
	}
	plan, err := core.Decide(s, p.policy)
	if err != nil {
		return job, err.Error()
	}
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		switch d.Action {
		case model.ActionAdmit:
			return p.numbers[d.Job], "it could start if no node was down"
		case model.ActionWait:
			why, _, _ = strings.Cut(d.Reason, "; its place in the order")
			return p.numbers[d.Job], why
		}
	}
	return job, "nothing is decided on it"
}
