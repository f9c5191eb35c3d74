package apply

import (
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// A gang that is moved is stopped as one that gives way is, and its record says
// where it is to start again. The decisions keep that place from then on. When
// the clients have reported all of it dead the gang is admitted there, as any
// other that has a decision. So a planner that takes over anywhere in between
// finds what is left to do; if nobody takes over for long, or the place is lost,
// the gang waits for its turn.

// keepPlaceFor is for how long a place is kept for a gang that has been told to
// stop: long enough for a checkpoint, and not for ever.
const keepPlaceFor = 15 * time.Minute

// keepPlace notes where a gang is to start again. Of the members given only those
// of the gang count. The list is copied.
func (j *job) keepPlace(rec *record.Record, gave model.Preempted, to []model.Member) {
	if !gave.Moved {
		return
	}
	m := model.Moving{At: gave.At, Until: gave.At.Add(keepPlaceFor), Namespace: gave.Namespace, For: gave.By, Group: gave.Group, Index: gave.Index}
	for _, member := range to {
		if j.isOf(member, m.Group, m.Index) {
			m.Members = append(m.Members, member)
		}
	}
	rec.Moving = append(j.landed(rec.Moving, m.Members), m)
}

// landed are the places that are still kept when members have been placed.
func (j *job) landed(kept []model.Moving, placed []model.Member) []model.Moving {
	return slices.DeleteFunc(slices.Clone(kept), func(m model.Moving) bool {
		return slices.ContainsFunc(placed, func(p model.Member) bool { return j.isOf(p, m.Group, m.Index) })
	})
}

// isOf says whether a member is of the gang that a group and an index name; see
// model.Preempted.
func (j *job) isOf(m model.Member, group string, index int) bool {
	switch j.m.Model.Gang {
	case model.GangGroup:
		return m.Group == group
	case model.GangNone:
		return m.Group == group && m.Index == index
	default:
		return true
	}
}
