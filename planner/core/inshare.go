package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// inShare is what jobs of a queue, and of those below it, hold that counts for
// capacity kept for it now, by node.
type inShare struct {
	queue string
	used  map[int32]uint64
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
