package barrier

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// meets says whether the members of a released job still wait for each other. An
// operator has left to Nomad where they run, and not made another job of it:
// members of one training run that start alone would each write its checkpoint.
func meets(m *observe.Managed) bool {
	return m.Record != nil && m.Record.Phase == record.PhaseReleased && m.Current != nil && m.Model.Gang != model.GangNone
}

// releasedMembers are the places of a released job that meets: one for each that
// its groups count, with what Nomad runs there.
func releasedMembers(m *observe.Managed) []observe.MemberState {
	state := make(map[string]observe.AllocState, len(m.Members))
	for _, s := range m.Members {
		if s.Alloc != nil {
			state[s.Alloc.ID] = s.State
		}
	}
	newest := newestIn(m)
	var out []observe.MemberState
	for _, g := range m.Current.TaskGroups {
		if g == nil || g.Name == nil {
			continue
		}
		group, split, isSplit := rewrite.Origin(g)
		for i := range gangspec.Count(g) {
			s := observe.MemberState{State: observe.AllocNone,
				Member: model.Member{Group: group, Index: i, Rank: len(out), Slot: rewrite.Slot(g)}}
			if isSplit {
				s.Member.Index = split
			}
			if a := newest[fmt.Sprintf("%s[%d]", *g.Name, i)]; a != nil {
				s.Alloc, s.State = a, releasedState(a, state)
				s.Member.Node, s.Member.GPUs = a.NodeID, observe.AllocGPUs(a)
			}
			out = append(out, s)
		}
	}
	return out
}

// newestIn are the newest wanted allocations of a job by their place, as Nomad
// names it.
func newestIn(m *observe.Managed) map[string]*api.AllocationListStub {
	out := map[string]*api.AllocationListStub{}
	for _, a := range m.Allocs {
		if a.DesiredStatus != api.AllocDesiredStatusRun || a.ClientStatus == api.AllocClientStatusComplete && a.CreateIndex <= m.Record.PriorIndex {
			continue // it completed for an earlier submission
		}
		name := a.TaskGroup + a.Name[max(strings.LastIndexByte(a.Name, '['), 0):]
		if was := out[name]; was == nil || a.CreateIndex > was.CreateIndex {
			out[name] = a
		}
	}
	return out
}

// releasedState is what an allocation means; held says it of those that hold
// something.
func releasedState(a *api.AllocationListStub, held map[string]observe.AllocState) observe.AllocState {
	if s, ok := held[a.ID]; ok {
		return s
	}
	if a.ClientStatus == api.AllocClientStatusComplete {
		return observe.AllocComplete
	}
	return observe.AllocDead
}

// grantedByTask are the GPUs of each task of an allocation. Nobody has planned
// them, so what was granted counts.
func grantedByTask(a *api.AllocationListStub) map[string][]string {
	out := map[string][]string{}
	if a == nil || a.AllocatedResources == nil {
		return out
	}
	known := observe.AllocGPUs(a)
	for name, t := range a.AllocatedResources.Tasks {
		if t == nil {
			continue
		}
		for _, d := range t.Devices {
			if d == nil {
				continue
			}
			for _, id := range d.DeviceIDs {
				if slices.Contains(known, id) {
					out[name] = append(out[name], id)
				}
			}
		}
	}
	return out
}
