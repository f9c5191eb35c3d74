package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// A job whose counts change is resized where it runs: what stays is not
// touched. Members that start one by one come and go by themselves. An elastic
// gang shrinks by the allocations with the highest indexes, as Nomad does, and
// grows by all of its new members or none: what it was to grow by is taken back
// if it is not placed in time.

// beginResize takes counts that the user has changed in Nomad itself where the
// job runs; nil if the version must be queued.
func (j *job) beginResize(orig *api.Job) *Step {
	placed := j.rec.Phase == record.PhaseRunning || j.rec.Phase == record.PhaseAdmitted
	if !placed || j.rec.Unpinned || j.rec.Rollout != nil || j.m.Model.Gang == model.GangNone && !rewrite.IsPinned(j.cur) {
		return nil
	}
	kept, anew, ok := rewrite.Resize(j.cur, j.rec.Original, orig, j.rec.Members, j.pins(), j.levels()...)
	if !ok || len(anew) > 0 && j.rec.Phase != record.PhaseRunning {
		return nil
	}
	states := j.untouched(orig, kept)
	if len(states) == 0 || len(states) < len(kept) && j.rec.Growth != nil {
		return nil
	}
	sub := j.submission(orig)
	put := j.rec.Resized()
	put.Original, put.SpecHash, put.PlacedHash, put.Submitter = orig, sub.SpecHash, sub.SpecHash, sub.Submitter
	put.PriorIndex, put.Arriving = sub.PriorIndex, time.Time{}
	if put.Members = j.renumbered(states); put.Growth != nil || !j.gangs() {
		put.Members = kept // who is new is known by the index
	}
	put.Reason = "the count was changed in Nomad itself; the job is resized where it runs"
	j.ended(put)
	put.Note(j.now(), string(KindResize), put.Reason)
	pinned, err := Mix(put, j.cur, j.pins())
	if err != nil {
		return nil
	}
	j.hold(pinned, put.Members)
	step := j.step(KindResize, put.Reason)
	step.Put, step.ReadSource, step.Version = put, true, int(deref(j.cur.Version))
	step.Register, step.Index = pinned, deref(j.cur.JobModifyIndex)
	return step
}

// untouched are the states of the members that are to stay, if all of them run
// on; nil if one does not. Of a gang that is too large those may leave that
// Nomad has stopped already.
func (j *job) untouched(orig *api.Job, kept []model.Member) []observe.MemberState {
	over := map[string]int{}
	if j.gangs() {
		for _, g := range orig.TaskGroups {
			over[deref(g.Name)] = -gangspec.Count(g)
		}
		for _, m := range kept {
			over[m.Group]++
		}
	}
	var out []observe.MemberState
	for _, m := range kept {
		s := j.first(func(s observe.MemberState) bool { return s.Member.Group == m.Group && s.Member.Index == m.Index })
		switch {
		case s == nil:
			return nil
		case s.State == observe.AllocPlaced, s.State == observe.AllocComplete, j.rec.Phase == record.PhaseAdmitted && s.State == observe.AllocNone:
			out = append(out, *s)
		case over[m.Group] > 0:
			over[m.Group]--
		default:
			return nil
		}
	}
	return out
}

// shrink takes from elastic gangs that run the members beyond their counts;
// nil if there are none, or not all of a gang are well.
func (j *job) shrink() *Step {
	if !j.gangs() || j.rec.Rollout != nil {
		return nil
	}
	var stay, leave []observe.MemberState
	for _, g := range j.rec.Original.TaskGroups {
		of := j.of(deref(g.Name))
		n := j.size(g)
		if len(of) <= n {
			stay = append(stay, of...)
			continue
		}
		if slices.ContainsFunc(of, func(s observe.MemberState) bool { return s.State != observe.AllocPlaced }) {
			return nil
		}
		slices.SortStableFunc(of, func(a, b observe.MemberState) int { return cmp.Compare(j.index(a), j.index(b)) })
		stay, leave = append(stay, of[:n]...), append(leave, of[n:]...)
	}
	if len(leave) == 0 {
		return nil
	}
	return j.resize(stay, fmt.Sprintf("shrinks from %d to %d members, as its counts say now: those with the highest indexes stop, the others run on",
		len(stay)+len(leave), len(stay)))
}

// size is how many members a group may have: as many as its count says, or as
// Caravan has decided if that is more.
func (j *job) size(g *api.TaskGroup) int {
	return max(gangspec.Count(g), j.rec.Sizes[deref(g.Name)])
}

// sizes are those of the groups that have more members than their counts.
func (j *job) sizes(members []model.Member) map[string]int {
	out := map[string]int{}
	for _, m := range members {
		out[m.Group]++
	}
	for _, g := range j.rec.Original.TaskGroups {
		if out[deref(g.Name)] <= gangspec.Count(g) {
			delete(out, deref(g.Name))
		}
	}
	return out
}

// of are the states of a group's members.
func (j *job) of(group string) []observe.MemberState {
	return slices.DeleteFunc(slices.Clone(j.states), func(s observe.MemberState) bool { return s.Member.Group != group })
}

// gangs says whether members belong together.
func (j *job) gangs() bool {
	return j.m.Model.Gang == model.GangJob || j.m.Model.Gang == model.GangGroup
}

// resize leaves gangs that run with some of their members.
func (j *job) resize(stay []observe.MemberState, reason string) *Step {
	put := j.next(reason)
	put.Members = j.renumbered(stay)
	sizes := j.sizes(put.Members)
	maps.DeleteFunc(sizes, func(group string, n int) bool { return n > j.rec.Sizes[group] }) // the user's doing
	put.Sized(j.now(), sizes)
	pinned, err := j.pin(put, put.Members)
	if err != nil {
		return j.stuck(fmt.Sprintf("%s; and the others cannot be pinned without them: %v", reason, err))
	}
	j.hold(pinned, put.Members)
	rewrite.Note(pinned, "Caravan: "+reason, j.link())
	put.Note(j.now(), string(KindResize), reason)
	step := j.step(KindResize, reason)
	step.Put = put
	step.Register, step.Index, step.Source = pinned, deref(j.cur.JobModifyIndex), j.rec.Source
	return step
}

// renumbered are members with the indexes that their allocations have, by which
// Nomad tells them apart, and ranks without gaps.
func (j *job) renumbered(stay []observe.MemberState) []model.Member {
	out := make([]model.Member, len(stay))
	known := map[string]map[int]bool{}
	for i, s := range stay {
		out[i] = s.Member
		if known[s.Member.Group] == nil {
			known[s.Member.Group] = map[int]bool{}
		}
		if s.Alloc != nil {
			known[s.Member.Group][j.index(s)] = true
		}
	}
	for i, s := range stay {
		if len(known[s.Member.Group]) == count(stay, s.Member.Group) {
			out[i].Index = j.index(s)
		}
	}
	order := make([]int, len(out))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(out[a].Rank, out[b].Rank) })
	next := map[string]int{}
	for _, i := range order {
		gang := out[i].Group
		if j.m.Model.Gang == model.GangJob {
			gang = ""
		}
		out[i].Rank = next[gang]
		next[gang]++
	}
	return out
}

// index is the one that Nomad gave a member's allocation in its task group,
// whatever slot that is in; of a member that has a group of its own it is the
// member's.
func (j *job) index(s observe.MemberState) int {
	if s.Alloc == nil {
		return s.Member.Index
	}
	if _, _, split := rewrite.OriginByName(j.rec.Original, s.Alloc.TaskGroup); split {
		return s.Member.Index
	}
	at := strings.LastIndexByte(s.Alloc.Name, '[')
	n, err := strconv.Atoi(strings.TrimSuffix(s.Alloc.Name[at+1:], "]"))
	if at < 0 || err != nil {
		return s.Member.Index
	}
	return n
}

// inSlots puts new members into the slots of those that they come to.
func (j *job) inSlots(fresh []model.Member) []model.Member {
	if !j.gangs() {
		return fresh
	}
	out := slices.Clone(fresh)
	for i := range out {
		for _, s := range j.states {
			if s.Member.Group == out[i].Group {
				out[i].Slot = s.Member.Slot
			}
		}
	}
	return out
}

func count(states []observe.MemberState, group string) int {
	n := 0
	for _, s := range states {
		if s.Member.Group == group {
			n++
		}
	}
	return n
}
