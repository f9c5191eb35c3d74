package apply

import (
	"cmp"
	"context"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// A gang that gives way to another is stopped as one in trouble is: the record
// says first that it is to leave and for whom, then the gate keeps Nomad from
// placing it again, then its members are told to stop, and each saves a
// checkpoint before it does if its driver is told how. Whoever it is for is
// decided on again when the clients have reported all of them dead, so nothing
// is to be undone if the planner ends in between: the next one finishes.

// giveWay carries a preemption out; nil if there is nothing left to do.
func (e *Executor) giveWay(ctx context.Context, r *round, p model.Preemption) *Result {
	m, ok := r.view.Job(cmp.Or(p.Namespace, api.DefaultNamespace), p.Job)
	if !ok {
		return nil
	}
	j := r.job(m)
	if j.rec == nil || j.rec.Phase != record.PhaseRunning || deref(j.cur.Stop) {
		return nil
	}
	step := j.giveWay(p)
	if step == nil {
		return nil
	}
	result := &Result{Namespace: m.Namespace, Job: m.ID, Kind: KindPreempt, Reason: step.Reason}
	result.Changed, result.Err = e.take(ctx, r.view, step)
	return result
}

// giveWay takes the members of a preemption off, whole gangs as they are now.
func (j *job) giveWay(p model.Preemption) *Step {
	var leave []trouble
	for _, s := range j.states {
		if j.leaves(s, p.Members) {
			leave = append(leave, trouble{member: s, kind: "preempted", blame: blameCluster, text: p.Reason})
		}
	}
	if len(leave) == 0 {
		return nil
	}
	var step *Step
	if j.severally() {
		step = j.trim(leave, "")
	} else {
		step = j.fail(p.Reason, blameCluster, "")
	}
	if step == nil || step.Put == nil {
		return step
	}
	step.Kind = KindPreempt
	if h := step.Put.History; len(h) > 0 {
		h[0].Kind = string(KindPreempt)
	}
	seen := map[model.Preempted]bool{}
	for _, t := range leave {
		gave := model.Preempted{At: j.now(), Namespace: p.For.Namespace, By: p.For.ID}
		switch j.m.Model.Gang {
		case model.GangGroup:
			gave.Group = t.member.Member.Group
		case model.GangNone:
			gave.Group, gave.Index = t.member.Member.Group, t.member.Member.Index
		}
		if !seen[gave] {
			seen[gave] = true
			step.Put.GiveWay(gave)
		}
	}
	return step
}

// leaves says whether a member is of a gang that gives way.
func (j *job) leaves(s observe.MemberState, members []model.Member) bool {
	if s.Member.Ended || s.State == observe.AllocComplete {
		return false
	}
	for _, m := range members {
		switch j.m.Model.Gang {
		case model.GangJob:
			return true
		case model.GangGroup:
			if m.Group == s.Member.Group {
				return true
			}
		default:
			if m.Group == s.Member.Group && m.Index == s.Member.Index {
				return true
			}
		}
	}
	return false
}
