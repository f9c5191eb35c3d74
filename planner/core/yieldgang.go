package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
)

// gangKey names a gang: a job, a group of it, or a member.
type gangKey struct {
	job   jobKey
	group string
	index int
}

// runKey names a gang of a job that is there, as the cluster has it.
type runKey struct {
	job   *model.Job
	group string
	index int
}

// gangKeyOf is the gang that a holder is of.
func gangKeyOf(j *model.Job, h *holder) gangKey {
	key := gangKey{job: keyOf(j), index: -1}
	group, index := "", 0
	switch {
	case h.member != nil:
		group, index = h.member.Group, h.member.Index
	case h.on != nil:
		group, index = h.on.Group, h.on.Index
	}
	switch gangOf(j) {
	case model.GangGroup:
		key.group = group
	case model.GangNone:
		key.group, key.index = group, index
	}
	return key
}

// newYielder is a gang that runs, with room for what it holds.
func (s *scratch) newYielder(j *model.Job) *yielder {
	n := 1
	if gangOf(j) == model.GangJob {
		n = len(j.Members)
	}
	v := &carve(&s.running, 1)[:1][0]
	*v = yielder{job: j, after: -1, whole: true, holds: carve(&s.holds, n), members: carve(&s.members, n)}
	return v
}
