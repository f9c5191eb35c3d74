package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// inShare is what jobs of a queue, and of those below it, hold that counts for
// capacity kept for it now, by node.
type inShare struct {
	queue string
	used  map[int32]uint64
	// nodes are those on which it is kept, and left is how much more counts for it.
	nodes []int32
	left  int
}

// countShares counts what a job has been given for capacity kept for its queue, and
// says how much of it does.
func (c *cycle) countShares(t *turn, d *model.Decision) (gpus int) {
	for k := range c.inShares {
		s := &c.inShares[k]
		if !below(t.job.Queue, s.queue) {
			continue
		}
		for i := range d.Members {
			m := &d.Members[i]
			if node, ok := c.tree.Find(m.Node); ok && slices.Contains(s.nodes, node) {
				n := min(len(m.GPUs), s.left)
				s.left, gpus = s.left-n, gpus+n
			}
		}
	}
	return gpus
}

// unshared are holds without what counts for capacity that is kept for others than a
// queue. As soon as that is left it is kept for them again, so who is not of the
// queue gains nothing by having somebody stopped there, and would have him stopped
// again when he is back. They may be the same list.
func (c *cycle) unshared(holds []preempt.Hold, queue string) []preempt.Hold {
	out := holds
	for k := range c.inShares {
		s := &c.inShares[k]
		if below(queue, s.queue) {
			continue
		}
		for i := range holds {
			if out[i].Claim.GPUs&s.used[holds[i].Node] == 0 {
				continue
			}
			if &out[0] == &holds[0] {
				out = slices.Clone(holds)
			}
			out[i].Claim.GPUs &^= s.used[holds[i].Node]
		}
	}
	return out
}
