package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// onFailure is what the job's author wants to become of a gang a member of which
// has failed.
func (j *job) onFailure() string {
	// Faults in the contract are shown elsewhere, and the default holds then.
	spec, _ := gangspec.Parse(j.rec.Original, j.levels()...)
	return cmp.Or(spec.OnFailure, gangspec.FailureRestart)
}

// endures says whether the others of a gang go on beside a dead member that
// cannot be taken out of it for now. Its place stays its own.
func (j *job) endures(s observe.MemberState) bool {
	if !j.gangs() || j.onFailure() != gangspec.FailureContinue || !j.enough() {
		return false
	}
	_, ok := j.remaining(func(o observe.MemberState) bool { return o.State == observe.AllocDead })
	return !ok
}

// enough says whether every group that has lost members to failures still has
// its least number.
func (j *job) enough() bool {
	for i := range j.m.Model.Groups {
		g := &j.m.Model.Groups[i]
		dead, alive := 0, 0
		for _, s := range j.of(g.Name) {
			switch s.State {
			case observe.AllocDead:
				dead++
			case observe.AllocPlaced, observe.AllocComplete:
				alive++
			}
		}
		if dead > 0 && (g.Max == 0 || alive < g.Min) {
			return false
		}
	}
	return true
}

// remaining are the members that gangs run on with when some are gone. It is
// false if they cannot: a group would have too few
// members, another one is not well, or the pins cannot be made so that Nomad
// leaves the others alone.
func (j *job) remaining(gone func(observe.MemberState) bool) (stay []observe.MemberState, ok bool) {
	if !j.gangs() || j.rec.Rollout != nil || j.rec.Unpinned || !j.rewritable() {
		return nil, false
	}
	for i := range j.m.Model.Groups {
		g := &j.m.Model.Groups[i]
		of := j.of(g.Name)
		left := slices.DeleteFunc(slices.Clone(of), gone)
		stay = append(stay, left...)
		if len(left) == len(of) {
			continue
		}
		members := make([]model.Member, len(left))
		for k, s := range left {
			if members[k] = s.Member; s.State != observe.AllocPlaced {
				return nil, false
			}
		}
		if g.Max == 0 || len(left) < g.Min || !rewrite.Resizable(j.cur, g.Name, members, j.pins()) || j.takesAnother(of, left, gone) {
			return nil, false
		}
	}
	return stay, true
}

// takesAnother says whether Nomad would stop a member that is well in place of
// one that has failed, if their group's count fell. It stops those with the
// highest indexes, and counts failed allocations of a service among those that
// it may stop; of a batch job it forgets them with the next version.
func (j *job) takesAnother(of, left []observe.MemberState, gone func(observe.MemberState) bool) bool {
	if j.m.Model.Type == api.JobTypeBatch {
		return false
	}
	return slices.ContainsFunc(of, func(s observe.MemberState) bool {
		return gone(s) && s.State == observe.AllocDead &&
			slices.ContainsFunc(left, func(o observe.MemberState) bool { return j.index(o) > j.index(s) })
	})
}

// leave lets elastic gangs run on without members whose nodes are down, or that
// have failed for good where the job says that the others go on; nil if a gang
// would have less than its least number, or anything else is wrong. A gang grows
// again when there is room. A node that is only cut off may come back with its
// member, and is not left.
func (j *job) leave(bad []trouble, before string) *Step {
	if j.rec.Phase != record.PhaseRunning {
		return nil
	}
	goesOn := j.onFailure() == gangspec.FailureContinue
	gone := map[rewrite.Place]bool{}
	failed := -1
	if goesOn {
		bad = j.withDead(bad)
	}
	for i, t := range bad {
		switch {
		case j.leavable(t):
		case t.blame == blameMember && !t.told && goesOn:
			if failed < 0 {
				failed = i
			}
		default:
			return nil
		}
		gone[placeOf(t.member)] = true
	}
	stay, ok := j.remaining(func(s observe.MemberState) bool { return gone[placeOf(s)] })
	if !ok {
		return nil
	}
	text := before + j.says(bad[max(failed, 0)])
	if more := len(bad) - 1; more > 0 {
		text += fmt.Sprintf("; %d more of %d members are lost", more, len(j.states))
	}
	text += fmt.Sprintf("; the gang runs on with %d of %d members, and grows again when there is room", len(stay), len(j.states))
	counted := j.next("")
	if failed >= 0 {
		text += j.countFailed(counted, bad)
	}
	step := j.resize(stay, text)
	if step == nil || step.Kind != KindResize {
		return step
	}
	if failed >= 0 {
		step.Put.Failures, step.Put.RetryAfter, step.Put.KeepSize = counted.Failures, counted.RetryAfter, counted.KeepSize
		step.Failed = bad[failed].member.Alloc.ID
	}
	step.Put.Replace = &model.Replacement{At: j.now(), Failed: j.failedPlaces(bad)}
	step.Stop = j.stoppable(func(a *api.AllocationListStub) bool {
		return slices.ContainsFunc(bad, func(t trouble) bool { return t.member.Alloc != nil && t.member.Alloc.ID == a.ID })
	})
	return step
}

// withDead adds those whose failure has not lasted long enough yet: what is to be
// done about the others is done about them, too.
func (j *job) withDead(bad []trouble) []trouble {
	bad = slices.Clone(bad)
	for _, s := range j.states {
		if s.State != observe.AllocDead || slices.ContainsFunc(bad, func(t trouble) bool { return placeOf(t.member) == placeOf(s) }) {
			continue
		}
		if j.nodeTrouble(s) == nil {
			bad = append(bad, *j.failedFor(s))
		}
	}
	return bad
}

// leavable says whether a gang may run on without a member whose node is in
// trouble.
func (j *job) leavable(t trouble) bool {
	n := j.node(t.member.Member.Node)
	return t.kind == "purged" || t.kind == "lost" && n != nil && n.Unschedulable == api.NodeStatusDown
}

// survives says whether gangs can run on without these members and those that
// they are being given, and without those that have failed meanwhile where the job
// says that the others go on: they leave the gangs with these.
func (j *job) survives(old []trouble, fresh func(observe.MemberState) bool) bool {
	gone := map[rewrite.Place]bool{}
	if j.onFailure() == gangspec.FailureContinue {
		for _, t := range j.withDead(nil) {
			gone[placeOf(t.member)] = true
		}
	}
	for _, t := range old {
		if !j.leavable(t) {
			return false
		}
		gone[placeOf(t.member)] = true
	}
	_, ok := j.remaining(func(s observe.MemberState) bool { return gone[placeOf(s)] || fresh(s) })
	return ok
}

// countFailed counts the failures of members that gangs run on without, and says
// when the gangs may grow again: not at once, onto what may be the same fault.
func (j *job) countFailed(rec *record.Record, bad []trouble) string {
	text := ""
	var after time.Time
	counted := map[string]bool{}
	for _, t := range bad {
		gang, group := "", t.member.Member.Group
		if j.m.Model.Gang == model.GangGroup {
			gang = group
		}
		if t.blame != blameMember || counted[gang] {
			continue
		}
		counted[gang] = true
		if why := j.failed(rec, gang, group); why != "" {
			text += "; " + j.exhausted(rec, rec.Failures[gang], group)
		} else {
			text += fmt.Sprintf("; that was failure %d, so it does not grow before %s", rec.Failures[gang].Count, rec.RetryAfter.UTC().Format(time.RFC3339))
		}
		if rec.RetryAfter.After(after) {
			after = rec.RetryAfter
		}
	}
	rec.RetryAfter = after
	return text
}

// exhausted says that members of a gang have failed more often than the group's
// reschedule block has tries for, and until when the gang is not made larger.
func (j *job) exhausted(rec *record.Record, f record.Failures, group string) string {
	policy := j.reschedule(group)
	interval := deref(policy.Interval)
	if interval <= 0 {
		rec.RetryAfter = time.Time{}
		rec.KeepSize = fmt.Sprintf("that was failure %d, and the reschedule block of group %q allows %d more tries, so the gang keeps its size; to have it grow, scale it down and up again, or stop the job and submit it again", f.Count, group, deref(policy.Attempts))
		return rec.KeepSize
	}
	rec.RetryAfter = f.Since.Add(interval)
	return fmt.Sprintf("that was failure %d, and the reschedule block of group %q allows %d more tries within %s, so it does not grow before %s",
		f.Count, group, deref(policy.Attempts), interval, rec.RetryAfter.UTC().Format(time.RFC3339))
}

// condemned are the gangs that have failed for good by their members' own word,
// one member for each.
func (j *job) condemned() []trouble {
	var out []trouble
	for _, gang := range slices.Sorted(maps.Keys(j.rec.GangFailures)) {
		s := j.first(func(s observe.MemberState) bool {
			return (gang == "" || s.Member.Group == gang) && !s.Member.Ended
		})
		if s != nil {
			out = append(out, trouble{member: *s, kind: "condemned", blame: blameMember, told: true, text: j.rec.GangFailures[gang]})
		}
	}
	return out
}
