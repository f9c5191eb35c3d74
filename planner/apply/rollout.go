package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

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
	return rewrite.Roll(cur, rec.Rollout.Original, rec.Original, members, c, places(rec.Rollout.Rolled), done...)
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
	put.Reason = fmt.Sprintf("an update of %d members begins, where they are", len(j.states))
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
	if ro == nil || ro.Failed != "" || rewrite.RollingTo(j.cur) != j.rec.SpecHash || deref(j.cur.JobModifyIndex) <= ro.Index {
		return nil
	}
	rolled, watched := set(ro.Rolled), set(ro.Batch)
	waits := false
	for _, s := range j.states {
		if !watched[placeOf(s)] {
			continue
		}
		healthy, why := j.healthy(s)
		if why != "" {
			return j.failRollout(fmt.Sprintf("%s %s", j.who(s), why), s.Member.Group)
		}
		waits = waits || !healthy
	}
	if waits {
		return nil
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
	job, err := j.pin(put, j.pinnable(), j.done()...)
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
	put.Rollout, put.PlacedHash = nil, put.SpecHash
	return j.rolloutStep(put)
}

// failRollout stops an update at a member that is not healthy, or takes it
// back where the user's update block says so.
func (j *job) failRollout(why, group string) *Step {
	ro := j.rec.Rollout
	reason := fmt.Sprintf("the update has failed with %d of %d members changed: %s", len(ro.Rolled), len(j.states), why)
	put := j.next(reason)
	next := *ro
	if ro.Back != "" || !deref(rewrite.UpdateOf(j.rec.Original, group).AutoRevert) {
		next.Failed = reason
		put.Reason = reason + "; the others keep the version before; submit a corrected job file"
		put.Rollout = &next
		put.Note(j.now(), string(KindRollout), put.Reason)
		step := j.step(KindRollout, put.Reason)
		step.Put = put
		return step
	}
	put.Reason = reason + "; it is taken back, as auto_revert says; submit a corrected job file"
	put.Original, put.Source, put.SpecHash, put.PlacedHash = ro.Original, ro.Source, ro.SpecHash, ro.SpecHash
	was := set(ro.Rolled)
	next = record.Rollout{Original: j.rec.Original, Source: j.rec.Source, SpecHash: j.rec.SpecHash, Back: reason, Index: deref(j.cur.JobModifyIndex), Step: j.now()}
	for _, s := range j.states {
		if !was[placeOf(s)] {
			next.Rolled = append(next.Rolled, record.Place(placeOf(s)))
		}
	}
	put.Rollout = &next
	return j.rolloutStep(put)
}

// healthy says whether a member that had its turn is well; why says that it
// will not be.
func (j *job) healthy(s observe.MemberState) (ok bool, why string) {
	ro := j.rec.Rollout
	u := rewrite.UpdateOf(j.rec.Original, s.Member.Group)
	a := s.Alloc
	newer := a != nil && a.CreateIndex > ro.Index
	switch {
	case newer && s.State == observe.AllocDead:
		return false, "has failed"
	case s.State == observe.AllocPlaced && a.JobVersion >= deref(j.cur.Version) && a.ClientStatus == api.AllocClientStatusRunning:
		// What Nomad changed in place has been healthy before.
		if !newer {
			return true, ""
		}
		if h := a.DeploymentStatus; h != nil && h.Healthy != nil {
			if *h.Healthy {
				return true, ""
			}
			return false, fmt.Sprintf("was not healthy within %s", deref(u.HealthyDeadline))
		}
	}
	limit := max(deref(u.ProgressDeadline), deref(u.HealthyDeadline))
	if at := ro.Step.Add(limit); at.After(j.now()) {
		j.look(at)
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
		limit := deref(rewrite.UpdateOf(j.rec.Original, s.Member.Group).MaxParallel)
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
	if out.Rollout == nil {
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
