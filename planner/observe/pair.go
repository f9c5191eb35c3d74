package observe

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// pair finds for each member of a placement the allocation that fills its
// place. Nomad decides which allocation index lands on which node of a group,
// so members and allocations meet by node and GPUs, not by index; only groups
// that were split have one member each.
//
// What ended up to floor, an index of Nomad's, belongs to an earlier placement.
//
// Four rounds, the surest first: what lives where it was decided; what lives
// elsewhere; what ended where it was decided; nothing.
func pair(origins origins, members []model.Member, allocs []*api.AllocationListStub, st *state, floor uint64) []MemberState {
	p := &pairing{members: members, origins: origins, st: st,
		out: make([]MemberState, len(members)), used: map[string]bool{}, byGroup: map[groupSlot][]*api.AllocationListStub{}}
	// Newest first: an older allocation on the same node was replaced.
	for _, a := range slices.Backward(allocs) {
		at := p.origins.of(a)
		key := groupSlot{at.group, at.slot}
		p.byGroup[key] = append(p.byGroup[key], a)
	}
	for i := range members {
		p.out[i] = MemberState{Member: members[i], State: AllocNone}
	}
	p.round(func(s AllocState, _ *api.AllocationListStub) bool { return s == AllocPlaced }, p.exact)
	p.round(func(s AllocState, _ *api.AllocationListStub) bool { return s.Holds() }, p.exact)
	// One that is lost and of an earlier placement, where Nomad still waits for its
	// node, is nobody's: those of this placement may not have been made yet.
	p.round(func(s AllocState, a *api.AllocationListStub) bool {
		return s.Holds() && (s != AllocLost || a.CreateIndex > floor)
	}, p.sameGroup)
	// A member that ended stays ended for as long as Nomad wants it to have
	// run; one that was told to stop belongs to an earlier placement.
	p.round(func(s AllocState, a *api.AllocationListStub) bool {
		return !s.Holds() && a.CreateIndex > floor && a.DesiredStatus == api.AllocDesiredStatusRun && a.NextAllocation == ""
	}, p.exact)
	return p.out
}

// groupSlot names what is a group of its own in Nomad: a canary is not in the
// place of the member beside it.
type groupSlot struct {
	group string
	slot  int
}

type pairing struct {
	members []model.Member
	origins origins
	st      *state
	byGroup map[groupSlot][]*api.AllocationListStub
	used    map[string]bool
	out     []MemberState
}

func (p *pairing) round(want func(AllocState, *api.AllocationListStub) bool, fits func(int, *api.AllocationListStub) bool) {
	for i := range p.members {
		if p.out[i].Alloc != nil {
			continue
		}
		for _, a := range p.byGroup[groupSlot{p.members[i].Group, p.members[i].Slot}] {
			s := stateOf(a, p.st.nodeStatus(a.NodeID))
			if p.used[a.ID] || !want(s, a) || !fits(i, a) {
				continue
			}
			if s == AllocPlaced && !p.exact(i, a) {
				s = AllocMisplaced
			}
			p.used[a.ID] = true
			p.out[i].Alloc, p.out[i].State, p.out[i].together = a, s, !p.origins.of(a).split
			break
		}
	}
}

// exact says whether the allocation is where the member was to be.
func (p *pairing) exact(i int, a *api.AllocationListStub) bool {
	if a.NodeID != p.members[i].Node || !p.sameGroup(i, a) {
		return false
	}
	want := slices.Clone(p.members[i].GPUs)
	slices.Sort(want)
	return slices.Equal(want, AllocGPUs(a))
}

// sameGroup says whether the allocation can be the member's at all.
func (p *pairing) sameGroup(i int, a *api.AllocationListStub) bool {
	at := p.origins.of(a)
	return !at.split || at.index == p.members[i].Index
}
