package sched

import (
	"cmp"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// preemptionOn reads whether Nomad's own preemption is enabled for a type.
func preemptionOn(c *api.SchedulerConfiguration, typ string) bool {
	p := c.PreemptionConfig
	switch typ {
	case api.JobTypeService:
		return p.ServiceSchedulerEnabled
	case api.JobTypeBatch:
		return p.BatchSchedulerEnabled
	case api.JobTypeSystem:
		return p.SystemSchedulerEnabled
	case api.JobTypeSysbatch:
		return p.SysBatchSchedulerEnabled
	}
	return false
}

// preemptionGap is how much lower a victim's priority must be.
const preemptionGap = 10

// fitEvicting makes room on a node by evicting allocations of jobs with a
// priority at least preemptionGap lower: one after the other, lowest priority
// first, then without those that turn out not to be needed.
func (r *run) fitEvicting(tg *api.TaskGroup, n *state.Node) *option {
	var victims []*api.Allocation
	for _, a := range r.proposed.on(n.ID) {
		own := a.JobID == r.key.ID && a.Namespace == r.key.Namespace
		if !own && a.Job != nil && deref(r.job.Priority)-deref(a.Job.Priority) >= preemptionGap {
			victims = append(victims, a)
		}
	}
	slices.SortFunc(victims, func(a, b *api.Allocation) int {
		return cmp.Or(cmp.Compare(deref(a.Job.Priority), deref(b.Job.Priority)), cmp.Compare(a.ID, b.ID))
	})
	gone := map[string]bool{}
	fits := func() *api.AllocatedResources {
		res, why := r.fit(tg, n, r.proposed.without(n.ID, gone))
		if why != "" {
			return nil
		}
		return res
	}
	var res *api.AllocatedResources
	for _, v := range victims {
		gone[v.ID] = true
		if res = fits(); res != nil {
			break
		}
	}
	if res == nil {
		return nil
	}
	for _, v := range victims {
		if gone[v.ID] {
			delete(gone, v.ID)
			if less := fits(); less != nil {
				res = less
			} else {
				gone[v.ID] = true
			}
		}
	}
	o := &option{node: n, res: res}
	for _, v := range victims {
		if gone[v.ID] {
			o.preempt = append(o.preempt, v)
		}
	}
	return o
}
