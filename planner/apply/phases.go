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

// queued: nothing of the job may be placed, and what runs of an earlier
// version is stopped.
func (j *job) queued(live []*api.AllocationListStub) *Step {
	step := j.step(KindGate, j.rec.Reason)
	step.Stop = j.stoppable(all)
	if len(step.Stop) > 0 {
		step.Reason = "what runs of an earlier version is stopped"
	}
	if !j.gate(step) {
		return j.step(KindNote, step.Reason)
	}
	if step.Register == nil && len(step.Stop) == 0 {
		return nil
	}
	return step
}

// gate adds the gate's registration to a step, where the job lacks the gate or
// Nomad holds it for dead. It is false if the job cannot be gated; the step's
// reason then says why.
func (j *job) gate(step *Step) bool {
	if rewrite.IsGated(j.cur) && deref(j.cur.Status) != "dead" {
		return true
	}
	gated, err := j.gated(j.rec.Original)
	if err != nil || gated == nil {
		step.Reason = fmt.Sprintf("the job cannot be gated: %v", err)
		return false
	}
	step.Register, step.Index, step.Source = gated, deref(j.cur.JobModifyIndex), j.rec.Source
	return true
}

// rollback: gate, stop, and when the clients have reported everything dead,
// queue. Members on lost nodes are not waited for: their GPUs stay fenced.
func (j *job) rollback(live []*api.AllocationListStub) *Step {
	step := j.step(KindRollback, j.rec.Reason)
	step.Stop = j.stoppable(all)
	if !j.gate(step) {
		return j.step(KindNote, step.Reason)
	}
	if step.Register != nil || len(step.Stop) > 0 {
		return step
	}
	if len(live) > 0 {
		return nil
	}
	step = j.step(KindRequeue, j.rec.Reason)
	step.Put = j.next("")
	step.Put.Phase, step.Put.Members = record.PhaseQueued, nil
	step.Put.Admitted, step.Put.Deadline = time.Time{}, time.Time{}
	return step
}

// count notes a failed admission.
func (j *job) count(rec *record.Record) {
	rec.Attempts++
	rec.RetryAfter = j.now().Add(j.opts.backoff(rec.Attempts))
}

// stuck says what is wrong where nothing can be done about it.
func (j *job) stuck(reason string) *Step {
	if j.rec.Reason == reason {
		return nil
	}
	step := j.step(KindNote, reason)
	step.Put = j.next(reason)
	return step
}

// admitted: the pinned job is registered, and every member placed before the
// deadline. A node that is lost or drained meanwhile is not waited for.
func (j *job) admitted() *Step {
	if bad := append(j.condemned(), j.recalled()...); len(bad) > 0 {
		return j.giveUp(bad, "")
	}
	bad := j.unplaceable()
	if step, is := j.growing(bad); is {
		return step
	}
	if len(bad) > 0 {
		return j.giveUp(bad, "")
	}
	missing := j.first(func(s observe.MemberState) bool { return !settled(s) })
	if missing == nil {
		step := j.step(KindRunning, j.rec.Reason)
		step.Put = j.next("")
		step.Put.Phase, step.Put.Attempts, step.Put.Growth = record.PhaseRunning, 0, nil
		step.Put.RetryAfter, step.Put.Deadline = time.Time{}, time.Time{}
		step.Put.EndRecalls()
		return step
	}
	if !j.rec.Deadline.IsZero() && !j.now().Before(j.rec.Deadline) {
		for _, s := range j.states {
			if !settled(s) {
				bad = append(bad, trouble{member: s, text: "was not", blame: blamePlacement})
			}
		}
		return j.giveUp(bad, fmt.Sprintf("%d of %d members were placed within %s; ",
			j.countSettled(), len(j.states), j.rec.Deadline.Sub(j.rec.Admitted).Round(time.Second)))
	}
	if !j.rec.Deadline.IsZero() {
		j.look(j.rec.Deadline)
	}
	if step := j.repin(); step != nil {
		return step
	}
	return j.reviveFailed()
}

// reviveFailed has Nomad place those anew whose allocations of an earlier placement
// failed. Failed allocations of a service count as members until their
// reschedule block lets them be replaced, which may be long after the gang.
func (j *job) reviveFailed() *Step {
	failed := slices.ContainsFunc(j.m.Allocs, func(a *api.AllocationListStub) bool {
		return a.ClientStatus == api.AllocClientStatusFailed && a.DesiredStatus == api.AllocDesiredStatusRun && a.NextAllocation == ""
	})
	if j.m.Model.Type != api.JobTypeService || !failed || !j.gangs() {
		return nil
	}
	if again := j.forced[j.key()].Add(j.opts.RetryInitial); again.After(j.now()) {
		j.look(again)
		return nil
	}
	j.forced[j.key()] = j.now()
	step := j.step(KindPin, "what failed before is placed again at once")
	step.Reschedule = true
	return step
}

// unplaceable are the members that will not get their places, so that nobody
// waits for the deadline.
func (j *job) unplaceable() []trouble {
	var bad []trouble
	for _, s := range j.states {
		if s.Member.Ended || s.State == observe.AllocComplete {
			continue
		}
		if t := j.nodeTrouble(s); t != nil {
			bad = append(bad, *t)
		} else if s.State == observe.AllocMisplaced {
			bad = append(bad, *j.trouble(s))
		}
	}
	return bad
}

// settled says whether a member has got its place, whatever became of it since.
func settled(s observe.MemberState) bool {
	switch s.State {
	case observe.AllocPlaced, observe.AllocComplete:
		return true
	case observe.AllocDead:
		return s.Alloc != nil && s.Alloc.NodeID == s.Member.Node
	}
	return false
}

func (j *job) countSettled() int {
	n := 0
	for _, s := range j.states {
		if settled(s) {
			n++
		}
	}
	return n
}

func (j *job) first(match func(observe.MemberState) bool) *observe.MemberState {
	for i := range j.states {
		if match(j.states[i]) {
			return &j.states[i]
		}
	}
	return nil
}

// repin registers the pinned job where Nomad has another.
func (j *job) repin() *Step {
	pinned, err := j.pin(j.rec, j.pinnable(), j.done()...)
	if err != nil && !j.severally() {
		return j.fail(fmt.Sprintf("the placement cannot be pinned any more: %v", err), blamePlacement, "")
	}
	if err != nil {
		return j.stuck(fmt.Sprintf("the placement cannot be pinned any more: %v", err))
	}
	if rewrite.SamePins(pinned, j.cur) {
		return nil
	}
	var placed []model.Member
	for _, s := range j.states {
		if s.State.Holds() {
			placed = append(placed, s.Member)
		}
	}
	j.hold(pinned, placed)
	step := j.step(KindPin, j.rec.Reason)
	if j.done() != nil {
		step.Put = j.next("")
		j.ended(step.Put)
	}
	rewrite.Note(pinned, "Caravan: "+j.rec.Reason, j.link())
	step.Register, step.Index, step.Source = pinned, deref(j.cur.JobModifyIndex), j.rec.Source
	return step
}

// running: nothing to do as long as every gang is whole.
func (j *job) running() *Step {
	if vain := j.inVain(); vain != "" {
		return j.fail(vain, blameCluster, "")
	}
	if j.rec.Unpinned {
		return j.unpinned()
	}
	if step := j.over(); step != nil {
		return step
	}
	if bad := append(j.condemned(), j.recalled()...); len(bad) > 0 {
		return j.giveUp(bad, "")
	}
	bad, beside := apart(j.due(append(j.spare(j.troubles()), j.canaryTroubles()...)))
	if len(bad) > 0 {
		if why := j.staggered(bad); why != "" {
			return j.stuck(why)
		}
		return j.giveUp(bad, "")
	}
	if len(beside) > 0 {
		return j.withdraw(beside)
	}
	if step := j.rollout(); step != nil {
		return step
	}
	if len(j.states) == 0 || !j.rewritable() {
		return nil
	}
	if step := j.shrink(); step != nil {
		return step
	}
	if !j.pinsHold() {
		return j.restore()
	}
	return j.strays()
}

// severally says whether parts of the job are placed, and end, by themselves.
func (j *job) severally() bool {
	return j.m.Model.Gang == model.GangGroup || j.m.Model.Gang == model.GangNone
}

// unpinned: a job that Nomad placed by itself is followed, not led.
func (j *job) unpinned() *Step {
	changed := false
	members := make([]model.Member, 0, len(j.states))
	for _, s := range j.states {
		m := s.Member
		if s.State == observe.AllocMisplaced && s.Alloc != nil {
			m.Node, m.GPUs, m.Tasks, changed = s.Alloc.NodeID, deviceIDs(s.Alloc), nil, true
		}
		members = append(members, m)
	}
	if changed {
		step := j.step(KindNote, j.rec.Reason)
		step.Put = j.next("")
		step.Put.Members = members
		return step
	}
	if j.m.Model.Gang == model.GangNone {
		return nil
	}
	// Nomad may yet bring a member back by itself, on any node. If it does
	// not, or takes the gang apart, the gang waits whole and is then placed.
	all := j.troubles()
	for i := range all {
		all[i].wait = max(all[i].wait, j.opts.Settle)
	}
	if bad := j.due(all); len(bad) > 0 {
		return j.fail(j.summary(bad, ""), bad[0].blame, bad[0].member.Member.Group)
	}
	return nil
}

func deviceIDs(a *api.AllocationListStub) []string {
	var out []string
	if a.AllocatedResources == nil {
		return nil
	}
	for _, t := range a.AllocatedResources.Tasks {
		if t == nil {
			continue
		}
		for _, d := range t.Devices {
			if d != nil {
				out = append(out, d.DeviceIDs...)
			}
		}
	}
	slices.Sort(out)
	return out
}
