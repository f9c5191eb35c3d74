package apply

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

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
		// What has ended is not disturbed, whatever Nomad counts it as.
		if s.Alloc == nil || s.State == observe.AllocComplete {
			continue
		}
		if u := plan.Annotations.DesiredTGUpdates[s.Alloc.TaskGroup]; u != nil && j.rec.Rollout == nil && u.DestructiveUpdate+u.Stop+u.Migrate > 0 {
			return fmt.Sprintf("Nomad would restart members of group %q that run (%d changed, %d stopped, %d moved)", s.Member.Group, u.DestructiveUpdate, u.Stop, u.Migrate)
		}
	}
	return ""
}

// growing carries on with what gangs are being given; false if they are given
// nothing, or cannot go on without members among the bad ones that they had.
func (j *job) growing(bad []trouble) (step *Step, is bool) {
	g := j.rec.Growth
	if g == nil {
		return nil, false
	}
	fresh := func(s observe.MemberState) bool { return g.Has(s.Member.Group, s.Member.Index) }
	if old := slices.DeleteFunc(slices.Clone(bad), func(t trouble) bool { return fresh(t.member) }); len(old) > 0 && !j.survives(old, fresh) {
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
		return len(j.rec.Growth.Fresh[deref(g.Name)]) > 0 && count(j.states, deref(g.Name)) > j.size(g)
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
		if !slices.ContainsFunc(stay, func(s observe.MemberState) bool { return !settled(s) && s.State != observe.AllocLost }) {
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
