package sched

import (
	"fmt"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// system decides system and sysbatch jobs: one allocation of each group on
// every node that suits. What runs on a node that no longer suits is stopped,
// max_parallel in one evaluation: a gate therefore stops such a job.
func (r *run) system() {
	r.markGone()
	if r.stopped() {
		r.stopAll()
		return
	}
	held := map[string]*api.Allocation{} // by node and group
	for _, a := range r.st.AllocsOfJob(r.key) {
		if r.systemOver(a) {
			continue
		}
		held[a.NodeID+"/"+a.TaskGroup] = a
	}
	nodes, byDC := r.candidates(r.job)
	suits := map[string]bool{}
	for _, tg := range r.job.TaskGroups {
		limit := len(nodes)
		if r.eval.Type == api.JobTypeSystem && updating(tg) {
			limit = *tg.Update.MaxParallel
		}
		for _, n := range nodes {
			k := n.ID + "/" + *tg.Name
			if r.systemNode(tg, n, held[k], &limit, byDC, len(nodes)) {
				suits[k] = true
			}
		}
	}
	for _, a := range r.st.AllocsOfJob(r.key) {
		if state.Terminal(a) || suits[a.NodeID+"/"+a.TaskGroup] {
			continue
		}
		r.desired(a.TaskGroup).Stop++
		n := r.st.Node(a.NodeID)
		if n != nil && n.Ready() && lookupGroup(r.job, a.TaskGroup) != nil {
			r.stop(Stop{Alloc: a, Description: descUpdating})
			continue
		}
		if n != nil && n.Status != api.NodeStatusDown && n.DrainStrategy == nil && !n.Ready() {
			continue // only ineligible or not back yet: what runs stays
		}
		r.stopOne(a)
	}
}

// systemOver says whether an allocation does not count any more.
func (r *run) systemOver(a *api.Allocation) bool {
	if a.ServerTerminalStatus() {
		return true
	}
	if !a.ClientTerminalStatus() {
		return false
	}
	return r.eval.Type == api.JobTypeSystem || r.older(a) || a.ClientStatus != api.AllocClientStatusComplete
}

// systemNode decides one group on one node and says whether what is there may
// stay or was replaced. limit is how many may still be changed.
func (r *run) systemNode(tg *api.TaskGroup, n *state.Node, cur *api.Allocation, limit *int, byDC map[string]int, inPool int) bool {
	d := r.desired(*tg.Name)
	if cur != nil && (state.Terminal(cur) || *cur.Job.JobModifyIndex == *r.job.JobModifyIndex) {
		d.Ignore++
		return true
	}
	m := &metrics{}
	m.NodesAvailable, m.NodesInPool, m.NodePool = byDC, inPool, deref(r.job.NodePool)
	// The cache by class is not used: each node is looked at by itself.
	r.eligible = newEligibility(r.job)
	if cur != nil && !needsRestart(cur.Job, r.job, *tg.Name) {
		if u := r.updateInPlace(tg, cur); u != nil {
			d.InPlaceUpdate++
			r.put(u)
			return true
		}
	}
	if cur != nil {
		if *limit == 0 {
			d.Ignore++
			return true
		}
		*limit--
		r.proposed.remove(cur)
	}
	o := r.choose(r.job, tg, []*state.Node{n}, nil, m)
	if o == nil {
		if cur != nil {
			r.proposed.restore(cur)
		}
		if m.NodesExhausted > 0 {
			r.systemFailed(tg, m)
			return cur != nil
		}
		return false
	}
	if cur != nil {
		d.DestructiveUpdate++
		r.stop(Stop{Alloc: cur, Description: descUpdating})
	} else {
		d.Place++
	}
	a := r.newAlloc(r.job, tg, fmt.Sprintf("%s.%s[0]", r.key.ID, *tg.Name), o, m)
	if cur != nil {
		a.PreviousAllocation = cur.ID
	}
	r.put(a)
	return true
}

func (r *run) systemFailed(tg *api.TaskGroup, m *metrics) {
	if r.out.Failed == nil {
		r.out.Failed = map[string]*api.AllocationMetric{}
	}
	r.out.Queued[*tg.Name]++
	if f := r.out.Failed[*tg.Name]; f != nil {
		f.CoalescedFailures++
		return
	}
	exhaustResources(&m.AllocationMetric, tg)
	r.out.Failed[*tg.Name] = &m.AllocationMetric
}
