package apply

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// giveUp takes back what members in trouble take down with them: the gang, or
// only the member where members start one by one. before is put before the
// reason.
func (j *job) giveUp(bad []trouble, before string) *Step {
	delete(j.missing, j.key())
	if step := j.leave(bad, before); step != nil {
		return step
	}
	var step *Step
	if j.severally() {
		step = j.trim(bad, before)
	} else {
		step = j.fail(j.summary(bad, before), worst(bad), bad[0].member.Member.Group)
	}
	j.noteReplaced(step, bad)
	if first := bad[0]; step != nil && !first.told && first.blame == blameMember && first.member.Alloc != nil {
		step.Failed = first.member.Alloc.ID
	}
	return step
}

// worst is what counts of several troubles: what the cluster did to a gang
// explains why its members fail, and an operator's drain explains all.
func worst(bad []trouble) blame {
	out := bad[0].blame
	for _, t := range bad {
		out = min(out, t.blame)
	}
	return out
}

// summary says in words what happened to whom, what is done about it, and what
// a person must do.
func (j *job) summary(bad []trouble, before string) string {
	text := before + j.says(bad[0])
	if more := len(bad) - 1; more > 0 {
		text += fmt.Sprintf("; %d more of %d members are in trouble", more, len(j.states))
	}
	switch {
	case !j.severally() && len(j.states) > 1:
		text += fmt.Sprintf("; the gang of %d is stopped whole and waits whole", len(j.states))
	case !j.severally():
		text += "; it is stopped and waits"
	case j.m.Model.Gang == model.GangGroup:
		text += fmt.Sprintf("; the gangs %s are stopped whole and wait whole, the others run on", strings.Join(groupsOf(bad), ", "))
	default:
		text += fmt.Sprintf("; %d of %d members are placed anew, the others run on", len(bad), len(j.states))
	}
	for _, t := range bad {
		if t.do != "" {
			return text + "; " + t.do
		}
	}
	return text
}

func groupsOf(bad []trouble) []string {
	names := map[string]bool{}
	for _, t := range bad {
		names[fmt.Sprintf("%q", t.member.Member.Group)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// fail takes the whole job back to the queue. group is the group of the member
// that is to blame, if one is.
func (j *job) fail(reason string, why blame, group string) *Step {
	if done := len(j.done()); done > 0 {
		// The gate alone starts nothing again; see observe for what holds it.
		reason += fmt.Sprintf("; %d of %d members have completed, and would run a second time", done, len(j.states))
	}
	step := j.step(KindRollback, reason)
	step.Stop = j.stoppable(all)
	if !j.gate(step) {
		return j.step(KindNote, step.Reason)
	}
	step.Put = j.next(reason)
	step.Put.Phase, step.Put.Unpinned = record.PhaseRollback, false
	step.Put.Growth, step.Put.Sizes, step.Put.Replace = nil, nil, nil
	step.Put.End(j.now(), true, reason)
	step.Put.RetryAfter, step.Put.KeepSize, step.Put.GangFailures = time.Time{}, "", nil
	if !j.severally() {
		step.Put.Moving = nil
	}
	step.Put.TakeRecalls(func(string) bool { return true })
	switch why {
	case blamePlacement:
		j.count(step.Put)
	case blameMember:
		step.Put.Held = j.failed(step.Put, "", group)
		if step.Put.Held != "" {
			step.Put.Reason = reason + "; " + step.Put.Held
		}
	}
	step.Reason = step.Put.Reason
	step.Put.Note(j.now(), string(KindRollback), step.Reason)
	return step
}

// trim leaves some members where they are and queues the others: whole groups,
// where the groups are the gangs.
func (j *job) trim(bad []trouble, before string) *Step {
	reason := j.summary(bad, before)
	out := map[rewrite.Place]bool{}
	groups := map[string]bool{}
	for _, t := range bad {
		out[rewrite.Place{Group: t.member.Member.Group, Index: t.member.Member.Index}] = true
		groups[t.member.Member.Group] = j.m.Model.Gang == model.GangGroup
	}
	put := j.next(reason)
	put.RetryAfter = time.Time{}
	put.Growth = put.Growth.Without(func(group string) bool { return groups[group] })
	put.WithoutSizes(func(group string) bool { return groups[group] })
	gaveUp, whys := j.groupsThrough(put, groups, bad)
	reason += whys
	if worst(bad) == blamePlacement || worst(bad) == blameMember && j.m.Model.Gang == model.GangNone {
		j.count(put)
	}
	kept := *j
	kept.states = nil
	running := j.canaryAllocs()
	put.Members = nil
	for _, s := range j.states {
		at := rewrite.Place{Group: s.Member.Group, Index: s.Member.Index}
		switch {
		case gaveUp[at.Group]:
			s.Member.Ended = true
		case out[at] || groups[at.Group]:
			continue
		case s.Alloc != nil:
			running[s.Alloc.ID] = true
		}
		put.Members = append(put.Members, s.Member)
		kept.states = append(kept.states, s)
	}
	if len(kept.states) == 0 {
		return j.fail(reason, worst(bad), bad[0].member.Member.Group)
	}
	pinned, err := j.pin(put, kept.pinnable(), kept.done()...)
	if err != nil {
		return j.stuck(fmt.Sprintf("%s; and the others cannot be pinned without it: %v", reason, err))
	}
	j.hold(pinned, kept.pinnable())
	put.Reason, put.Phase, put.Deadline = reason, record.PhaseRunning, time.Time{}
	put.TakeRecalls(func(group string) bool { return groups[group] })
	put.GangFailures = maps.Clone(put.GangFailures)
	maps.DeleteFunc(put.GangFailures, func(group, _ string) bool { return groups[group] })
	kept.ended(put)
	put.Note(j.now(), string(KindTrim), reason)
	step := j.step(KindTrim, reason)
	step.Put = put
	step.Register, step.Index, step.Source = pinned, deref(j.cur.JobModifyIndex), j.rec.Source
	step.Stop = j.stoppable(func(a *api.AllocationListStub) bool { return !running[a.ID] })
	return step
}

// groupsThrough says which of the groups are not placed again, and why, as it is
// told after other reasons.
func (j *job) groupsThrough(rec *record.Record, groups map[string]bool, bad []trouble) (gaveUp map[string]bool, whys string) {
	gaveUp = map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if !groups[name] {
			continue
		}
		if why := j.groupThrough(rec, name, bad); why != "" {
			gaveUp[name] = true
			whys += "; " + why
		}
	}
	return gaveUp, whys
}

// groupThrough says why a group that is a gang of its own is not placed again:
// a member has completed already, or it has failed too often; "" if it is.
func (j *job) groupThrough(rec *record.Record, group string, bad []trouble) string {
	done := 0
	for _, d := range j.done() {
		if d.Group == group {
			done++
		}
	}
	if done > 0 {
		return fmt.Sprintf("%d members of group %q have completed and would run a second time, so the group is not placed again; to run it again, stop the job and submit it again", done, group)
	}
	for _, t := range bad {
		if t.member.Member.Group == group && t.blame == blameMember {
			return j.failed(rec, group, group)
		}
	}
	return ""
}

// failed counts a failure of a member of a gang, and sets when the gang may be
// placed again. It says why it may not be any more, "" if it may: as in Nomad,
// the group's reschedule block bounds the attempts within an interval.
func (j *job) failed(rec *record.Record, gang, group string) string {
	policy := j.reschedule(group)
	unlimited, allowed, interval := deref(policy.Unlimited), deref(policy.Attempts), deref(policy.Interval)
	f := rec.Failures[gang]
	forget := j.opts.Stable
	if !unlimited && interval > 0 {
		forget = interval
	}
	// A gang that has run on without its members was not admitted anew.
	since := rec.Admitted
	if f.Last.After(since) {
		since = f.Last
	}
	ran := j.now().Sub(since)
	if f.Count > 0 && (unlimited && ran >= forget || !unlimited && interval > 0 && j.now().Sub(f.Since) > forget) {
		f = record.Failures{}
	}
	if f.Count == 0 {
		f.Since = j.now()
	}
	f.Count, f.Last = f.Count+1, j.now()
	rec.Failures = maps.Clone(rec.Failures)
	if rec.Failures == nil {
		rec.Failures = map[string]record.Failures{}
	}
	rec.Failures[gang] = f
	if j.onFailure() == gangspec.FailureFail {
		return fmt.Sprintf("%s is %q, so it is not placed again; mend the cause, then stop the job and submit it again", gangspec.KeyOnFailure, gangspec.FailureFail)
	}
	if unlimited || f.Count <= allowed {
		rec.RetryAfter = j.now().Add(j.opts.backoff(f.Count))
		return ""
	}
	within := ""
	if interval > 0 {
		within = " within " + interval.String()
	}
	return fmt.Sprintf("that was failure %d, and the reschedule block of group %q allows %d more tries%s, so it is not placed again; mend the cause, then stop the job and submit it again", f.Count, group, allowed, within)
}

// reschedule is a group's reschedule block as Nomad completes it.
func (j *job) reschedule(group string) *api.ReschedulePolicy {
	policy := api.NewDefaultReschedulePolicy(j.m.Model.Type)
	policy.Merge(j.rec.Original.Reschedule)
	for _, g := range j.rec.Original.TaskGroups {
		if deref(g.Name) == group {
			policy.Merge(g.ReschedulePolicy)
		}
	}
	return policy
}

// pinsChecked names the versions of a job and its record for which the pins
// are known to hold.
type pinsChecked struct{ job, record uint64 }

// maxPinChecks is how many jobs' pins are looked at in one Check. A planner that
// has just started has all of them before it, and other things to do.
const maxPinChecks = 256

// pinsHold says whether the job as it is in Nomad allows each member its place
// and no other. Nobody but Caravan should change that; people do.
func (j *job) pinsHold() bool {
	if rewrite.GatedWhole(j.cur) || !rewrite.IsPinned(j.cur) {
		return false
	}
	seen := pinsChecked{deref(j.cur.JobModifyIndex), j.rec.ModifyIndex}
	if j.sound[j.key()] == seen {
		return true
	}
	if j.pinChecks == maxPinChecks {
		j.look(j.now().Add(time.Second))
		return true
	}
	j.pinChecks++
	pinned, err := Mix(j.rec, j.cur, j.pins())
	if err != nil || rewrite.PinsHold(j.cur, pinned, j.pins()) {
		// What cannot be pinned any more shows as trouble of its members.
		j.sound[j.key()] = seen
		return true
	}
	return false
}

// restore sets the pins right, but not again and again against somebody who
// keeps changing them.
func (j *job) restore() *Step {
	bare := !rewrite.IsPinned(j.cur) || rewrite.GatedWhole(j.cur)
	if again := j.repinned[j.key()].Add(j.opts.RetryMax); again.After(j.now()) && !bare && j.rec.Rollout == nil {
		j.look(again)
		return nil
	}
	step := j.repin()
	if step == nil || step.Kind != KindPin {
		return step
	}
	j.repinned[j.key()] = j.now()
	if !bare && j.rec.Rollout == nil {
		step.Reason = "the pins were changed in Nomad itself; they are set right, the gang stays where it is"
		if step.Put == nil {
			step.Put = j.next("")
		}
		step.Put.Note(j.now(), string(KindPin), step.Reason)
	}
	return step
}

// strays stops allocations of the job that are in no member's place: what a
// planner that died in between has left, or Nomad has placed by itself.
func (j *job) strays() *Step {
	known := j.canaryAllocs()
	for _, s := range j.states {
		if s.Alloc != nil {
			known[s.Alloc.ID] = true
		}
	}
	stop := j.stoppable(func(a *api.AllocationListStub) bool { return !known[a.ID] })
	if len(stop) == 0 {
		return nil
	}
	step := j.step(KindTrim, fmt.Sprintf("%d allocations are in no member's place and are stopped", len(stop)))
	step.Stop = stop
	return step
}
