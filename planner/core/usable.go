package core

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// usableGPUs counts the healthy GPUs of the nodes that may be used, but for what
// something holds that is not managed; all of them, the most of one node, and by
// model.
func (c *cycle) usableGPUs() (all, largest int, models []queue.ModelGPUs) {
	if u := c.usable; u != nil {
		return u.all, u.largest, u.models
	}
	byModel := map[string]int{}
	state := c.views[viewEmpty].State
	for node := range int32(state.Len()) {
		gpus := c.usableOf(node, state.Row(node))
		largest = max(largest, bits.OnesCount64(gpus))
		for _, g := range c.tree.Nodes[node].Groups {
			if n := bits.OnesCount64(gpus & g.Mask); n > 0 {
				byModel[c.tree.Kinds[g.Kind].Model] += n
				all += n
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byModel)) {
		models = append(models, queue.ModelGPUs{Name: name, GPUs: byModel[name]})
	}
	if len(c.bought) == 0 { // which are closed to some
		c.usable = &usable{all, largest, models}
	}
	return all, largest, models
}

// usable is what usableGPUs has found.
type usable struct {
	all, largest int
	models       []queue.ModelGPUs
}

// usableOf are the GPUs of a node that may be used and that nothing holds that is
// not managed, where row is the node as it would be if nobody held anything of it.
func (p *Prepared) usableOf(node int32, row *topo.Row) uint64 {
	if row.Closed {
		return 0
	}
	gpus := row.GPUs
	for _, h := range p.held[node] {
		if h.of == nil && !h.lost && (h.on == nil || !h.on.Stopping) {
			gpus &^= h.gpus
		}
	}
	return gpus
}

// modelOf is the model of the GPUs that a job's members have, that of its first
// GPU where they differ; "" if it has none.
func (c *cycle) modelOf(j *model.Job) string {
	if holdsMembers(j) {
		first := (*model.Member)(nil)
		for i := range j.Members {
			if m := &j.Members[i]; !m.Ended && len(m.GPUs) > 0 && (first == nil || compareMembers(m, first) < 0) {
				first = m
			}
		}
		if first != nil {
			return c.gpuModel(first.Node, slices.Min(first.GPUs))
		}
	}
	first := (*model.Alloc)(nil)
	for _, a := range c.jobAllocs(keyOf(j)) {
		if len(a.GPUs) > 0 && !a.Stopping && !a.Lost && (first == nil || cmp.Less(a.ID, first.ID)) {
			first = a
		}
	}
	if first == nil {
		return ""
	}
	return c.gpuModel(first.Node, first.GPUs[0])
}

// compareMembers orders a job's members by what they are and where.
func compareMembers(a, b *model.Member) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Node, b.Node), slices.Compare(a.GPUs, b.GPUs))
}

// inOrderOf are members in their order, however they are listed.
func inOrderOf(members []model.Member) []model.Member {
	compare := func(a, b model.Member) int { return compareMembers(&a, &b) }
	if slices.IsSortedFunc(members, compare) {
		return members
	}
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, compare)
	return sorted
}

// gpuModel is the model of a node's GPU; "" if there is no such.
func (c *cycle) gpuModel(node, uuid string) string {
	n := c.nodes[node]
	if n == nil {
		return ""
	}
	for i := range n.GPUs {
		if n.GPUs[i].UUID == uuid {
			return n.GPUs[i].Model
		}
	}
	return ""
}
