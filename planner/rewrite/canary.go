package rewrite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// canaryValue is what the gate is not in a constraint that every node fulfils:
// it marks the task groups of canaries until they are promoted.
const canaryValue = "canary"

// IsCanary says whether a task group of a rewritten job is a canary's that is
// not promoted.
func IsCanary(g *api.TaskGroup) bool {
	return g != nil && slices.ContainsFunc(g.Constraints, func(c *api.Constraint) bool {
		return c != nil && c.LTarget == GateAttribute && c.Operand == "!=" && c.RTarget == canaryValue
	})
}

// sortCanaries puts the canaries to their groups, and finds every fault: they
// are gangs, too, as whole as the job's own, and beside them in everything.
func (p *pinner) sortCanaries(members, canaries []model.Member) error {
	p.beside = &pinner{job: p.job, cluster: p.cluster, gang: p.gang, bounds: p.bounds, listed: p.listed, forms: p.forms}
	if len(canaries) == 0 {
		return nil
	}
	if err := p.beside.sort(canaries, nil); err != nil {
		return fmt.Errorf("place canaries: %w", err)
	}
	p.nodes = append(p.nodes, p.beside.nodes...)
	slots, gpus := map[int]bool{0: true}, map[string]bool{}
	for _, m := range members {
		slots[m.Slot] = true
		for _, id := range m.GPUs {
			gpus[id] = true
		}
	}
	var faults []string
	for _, m := range canaries {
		if slots[m.Slot] {
			faults = append(faults, fmt.Sprintf("the canary of member %d of group %q is in slot %d, in which members are", m.Index, m.Group, m.Slot))
		}
		for _, id := range m.GPUs {
			if gpus[id] {
				faults = append(faults, fmt.Sprintf("GPU %s is given to the canary of member %d of group %q and to a member", id, m.Index, m.Group))
			}
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("place canaries of job %q: %w: %s", orEmpty(p.job.ID), ErrPlacement, strings.Join(faults[:min(len(faults), maxFaults)], "; "))
}

// canaryGroups are the task groups of the canaries of one of the user's groups.
func (p *pinner) canaryGroups(g *api.TaskGroup) ([]*api.TaskGroup, error) {
	if len(p.beside.members[nameOf(g)]) == 0 {
		return nil, nil
	}
	own, err := copyGroup(g)
	if err != nil {
		return nil, err
	}
	out, err := p.beside.group(own)
	if err != nil {
		return nil, err
	}
	// Members without a canary wait for none.
	out = slices.DeleteFunc(out, func(g *api.TaskGroup) bool { return !MayPlace(g) })
	for _, c := range out {
		tagCanary(c)
		c.Constraints = append(c.Constraints, api.NewConstraint(GateAttribute, "!=", canaryValue))
	}
	return out, nil
}

// tagCanary gives the services of a canary the tags and meta that they are to
// have until it is promoted, as Nomad's clients do in a deployment. Nomad
// changes them back without a restart.
func tagCanary(g *api.TaskGroup) {
	tag := func(services []*api.Service) {
		for _, s := range services {
			if len(s.CanaryTags) > 0 {
				s.Tags = s.CanaryTags
			}
			if len(s.CanaryMeta) > 0 {
				s.Meta = s.CanaryMeta
			}
		}
	}
	tag(g.Services)
	for _, t := range g.Tasks {
		tag(t.Services)
	}
}
