package sched

import (
	"math"
	"slices"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// option is a node found for a group.
type option struct {
	node    *state.Node
	res     *api.AllocatedResources
	preempt []*api.Allocation
}

// choose looks for a node for one allocation of a group: nodes in random
// order, of those that fit the fullest among the first few. avoid lists nodes
// on which earlier tries failed. metrics says why nodes were refused.
func (r *run) choose(job *api.Job, tg *api.TaskGroup, nodes []*state.Node, avoid map[string]bool, m *metrics) *option {
	best := r.chooseWith(job, tg, nodes, avoid, false, m)
	if best == nil && preemptionOn(r.st.SchedulerConfig(), r.eval.Type) {
		best = r.chooseWith(job, tg, nodes, avoid, true, m)
	}
	return best
}

func (r *run) chooseWith(job *api.Job, tg *api.TaskGroup, nodes []*state.Node, avoid map[string]bool, evict bool, m *metrics) *option {
	m.NodesEvaluated, m.NodesFiltered, m.NodesExhausted = 0, 0, 0
	m.ClassFiltered, m.ConstraintFiltered, m.ClassExhausted, m.DimensionExhausted = nil, nil, nil, nil
	order := slices.Clone(nodes)
	r.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	limit := 2
	if r.eval.Type == api.JobTypeService {
		limit = max(2, int(math.Ceil(math.Log2(float64(max(1, len(order)))))))
	}
	if len(job.Affinities)+len(tg.Affinities)+len(job.Spreads)+len(tg.Spreads) > 0 {
		limit = len(order)
	}
	var best *option
	bestScore := math.Inf(-1)
	for _, n := range order {
		m.NodesEvaluated++
		if !r.feasible(job, tg, n, m) {
			continue
		}
		o := r.tryNode(tg, n, evict, m)
		if o == nil {
			continue
		}
		if s := r.score(job, tg, o, avoid); s > bestScore {
			best, bestScore = o, s
		}
		if limit--; limit == 0 {
			break
		}
	}
	return best
}

func (r *run) tryNode(tg *api.TaskGroup, n *state.Node, evict bool, m *metrics) *option {
	res, why := r.fit(tg, n, r.proposed.on(n.ID))
	if why == "" {
		return &option{node: n, res: res}
	}
	if evict {
		if o := r.fitEvicting(tg, n); o != nil {
			return o
		}
	}
	exhaust(m, n, why)
	return nil
}

// score prefers full nodes, and avoids nodes that have members of the group
// or on which a try failed.
func (r *run) score(job *api.Job, tg *api.TaskGroup, o *option, avoid map[string]bool) float64 {
	held := r.proposed.on(o.node.ID)
	u := used(held)
	for _, t := range o.res.Tasks {
		u.cpu += t.Cpu.CpuShares
		u.memory += t.Memory.MemoryMB
	}
	freeCPU := 1 - float64(u.cpu)/float64(max(1, o.node.NodeResources.Cpu.CpuShares))
	freeMem := 1 - float64(u.memory)/float64(max(1, o.node.NodeResources.Memory.MemoryMB))
	score := (20 - math.Pow(10, freeCPU) - math.Pow(10, freeMem)) / 18
	if r.st.SchedulerConfig().SchedulerAlgorithm == api.SchedulerAlgorithmSpread {
		score = (math.Pow(10, freeCPU) + math.Pow(10, freeMem) - 2) / 18
	}
	terms, sum := 1.0, score
	collisions := 0
	for _, a := range held {
		if a.JobID == r.key.ID && a.Namespace == r.key.Namespace && a.TaskGroup == *tg.Name {
			collisions++
		}
	}
	if collisions > 0 {
		terms++
		sum -= float64(collisions+1) / float64(max(1, deref(tg.Count)))
	}
	if avoid[o.node.ID] {
		terms++
		sum--
	}
	if s, ok := affinity(r.re, append(slices.Clone(job.Affinities), tg.Affinities...), o.node); ok {
		terms++
		sum += s
	}
	return sum / terms
}

func affinity(re regexps, as []*api.Affinity, n *state.Node) (float64, bool) {
	total, got := 0.0, 0.0
	for _, a := range as {
		w := float64(deref(a.Weight))
		total += math.Abs(w)
		if meets(re, &api.Constraint{LTarget: a.LTarget, Operand: a.Operand, RTarget: a.RTarget}, n) {
			got += w
		}
	}
	if total == 0 || got == 0 {
		return 0, false
	}
	return got / total, true
}

// newAlloc is an allocation of a group on the node found.
func (r *run) newAlloc(job *api.Job, tg *api.TaskGroup, name string, o *option, m *metrics) *api.Allocation {
	metric := m.AllocationMetric
	a := &api.Allocation{
		ID: uuid.NewString(), Namespace: *job.Namespace, EvalID: r.eval.ID, Name: name,
		NodeID: o.node.ID, NodeName: o.node.Name, JobID: *job.ID, Job: job, TaskGroup: *tg.Name,
		AllocatedResources: o.res, Metrics: &metric,
		DesiredStatus: api.AllocDesiredStatusRun, ClientStatus: api.AllocClientStatusPending,
	}
	setTotals(a)
	for _, victim := range o.preempt {
		a.PreemptedAllocations = append(a.PreemptedAllocations, victim.ID)
		r.stop(Stop{Alloc: victim, PreemptedBy: a.ID})
		r.out.Annotations.PreemptedAllocs = append(r.out.Annotations.PreemptedAllocs, victim.Stub())
		r.desired(*tg.Name).Preemptions++
	}
	return a
}

// place looks for nodes, destructive updates first.
func (r *run) place(ps []placement) {
	if len(ps) == 0 {
		return
	}
	nodes, byDC := r.candidates(r.job)
	for _, p := range ps {
		group := *p.tg.Name
		if failed := r.out.Failed[group]; failed != nil {
			failed.CoalescedFailures++
			exhaustResources(failed, p.tg)
			continue
		}
		if p.stopPrev {
			r.stop(Stop{Alloc: p.prev, Description: descUpdating})
		}
		m := &metrics{}
		m.NodesAvailable, m.NodesInPool, m.NodePool = byDC, len(nodes), deref(r.job.NodePool)
		o := r.choose(r.job, p.tg, nodes, avoidAfter(p.prev), m)
		if o == nil {
			if p.stopPrev {
				r.unstop()
			}
			exhaustResources(&m.AllocationMetric, p.tg)
			if r.out.Failed == nil {
				r.out.Failed = map[string]*api.AllocationMetric{}
			}
			r.out.Failed[group] = &m.AllocationMetric
			continue
		}
		a := r.newAlloc(r.job, p.tg, p.name, o, m)
		if r.deployment != nil && state.DeploymentActive(r.deployment) {
			a.DeploymentID = r.deployment.ID
			if p.canary {
				a.DeploymentStatus = &api.AllocDeploymentStatus{Canary: true}
			}
		}
		if p.prev != nil {
			r.chain(a, p)
			r.forget(p)
		}
		r.put(a)
		r.out.Queued[group]--
	}
}

// forget takes back why a failed allocation was stopped: Nomad says it only
// where nothing was found to replace it.
func (r *run) forget(p placement) {
	for i := range r.out.Stops {
		if s := &r.out.Stops[i]; p.failed && s.Alloc.ID == p.prev.ID {
			s.Description = ""
		}
	}
}

// chain links a replacement to what it replaces.
func (r *run) chain(a *api.Allocation, p placement) {
	a.PreviousAllocation = p.prev.ID
	if !p.failed {
		return
	}
	t := &api.RescheduleTracker{LastReschedule: "ok"}
	if p.prev.RescheduleTracker != nil {
		t.Events = slices.Clone(p.prev.RescheduleTracker.Events)
	}
	t.Events = append(t.Events, &api.RescheduleEvent{RescheduleTime: r.now.UnixNano(), PrevAllocID: p.prev.ID, PrevNodeID: p.prev.NodeID})
	a.RescheduleTracker = t
}

// avoidAfter are the nodes on which the earlier tries of an allocation failed.
func avoidAfter(prev *api.Allocation) map[string]bool {
	if prev == nil {
		return nil
	}
	out := map[string]bool{}
	if prev.ClientStatus == api.AllocClientStatusFailed {
		out[prev.NodeID] = true
	}
	if prev.RescheduleTracker != nil {
		for _, e := range prev.RescheduleTracker.Events {
			out[e.PrevNodeID] = true
		}
	}
	return out
}
