package apply

import (
	"cmp"
	"context"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
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
	if p.Action == model.ActionShrink {
		step = j.giveMembers(p)
	}
	if step == nil {
		return nil
	}
	result := &Result{Namespace: m.Namespace, Job: m.ID, Kind: step.Kind, Reason: step.Reason}
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
	j.noteGiven(step, p, leave)
	return step
}

// giveMembers lets an elastic gang run on without some of its members, if they
// are those that Nomad would stop, and the gang is well; nil if not.
func (j *job) giveMembers(p model.Preemption) *Step {
	if !j.gangs() || j.rec.Rollout != nil || j.rec.Unpinned || !j.rewritable() {
		return nil
	}
	// Nomad says which index is on which node, and such members have theirs alone.
	type seat struct{ group, node string }
	leave := map[seat]bool{}
	for _, m := range p.Members {
		leave[seat{m.Group, m.Node}] = true
	}
	leaves := func(s observe.MemberState) bool { return leave[seat{s.Member.Group, s.Member.Node}] }
	var stay []observe.MemberState
	var gone []trouble
	for i := range j.m.Model.Groups {
		g := &j.m.Model.Groups[i]
		of := j.of(g.Name)
		slices.SortStableFunc(of, func(a, b observe.MemberState) int { return cmp.Compare(j.index(a), j.index(b)) })
		members, left := make([]model.Member, len(of)), 0
		for k, s := range of {
			if members[k] = s.Member; s.State != observe.AllocPlaced {
				return nil
			}
			if !leaves(s) {
				left++
			}
		}
		if left == len(of) {
			stay = append(stay, of...)
			continue
		}
		for _, s := range of[:left] {
			if leaves(s) {
				return nil // Nomad would stop another one
			}
		}
		if g.Max == 0 || left < max(1, g.Min) || !rewrite.Resizable(j.cur, g.Name, members, j.pins()) {
			return nil
		}
		stay = append(stay, of[:left]...)
		for _, s := range of[left:] {
			gone = append(gone, trouble{member: s})
		}
	}
	if len(gone) == 0 {
		return nil
	}
	step := j.resize(stay, p.Reason)
	if step != nil && step.Put != nil && p.For != (model.JobName{}) {
		j.noteGiven(step, p, gone)
	}
	return step
}

// noteGiven notes in a step's record for whom gangs have left.
func (j *job) noteGiven(step *Step, p model.Preemption, leave []trouble) {
	step.Kind = KindPreempt
	if p.Action == model.ActionMove {
		step.Kind = KindMove
	}
	if h := step.Put.History; len(h) > 0 {
		h[0].Kind = string(step.Kind)
	}
	seen := map[model.Preempted]bool{}
	for _, t := range leave {
		gave := model.Preempted{At: j.now(), Namespace: p.For.Namespace, By: p.For.ID, ByGroup: p.ForGroup, Returned: p.Returned, Moved: p.Action == model.ActionMove}
		switch j.m.Model.Gang {
		case model.GangGroup:
			gave.Group = t.member.Member.Group
		case model.GangNone:
			gave.Group, gave.Index = t.member.Member.Group, t.member.Member.Index
		}
		if !seen[gave] {
			seen[gave] = true
			step.Put.GiveWay(gave)
			j.keepPlace(step.Put, gave, p.To)
		}
	}
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
