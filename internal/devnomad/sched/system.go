package sched

import (
	"fmt"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// system decides system and sysbatch jobs: the members of each group on every
// node that suits. What runs on a node that no longer suits is stopped,
// max_parallel in one evaluation: a gate therefore stops such a job.
func (r *run) system() {
	r.markGone()
	s := &systemRun{run: r, exists: map[string]bool{}, candidates: map[string]uint64{}, filtered: map[string]*metrics{}}
	s.wanted = map[string]*api.TaskGroup{}
	if !r.stopped() {
		s.ready, s.byDC = r.candidates(r.job)
		for _, tg := range r.job.TaskGroups {
			for i := range *tg.Count {
				s.wanted[fmt.Sprintf("%s.%s[%d]", *r.job.Name, *tg.Name, i)] = tg
			}
		}
	}
	s.sort()
	for _, id := range s.nodes {
		s.node(id)
	}
	s.updates()
	s.place()
	if r.eval.Type == api.JobTypeSysbatch {
		return
	}
	// For system jobs Nomad counts all as placed that will be there afterwards.
	for group, n := range s.candidates {
		r.desired(group).Place = n
	}
}

// systemRun is a system evaluation being decided.
type systemRun struct {
	*run
	ready []*state.Node
	byDC  map[string]int
	// wanted are the groups by the names of their members.
	wanted map[string]*api.TaskGroup
	nodes  []string                     // all that are looked at, in order
	live   map[string][]*api.Allocation // by node
	ended  map[string]*api.Allocation   // the newest, by node and name

	changed, missing []systemMember
	// exists has the groups that have members somewhere, candidates counts by
	// group the members that will be there, filtered has why nodes do not suit.
	exists     map[string]bool
	candidates map[string]uint64
	filtered   map[string]*metrics
}

// systemMember is one member on one node; cur is nil if there was none.
type systemMember struct {
	name string
	tg   *api.TaskGroup
	node string
	cur  *api.Allocation
}

// sort arranges the job's allocations by node.
func (s *systemRun) sort() {
	s.live, s.ended = map[string][]*api.Allocation{}, map[string]*api.Allocation{}
	for _, a := range s.st.AllocsOfJob(s.key) {
		k := a.NodeID + "/" + a.Name
		switch old := s.ended[k]; {
		case !state.Terminal(a):
			s.live[a.NodeID] = append(s.live[a.NodeID], a)
		case old == nil || a.CreateIndex > old.CreateIndex:
			s.ended[k] = a
		}
	}
	for id := range s.live {
		s.nodes = append(s.nodes, id)
	}
	for _, n := range s.ready {
		s.nodes = append(s.nodes, n.ID)
	}
	slices.Sort(s.nodes)
	s.nodes = slices.Compact(s.nodes)
}

func (s *systemRun) isReady(id string) bool {
	return slices.ContainsFunc(s.ready, func(n *state.Node) bool { return n.ID == id })
}

// node decides what is on one node and what is missing there.
func (s *systemRun) node(id string) {
	there := map[string]bool{}
	for _, a := range s.live[id] {
		there[a.Name] = true
		s.member(a)
	}
	ready := s.isReady(id)
	for _, name := range sortedNames(s.wanted) {
		if there[name] {
			continue
		}
		m := systemMember{name: name, tg: s.wanted[name], node: id, cur: s.ended[id+"/"+name]}
		switch {
		case (m.cur == nil || s.eval.Type == api.JobTypeSystem) && !ready:
		case m.cur == nil || s.eval.Type == api.JobTypeSystem:
			s.missing = append(s.missing, m)
			s.desired(*m.tg.Name).Place++
			s.candidates[*m.tg.Name]++
		case s.current(m.cur):
			s.ignore(m.tg) // ended, and the job is as it was
		default:
			s.changed = append(s.changed, m)
		}
	}
}

// current says whether an allocation is of the job as it is now.
func (s *systemRun) current(a *api.Allocation) bool {
	return *a.Job.JobModifyIndex == *s.job.JobModifyIndex
}

func (s *systemRun) ignore(tg *api.TaskGroup) {
	s.desired(*tg.Name).Ignore++
	s.exists[*tg.Name] = true
	s.candidates[*tg.Name]++
}

// member decides an allocation that lives.
func (s *systemRun) member(a *api.Allocation) {
	tg, n := s.wanted[a.Name], s.st.Node(a.NodeID)
	d := s.desired(a.TaskGroup)
	switch {
	case tg == nil:
		d.Stop++
		s.stop(Stop{Alloc: a, Description: descNotNeeded})
	case flag(a.DesiredTransition.Migrate):
		d.Migrate++
		s.stop(Stop{Alloc: a, Description: descTainted})
	case a.ClientStatus == api.AllocClientStatusUnknown:
		s.ignore(tg)
	case n == nil || n.Status == api.NodeStatusDown:
		if s.eval.Type == api.JobTypeSysbatch && ranSuccessfully(a) {
			s.ignore(tg)
			return
		}
		s.stop(Stop{Alloc: a, Description: descLost, ClientStatus: api.AllocClientStatusLost})
	case n.Status == api.NodeStatusDisconnected && a.ClientStatus == api.AllocClientStatusRunning:
		d.Disconnect++
		u := *a
		u.ClientStatus, u.ClientDescription = api.AllocClientStatusUnknown, DescUnknown
		s.put(&u)
	case n.DrainStrategy != nil || n.Status == api.NodeStatusDisconnected:
		s.ignore(tg)
	case !n.Ready() && s.current(a):
		s.ignore(tg)
	case !s.isReady(n.ID):
		d.Stop++
		s.stop(Stop{Alloc: a, Description: descNotNeeded})
	case s.current(a):
		s.ignore(tg)
	default:
		s.changed = append(s.changed, systemMember{name: a.Name, tg: tg, node: n.ID, cur: a})
	}
}

// updates brings members to the job's new version in place where it can be
// done. Of the others as many are stopped as may be, before anybody knows
// whether there is a place for what follows them.
func (s *systemRun) updates() {
	var breaking []systemMember
	for _, m := range s.changed {
		d := s.desired(*m.tg.Name)
		s.candidates[*m.tg.Name]++
		var u *api.Allocation
		keeps := !needsRestart(m.cur.Job, s.job, *m.tg.Name)
		if keeps && !state.Terminal(m.cur) {
			s.eligible = newEligibility(s.job)
			u = s.updateInPlace(m.tg, m.cur)
		}
		switch {
		case u != nil:
			s.put(u)
			fallthrough
		case keeps && state.Terminal(m.cur):
			d.InPlaceUpdate++
			s.exists[*m.tg.Name] = true
		default:
			d.DestructiveUpdate++
			breaking = append(breaking, m)
		}
	}
	done := map[string]int{}
	for _, m := range breaking {
		limit := len(breaking)
		if s.eval.Type == api.JobTypeSystem && updating(m.tg) {
			limit = *m.tg.Update.MaxParallel
		}
		if done[*m.tg.Name] < limit {
			done[*m.tg.Name]++
			s.stop(Stop{Alloc: m.cur, Description: descUpdating})
			s.missing = append(s.missing, m)
		}
	}
}

// place looks whether nodes suit what is missing on them.
func (s *systemRun) place() {
	if s.eval.Type == api.JobTypeSystem || len(s.missing) == 0 {
		s.queuesEmpty()
	}
	for _, m := range s.missing {
		s.out.Queued[*m.tg.Name]++
	}
	for _, m := range s.missing {
		group := *m.tg.Name
		if !s.isReady(m.node) {
			continue // a member that ended there: it stays queued
		}
		why := &metrics{}
		why.NodesAvailable, why.NodesInPool, why.NodePool = s.byDC, len(s.ready), deref(s.job.NodePool)
		// What is known of a class is forgotten: each node is looked at by itself.
		s.eligible = newEligibility(s.job)
		o := s.choose(s.job, m.tg, []*state.Node{s.st.Node(m.node)}, nil, why)
		if o == nil {
			s.candidates[group]--
			s.unplaced(m, why)
			continue
		}
		s.out.Queued[group]--
		a := s.newAlloc(s.job, m.tg, m.name, o, why)
		if m.cur != nil {
			a.PreviousAllocation = m.cur.ID
		}
		s.put(a)
	}
}

// unplaced notes why a member has no place. Nodes that do not suit are no
// failure as long as others do; one that is full is, and waited for.
func (s *systemRun) unplaced(m systemMember, why *metrics) {
	group := *m.tg.Name
	if s.out.Failed == nil {
		s.out.Failed = map[string]*api.AllocationMetric{}
	}
	if why.NodesFiltered > 0 {
		s.out.Queued[group]--
		if s.eval.Type == api.JobTypeSysbatch {
			// Nomad did not count those that it stopped first, and so counts below 0.
			s.desired(group).Place--
		}
		s.filtered[group] = merge(s.filtered[group], why)
		if s.out.Queued[group] <= 0 && !s.exists[group] {
			s.out.Failed[group] = &s.filtered[group].AllocationMetric
		}
		return
	}
	if f := s.out.Failed[group]; f != nil {
		f.CoalescedFailures++
		exhaustResources(f, m.tg)
		return
	}
	exhaustResources(&why.AllocationMetric, m.tg)
	s.out.Failed[group] = &why.AllocationMetric
	s.out.FullNodes = append(s.out.FullNodes, m.node)
}

// merge adds why another node does not suit.
func merge(m, other *metrics) *metrics {
	if m == nil {
		return other
	}
	m.NodesEvaluated += other.NodesEvaluated
	m.NodesFiltered += other.NodesFiltered
	for class, n := range other.ClassFiltered {
		for range n {
			count(&m.ClassFiltered, class)
		}
	}
	for reason, n := range other.ConstraintFiltered {
		for range n {
			count(&m.ConstraintFiltered, reason)
		}
	}
	return m
}

func sortedNames(m map[string]*api.TaskGroup) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
