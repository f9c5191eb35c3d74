package sched

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// placement is one allocation to be placed.
type placement struct {
	tg       *api.TaskGroup
	name     string
	prev     *api.Allocation
	failed   bool // replaces one that failed: counts as a reschedule
	canary   bool
	stopPrev bool // a destructive update: the old one goes only if the new one fits
}

// generic decides service and batch jobs.
func (r *run) generic() {
	r.markGone()
	r.currentDeployment()
	if r.stopped() {
		r.queuesEmpty()
		r.stopAll()
		return
	}
	names := map[string]bool{}
	var destructive, place []placement
	complete := true
	for _, tg := range r.job.TaskGroups {
		names[*tg.Name] = true
		d, p, done := r.group(tg)
		destructive = append(destructive, d...)
		place = append(place, p...)
		complete = complete && done
	}
	r.stopRemovedGroups(names)
	if complete && r.deployment != nil && r.out.Deployment == nil {
		done := *r.deployment
		done.Status, done.StatusDescription = api.DeploymentStatusSuccessful, "Deployment completed successfully"
		r.out.DeploymentUpdates = append(r.out.DeploymentUpdates, &done)
	}
	if len(destructive)+len(place) == 0 {
		r.queuesEmpty()
	}
	for _, p := range append(slices.Clone(destructive), place...) {
		r.out.Queued[*p.tg.Name]++
	}
	r.place(append(destructive, place...))
}

// queuesEmpty says of all groups that nothing is to be placed. Nomad says it
// only when there is nothing to be placed of any: otherwise the groups that
// need nothing keep what was counted for them before.
func (r *run) queuesEmpty() {
	if r.job == nil {
		return
	}
	for _, tg := range r.job.TaskGroups {
		r.out.Queued[*tg.Name] = 0
	}
}

// markGone marks what was told to stop and can no longer report: its node is
// down.
func (r *run) markGone() {
	for _, a := range r.st.AllocsOfJob(r.key) {
		n := r.st.Node(a.NodeID)
		if (n == nil || n.Status == api.NodeStatusDown) && a.ServerTerminalStatus() && !a.ClientTerminalStatus() {
			r.stop(Stop{Alloc: a, Description: descLost, ClientStatus: api.AllocClientStatusLost})
		}
	}
}

func (r *run) stopAll() {
	for _, a := range r.st.AllocsOfJob(r.key) {
		if state.Terminal(a) {
			continue
		}
		r.desired(a.TaskGroup).Stop++
		r.stopOne(a)
	}
}

func (r *run) stopOne(a *api.Allocation) {
	if n := r.st.Node(a.NodeID); n == nil || n.Status == api.NodeStatusDown {
		r.stop(Stop{Alloc: a, Description: descLost, ClientStatus: api.AllocClientStatusLost})
		return
	}
	r.stop(Stop{Alloc: a, Description: descNotNeeded})
}

func (r *run) stopRemovedGroups(kept map[string]bool) {
	for _, a := range r.st.AllocsOfJob(r.key) {
		if !kept[a.TaskGroup] && !state.Terminal(a) {
			r.desired(a.TaskGroup).Stop++
			r.stopOne(a)
		}
	}
}

// group decides one group: what to stop and update in place goes to the
// outcome, what needs a place is returned, with whether a deployment would be
// complete.
func (r *run) group(tg *api.TaskGroup) (destructive, place []placement, complete bool) {
	d := r.desired(*tg.Name)
	s := r.classify(*tg.Name)
	d.Ignore += uint64(s.ignored)
	if *tg.Count == 0 {
		r.stopGroup(&s, d)
		return nil, nil, true
	}
	r.cutOff(tg, &s, d)
	r.back(&s, d)
	r.delay(tg, s.later, d)
	canaries := r.canaries(tg, &s, d)

	// Names are those of everything that is or will be there again.
	taken := map[int]bool{}
	for _, a := range slices.Concat(s.untainted, s.migrate, s.failed, s.lost) {
		taken[allocIndex(a.Name)] = true
	}
	waits := r.stopLost(s.lost, d)
	r.shrink(tg, &s, taken, d)

	inplace, breaking := r.updates(tg, s.untainted, d)
	limit := r.parallel(tg, s, breaking)
	// While a client may still run what is lost, nothing of the group is placed.
	if !waits {
		place = r.missing(tg, s, taken)
	}
	r.startDeployment(tg, s, len(inplace), len(breaking), len(place))
	r.adopt(inplace)
	byIndex(breaking)
	if r.canarying(tg) {
		limit = 0
	}
	paused := r.deployment != nil && (r.deployment.Status == api.DeploymentStatusFailed || r.deployment.Status == api.DeploymentStatusPaused)
	if !paused {
		d.Place += uint64(len(place))
		for _, a := range s.failed {
			d.Stop++
			r.stop(Stop{Alloc: a, Description: descRescheduled})
		}
		limit = max(0, limit-len(place))
		more := r.newCanaries(tg, canaries, breaking)
		d.Canary += uint64(len(more))
		place = append(place, more...)
	} else {
		place = slices.DeleteFunc(place, func(p placement) bool { return p.prev == nil })
	}
	if paused {
		limit = 0
	}
	destructive = r.replace(tg, breaking, limit, d)
	place = append(place, r.migrate(tg, s.migrate, d)...)
	complete = len(destructive)+len(breaking)+len(inplace)+len(place)+len(s.migrate)+len(s.failed)+len(s.later) == 0 && !r.canarying(tg) && r.groupHealthy(tg)
	return destructive, place, complete
}

// stopGroup stops what is left of a group that is to have no allocations.
func (r *run) stopGroup(s *sets, d *api.DesiredUpdates) {
	for _, a := range slices.Concat(s.untainted, s.migrate, s.lost, s.unknown) {
		if !a.ServerTerminalStatus() {
			d.Stop++
			r.stopOne(a)
		}
	}
}

// stopLost stops what was lost, and says whether a client may still run some of it.
func (r *run) stopLost(lost []*api.Allocation, d *api.DesiredUpdates) (waits bool) {
	for _, a := range lost {
		d.Stop++
		r.stop(Stop{Alloc: a, Description: descLost, ClientStatus: api.AllocClientStatusLost})
		if until := endsOnClient(a, r.now); until.After(r.now) {
			waits = true
			r.followup(TriggerAllocFailure, until, "created for delayed rescheduling")
		}
	}
	return waits
}

// replace are the first so many of what an update breaks, each to be stopped and
// placed again. The others stay as they are for now.
func (r *run) replace(tg *api.TaskGroup, breaking []*api.Allocation, limit int, d *api.DesiredUpdates) []placement {
	n := min(len(breaking), limit)
	d.DestructiveUpdate += uint64(n)
	d.Ignore += uint64(len(breaking) - n)
	var out []placement
	for _, a := range breaking[:n] {
		out = append(out, placement{tg: tg, name: a.Name, prev: a, stopPrev: true})
	}
	return out
}

// cutOff marks allocations unknown whose node stopped reporting. Those that
// are to be replaced at once are treated like failed ones, without a stop.
func (r *run) cutOff(tg *api.TaskGroup, s *sets, d *api.DesiredUpdates) {
	for _, a := range s.unknown {
		u := *a
		u.ClientStatus, u.ClientDescription = api.AllocClientStatusUnknown, DescUnknown
		d.Disconnect++
		if after := lostAfter(a); after > 0 {
			f := r.followup(TriggerDisconnect, r.now.Add(after), "created for delayed disconnect timeout")
			u.FollowupEvalID = f.ID
		}
		r.put(&u)
		if _, again := RescheduleAt(a); again && replaces(a) && lostAfter(a) > 0 {
			s.migrate = append(s.migrate, &u)
			continue
		}
		s.untainted = append(s.untainted, &u)
	}
}

func replace(as []*api.Allocation, old, new *api.Allocation) {
	if i := slices.Index(as, old); i >= 0 {
		as[i] = new
	}
}

// delay creates the evaluations that will replace failed allocations later.
func (r *run) delay(tg *api.TaskGroup, later []*api.Allocation, d *api.DesiredUpdates) {
	for _, a := range later {
		when, _ := RescheduleAt(a)
		f := r.followup(TriggerAllocFailure, when, "created for delayed rescheduling")
		u := *a
		u.FollowupEvalID = f.ID
		d.RescheduleLater++
		r.put(&u)
	}
}

func (r *run) followup(trigger string, when time.Time, why string) *api.Evaluation {
	f := &api.Evaluation{
		ID: uuid.NewString(), Namespace: r.key.Namespace, JobID: r.key.ID, Priority: r.eval.Priority, Type: r.eval.Type,
		TriggeredBy: trigger, Status: api.EvalStatusPending, StatusDescription: why,
		WaitUntil: when, PreviousEval: r.eval.ID,
	}
	r.out.Followups = append(r.out.Followups, f)
	return f
}

// shrink stops what is too much: those told to go first, then the highest
// indexes.
func (r *run) shrink(tg *api.TaskGroup, s *sets, taken map[int]bool, d *api.DesiredUpdates) {
	known := 0
	for _, a := range s.untainted {
		if a.ClientStatus != api.AllocClientStatusUnknown {
			known++
		}
	}
	over := known + len(s.migrate) - *tg.Count
	for _, set := range []*[]*api.Allocation{&s.migrate, &s.untainted} {
		byIndex(*set)
		for i := len(*set) - 1; i >= 0 && over > 0; i-- {
			a := (*set)[i]
			if a.ServerTerminalStatus() || a.ClientStatus == api.AllocClientStatusUnknown {
				continue
			}
			*set = slices.Delete(*set, i, i+1)
			delete(taken, allocIndex(a.Name))
			d.Stop++
			r.stop(Stop{Alloc: a, Description: descNotNeeded})
			over--
		}
	}
}

// missing are the placements that bring a group up to its count.
func (r *run) missing(tg *api.TaskGroup, s sets, taken map[int]bool) []placement {
	var out []placement
	for _, a := range s.failed {
		out = append(out, placement{tg: tg, name: a.Name, prev: a, failed: true})
	}
	have := len(s.untainted) + len(s.migrate) + len(s.failed)
	for _, a := range s.lost {
		if have >= *tg.Count {
			break
		}
		have++
		out = append(out, placement{tg: tg, name: a.Name, prev: a})
	}
	for i := 0; have < *tg.Count; i++ {
		if !taken[i] {
			taken[i] = true
			have++
			out = append(out, placement{tg: tg, name: allocName(r.key.ID, *tg.Name, i)})
		}
	}
	return out
}

// migrate stops what was told to go and asks for a new place for it. A batch
// member that was drained gets none; one stopped for a reschedule does.
func (r *run) migrate(tg *api.TaskGroup, as []*api.Allocation, d *api.DesiredUpdates) []placement {
	var out []placement
	byIndex(as)
	for _, a := range as {
		if a.ClientStatus != api.AllocClientStatusUnknown {
			d.Migrate++
			r.stop(Stop{Alloc: a, Description: descMigrating})
		}
		if r.batch() && flag(a.DesiredTransition.MigrateDisablePlacement) {
			continue
		}
		out = append(out, placement{tg: tg, name: a.Name, prev: a})
	}
	return out
}

// updates brings members of older versions to this one in place where that
// can be done, and returns those and the others.
func (r *run) updates(tg *api.TaskGroup, as []*api.Allocation, d *api.DesiredUpdates) (inplace, breaking []*api.Allocation) {
	for _, a := range as {
		switch {
		case *a.Job.JobModifyIndex == *r.job.JobModifyIndex && *a.Job.CreateIndex == *r.job.CreateIndex:
			d.Ignore++
		case needsRestart(a.Job, r.job, *tg.Name):
			breaking = append(breaking, a)
		case state.Terminal(a):
			d.Ignore++
		default:
			if u := r.updateInPlace(tg, a); u != nil {
				inplace = append(inplace, u)
				d.InPlaceUpdate++
				r.put(u)
			} else {
				breaking = append(breaking, a)
			}
		}
	}
	return inplace, breaking
}

// updateInPlace checks that the member's node still suits the group, as if it
// were placed anew; it keeps its ports and devices. A gate therefore turns
// into a destructive update that finds no place, and the member stays.
func (r *run) updateInPlace(tg *api.TaskGroup, a *api.Allocation) *api.Allocation {
	n := r.st.Node(a.NodeID)
	if n == nil || !inDatacenters(n, r.job.Datacenters) || !inPool(n, deref(r.job.NodePool)) {
		return nil
	}
	m := &metrics{}
	r.proposed.remove(a)
	o := r.chooseWith(r.job, tg, []*state.Node{n}, nil, false, m)
	r.proposed.restore(a)
	if o == nil {
		return nil
	}
	u := *a
	u.EvalID, u.Job = r.eval.ID, r.job
	res := *o.res
	if old := a.AllocatedResources; old != nil {
		res.Shared.Ports, res.Shared.Networks = old.Shared.Ports, old.Shared.Networks
		for name, t := range res.Tasks {
			if was := old.Tasks[name]; was != nil {
				t.Devices, t.Networks, t.Cpu.ReservedCores = was.Devices, was.Networks, was.Cpu.ReservedCores
			}
		}
	}
	u.AllocatedResources = &res
	setTotals(&u)
	u.Metrics = &m.AllocationMetric
	return &u
}

// adopt makes members that were updated in place part of the deployment, if
// there is one: their health is to be seen anew.
func (r *run) adopt(inplace []*api.Allocation) {
	id := ""
	if r.deployment != nil {
		id = r.deployment.ID
	}
	for _, u := range inplace {
		if u.DeploymentID != id {
			u.DeploymentID, u.DeploymentStatus = id, nil
		}
	}
}

// DescBlocked is what a blocked evaluation says of itself.
const DescBlocked = "created to place remaining allocations"
