package server

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// blockedEval is what the server remembers of a blocked evaluation besides the
// state: an evaluation that runs again and blocks again leaves no trace there.
type blockedEval struct {
	classes map[string]bool
	escaped bool
	// due is set when capacity came that may help.
	due bool
}

// runEval runs the most urgent evaluation that is due; false is none.
func (s *Server) runEval(now time.Time) bool {
	ran := false
	err := s.store.Update(state.EventPlanResult, now, func(tx *state.Tx) error {
		if tx.SchedulerConfig().PauseEvalBroker {
			return nil
		}
		if next := s.nextEval(tx, now); next != nil {
			ran = true
			s.process(tx, next, now)
		}
		return nil
	})
	if err != nil {
		s.logf("run evaluation: %v", err)
	}
	return ran
}

func (s *Server) nextEval(tx *state.Tx, now time.Time) *api.Evaluation {
	var next *api.Evaluation
	consider := func(e *api.Evaluation) {
		if next == nil || e.Priority > next.Priority {
			next = e
		}
	}
	for _, e := range tx.EvalsWith(api.EvalStatusPending) {
		if !e.WaitUntil.After(now) {
			consider(e)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.blocked {
		if e := tx.Eval(id); e == nil || e.Status != api.EvalStatusBlocked {
			delete(s.blocked, id)
		}
	}
	for _, e := range tx.EvalsWith(api.EvalStatusBlocked) {
		if b := s.blocked[e.ID]; b != nil && b.due {
			consider(e)
		}
	}
	if next != nil {
		s.runs++
	}
	return next
}

// EvalsRun counts the evaluations run so far, those too that blocked again.
func (s *Server) EvalsRun() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

// process decides an evaluation and stores what follows.
func (s *Server) process(tx *state.Tx, eval *api.Evaluation, now time.Time) {
	out := sched.Process(&tx.View, eval, now, s.rng)
	s.applyOutcome(tx, out)
	e := *eval
	e.SnapshotIndex = tx.Index - 1
	e.FailedTGAllocs, e.QueuedAllocations = out.Failed, out.Queued
	e.AnnotatePlan, e.PlanAnnotations = false, nil
	if out.Deployment != nil {
		e.DeploymentID = out.Deployment.ID
	}
	for _, f := range out.Followups {
		tx.PutEval(f)
		e.NextEval = f.ID
	}
	if eachNode := eval.Type == api.JobTypeSystem || eval.Type == api.JobTypeSysbatch; eachNode || len(out.Failed) == 0 {
		e.Status = api.EvalStatusComplete
		tx.PutEval(&e)
		s.waitForNodes(tx, &e, out)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if eval.Status == api.EvalStatusBlocked {
		// It blocks again, unseen unless it placed something.
		s.blocked[e.ID] = &blockedEval{classes: out.Classes, escaped: out.Escaped}
		if !maps.Equal(eval.QueuedAllocations, out.Queued) && eval.QueuedAllocations != nil || len(out.Puts) > 0 {
			e.FailedTGAllocs = eval.FailedTGAllocs // nobody writes them again
			tx.PutEval(&e)
		}
		return
	}
	blocked := blockedAfter(&e, out)
	s.blocked[blocked.ID] = &blockedEval{classes: out.Classes, escaped: out.Escaped}
	e.Status, e.BlockedEval = api.EvalStatusComplete, blocked.ID
	tx.PutEval(blocked)
	tx.PutEval(&e)
	s.dropOlderBlocked(tx, blocked)
}

// waitForNodes blocks an evaluation for each node that is too full: system and
// sysbatch jobs wait for each by itself. An older one for the node is no longer
// woken, and stays as it is for good.
func (s *Server) waitForNodes(tx *state.Tx, eval *api.Evaluation, out *sched.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range out.FullNodes {
		for _, b := range tx.EvalsOfJob(state.Key{Namespace: eval.Namespace, ID: eval.JobID}) {
			if b.NodeID == node {
				delete(s.blocked, b.ID)
			}
		}
		b := blockedAfter(eval, out)
		b.NodeID = node
		s.blocked[b.ID] = &blockedEval{}
		tx.PutEval(b)
	}
}

// blockedAfter is the evaluation that waits after one that could not place all.
func blockedAfter(e *api.Evaluation, out *sched.Outcome) *api.Evaluation {
	return &api.Evaluation{
		ID: uuid.NewString(), Namespace: e.Namespace, JobID: e.JobID, JobModifyIndex: e.JobModifyIndex,
		Priority: e.Priority, Type: e.Type, TriggeredBy: sched.TriggerQueued,
		Status: api.EvalStatusBlocked, StatusDescription: sched.DescBlocked, PreviousEval: e.ID,
		ClassEligibility: out.Classes, EscapedComputedClass: out.Escaped,
		FailedTGAllocs: out.Failed,
	}
}

// dropOlderBlocked keeps one blocked evaluation per job.
func (s *Server) dropOlderBlocked(tx *state.Tx, keep *api.Evaluation) {
	for _, b := range tx.EvalsOfJob(state.Key{Namespace: keep.Namespace, ID: keep.JobID}) {
		if b.Status == api.EvalStatusBlocked && b.ID != keep.ID {
			c := *b
			c.Status = api.EvalStatusCancelled
			c.StatusDescription = fmt.Sprintf("existing blocked evaluation exists for job %q", keep.JobID)
			tx.PutEval(&c)
		}
	}
}

func (s *Server) applyOutcome(tx *state.Tx, out *sched.Outcome) {
	for _, d := range out.DeploymentUpdates {
		tx.PutDeployment(d)
		if d.Status == api.DeploymentStatusSuccessful {
			markStable(tx, d)
		}
	}
	preempted := map[state.Key]bool{}
	for _, st := range out.Stops {
		a := *tx.Alloc(st.Alloc.ID)
		a.DesiredStatus, a.DesiredDescription = api.AllocDesiredStatusStop, st.Description
		if st.ClientStatus != "" {
			a.ClientStatus = st.ClientStatus
		}
		if st.FollowupEval != "" {
			a.FollowupEvalID = st.FollowupEval
		}
		if st.PreemptedBy != "" {
			a.DesiredStatus, a.PreemptedByAllocation = api.AllocDesiredStatusEvict, st.PreemptedBy
			a.DesiredDescription = "Preempted by alloc ID " + st.PreemptedBy
			preempted[state.Key{Namespace: a.Namespace, ID: a.JobID}] = true
		}
		tx.PutAlloc(&a)
	}
	placed := map[string]int{}
	for _, a := range out.Puts {
		was := tx.Alloc(a.ID)
		if was == nil || a.DeploymentID != "" && a.DeploymentID != was.DeploymentID {
			placed[a.TaskGroup]++
		}
		if was == nil {
			if prev := tx.Alloc(a.PreviousAllocation); prev != nil {
				p := *prev
				p.NextAllocation = a.ID
				tx.PutAlloc(&p)
			}
		}
		c := *a
		if cur := tx.Alloc(a.ID); cur != nil && cur.NextAllocation != "" {
			c.NextAllocation = cur.NextAllocation
		}
		tx.PutAlloc(&c)
	}
	s.countPlaced(tx, out, placed)
	for k := range preempted {
		if job := tx.Job(k); job != nil {
			tx.PutEval(newEval(job, sched.TriggerPreemption))
		}
	}
}

// countPlaced stores a new deployment, or counts placements in the running
// one.
func (s *Server) countPlaced(tx *state.Tx, out *sched.Outcome, placed map[string]int) {
	d := out.Deployment
	if d == nil {
		for _, a := range out.Puts {
			if d = tx.Deployment(a.DeploymentID); d != nil {
				d = copyDeployment(d)
				break
			}
		}
	}
	if d == nil {
		return
	}
	for group, n := range placed {
		if st := d.TaskGroups[group]; st != nil {
			st.PlacedAllocs += n
		}
	}
	for _, a := range out.Puts {
		st := d.TaskGroups[a.TaskGroup]
		if h := a.DeploymentStatus; st != nil && a.DeploymentID == d.ID && h != nil && h.Canary && !slices.Contains(st.PlacedCanaries, a.ID) {
			st.PlacedCanaries = append(slices.Clone(st.PlacedCanaries), a.ID)
		}
	}
	tx.PutDeployment(d)
}

func copyDeployment(d *api.Deployment) *api.Deployment {
	c := *d
	c.TaskGroups = map[string]*api.DeploymentState{}
	for g, st := range d.TaskGroups {
		c.TaskGroups[g] = ptr(*st)
	}
	return &c
}

// unblock queues the blocked evaluations that capacity on a node may help: those
// that wait for this one, those that a unique constraint escaped, those that
// found its class eligible, and those that never saw the class.
func (s *Server) unblock(tx *state.Tx, n *state.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range tx.EvalsWith(api.EvalStatusBlocked) {
		b := s.blocked[e.ID]
		if b == nil {
			continue
		}
		ok, known := b.classes[n.ComputedClass]
		if e.NodeID != "" {
			b.due = b.due || e.NodeID == n.ID
		} else if b.escaped || ok || !known {
			b.due = true
		}
	}
}

// evalsForNode creates evaluations for what runs on a node, whether its job is
// still there or not, and for system jobs, which go to every node. Sysbatch
// jobs go where nodes were when somebody registered them.
func evalsForNode(tx *state.Tx, id, trigger string) []string {
	var ids []string
	seen := map[state.Key]bool{}
	add := func(job *api.Job) {
		k := state.JobKey(job)
		if !seen[k] {
			seen[k] = true
			e := newEval(job, trigger)
			e.NodeID = id
			tx.PutEval(e)
			ids = append(ids, e.ID)
		}
	}
	for _, a := range tx.AllocsOfNode(id) {
		if a.Job == nil {
			continue
		}
		over := a.ClientTerminalStatus()
		switch *a.Job.Type {
		case api.JobTypeService:
			over = over && a.ServerTerminalStatus()
		case api.JobTypeBatch:
		default:
			continue
		}
		if !over {
			add(a.Job)
		}
	}
	for _, job := range tx.Jobs("*") {
		if *job.Type == api.JobTypeSystem && !deref(job.Stop) {
			add(job)
		}
	}
	return ids
}
