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

// fail takes the whole job back to the queue.
func (j *job) fail(reason string) *Step {
	if len(j.done()) > 0 {
		return j.stuck(reason + "; but members have completed already, and Nomad would run those again if the job were registered anew, so it is left as it is")
	}
	step := j.step(KindRollback, reason)
	step.Stop = j.stoppable(all)
	if !j.gate(step) {
		return j.step(KindNote, step.Reason)
	}
	step.Reason = reason
	step.Put = j.next(reason)
	step.Put.Phase, step.Put.Unpinned = record.PhaseRollback, false
	j.count(step.Put)
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
// deadline.
func (j *job) admitted() *Step {
	if bad := j.first(func(s observe.MemberState) bool { return s.State == observe.AllocMisplaced }); bad != nil {
		return j.giveUp(j.misplaced(*bad))
	}
	missing := j.first(func(s observe.MemberState) bool { return !settled(s) })
	if missing == nil {
		step := j.step(KindRunning, j.rec.Reason)
		step.Put = j.next("")
		step.Put.Phase, step.Put.Attempts = record.PhaseRunning, 0
		step.Put.RetryAfter, step.Put.Deadline = time.Time{}, time.Time{}
		return step
	}
	if !j.rec.Deadline.IsZero() && !j.now().Before(j.rec.Deadline) {
		return j.giveUp(fmt.Sprintf("%d of %d members were placed within %s; member %d of group %q was not (node %s)",
			j.countSettled(), len(j.states), j.rec.Deadline.Sub(j.rec.Admitted).Round(time.Second), missing.Member.Index, missing.Member.Group, missing.Member.Node))
	}
	return j.repin()
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

func (j *job) misplaced(s observe.MemberState) string {
	return fmt.Sprintf("member %d of group %q was to be on node %s with GPUs %v, and Nomad placed it on node %s or on other GPUs",
		s.Member.Index, s.Member.Group, s.Member.Node, s.Member.GPUs, s.Alloc.NodeID)
}

// repin registers the pinned job where Nomad has another.
func (j *job) repin() *Step {
	pinned, err := rewrite.Pin(j.rec.Original, j.pinnable(), j.pins(), j.done()...)
	if err != nil && !j.severally() {
		return j.fail(fmt.Sprintf("the placement cannot be pinned any more: %v", err))
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
	rewrite.Note(pinned, "Caravan: "+j.rec.Reason, j.link())
	step.Register, step.Index, step.Source = pinned, deref(j.cur.JobModifyIndex), j.rec.Source
	return step
}

// running: nothing to do as long as every gang is whole.
func (j *job) running() *Step {
	if j.rec.Unpinned {
		return j.unpinned()
	}
	if step := j.over(); step != nil {
		return step
	}
	broken := j.broken()
	if broken == nil {
		delete(j.missing, j.key())
		if len(j.states) > 0 && (rewrite.GatedWhole(j.cur) || !rewrite.IsPinned(j.cur)) && j.rewritable() {
			return j.repin()
		}
		return nil
	}
	since, known := j.missing[j.key()]
	if !known {
		since = j.now()
		j.missing[j.key()] = since
	}
	if broken.State != observe.AllocLost && j.now().Sub(since) < j.opts.Settle {
		return nil
	}
	return j.giveUp(j.lost(*broken))
}

// severally says whether parts of the job are placed, and end, by themselves.
func (j *job) severally() bool {
	return j.m.Model.Gang == model.GangGroup || j.m.Model.Gang == model.GangNone
}

// broken is the first member that a gang cannot go on without.
func (j *job) broken() *observe.MemberState {
	return j.first(func(s observe.MemberState) bool {
		switch s.State {
		case observe.AllocPlaced, observe.AllocComplete:
			return false
		case observe.AllocDead:
			// A single member that has failed for good has had its chance; in a
			// gang the others wait for it in vain.
			return j.m.Model.Gang != model.GangNone || j.m.Model.Type == api.JobTypeService || j.retriable(s)
		}
		return true
	})
}

func (j *job) lost(s observe.MemberState) string {
	who := fmt.Sprintf("member %d of group %q on node %s", s.Member.Index, s.Member.Group, s.Member.Node)
	switch s.State {
	case observe.AllocLost:
		return who + " is lost: Nomad has no contact with the node"
	case observe.AllocMisplaced:
		return j.misplaced(s)
	case observe.AllocDead:
		return who + " has failed and is not started again"
	case observe.AllocStopping:
		return who + " was told to stop"
	}
	for _, n := range j.view.Snapshot.Nodes {
		if n.ID == s.Member.Node && n.Unschedulable != "" {
			return who + " is gone; the node is " + n.Unschedulable
		}
	}
	return who + " is gone"
}

// giveUp takes back what a missing member takes down with it: the gang, or
// only the member where members start one by one.
func (j *job) giveUp(reason string) *Step {
	delete(j.missing, j.key())
	if !j.severally() {
		return j.fail(reason)
	}
	bad := map[rewrite.Place]bool{}
	badGroup := map[string]bool{}
	for _, s := range j.states {
		if !settled(s) || j.retriable(s) {
			bad[rewrite.Place{Group: s.Member.Group, Index: s.Member.Index}] = true
			badGroup[s.Member.Group] = true
		}
	}
	var keep []model.Member
	keepAlloc := map[string]bool{}
	for _, s := range j.states {
		if bad[rewrite.Place{Group: s.Member.Group, Index: s.Member.Index}] || j.m.Model.Gang == model.GangGroup && badGroup[s.Member.Group] {
			continue
		}
		keep = append(keep, s.Member)
		if s.Alloc != nil {
			keepAlloc[s.Alloc.ID] = true
		}
	}
	if len(keep) == 0 {
		return j.fail(reason)
	}
	return j.trim(reason, keep, keepAlloc)
}

// trim leaves some members where they are and queues the others.
func (j *job) trim(reason string, keep []model.Member, keepAlloc map[string]bool) *Step {
	kept := *j
	kept.states = slices.DeleteFunc(slices.Clone(j.states), func(s observe.MemberState) bool {
		return !slices.ContainsFunc(keep, func(m model.Member) bool { return m.Group == s.Member.Group && m.Index == s.Member.Index })
	})
	pinned, err := rewrite.Pin(j.rec.Original, kept.pinnable(), j.pins(), kept.done()...)
	if err != nil {
		return j.stuck(fmt.Sprintf("%s; and the others cannot be pinned without it: %v", reason, err))
	}
	j.hold(pinned, kept.pinnable())
	step := j.step(KindTrim, reason)
	step.Put = j.next(reason)
	step.Put.Phase, step.Put.Members, step.Put.Deadline = record.PhaseRunning, keep, time.Time{}
	kept.ended(step.Put)
	j.count(step.Put)
	step.Register, step.Index, step.Source = pinned, deref(j.cur.JobModifyIndex), j.rec.Source
	step.Stop = j.stoppable(func(a *api.AllocationListStub) bool { return !keepAlloc[a.ID] })
	return step
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
	if !changed {
		return nil
	}
	step := j.step(KindNote, j.rec.Reason)
	step.Put = j.next("")
	step.Put.Members = members
	return step
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
