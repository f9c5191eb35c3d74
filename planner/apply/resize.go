package apply

import (
	"cmp"
	"fmt"
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
		n := gangspec.Count(g)
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

// leave lets elastic gangs run on without members whose nodes are down, as long
// as each has its least number; nil if one would not, or anything else is
// wrong. A gang grows again when there is room. A node that is only cut off may
// come back with its member, and is not left.
func (j *job) leave(bad []trouble, before string) *Step {
	if !j.gangs() || j.rec.Phase != record.PhaseRunning || j.rec.Rollout != nil || j.rec.Unpinned || !j.rewritable() {
		return nil
	}
	gone := map[rewrite.Place]bool{}
	for _, t := range bad {
		n := j.node(t.member.Member.Node)
		if t.kind != "purged" && (t.kind != "lost" || n == nil || n.Unschedulable != api.NodeStatusDown) {
			return nil
		}
		gone[placeOf(t.member)] = true
	}
	var stay []observe.MemberState
	for i := range j.m.Model.Groups {
		g := &j.m.Model.Groups[i]
		of := j.of(g.Name)
		left := slices.DeleteFunc(slices.Clone(of), func(s observe.MemberState) bool { return gone[placeOf(s)] })
		stay = append(stay, left...)
		if len(left) == len(of) {
			continue
		}
		members := make([]model.Member, len(left))
		for k, s := range left {
			if members[k] = s.Member; s.State != observe.AllocPlaced {
				return nil
			}
		}
		if g.Max == 0 || len(left) < g.Min || !rewrite.Resizable(j.cur, g.Name, members, j.pins()) {
			return nil
		}
	}
	text := before + j.who(bad[0].member) + " " + bad[0].text
	if more := len(bad) - 1; more > 0 {
		text += fmt.Sprintf("; %d more of %d members are lost", more, len(j.states))
	}
	step := j.resize(stay, fmt.Sprintf("%s; the gang runs on with %d of %d members, and grows again when there is room", text, len(stay), len(j.states)))
	if step != nil && step.Kind == KindResize {
		step.Stop = j.stoppable(func(a *api.AllocationListStub) bool {
			return slices.ContainsFunc(bad, func(t trouble) bool { return t.member.Alloc != nil && t.member.Alloc.ID == a.ID })
		})
	}
	return step
}

// mayGrow says why new members are not placed beside those that run; "" if
// they may be.
func (j *job) mayGrow(fresh []model.Member) string {
	switch grown := j.grown(fresh); {
	case j.m.Model.Gang == model.GangGroup && j.leftovers(fresh):
		return "what runs of an earlier size is stopped first"
	case len(grown) == 0 && j.severally():
		return ""
	case len(grown) == 0 || !j.rewritable():
		return fmt.Sprintf("the job is %s", j.rec.Phase)
	case j.rec.Rollout != nil:
		return "it grows when the update is through"
	case j.first(func(s observe.MemberState) bool {
		return s.State != observe.AllocPlaced && s.State != observe.AllocComplete
	}) != nil && j.rec.Phase == record.PhaseRunning:
		return "it grows when all of its members are well"
	}
	return ""
}

// leftovers says whether allocations that are in no member's place run on in
// the groups of new members: Nomad would take them for those.
func (j *job) leftovers(fresh []model.Member) bool {
	known := j.canaryAllocs()
	for _, s := range j.states {
		if s.Alloc != nil {
			known[s.Alloc.ID] = true
		}
	}
	return slices.ContainsFunc(j.live(), func(a *api.AllocationListStub) bool {
		group, _, _ := rewrite.OriginByName(j.rec.Original, a.TaskGroup)
		return a.DesiredStatus == api.AllocDesiredStatusRun && !known[a.ID] &&
			slices.ContainsFunc(fresh, func(m model.Member) bool { return m.Group == group })
	})
}

// grown are the indexes of those new members that come to a gang which runs,
// by group.
func (j *job) grown(fresh []model.Member) map[string][]int {
	if !j.gangs() {
		return nil
	}
	runs := map[string]bool{}
	for _, s := range j.states {
		runs[s.Member.Group] = true
	}
	out := map[string][]int{}
	for _, m := range fresh {
		if runs[m.Group] || j.m.Model.Gang == model.GangJob && len(runs) > 0 {
			out[m.Group] = append(out[m.Group], m.Index)
		}
	}
	return out
}

// disturbed says what Nomad would do to gangs that run besides giving them new
// members; "" if nothing.
func (j *job) disturbed(plan *api.JobPlanResponse) string {
	if !j.gangs() || len(j.states) == 0 || plan.Annotations == nil {
		return ""
	}
	for _, s := range j.states {
		if s.Alloc == nil {
			continue
		}
		if u := plan.Annotations.DesiredTGUpdates[s.Alloc.TaskGroup]; u != nil && j.rec.Rollout == nil && u.DestructiveUpdate+u.Stop+u.Migrate > 0 {
			return fmt.Sprintf("Nomad would restart members of group %q that run", s.Member.Group)
		}
	}
	return ""
}

// growing carries on with what gangs are being given; false if they are given
// nothing, or a member that they had is among the bad ones.
func (j *job) growing(bad []trouble) (step *Step, is bool) {
	g := j.rec.Growth
	if g == nil || slices.ContainsFunc(bad, func(t trouble) bool { return !g.Has(t.member.Member.Group, t.member.Member.Index) }) {
		return nil, false
	}
	if g.Undo != "" {
		return j.undoGrowth(), true
	}
	var late []observe.MemberState
	for _, s := range j.states {
		if g.Has(s.Member.Group, s.Member.Index) && !settled(s) {
			late = append(late, s)
		}
	}
	overdue := !j.rec.Deadline.IsZero() && !j.now().Before(j.rec.Deadline)
	var why string
	switch {
	case j.lowered():
		why = "its count was lowered"
	case len(bad) > 0:
		why = j.who(bad[0].member) + " " + bad[0].text
	case overdue && len(late) > 0:
		why = fmt.Sprintf("%s was not placed within %s", j.who(late[0]), j.opts.Deadline)
	default:
		return nil, false
	}
	put := j.next(fmt.Sprintf("the gang cannot grow: %s; what was placed of it is taken back, and the gang runs on at the size that it had", why))
	put.Growth = g.With(nil)
	put.Growth.Undo = put.Reason
	if !j.lowered() {
		j.count(put)
	}
	put.Note(j.now(), string(KindResize), put.Reason)
	step = j.step(KindResize, put.Reason)
	step.Put = put
	return step, true
}

// lowered says whether a group that grows has more members than it asks for by
// now.
func (j *job) lowered() bool {
	return slices.ContainsFunc(j.rec.Original.TaskGroups, func(g *api.TaskGroup) bool {
		return len(j.rec.Growth.Fresh[deref(g.Name)]) > 0 && count(j.states, deref(g.Name)) > gangspec.Count(g)
	})
}

// undoGrowth closes the groups, stops what is in no old member's place, and
// then gives the gangs their old size: with the count alone Nomad would choose
// by index whom to stop.
func (j *job) undoGrowth() *Step {
	g := j.rec.Growth
	fresh := func(s observe.MemberState) bool { return g.Has(s.Member.Group, s.Member.Index) }
	old := map[string]bool{}
	for _, s := range j.states {
		if s.Alloc != nil && !fresh(s) {
			old[s.Alloc.ID] = true
		}
	}
	step := j.step(KindResize, j.rec.Reason)
	step.Stop = j.stoppable(func(a *api.AllocationListStub) bool {
		group, _, _ := rewrite.OriginByName(j.rec.Original, a.TaskGroup)
		return !old[a.ID] && slices.Contains(g.Groups(), group)
	})
	if !j.closed(g.Groups()) {
		pinned, err := j.pin(j.rec, j.pinnable(), j.done()...)
		if err != nil {
			return j.stuck(fmt.Sprintf("%s; but it cannot be pinned: %v", j.rec.Reason, err))
		}
		rewrite.Close(pinned, g.Groups())
		step.Register, step.Index, step.Source = pinned, deref(j.cur.JobModifyIndex), j.rec.Source
	}
	if step.Register != nil || len(step.Stop) > 0 {
		return step
	}
	stay := slices.DeleteFunc(slices.Clone(j.states), fresh)
	step = j.resize(stay, j.rec.Reason)
	if step != nil && step.Kind == KindResize {
		step.Put.Growth = nil
		if !slices.ContainsFunc(stay, func(s observe.MemberState) bool { return !settled(s) }) {
			step.Put.Phase, step.Put.Deadline = record.PhaseRunning, time.Time{}
		}
	}
	return step
}

// closed says whether nothing more is placed in the groups.
func (j *job) closed(groups []string) bool {
	for _, g := range j.cur.TaskGroups {
		if group, _, _ := rewrite.Origin(g); slices.Contains(groups, group) && rewrite.MayPlace(g) {
			return false
		}
	}
	return rewrite.IsPinned(j.cur)
}
