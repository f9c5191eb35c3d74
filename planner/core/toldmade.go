package core

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// tellMade says what a gang waits for that has a place for which others leave.
func (c *cycle) tellMade(g *gang, m made, w *wait) {
	nodes := nodesPlaced(m.result.Placed)
	w.detail.Code, w.detail.Held = codePreempting, c.nodeIDs(nodes)
	w.detail.Level, w.detail.Domain = m.result.Level, m.result.Domain
	w.detail.Cost = m.cost
	for _, v := range slices.Concat(m.now, m.later) {
		k := keyOf(c.yield.gangs[v].job)
		if name := (model.JobName{Namespace: k.namespace, ID: k.id}); !slices.Contains(w.detail.Victims, name) {
			w.detail.Victims = append(w.detail.Victims, name)
		}
	}
	if c.terse {
		return
	}
	lo, hi := slices.Min(nodes), slices.Max(nodes)
	f := domainFit{domain: -1, node: lo, lo: lo, hi: lo + 1}
	if lo != hi {
		f.domain = c.domainAround(lo, hi)
		f.lo, f.hi = c.tree.Domains[f.domain].Lo, c.tree.Domains[f.domain].Hi
	}
	c.refine(c.truth(), g, &f)
	w.detail.MembersFit = f.fit
	w.reason = fmt.Sprintf("needs %s%s; starts in %s when %s", g.wants(), g.where(), domainName(m.result.Level, m.result.Domain), c.whenGone(&m))
	if len(m.now)+len(m.later) > 0 {
		w.reason += "; that costs " + costText(m.cost, "their checkpoints or starts")
	}
	if m.saves > 0 {
		w.reason += "; " + m.benefit()
	}
	if len(m.later) > 0 {
		w.reason += fmt.Sprintf("; %d of %d stop first, since %s", len(m.now), len(m.now)+len(m.later), c.yield.policy.Storage(c.yield.gangs[m.later[0]].job.CheckpointStorage))
	}
	names := make([]string, len(nodes))
	for i, node := range nodes {
		names[i] = nodeName(c.tree.Nodes[node].Model)
	}
	w.reason += "; kept for it: " + nameList(names)
}

// nodesPlaced are the nodes of members, each once, in the order of the members.
func nodesPlaced(placed []place.Placed) (nodes []int32) {
	seen := map[int32]bool{}
	for i := range placed {
		if node := placed[i].Node; !seen[node] {
			seen[node] = true
			nodes = append(nodes, node)
		}
	}
	return nodes
}
