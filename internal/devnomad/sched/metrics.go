package sched

import (
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// metrics collects why nodes were refused, as Nomad reports it.
type metrics struct{ api.AllocationMetric }

func filter(m *metrics, n *state.Node, reason string) {
	m.NodesFiltered++
	if n.NodeClass != "" {
		count(&m.ClassFiltered, n.NodeClass)
	}
	if reason != "" {
		count(&m.ConstraintFiltered, reason)
	}
}

func exhaust(m *metrics, n *state.Node, dimension string) {
	m.NodesExhausted++
	if n.NodeClass != "" {
		count(&m.ClassExhausted, n.NodeClass)
	}
	if dimension != "" {
		count(&m.DimensionExhausted, dimension)
	}
}

func count(m *map[string]int, key string) {
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[key]++
}

// exhaustResources notes, for a failed group, what its tasks asked for of the
// dimensions that were exhausted.
func exhaustResources(m *api.AllocationMetric, tg *api.TaskGroup) {
	if m.DimensionExhausted["memory"] == 0 && m.DimensionExhausted["cpu"] == 0 {
		return
	}
	if m.ResourcesExhausted == nil {
		m.ResourcesExhausted = map[string]*api.Resources{}
	}
	for _, t := range tg.Tasks {
		r := m.ResourcesExhausted[t.Name]
		if r == nil {
			r = &api.Resources{CPU: ptr(0), MemoryMB: ptr(0)}
			m.ResourcesExhausted[t.Name] = r
		}
		if m.DimensionExhausted["memory"] > 0 {
			*r.MemoryMB += deref(t.Resources.MemoryMB)
		}
		if m.DimensionExhausted["cpu"] > 0 {
			*r.CPU += deref(t.Resources.CPU)
		}
	}
}
