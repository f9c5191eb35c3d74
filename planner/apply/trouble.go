package apply

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// blame says what a trouble means for the next try.
type blame int

const (
	// blameCluster: the job has done nothing wrong; it is placed again as soon
	// as what it held is free.
	blameCluster blame = iota
	// blamePlacement: Nomad did something else than was decided; tried again
	// after a while that grows.
	blamePlacement
	// blameMember: a member has failed; tried again as often as its reschedule
	// block allows.
	blameMember
)

// trouble is what befell one member of a placement.
type trouble struct {
	member observe.MemberState
	// kind tells one trouble of a member from another of the same member.
	kind string
	// text goes on from "member 3 of group "w" on node n7 …"; where it is told
	// by somebody who has said who it was, it stands for itself.
	text string
	told bool
	// do says what a person must do; "" if nothing.
	do string
	// wait is how long it must last before anything is done about it.
	wait  time.Duration
	blame blame
}

func (j *job) troubles() []trouble {
	var out []trouble
	for _, s := range j.states {
		if t := j.trouble(s); t != nil {
			out = append(out, *t)
		}
	}
	return out
}

// trouble is what is wrong with a member that was placed once; nil if nothing
// is. The node counts first: what it does explains the rest.
func (j *job) trouble(s observe.MemberState) *trouble {
	if s.Member.Ended || s.State == observe.AllocComplete {
		return nil
	}
	if t := j.nodeTrouble(s); t != nil {
		return t
	}
	if s.State != observe.AllocPlaced && s.State != observe.AllocMisplaced {
		if a := j.fate(s); a != nil && a.DesiredStatus == api.AllocDesiredStatusEvict {
			return &trouble{member: s, kind: "evicted", blame: blameCluster,
				text: "was evicted by Nomad's own preemption",
				do:   fmt.Sprintf("turn it off: nomad operator scheduler set-config -preempt-%s-scheduler=false", j.preempting())}
		}
	}
	t := &trouble{member: s, kind: "absent", wait: j.opts.Settle, blame: blamePlacement}
	switch s.State {
	case observe.AllocPlaced:
		return j.gpuTrouble(s)
	case observe.AllocMisplaced:
		t.text = fmt.Sprintf("was to have %s, and Nomad placed it on %s with %s", gpuCount(s.Member.GPUs), j.nodeName(s.Alloc.NodeID), gpuList(deviceIDs(s.Alloc)))
	case observe.AllocStopping:
		t.text = "was told to stop, and not by Caravan"
	case observe.AllocDead:
		if !j.failureCounts(s) || j.endures(s) {
			return nil
		}
		return j.failedFor(s)
	default:
		t.text = "is gone, and Nomad has not placed it again within " + j.opts.Settle.String()
		if n := j.node(s.Member.Node); n != nil && n.Unschedulable != "" {
			t.text += "; the node is " + n.Unschedulable
		}
	}
	return t
}

// failedFor is that a member has failed for good.
func (j *job) failedFor(s observe.MemberState) *trouble {
	t := &trouble{member: s, kind: "absent", wait: j.opts.Settle, blame: blameMember, text: hasFailed + " and is not started again"}
	if j.onFailure() == gangspec.FailureFail {
		t.wait = 0 // or Nomad might start it again
	}
	return t
}

// hasFailed is in the reason of a failure; why it failed is put behind it when
// the step is taken, for that is read from Nomad only then.
const hasFailed = "has failed"

// failureCounts says whether a member that has ended badly is anybody's
// business: in a gang the others wait for it in vain. Members that stand alone
// are started again by Nomad, as their reschedule block says; only what
// Caravan holds back in a batch job, it must start again itself.
func (j *job) failureCounts(s observe.MemberState) bool {
	return j.m.Model.Gang != model.GangNone || j.retriable(s)
}

// nodeTrouble is what the member's node does to it.
func (j *job) nodeTrouble(s observe.MemberState) *trouble {
	t := &trouble{member: s, blame: blameCluster}
	n := j.node(s.Member.Node)
	switch {
	case n == nil:
		t.kind, t.text = "purged", "is gone with its node, which Nomad does not know any more"
		t.do = "if the machine is back under a new ID, see that nothing of the old client runs there"
	case s.State == observe.AllocLost, n.Unschedulable == api.NodeStatusDown, n.Unschedulable == api.NodeStatusDisconnected:
		t.kind = "lost"
		t.text = "is lost: Nomad has no contact with the node"
		t.do = fmt.Sprintf("its node's GPUs stay fenced until the node is back; if the machine is off for good, purge the node: nomad operator api -X POST /v1/node/%s/purge", n.ID)
	case j.unfit(n.ID) != "":
		t.kind, t.text = "unfit", "must leave: its preflight has found the node unfit: "+j.unfit(n.ID)
		t.do = "see to the node; the job is not placed on it for a while"
	case n.Unschedulable == nodeDraining && (s.State != observe.AllocDead || j.failureCounts(s)):
		t.kind, t.text = "drain", "must leave: the node is drained"
	default:
		return nil
	}
	return t
}

// unfit is what the job's preflight has found on a node since the job was
// placed there; "" if nothing.
func (j *job) unfit(node string) string {
	for _, a := range j.rec.Avoided {
		if a.Node == node && a.At.After(j.rec.Admitted) && j.now().Before(a.Until) {
			return cmp.Or(a.Why, "no reason was given")
		}
	}
	return ""
}

// nodeDraining is what an observer calls a node that is being drained.
const nodeDraining = "draining"

// gpuTrouble is what is wrong with the GPUs of a member that runs.
func (j *job) gpuTrouble(s observe.MemberState) *trouble {
	n := j.node(s.Member.Node)
	var sick, missing []string
	why := ""
	for _, id := range s.Member.GPUs {
		at := slices.IndexFunc(n.GPUs, func(g model.GPU) bool { return g.UUID == id })
		switch {
		case at < 0:
			missing = append(missing, id)
		case n.GPUs[at].Unhealthy != "":
			sick = append(sick, id)
			why = n.GPUs[at].Unhealthy
		}
	}
	switch {
	case len(sick) > 0:
		return &trouble{member: s, kind: "sick", wait: j.opts.Sick, blame: blameCluster,
			text: fmt.Sprintf("has %d of its %s reported unhealthy for %s: %s (%s)", len(sick), gpuCount(s.Member.GPUs), j.opts.Sick, gpuList(sick), why),
			do:   "see to the GPU; nothing is placed on it until it is healthy again"}
	case len(missing) > 0:
		return &trouble{member: s, kind: "vanished", wait: j.opts.Vanished, blame: blameCluster,
			text: fmt.Sprintf("has %d of its %s not listed by the node's device plugin for %s: %s", len(missing), gpuCount(s.Member.GPUs), j.opts.Vanished, gpuList(missing)),
			do:   "see the agent's log on the node for the device plugin"}
	}
	return nil
}

// fate is the newest allocation that was in a member's place; nil if there is
// none.
func (j *job) fate(s observe.MemberState) *api.AllocationListStub {
	if s.Alloc != nil {
		return s.Alloc
	}
	want := slices.Sorted(slices.Values(s.Member.GPUs))
	for _, a := range slices.Backward(j.m.Allocs) {
		group, index, split := rewrite.OriginByName(j.rec.Original, a.TaskGroup)
		if a.CreateIndex > j.rec.Floor() && a.NodeID == s.Member.Node && group == s.Member.Group &&
			(!split || index == s.Member.Index) && slices.Equal(deviceIDs(a), want) {
			return a
		}
	}
	return nil
}

// preempting is the scheduler type for which Nomad's own preemption is on, as
// far as that can be told.
func (j *job) preempting() string {
	for _, t := range []string{api.JobTypeService, api.JobTypeBatch, api.JobTypeSysbatch, api.JobTypeSystem} {
		if j.view.PreemptionOn[t] {
			return t
		}
	}
	return j.m.Model.Type
}

func (j *job) who(s observe.MemberState) string {
	return fmt.Sprintf("member %d of group %q on node %s", s.Member.Index, s.Member.Group, j.nodeName(s.Member.Node))
}

// says is the trouble with who it befell.
func (j *job) says(t trouble) string {
	if t.told {
		return t.text
	}
	return j.who(t.member) + " " + t.text
}

func (r *round) nodeName(id string) string {
	at, ok := slices.BinarySearchFunc(r.view.Nodes, id, func(n observe.NodeRef, id string) int { return strings.Compare(n.ID, id) })
	if ok && r.view.Nodes[at].Name != "" {
		return r.view.Nodes[at].Name
	}
	return id
}

// node is a node as the view shows it; nil if Nomad does not know it.
func (r *round) node(id string) *model.Node {
	if r.nodes == nil && r.view.Snapshot != nil {
		r.nodes = make(map[string]*model.Node, len(r.view.Snapshot.Nodes))
		for i := range r.view.Snapshot.Nodes {
			r.nodes[r.view.Snapshot.Nodes[i].ID] = &r.view.Snapshot.Nodes[i]
		}
	}
	return r.nodes[id]
}

// modelOf is the model of the first GPU that members have; "" if they have none, or
// none that is known.
func (r *round) modelOf(members []model.Member) string {
	for i := range members {
		m := &members[i]
		n := r.node(m.Node)
		if m.Ended || len(m.GPUs) == 0 || n == nil {
			continue
		}
		for k := range n.GPUs {
			if n.GPUs[k].UUID == m.GPUs[0] {
				return n.GPUs[k].Model
			}
		}
	}
	return ""
}

func gpuCount(ids []string) string {
	if len(ids) == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", len(ids))
}

// maxNamed is how many GPUs a reason names.
const maxNamed = 4

func gpuList(ids []string) string {
	if len(ids) == 0 {
		return "no GPU"
	}
	if more := len(ids) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(ids[:maxNamed], ", "), more)
	}
	return strings.Join(ids, ", ")
}

// due keeps the troubles that have lasted long enough, and remembers since when
// the others are there.
func (j *job) due(all []trouble) []trouble {
	old := j.missing[j.key()]
	if len(all) == 0 {
		delete(j.missing, j.key())
		return nil
	}
	next := make(map[troubleKey]time.Time, len(all))
	var out []trouble
	for _, t := range all {
		k := t.key()
		since, known := old[k]
		if !known {
			since = j.now()
		}
		next[k] = since
		if at := since.Add(t.wait); at.After(j.now()) {
			j.look(at)
		} else {
			out = append(out, t)
		}
	}
	j.missing[j.key()] = next
	return out
}

// troubleKey names one trouble of one member.
type troubleKey struct {
	place rewrite.Place
	kind  string
}

func (t *trouble) key() troubleKey {
	return troubleKey{rewrite.Place{Group: t.member.Member.Group, Index: t.member.Member.Index}, t.kind}
}

// look asks for a look at Nomad at that time, even if nothing happens.
func (c *Checker) look(at time.Time) {
	if c.next.IsZero() || at.Before(c.next) {
		c.next = at
	}
}
