package core

import "github.com/caravan-sched/caravan/planner/core/model"

// uuidsOn names GPUs of a node. Who asks for the same again, as for a whole node,
// is given the same list, which must not be changed.
func (p *Prepared) uuidsOn(node int32, gpus []int8) []string {
	if len(gpus) == 0 {
		return []string{}
	}
	at := &p.named[node]
	if at.set != &gpus[0] || len(at.uuids) != len(gpus) {
		*at = namedSet{&gpus[0], uuids(p.tree.Nodes[node].Model, gpus)}
	}
	return at.uuids
}

// namedSet is a list of GPUs, which is never changed, and their names.
type namedSet struct {
	set   *int8
	uuids []string
}

func uuids(node *model.Node, gpus []int8) []string {
	out := make([]string, len(gpus))
	for i, g := range gpus {
		out[i] = node.GPUs[g].UUID
	}
	return out
}

func maskOf(gpus []int8) (mask uint64) {
	for _, g := range gpus {
		mask |= 1 << g
	}
	return mask
}
