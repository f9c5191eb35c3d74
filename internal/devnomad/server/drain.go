package server

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// Drain starts, changes or ends the drain of a node. A nil spec ends it.
func (s *Server) Drain(id string, spec *api.DrainSpec, eligible bool, meta map[string]string) (*api.NodeDrainUpdateResponse, error) {
	resp := &api.NodeDrainUpdateResponse{}
	err := s.update(state.EventNodeDrain, func(tx *state.Tx) error {
		n := tx.Node(id)
		if n == nil {
			return errorf(500, "node not found")
		}
		resp.NodeModifyIndex, resp.LastIndex = tx.Index, tx.Index
		tx.EditNode(id, func(n *state.Node) { setDrain(tx, n, spec, eligible, meta) })
		if spec == nil && eligible {
			if n.SchedulingEligibility == api.NodeSchedulingIneligible {
				resp.EvalIDs, resp.EvalCreateIndex = evalsForNode(tx, id, sched.TriggerNodeUpdate), tx.Index
			}
			s.unblock(tx, n)
		}
		return nil
	})
	return resp, err
}

func setDrain(tx *state.Tx, n *state.Node, spec *api.DrainSpec, eligible bool, meta map[string]string) {
	last := api.DrainMetadata{StartedAt: tx.Now, UpdatedAt: tx.Now, Status: api.DrainStatusDraining, Meta: meta}
	if n.LastDrain != nil && n.DrainStrategy != nil {
		last.StartedAt = n.LastDrain.StartedAt
	}
	if spec == nil {
		if n.DrainStrategy != nil {
			last.Status = api.DrainStatusCanceled
			n.LastDrain = &last
			addEvent(tx, n, subsystemDrain, "Node drain cancelled")
		}
		n.DrainStrategy, n.Drain = nil, false
		if eligible {
			n.SchedulingEligibility = api.NodeSchedulingEligible
		}
		return
	}
	d := &api.DrainStrategy{DrainSpec: *spec, StartedAt: tx.Now}
	if spec.Deadline > 0 {
		d.ForceDeadline = tx.Now.Add(spec.Deadline)
	}
	n.DrainStrategy, n.Drain, n.LastDrain = d, true, &last
	n.SchedulingEligibility = api.NodeSchedulingIneligible
	addEvent(tx, n, subsystemDrain, "Node drain strategy set")
}

// watchDrains tells allocations on draining nodes to go: of a service group
// migrate.max_parallel at a time, batch members when the deadline passed, and
// ends drains that are done.
func (s *Server) watchDrains(now time.Time) bool {
	did := false
	err := s.store.Update(state.EventAllocDesired, now, func(tx *state.Tx) error {
		for _, n := range tx.Nodes() {
			if n.DrainStrategy == nil {
				continue
			}
			force := n.DrainStrategy.Deadline < 0 ||
				!n.DrainStrategy.ForceDeadline.IsZero() && !n.DrainStrategy.ForceDeadline.After(now)
			if drainNode(tx, n, force) {
				did = true
			}
		}
		return nil
	})
	if err != nil {
		s.logf("watch drains: %v", err)
	}
	return did
}

func drainNode(tx *state.Tx, n *state.Node, force bool) bool {
	left := 0
	var moved, last []*api.Allocation // last are those of system jobs: they go when all else has
	for _, a := range tx.AllocsOfNode(n.ID) {
		if a.ClientTerminalStatus() || a.Job == nil {
			continue
		}
		system := *a.Job.Type == api.JobTypeSystem
		if system && n.DrainStrategy.IgnoreSystemJobs {
			continue
		}
		if !system {
			left++
		}
		if a.ServerTerminalStatus() || deref(a.DesiredTransition.Migrate) {
			continue
		}
		if system && !force {
			last = append(last, a)
		} else if force || *a.Job.Type == api.JobTypeService && mayMove(tx, a) {
			moveAway(tx, a)
			moved = append(moved, a)
		}
	}
	if left == 0 {
		for _, a := range last {
			moveAway(tx, a)
		}
		moved = append(moved, last...)
	}
	evaluated := map[state.Key]bool{}
	for _, a := range moved {
		k := state.Key{Namespace: a.Namespace, ID: a.JobID}
		if job := tx.Job(k); job != nil && !evaluated[k] {
			evaluated[k] = true
			tx.PutEval(newEval(job, sched.TriggerNodeDrain))
		}
	}
	if left > 0 {
		return len(moved) > 0
	}
	tx.EditNode(n.ID, func(n *state.Node) {
		n.DrainStrategy, n.Drain = nil, false
		if n.LastDrain != nil {
			last := *n.LastDrain
			last.Status, last.UpdatedAt = api.DrainStatusComplete, tx.Now
			n.LastDrain = &last
		}
		addEvent(tx, n, subsystemDrain, "Node drain complete")
	})
	return true
}

// moveAway tells an allocation to go; batch members get no other place.
func moveAway(tx *state.Tx, a *api.Allocation) {
	c := *a
	c.DesiredTransition.Migrate = ptr(true)
	if *a.Job.Type == api.JobTypeBatch {
		c.DesiredTransition.MigrateDisablePlacement = ptr(true)
	}
	tx.PutAlloc(&c)
}

// mayMove says whether a service group can do without one more member: all
// but migrate.max_parallel must have been running for a while.
func mayMove(tx *state.Tx, a *api.Allocation) bool {
	tg := a.Job.LookupTaskGroup(a.TaskGroup)
	if tg == nil {
		return true
	}
	parallel := 1
	if tg.Migrate != nil && tg.Migrate.MaxParallel != nil {
		parallel = *tg.Migrate.MaxParallel
	}
	healthy := 0
	for _, x := range tx.AllocsOfJob(state.Key{Namespace: a.Namespace, ID: a.JobID}) {
		if x.TaskGroup == a.TaskGroup && !state.Terminal(x) && !undecided(x) && !deref(x.DesiredTransition.Migrate) {
			healthy++
		}
	}
	return healthy > deref(tg.Count)-parallel
}
