package core

import (
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Change is what has happened since the last decision. Put replaces what has
// the same identity; Drop names what is gone. What is put must not be changed
// afterwards.
type Change struct {
	PutNodes  []model.Node
	DropNodes []string
	PutJobs   []model.Job
	DropJobs  []JobRef
	PutAllocs []model.Alloc
	// DropAllocs are the IDs of allocations that hold nothing any more.
	DropAllocs []string
}

// JobRef names a job.
type JobRef struct{ Namespace, ID string }

// Apply brings a prepared cluster up to date. It costs what has changed; only
// a node that is new, gone, or different in more than eligibility and health
// makes the next decision derive everything again. An invalid change is
// refused whole.
//
// The result is the same as preparing a snapshot with the changes in it.
func (p *Prepared) Apply(ch Change) error {
	if err := p.check(ch); err != nil {
		return err
	}
	touched := map[int32]bool{}
	for _, id := range ch.DropAllocs {
		p.dropAlloc(id, touched)
	}
	for _, ref := range ch.DropJobs {
		p.dropJob(jobKey{ref.Namespace, ref.ID}, touched)
	}
	for _, id := range ch.DropNodes {
		if p.nodes[id] != nil {
			delete(p.nodes, id)
			p.tree = nil
		}
	}
	for i := range ch.PutNodes {
		p.putNode(&ch.PutNodes[i], touched)
	}
	for i := range ch.PutJobs {
		j := &ch.PutJobs[i]
		p.dropJob(keyOf(j), touched)
		p.jobs[keyOf(j)] = j
		if p.tree != nil {
			for _, at := range p.addMembers(j) {
				touched[at] = true
			}
			p.touchAllocs(keyOf(j), touched)
		}
	}
	for i := range ch.PutAllocs {
		a := &ch.PutAllocs[i]
		p.dropAlloc(a.ID, touched)
		p.allocs[a.ID] = a
		if p.tree == nil {
			continue
		}
		if at, ok := p.tree.Find(a.Node); ok {
			p.allocsOn[at] = append(p.allocsOn[at], a)
			touched[at] = true
		}
	}
	if p.tree == nil {
		return nil
	}
	p.allocsOf = nil
	for _, node := range slices.Sorted(maps.Keys(touched)) {
		p.setRows(node)
	}
	return nil
}

// touchAllocs touches where a job has allocations: whether they stay depends
// on the job.
func (p *Prepared) touchAllocs(key jobKey, touched map[int32]bool) {
	for _, a := range p.jobAllocs(key) {
		if at, ok := p.tree.Find(a.Node); ok {
			touched[at] = true
		}
	}
}

func (p *Prepared) dropAlloc(id string, touched map[int32]bool) {
	a := p.allocs[id]
	if a == nil {
		return
	}
	delete(p.allocs, id)
	if p.tree == nil {
		return
	}
	if at, ok := p.tree.Find(a.Node); ok {
		p.allocsOn[at] = slices.DeleteFunc(p.allocsOn[at], func(b *model.Alloc) bool { return b == a })
		touched[at] = true
	}
}

func (p *Prepared) dropJob(key jobKey, touched map[int32]bool) {
	j := p.jobs[key]
	p.pending, p.aged, p.wants = nil, nil, nil
	if j == nil {
		return
	}
	delete(p.jobs, key)
	if p.tree == nil {
		return
	}
	for i := range j.Members {
		if at, ok := p.tree.Find(j.Members[i].Node); ok {
			p.membersOn[at] = slices.DeleteFunc(p.membersOn[at], func(m jobMember) bool { return m.job == j })
			touched[at] = true
		}
	}
	p.touchAllocs(key, touched)
}

// putNode replaces a node; if only its eligibility or health is different the
// tree stays.
func (p *Prepared) putNode(n *model.Node, touched map[int32]bool) {
	old := p.nodes[n.ID]
	p.nodes[n.ID] = n
	if p.tree == nil || old == nil || !sameBuild(old, n) {
		p.tree = nil
		return
	}
	at, _ := p.tree.Find(n.ID)
	p.present[at] = n
	clear(p.possible)
	touched[at] = true
}

// sameBuild reports whether two versions of a node differ at most in
// eligibility and health.
func sameBuild(a, b *model.Node) bool {
	return a.Name == b.Name && a.Datacenter == b.Datacenter && a.Pool == b.Pool && a.Class == b.Class &&
		a.Capacity == b.Capacity && slices.Equal(a.ReservedPorts, b.ReservedPorts) &&
		maps.Equal(a.Attributes, b.Attributes) && maps.Equal(a.Levels, b.Levels) &&
		slices.EqualFunc(a.GPUs, b.GPUs, func(x, y model.GPU) bool {
			return x.UUID == y.UUID && x.Vendor == y.Vendor && x.Type == y.Type && x.Model == y.Model &&
				x.Island == y.Island && x.NUMA == y.NUMA && maps.Equal(x.Attributes, y.Attributes)
		}) &&
		(a.Links == nil) == (b.Links == nil) && slices.EqualFunc(a.Links, b.Links, slices.Equal[[]model.Link])
}

// check validates a change together with everything on the nodes that it is
// about, as a snapshot of its own.
func (p *Prepared) check(ch Change) error {
	s := &model.Snapshot{Levels: p.levels, Nodes: slices.Clone(ch.PutNodes), Jobs: ch.PutJobs, Allocs: slices.Clone(ch.PutAllocs)}
	gone, about := map[string]bool{}, map[string]bool{}
	for _, id := range ch.DropNodes {
		gone[id] = true
	}
	rebuilt := false
	for i := range ch.PutNodes {
		n := &ch.PutNodes[i]
		gone[n.ID] = true // its old version is
		about[n.ID] = true
		rebuilt = rebuilt || p.nodes[n.ID] == nil || !sameBuild(p.nodes[n.ID], n)
	}
	for i := range ch.PutAllocs {
		about[ch.PutAllocs[i].Node] = true
	}
	for i := range ch.PutJobs {
		for k := range ch.PutJobs[i].Members {
			about[ch.PutJobs[i].Members[k].Node] = true
		}
	}
	for id, n := range p.nodes {
		// New GPUs are compared with all there are.
		if !gone[id] && (about[id] || rebuilt) {
			s.Nodes = append(s.Nodes, *n)
		}
	}
	s.Allocs = append(s.Allocs, p.othersOn(ch, about)...)
	slices.SortFunc(s.Nodes[len(ch.PutNodes):], func(a, b model.Node) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Allocs[len(ch.PutAllocs):], func(a, b model.Alloc) int { return strings.Compare(a.ID, b.ID) })
	return s.Validate()
}

// othersOn lists the allocations that a change leaves as they are, on the
// nodes that it is about or takes away.
func (p *Prepared) othersOn(ch Change, about map[string]bool) []model.Alloc {
	replaced := map[string]bool{}
	for _, id := range ch.DropAllocs {
		replaced[id] = true
	}
	for i := range ch.PutAllocs {
		replaced[ch.PutAllocs[i].ID] = true
	}
	var out []model.Alloc
	add := func(a *model.Alloc) {
		if !replaced[a.ID] {
			out = append(out, *a)
		}
	}
	nodes := slices.AppendSeq(slices.Clone(ch.DropNodes), maps.Keys(about))
	for _, id := range nodes {
		if p.tree == nil {
			break
		}
		if at, ok := p.tree.Find(id); ok {
			for _, a := range p.allocsOn[at] {
				add(a)
			}
		}
	}
	if p.tree == nil {
		for _, a := range p.allocs {
			if slices.Contains(nodes, a.Node) {
				add(a)
			}
		}
	}
	return out
}
