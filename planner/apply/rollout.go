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

// A service job is updated where it runs: the members stay on their nodes and
// GPUs, and as many gangs at a time as the user's update block says get the new
// version. Nomad sees one registration per step, in which the groups that have
// had their turn are new and the others as they were.

// pin is the job with these members pinned, in the middle of an update if one
// is under way.
func (j *job) pin(rec *record.Record, members []model.Member, done ...rewrite.Place) (*api.Job, error) {
	return pin(rec, j.cur, members, j.pins(), done...)
}

func pin(rec *record.Record, cur *api.Job, members []model.Member, c *rewrite.Cluster, done ...rewrite.Place) (*api.Job, error) {
	if rec.Rollout == nil {
		return rewrite.Repin(cur, rec.Original, members, c, done...)
	}
	return rewrite.Roll(cur, rewrite.Update{
		Before: rec.Rollout.Original, Next: rec.Original, Members: members, Rolled: places(rec.Rollout.Rolled),
		Canaries: rec.Rollout.Beside(), Done: done,
	}, c)
}

// Mix is a running job in the middle of the update that its record tells of,
// pinned to its members. cur is the job as it is in Nomad.
func Mix(rec *record.Record, cur *api.Job, c *rewrite.Cluster) (*api.Job, error) {
	var members []model.Member
	var ended []rewrite.Place
	for _, m := range rec.Members {
		if m.Ended {
			ended = append(ended, rewrite.Place{Group: m.Group, Index: m.Index})
		} else {
			members = append(members, m)
		}
	}
	return pin(rec, cur, members, c, ended...)
}

func places(in []record.Place) []rewrite.Place {
	out := make([]rewrite.Place, len(in))
	for i, p := range in {
		out[i] = rewrite.Place(p)
	}
	return out
}

// beginRollout takes a version that the user has registered in Nomad itself
// where the job runs; nil if it must be queued.
func (j *job) beginRollout(orig *api.Job) *Step {
	if j.rec.Phase != record.PhaseRunning || j.rec.Unpinned || !gangspec.Rolls(j.rec.Original, orig, j.levels()...) {
		return nil
	}
	if j.first(func(s observe.MemberState) bool { return s.State != observe.AllocPlaced }) != nil || len(j.states) == 0 {
		return nil
	}
	put := j.submission(orig)
	put.Submitted, put.Submitter = j.rec.Submitted, deref(j.cur.NomadTokenID)
	put.PlacedIndex = j.rec.PlacedIndex
	put.Phase, put.Members, put.PlacedHash = record.PhaseRunning, j.rec.Members, put.SpecHash
	put.ModifyIndex, put.Admitted, put.History = j.rec.ModifyIndex, j.rec.Admitted, j.rec.History
	put.Rollout = j.rec.NewRollout(deref(j.cur.JobModifyIndex), j.now())
	put.Rollout.Begin(gangspec.Canaries(put.Rollout.Original, orig))
	put.Reason = put.Rollout.Beginning(len(j.states))
	put.Note(j.now(), string(KindRollout), put.Reason)
	step := j.step(KindRollout, put.Reason)
	mixed, err := j.pin(put, j.pinnable(), j.done()...)
	if err != nil {
		return nil
	}
	step.Put, step.ReadSource, step.Version = put, true, int(deref(j.cur.Version))
	step.Register, step.Index = mixed, deref(j.cur.JobModifyIndex)
	return step
}

// levels are the names that a contract may use.
func (r *round) levels() []string {
	return slices.Sorted(maps.Keys(r.view.LevelMeta))
}

// rollout is the next step of an update that is under way; nil if it waits.
func (j *job) rollout() *Step {
	ro := j.rec.Rollout
	if ro == nil || ro.Failed != "" && !ro.Undo || rewrite.RollingTo(j.cur) != j.rec.SpecHash || deref(j.cur.JobModifyIndex) <= ro.Index {
		return nil
	}
	if ro.GivenUp != "" {
		return j.failRollout(ro.GivenUp, "")
	}
	rolled, watched := set(ro.Rolled), set(ro.Batch)
	var batched []observe.MemberState
	for _, s := range j.states {
		if watched[placeOf(s)] {
			batched = append(batched, s)
		}
	}
	if step, wait := j.watch(batched, ro.Index, ro.Step, ""); step != nil || wait || ro.Paused {
		return step
	}
	if ro.Canary.Open() {
		return j.canaries()
	}
	batch := j.batch(rolled)
	if len(batch) == 0 {
		return j.endRollout()
	}
	put := j.next(fmt.Sprintf("the update goes on: %d of %d members had the new version and are healthy, %d more get it now", j.turned(rolled), len(j.states), len(batch)))
	next := *ro
	next.Rolled, next.Batch = append(slices.Clone(ro.Rolled), batch...), batch
	next.Index, next.Step = deref(j.cur.JobModifyIndex), j.now()
	put.Rollout = &next
	return j.rolloutStep(put)
}

// watch fails the update if one of the members that had their turn is not well;
// wait says that this cannot be told yet. since is the job's modify index just
// before they were started, and at when that was.
func (j *job) watch(members []observe.MemberState, since uint64, at time.Time, what string) (step *Step, wait bool) {
	for _, s := range members {
		healthy, why := j.healthy(s, since, at)
		if why != "" {
			return j.failRollout(fmt.Sprintf("%s%s %s", what, j.who(s), why), s.Member.Group), false
		}
		wait = wait || !healthy
	}
	return nil, wait
}

// turned counts the members that had their turn.
func (j *job) turned(rolled map[rewrite.Place]bool) int {
	n := 0
	for _, s := range j.states {
		if rolled[placeOf(s)] {
			n++
		}
	}
	return n
}

func set(in []record.Place) map[rewrite.Place]bool {
	out := make(map[rewrite.Place]bool, len(in))
	for _, p := range in {
		out[rewrite.Place(p)] = true
	}
	return out
}

func placeOf(s observe.MemberState) rewrite.Place {
	return rewrite.Place{Group: s.Member.Group, Index: s.Member.Index}
}

func (j *job) rolloutStep(put *record.Record) *Step {
	put.Note(j.now(), string(KindRollout), put.Reason)
	job, err := Mix(put, j.cur, j.pins())
	if err != nil {
		return j.stuck(fmt.Sprintf("the update cannot go on: %v", err))
	}
	rewrite.Note(job, "Caravan: "+put.Reason, j.link())
	step := j.step(KindRollout, put.Reason)
	step.Put, step.Register, step.Index, step.Source = put, job, deref(j.cur.JobModifyIndex), put.Source
	return step
}

// endRollout registers the new version as the user wrote it, which changes
// nothing that runs.
func (j *job) endRollout() *Step {
	put := j.next(fmt.Sprintf("the update is through: all %d members run the new version and are healthy", len(j.states)))
	if back := j.rec.Rollout.Back; back != "" {
		put.Reason = fmt.Sprintf("the update was taken back: all %d members run the version before it; %s; submit a corrected job file", len(j.states), back)
	}
	put.PlacedHash = put.SpecHash
	put.End(j.now(), j.rec.Rollout.Back != "", put.Reason)
	return j.rolloutStep(put)
}

// failRollout stops an update at a member that is not healthy, or takes it
// back where the user's update block, or a person, says so. group is the
// member's; "" is any.
func (j *job) failRollout(why, group string) *Step {
	ro := j.rec.Rollout
	reason := fmt.Sprintf("the update has failed with %d of %d members changed: %s", len(ro.Rolled), len(j.states), why)
	stay := "the others keep the version before"
	if ro.Canary.Open() {
		reason = fmt.Sprintf("the update has failed before its canaries were promoted: %s", why)
		stay = "the members keep the version before, and the canaries stay beside them; to go back, run nomad job revert or caravan rollback, to go on"
	}
	put := j.next(reason)
	next := *ro
	if ro.Back != "" || !ro.Undo && !j.reverts(group) {
		next.Failed = reason
		put.Reason = reason + "; " + stay + ", submit a corrected job file"
		put.Rollout = &next
		put.Note(j.now(), string(KindRollout), put.Reason)
		step := j.step(KindRollout, put.Reason)
		step.Put = put
		return step
	}
	says := "as auto_revert says"
	if ro.Undo {
		says = "as was asked for"
	}
	put.Reason = reason + "; it is taken back, " + says + "; submit a corrected job file"
	put.Original, put.Source, put.SpecHash, put.PlacedHash = ro.Original, ro.Source, ro.SpecHash, ro.SpecHash
	was := set(ro.Rolled)
	next = record.Rollout{Original: j.rec.Original, Source: j.rec.Source, SpecHash: j.rec.SpecHash, Back: reason, Index: deref(j.cur.JobModifyIndex), Step: j.now(), Began: ro.Began}
	for _, s := range j.states {
		if !was[placeOf(s)] {
			next.Rolled = append(next.Rolled, record.Place(placeOf(s)))
		}
	}
	put.Rollout = &next
	return j.rolloutStep(put)
}

// reverts says whether a group's update block asks for auto_revert; "" is any
// group's.
func (j *job) reverts(group string) bool {
	return slices.ContainsFunc(j.rec.Original.TaskGroups, func(g *api.TaskGroup) bool {
		name := deref(g.Name)
		return (group == "" || name == group) && deref(gangspec.UpdateOf(j.rec.Original, name).AutoRevert)
	})
}

// manual is the health_check of groups whose members are marked as healthy from
// outside.
const manual = "manual"

// healthy says whether a member that had its turn is well; why says that it
// will not be. See watch.
func (j *job) healthy(s observe.MemberState, since uint64, at time.Time) (ok bool, why string) {
	u := gangspec.UpdateOf(j.rec.Original, s.Member.Group)
	a := s.Alloc
	newer := a != nil && a.CreateIndex > since
	switch {
	case newer && s.State == observe.AllocDead:
		return false, "has failed"
	case s.State == observe.AllocPlaced && a.JobVersion >= deref(j.cur.Version) && a.ClientStatus == api.AllocClientStatusRunning:
		// What Nomad changed in place has been healthy before.
		if !newer {
			return true, ""
		}
		if deref(u.HealthCheck) == manual {
			if well, marked := j.rec.Rollout.Marked[a.ID]; marked && !well {
				return false, "was marked as unhealthy"
			} else if marked {
				return true, ""
			}
			break
		}
		if h := a.DeploymentStatus; h != nil && h.Healthy != nil {
			if *h.Healthy {
				return true, ""
			}
			return false, fmt.Sprintf("was not healthy within %s", deref(u.HealthyDeadline))
		}
	}
	limit := max(deref(u.ProgressDeadline), deref(u.HealthyDeadline))
	if end := at.Add(limit); end.After(j.now()) {
		j.look(end)
		return false, ""
	}
	return false, fmt.Sprintf("was not healthy within %s", limit)
}

// batch are the members that get the new version next: max_parallel gangs.
func (j *job) batch(rolled map[rewrite.Place]bool) []record.Place {
	states := slices.Clone(j.states)
	slices.SortStableFunc(states, func(a, b observe.MemberState) int {
		return cmp.Or(cmp.Compare(a.Member.Group, b.Member.Group), cmp.Compare(a.Member.Index, b.Member.Index))
	})
	var out []record.Place
	taken := map[string]int{}
	chosen := map[string]bool{}
	for _, s := range states {
		if rolled[placeOf(s)] || s.Member.Ended {
			continue
		}
		limit := deref(gangspec.UpdateOf(j.rec.Original, s.Member.Group).MaxParallel)
		// Nomad counts max_parallel for each group; so do members that stand
		// alone. Of gangs it is as many at a time in all.
		bucket, gang := s.Member.Group, fmt.Sprint(s.Member.Index)
		switch j.m.Model.Gang {
		case model.GangJob:
			bucket, gang = "", ""
		case model.GangGroup:
			bucket, gang = "", s.Member.Group
		}
		if !chosen[bucket+"\x00"+gang] {
			if limit > 0 && taken[bucket] >= limit {
				continue
			}
			taken[bucket]++
			chosen[bucket+"\x00"+gang] = true
		}
		out = append(out, record.Place(placeOf(s)))
	}
	return out
}

// spare leaves out the failures that an update under way answers for.
func (j *job) spare(all []trouble) []trouble {
	ro := j.rec.Rollout
	if ro == nil || ro.Failed != "" {
		return all
	}
	return slices.DeleteFunc(all, func(t trouble) bool {
		at := record.Place{Group: t.member.Member.Group, Index: t.member.Member.Index}
		return t.blame == blameMember && slices.Contains(ro.Batch, at)
	})
}

// turnedTo is the record with these members counted among those that have the
// new version of an update under way: what is placed now gets it at once.
func (j *job) turnedTo(members []model.Member) *record.Record {
	out := j.next("")
	if out.Rollout == nil || out.Rollout.Canary.Open() {
		// Before a promotion the version before is the one that members have.
		return out
	}
	next := *out.Rollout
	next.Rolled = slices.Clone(next.Rolled)
	next.Batch = slices.Clone(next.Batch)
	for _, m := range members {
		at := record.Place{Group: m.Group, Index: m.Index}
		next.Rolled, next.Batch = append(next.Rolled, at), append(next.Batch, at)
	}
	out.Rollout = &next
	return out
}
