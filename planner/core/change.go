package core

import (
	"cmp"
	"maps"
	"reflect"
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
	// Rest, if there is one, is everything else that a snapshot has, as it is now:
	// its levels, its queues. Its nodes, jobs and allocations do not count.
	Rest *model.Snapshot
	// Policy, if there is one, is how the queue is worked from now on. What runs
	// is not touched by it.
	Policy *Policy
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
	if ch.isNone() {
		return nil
	}
	if !p.trusts {
		if err := p.check(ch); err != nil {
			return err
		}
	}
	p.still.known = false
	if ch.Rest != nil {
		p.putRest(ch.Rest)
	}
	if ch.Policy != nil {
		p.putPolicy(*ch.Policy)
	}
	if len(ch.PutJobs)+len(ch.DropJobs) > 0 {
		p.given = nil
	}
	touched := map[int32]bool{}
	var old, now []*model.Job
	for _, id := range ch.DropAllocs {
		p.dropAlloc(id, touched)
	}
	for _, ref := range ch.DropJobs {
		old = p.dropJob(old, jobKey{ref.Namespace, ref.ID}, touched)
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
		old, now = p.dropJob(old, keyOf(j), touched), append(now, j)
		p.putJob(j, touched)
	}
	for i := range ch.PutAllocs {
		p.putAlloc(&ch.PutAllocs[i], touched)
	}
	if p.tree == nil {
		return nil
	}
	p.relist(old, now)
	for _, node := range slices.Sorted(maps.Keys(touched)) {
		p.setRows(node)
	}
	return nil
}

// putJob puts a job that is not there, and notes the nodes that it touches.
func (p *Prepared) putJob(j *model.Job, touched map[int32]bool) {
	p.jobs[keyOf(j)] = j
	p.setOut(j)
	if p.tree == nil {
		return
	}
	for _, at := range p.addMembers(j) {
		touched[at] = true
	}
	p.touchAllocs(keyOf(j), touched)
}

// putAlloc puts an allocation in place of what it was, and notes the nodes that
// are touched.
func (p *Prepared) putAlloc(a *model.Alloc, touched map[int32]bool) {
	p.dropAlloc(a.ID, touched)
	p.allocs[a.ID] = a
	if p.tree == nil {
		return
	}
	if at, ok := p.tree.Find(a.Node); ok {
		p.allocsOn[at] = append(p.allocsOn[at], a)
		p.listAlloc(a, true)
		touched[at] = true
	}
}

// isNone reports whether nothing has changed.
func (ch *Change) isNone() bool {
	return len(ch.PutNodes)+len(ch.DropNodes)+len(ch.PutJobs)+len(ch.DropJobs)+len(ch.PutAllocs)+len(ch.DropAllocs) == 0 && ch.Rest == nil && ch.Policy == nil
}

// putRest replaces what is not nodes, jobs or allocations. What queues have used
// changes all the time, and costs little.
func (p *Prepared) putRest(s *model.Snapshot) {
	levels, queues := p.levels, p.queues
	if len(p.regions)+len(s.Regions)+len(queues)+len(s.Queues) > 0 {
		p.forgetAnswers() // where somebody may go can be another place now
	}
	p.setRest(s)
	switch {
	case p.tree == nil:
	case !slices.Equal(levels, p.levels):
		p.tree = nil
	case p.accounts != nil && slices.EqualFunc(queues, p.queues, sameQueue):
		p.accounts.tree.SetHistory(p.queues)
	case len(queues)+len(p.queues) > 0:
		p.reopenAccounts()
	}
}

// putPolicy replaces how the queue is worked.
func (p *Prepared) putPolicy(policy Policy) {
	tree, ends := p.policy.NeedsTree(), p.policy.Backfill.DefaultDuration
	p.chosen, p.policy = policy, policy
	p.pending, p.lasting = nil, nil
	p.forgetAnswers()
	if p.tree != nil && ends != policy.Backfill.DefaultDuration {
		for node := range p.held {
			p.setEnding(int32(node))
		}
	}
	if p.tree != nil && tree != policy.NeedsTree() {
		p.reopenAccounts()
	}
}

// reopenAccounts makes the accounts again for other queues.
func (p *Prepared) reopenAccounts() {
	p.pending, p.lasting = nil, nil
	p.openAccounts()
	for node := range p.held {
		p.account(int32(node), p.held[node])
	}
}

// sameQueue reports whether two versions of a queue differ at most in what it
// has used.
func sameQueue(a, b model.Queue) bool {
	a.History, b.History = nil, nil
	return reflect.DeepEqual(a, b)
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
		p.listAlloc(a, false)
		touched[at] = true
	}
}

// dropJob takes a job out, and adds it to the list of old ones.
func (p *Prepared) dropJob(old []*model.Job, key jobKey, touched map[int32]bool) []*model.Job {
	j := p.jobs[key]
	if j == nil {
		return old
	}
	old = append(old, j)
	delete(p.jobs, key)
	delete(p.onTheWay, key)
	if p.tree == nil {
		return old
	}
	for i := range j.Members {
		if at, ok := p.tree.Find(j.Members[i].Node); ok {
			p.membersOn[at] = slices.DeleteFunc(p.membersOn[at], func(m jobMember) bool { return m.job == j })
			touched[at] = true
		}
	}
	p.touchAllocs(key, touched)
	return old
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
		maps.Equal(a.Attributes, b.Attributes) && maps.Equal(a.Levels, b.Levels) && sameBought(a.Bought, b.Bought) &&
		slices.EqualFunc(a.GPUs, b.GPUs, func(x, y model.GPU) bool {
			return x.UUID == y.UUID && x.Vendor == y.Vendor && x.Type == y.Type && x.Model == y.Model &&
				x.Island == y.Island && x.NUMA == y.NUMA && x.Parent == y.Parent && x.Slices == y.Slices && x.SharedMiB == y.SharedMiB && maps.Equal(x.Attributes, y.Attributes)
		}) &&
		(a.Links == nil) == (b.Links == nil) && slices.EqualFunc(a.Links, b.Links, slices.Equal[[]model.Link])
}

func sameBought(a, b *model.Bought) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// check validates a change together with everything on the nodes that it is
// about, as a snapshot of its own.
func (p *Prepared) check(ch Change) error {
	if ch.Policy != nil {
		if err := ch.Policy.Validate(); err != nil {
			return err
		}
	}
	s := &model.Snapshot{Levels: p.levels, Jobs: ch.PutJobs}
	gone, about := map[string]bool{}, map[string]bool{}
	for _, id := range ch.DropNodes {
		gone[id] = true
	}
	rebuilt := false
	if ch.Rest != nil {
		rest := *ch.Rest
		s, rest.Jobs = &rest, ch.PutJobs
		rebuilt = !slices.Equal(p.levels, rest.Levels)
	}
	s.Nodes, s.Allocs = slices.Clone(ch.PutNodes), slices.Clone(ch.PutAllocs)
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
	shown := maps.Keys(about)
	if rebuilt || len(gone) > len(ch.PutNodes) {
		// New GPUs are compared with all there are, and who is on a node that is
		// gone may be anybody.
		shown = maps.Keys(p.nodes)
		s.Jobs = p.jobsWith(ch)
	}
	for id := range shown {
		if n := p.nodes[id]; n != nil && !gone[id] {
			s.Nodes = append(s.Nodes, *n)
		}
	}
	s.Allocs = append(s.Allocs, p.othersOn(ch, about)...)
	slices.SortFunc(s.Nodes[len(ch.PutNodes):], func(a, b model.Node) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(s.Allocs[len(ch.PutAllocs):], func(a, b model.Alloc) int { return strings.Compare(a.ID, b.ID) })
	return s.Validate()
}

// jobsWith are all jobs with a change in them, the changed ones first.
func (p *Prepared) jobsWith(ch Change) []model.Job {
	gone := map[jobKey]bool{}
	for _, ref := range ch.DropJobs {
		gone[jobKey{ref.Namespace, ref.ID}] = true
	}
	for i := range ch.PutJobs {
		gone[keyOf(&ch.PutJobs[i])] = true
	}
	out := slices.Clone(ch.PutJobs)
	for key, j := range p.jobs {
		if !gone[key] {
			out = append(out, *j)
		}
	}
	slices.SortFunc(out[len(ch.PutJobs):], func(a, b model.Job) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID))
	})
	return out
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
