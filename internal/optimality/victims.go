package optimality

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// victim is a gang that may give way.
type victim struct {
	allocs []string
	cost   int64
}

// restartSeconds and placementSeconds are what the planner's defaults say that a
// restart takes, and that a place on one node is worth, for each GPU.
const (
	restartSeconds   = 60
	placementSeconds = 10
	gap              = 10
)

// victims lists who may give way to a job.
func victims(s *model.Snapshot, to *model.Job) []victim {
	var out []victim
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.State != model.StateRunning || to.Priority-j.Priority < gap || j.Preempt == model.PreemptNever {
			continue
		}
		var whole victim
		var on []*model.Node
		gpus := int64(0)
		for k := range s.Allocs {
			a := &s.Allocs[k]
			if a.Job != j.ID {
				continue
			}
			node := &s.Nodes[slices.IndexFunc(s.Nodes, func(n model.Node) bool { return n.ID == a.Node })]
			n := healthy(node, a.GPUs)
			if j.Gang == model.GangNone {
				out = append(out, victim{[]string{a.ID}, costOf(s, j, n, []*model.Node{node})})
			}
			whole.allocs, on, gpus = append(whole.allocs, a.ID), append(on, node), gpus+n
		}
		if j.Gang == model.GangJob && len(whole.allocs) > 0 {
			whole.cost = costOf(s, j, gpus, on)
			out = append(out, whole)
		}
	}
	return out
}

// healthy counts those of some GPUs that are of use.
func healthy(n *model.Node, uuids []string) int64 {
	count := int64(0)
	for k := range n.GPUs {
		if n.GPUs[k].Unhealthy == "" && slices.Contains(uuids, n.GPUs[k].UUID) {
			count++
		}
	}
	return count
}

// costOf is what a stop loses, in GPU-seconds: the work since the start, the
// restart, and what the place was worth.
func costOf(s *model.Snapshot, j *model.Job, gpus int64, on []*model.Node) int64 {
	weight := max(1, gpus)
	sum := weight * restartSeconds
	if j.Preempt != model.PreemptAlways {
		sum += weight * int64(s.Now.Sub(j.Started).Seconds())
	}
	if len(on) < 2 {
		return sum
	}
	near := len(s.Levels) + 1
	for _, n := range on[1:] {
		if n == on[0] {
			continue
		}
		shared := 0
		for l, level := range s.Levels {
			a, hasA := pathOf(s, on[0], level)
			b, hasB := pathOf(s, n, level)
			if a != b {
				break
			}
			if hasA && hasB {
				shared = l + 1
			}
		}
		near = min(near, shared)
	}
	return sum + weight*int64(near)*placementSeconds/int64(len(s.Levels)+1)
}

// cheapest tries every set of victims; false if the gang fits without any, or
// not even without all.
func cheapest(s *model.Snapshot, j *model.Job) (cost int64, ok bool) {
	list := victims(s, j)
	for set := 1; set < 1<<len(list); set++ {
		gone, sum := map[string]bool{}, int64(0)
		for i, v := range list {
			if set>>i&1 == 0 {
				continue
			}
			sum += v.cost
			for _, id := range v.allocs {
				gone[id] = true
			}
		}
		if ok && sum >= cost {
			continue
		}
		if _, fits := best(s, rooms(s, gone), j); fits {
			cost, ok = sum, true
		}
	}
	return cost, ok
}
