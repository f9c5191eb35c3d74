package barrier

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// Key names a gang: a job and, where each group of the job is a gang by
// itself, the group.
type Key struct {
	Namespace string
	Job       string
	Group     string
	// Slot is that of the members, which tells a gang of canaries from the gang
	// that it runs beside, and stays when it takes that one's place.
	Slot int
}

// String names the gang for people.
func (k Key) String() string {
	name := fmt.Sprintf("job %q in namespace %q", k.Job, k.Namespace)
	if k.Group != "" {
		name = fmt.Sprintf("group %q of %s", k.Group, name)
	}
	if k.Slot != 0 {
		name += fmt.Sprintf(", of version %d", k.Slot)
	}
	return name
}

// names are the key's parts in a document's path.
func (k Key) names() []string {
	if k.Slot == 0 {
		return []string{k.Namespace, k.Job, k.Group}
	}
	return []string{k.Namespace, k.Job, k.Group, strconv.Itoa(k.Slot)}
}

// Plan is who is to be in a gang, by the placement in force.
type Plan struct {
	Key Key
	// Members are in the order of their ranks along the topology tree.
	Members []Planned
	// Min and Max are the elastic bounds of the number of members; Bounded is set
	// where the job's author has given any.
	Min, Max int
	Bounded  bool
	// Least is the least number of members of each group.
	Least map[string]int
	// OnFailure is what becomes of the others when a member fails, and OnResize
	// when the gang's size changes: gangspec's constants.
	OnFailure, OnResize string
}

// Elastic says whether the gang goes on with other members without a restart.
func (p *Plan) Elastic() bool { return p.Bounded && p.OnResize != gangspec.ResizeRestart }

// Planned is one place in a gang.
type Planned struct {
	Group string
	Index int
	Node  string
	// NodeName is the node's name, Path the domains it is in, outermost first.
	NodeName string
	Path     []string
	// GPUs are the UUIDs planned, in topology order, and ByTask the same by the
	// task that asks for them.
	GPUs   []string
	ByTask map[string][]string
	// Alloc is the allocation that fills the place; "" while there is none.
	Alloc string
	State observe.AllocState
}

// place names a member's place in its gang.
type place struct {
	group string
	index int
}

func (p *Planned) place() place { return place{p.Group, p.Index} }

// name is a member for people: "member 2 of group "w" on node-7".
func (p *Planned) name() string {
	return fmt.Sprintf("member %d of group %q on %s", p.Index, p.Group, cmp.Or(p.NodeName, p.Node))
}

// ended says whether the member has completed and holds nothing any more.
func (p *Planned) ended() bool { return p.State == observe.AllocComplete }

// Verdict is what the cluster says of a task that wants to join or reports.
type Verdict struct {
	// Gang is the gang that it belongs to, if it does.
	Gang Key
	// Member is set when its allocation fills a place of the gang and is wanted.
	Member bool
	// Alone: it belongs to no gang and may start at once. Refused: it must not
	// start. With neither, nor Member, nothing can be said yet.
	Alone, Refused bool
	// Gone is set when Nomad itself does not want the allocation any more.
	Gone   bool
	Reason string
}

// job is a managed job with what is looked up of it again and again.
type job struct {
	m      *observe.Managed
	allocs map[string]*api.AllocationListStub
	// all are the members, and the canaries beside them, members their indexes
	// by allocation.
	all     []observe.MemberState
	members map[string]int
	// gangs are those of the job that are served, in force or not; they are under
	// the service's lock.
	gangs []*served
}

func newJob(m *observe.Managed) *job {
	j := &job{m: m, allocs: make(map[string]*api.AllocationListStub, len(m.Allocs)), members: make(map[string]int, len(m.Members)), all: slices.Concat(m.Members, m.Canaries)}
	for _, a := range m.Allocs {
		j.allocs[a.ID] = a
	}
	if meets(m) {
		j.all = releasedMembers(m)
	}
	for i := range j.all {
		if a := j.all[i].Alloc; a != nil {
			j.members[a.ID] = i
		}
	}
	return j
}

// judge says what the task with an allocation of that ID is to the job; j is nil
// if the job is not managed. What depends on the allocation's being there may
// only be said by a view that is newer than the question.
func (j *job) judge(alloc, jobID string) Verdict {
	if j == nil {
		return Verdict{Alone: true, Reason: fmt.Sprintf("Caravan does not manage job %q", jobID)}
	}
	rec := j.m.Record
	a := j.allocs[alloc]
	switch {
	case a == nil:
		return Verdict{Refused: true, Gone: true, Reason: fmt.Sprintf("allocation %s is none of job %q that Nomad knows", short(alloc), jobID)}
	case a.DesiredStatus != api.AllocDesiredStatusRun:
		return Verdict{Refused: true, Gone: true, Reason: fmt.Sprintf("allocation %s is to be stopped (%s)", short(alloc), a.DesiredStatus)}
	case rec == nil:
		return Verdict{Reason: "the planner has just seen the job"}
	case rec.Phase == record.PhaseReleased && !meets(j.m):
		return Verdict{Alone: true, Reason: fmt.Sprintf("job %q was released by an operator, and its members start one by one", jobID)}
	case !j.inForce():
		return Verdict{Refused: true, Reason: "the gang is taken back and waits in the queue: " + rec.Reason}
	}
	at, ok := j.members[alloc]
	if !ok && meets(j.m) {
		return Verdict{Reason: fmt.Sprintf("Nomad has another allocation in the place of allocation %s", short(alloc))}
	}
	if !ok {
		return Verdict{Refused: true, Reason: fmt.Sprintf("allocation %s is in no member's place: it was replaced, or is of an older version of the job", short(alloc))}
	}
	s := j.all[at]
	out := Verdict{Gang: j.key(s.Member)}
	switch s.State {
	case observe.AllocMisplaced:
		out.Refused, out.Reason = true, misplaced(s, a)
	case observe.AllocLost:
		out.Reason = "Nomad's servers have no contact with the node"
	case observe.AllocPlaced:
		out.Member = true
		if j.m.Model.Gang == model.GangNone {
			out.Alone, out.Reason = true, "the members of the job start one by one"
		}
	default:
		out.Refused, out.Reason = true, fmt.Sprintf("allocation %s is %s", short(alloc), s.State)
	}
	return out
}

// inForce says whether the job's members have their places: they were placed by
// Caravan, or Nomad places them by itself since the job was released.
func (j *job) inForce() bool {
	rec := j.m.Record
	return rec != nil && (rec.Phase == record.PhaseAdmitted || rec.Phase == record.PhaseRunning || meets(j.m))
}

// misplaced says what was planned and what there is.
func misplaced(s observe.MemberState, a *api.AllocationListStub) string {
	if a.NodeID != s.Member.Node {
		return fmt.Sprintf("it was to be on node %s, and Nomad placed it on %s", short(s.Member.Node), cmp.Or(a.NodeName, a.NodeID))
	}
	return otherGPUs(s.Member.GPUs, observe.AllocGPUs(a))
}

// otherGPUs says that what was granted is not what was planned.
func otherGPUs(want, got []string) string {
	return fmt.Sprintf("it was to have %s, and was granted %s", gpuList(want), gpuList(got))
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func gpuList(ids []string) string {
	const named = 4
	sorted := slices.Sorted(slices.Values(ids))
	switch n := len(sorted); {
	case n == 0:
		return "no GPU"
	case n == 1:
		return "1 GPU (" + sorted[0] + ")"
	case n > named:
		return fmt.Sprintf("%d GPUs (%s and %d more)", n, strings.Join(sorted[:named], ", "), n-named)
	default:
		return fmt.Sprintf("%d GPUs (%s)", n, strings.Join(sorted, ", "))
	}
}

func short(id string) string { return id[:min(len(id), 8)] }

// key is the gang that a member is in.
func (j *job) key(m model.Member) Key {
	k := Key{Namespace: j.m.Namespace, Job: j.m.ID, Slot: m.Slot}
	if j.m.Model.Gang != model.GangJob {
		k.Group = m.Group
	}
	return k
}

// outlived says whether another gang has taken the gang's place: canaries that
// were promoted, or the one that canaries ran beside.
func (j *job) outlived(key Key) bool {
	other := false
	for _, s := range j.all {
		k := j.key(s.Member)
		if k == key {
			return false
		}
		other = other || k.Group == key.Group
	}
	return other
}

// settings are what the author of a job has written about its gangs.
type settings struct{ onFailure, onResize string }

// plan makes the gang's plan; nil if the job has no placement in force or no
// member of the gang.
func (j *job) plan(key Key, v *observe.View, set settings) *Plan {
	if !j.inForce() {
		return nil
	}
	p := &Plan{Key: key, OnFailure: set.onFailure, OnResize: set.onResize, Least: map[string]int{}}
	asks := map[string][]model.DeviceAsk{}
	for _, g := range j.m.Model.Groups {
		asks[g.Name] = g.Devices
		if key.Group == "" || key.Group == g.Name {
			p.Least[g.Name] = cmp.Or(g.Min, g.Count)
			p.Min += p.Least[g.Name]
			p.Max += cmp.Or(g.Max, g.Count)
		}
	}
	for _, s := range j.all {
		if k := j.key(s.Member); k.Slot != key.Slot || key.Group != "" && s.Member.Group != key.Group {
			continue
		}
		member := planned(s, asks[s.Member.Group], v)
		if meets(j.m) {
			member.ByTask = grantedByTask(s.Alloc)
		}
		p.Members = append(p.Members, member)
	}
	if len(p.Members) == 0 {
		return nil
	}
	p.Bounded = p.Min != p.Max
	p.Min, p.Max = min(p.Min, len(p.Members)), max(p.Max, len(p.Members))
	return p
}

func planned(s observe.MemberState, asks []model.DeviceAsk, v *observe.View) Planned {
	p := Planned{Group: s.Member.Group, Index: s.Index(), Node: s.Member.Node, GPUs: s.Member.GPUs, State: s.State}
	if s.Alloc != nil {
		p.Alloc = s.Alloc.ID
	}
	if s.Member.Ended {
		p.State = observe.AllocComplete
	}
	p.ByTask = map[string][]string{}
	for k, ask := range asks {
		switch {
		case k < len(s.Member.Tasks):
			p.ByTask[ask.Task] = append(p.ByTask[ask.Task], s.Member.Tasks[k]...)
		case len(s.Member.Tasks) == 0 && k == 0:
			p.ByTask[ask.Task] = s.Member.GPUs
		}
	}
	at, ok := slices.BinarySearchFunc(v.Nodes, p.Node, func(n observe.NodeRef, id string) int { return strings.Compare(n.ID, id) })
	if !ok {
		return p
	}
	p.NodeName = v.Nodes[at].Name
	for _, level := range v.Snapshot.Levels {
		p.Path = append(p.Path, v.Nodes[at].Levels[level])
	}
	return p
}

// same says whether two plans would be answered alike.
func (p *Plan) same(q *Plan) bool {
	if p == nil || q == nil {
		return p == q
	}
	if p.Min != q.Min || p.Max != q.Max || p.Bounded != q.Bounded || p.OnFailure != q.OnFailure || p.OnResize != q.OnResize || !maps.Equal(p.Least, q.Least) {
		return false
	}
	return slices.EqualFunc(p.Members, q.Members, func(a, b Planned) bool {
		return a.place() == b.place() && a.Node == b.Node && a.Alloc == b.Alloc && a.State == b.State && slices.Equal(a.GPUs, b.GPUs)
	})
}
