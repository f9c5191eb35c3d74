package sched

import (
	"maps"

	"github.com/hashicorp/nomad/api"
)

// proposal is what the nodes would hold if the plan so far were carried out.
// An allocation that was told to stop earlier still holds everything until
// its client reports it ended; one that this plan stops does not.
type proposal struct {
	st    State
	nodes map[string]map[string]*api.Allocation
}

func newProposal(st State) *proposal {
	return &proposal{st: st, nodes: map[string]map[string]*api.Allocation{}}
}

func (p *proposal) on(node string) map[string]*api.Allocation {
	m := p.nodes[node]
	if m == nil {
		m = map[string]*api.Allocation{}
		for _, a := range p.st.AllocsOfNode(node) {
			if !a.ClientTerminalStatus() {
				m[a.ID] = a
			}
		}
		p.nodes[node] = m
	}
	return m
}

func (p *proposal) add(a *api.Allocation)    { p.on(a.NodeID)[a.ID] = a }
func (p *proposal) remove(a *api.Allocation) { delete(p.on(a.NodeID), a.ID) }

func (p *proposal) restore(a *api.Allocation) {
	if !a.ClientTerminalStatus() {
		p.on(a.NodeID)[a.ID] = a
	}
}

// without is a node's content less some allocations.
func (p *proposal) without(node string, gone map[string]bool) map[string]*api.Allocation {
	m := maps.Clone(p.on(node))
	for id := range gone {
		delete(m, id)
	}
	return m
}
