package apply

import (
	"cmp"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// recalled are the members that a user told to stop, one for each gang that is
// not taken off for it yet. Nomad would place a member anew within the gang's
// pins while a sibling may not have left its GPUs: the gate goes first.
func (j *job) recalled() []trouble {
	var out []trouble
	for i := range j.rec.Recalls {
		r := &j.rec.Recalls[i]
		if r.Taken {
			continue
		}
		s := j.memberOf(r)
		if s == nil {
			continue
		}
		out = append(out, trouble{member: *s, kind: "recalled", blame: blameCluster,
			text: "was told to stop by " + cmp.Or(r.By, "a user")})
	}
	return out
}

// memberOf is the member that a recall names, else one of its gang; nil if none
// of it is left.
func (j *job) memberOf(r *record.Recall) *observe.MemberState {
	left := func(s observe.MemberState) bool {
		return (r.Group == "" || s.Member.Group == r.Group) && !s.Member.Ended && s.State != observe.AllocComplete
	}
	named := func(s observe.MemberState) bool {
		return s.Alloc != nil && (s.Alloc.ID == r.Alloc || isBefore(j.m.Allocs, r.Alloc, s.Alloc.ID))
	}
	if s := j.first(func(s observe.MemberState) bool { return left(s) && named(s) }); s != nil {
		return s
	}
	return j.first(left)
}

// isBefore says whether Nomad has replaced the one allocation by the other.
func isBefore(allocs []*api.AllocationListStub, old, id string) bool {
	for _, a := range allocs {
		if a.ID == old {
			return a.NextAllocation == id
		}
	}
	return false
}
