// Package sched is the stand-in's scheduler: pure functions that, given the
// state and one evaluation, say what is to be placed, updated and stopped. It
// follows Nomad's rules where they decide what Caravan sees: the cache of
// feasibility by computed node class, in-place and destructive updates, the
// order of shrinking, what a blocked evaluation remembers.
package sched

import (
	"math/rand/v2"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// State is what the scheduler reads. *state.View is one.
type State interface {
	Job(state.Key) *api.Job
	AllocsOfJob(state.Key) []*api.Allocation
	AllocsOfNode(id string) []*api.Allocation
	Node(id string) *state.Node
	Nodes() []*state.Node
	LatestDeployment(state.Key) *api.Deployment
	SchedulerConfig() *api.SchedulerConfiguration
}

// Stop tells an allocation to end.
type Stop struct {
	Alloc *api.Allocation
	// Description is the desired description.
	Description string
	// ClientStatus is set for what is known to be gone: "lost".
	ClientStatus string
	// FollowupEval is the delayed evaluation that will replace it.
	FollowupEval string
	// PreemptedBy is the allocation that takes its place: an eviction.
	PreemptedBy string
}

// Outcome is what an evaluation decided.
type Outcome struct {
	Stops []Stop
	// Puts are allocations to store: new ones and updated ones.
	Puts []*api.Allocation
	// Deployment is new or changed; nil is none.
	Deployment *api.Deployment
	// Cancelled deployments, and those found complete, with their new status.
	DeploymentUpdates []*api.Deployment
	// Failed holds, by group, why something could not be placed.
	Failed map[string]*api.AllocationMetric
	// FullNodes are those that system and sysbatch jobs wait for.
	FullNodes []string
	// Queued counts, by group, what is still to be placed.
	Queued map[string]int
	// Followups are delayed evaluations to create.
	Followups   []*api.Evaluation
	Annotations *api.PlanAnnotations
	// Classes says which computed classes were found eligible; nil when a
	// constraint escaped the classes, and then Escaped is set.
	Classes map[string]bool
	Escaped bool
}

// Process decides an evaluation. now and rng are the only clock and the only
// chance; the evaluation's job may be absent (purged).
func Process(st State, eval *api.Evaluation, now time.Time, rng *rand.Rand) *Outcome {
	k := state.Key{Namespace: eval.Namespace, ID: eval.JobID}
	r := &run{
		st: st, eval: eval, key: k, job: st.Job(k), now: now, rng: rng,
		proposed: newProposal(st), re: regexps{},
		out: &Outcome{
			Queued:      map[string]int{},
			Annotations: &api.PlanAnnotations{DesiredTGUpdates: map[string]*api.DesiredUpdates{}},
		},
	}
	r.eligible = newEligibility(r.job)
	switch eval.Type {
	case api.JobTypeSystem, api.JobTypeSysbatch:
		r.system()
	default:
		r.generic()
	}
	r.out.Escaped = r.eligible.escaped()
	if !r.out.Escaped {
		r.out.Classes = r.eligible.classes()
	}
	return r.out
}

// run is one evaluation being decided.
type run struct {
	st       State
	eval     *api.Evaluation
	key      state.Key
	job      *api.Job
	now      time.Time
	rng      *rand.Rand
	proposed *proposal
	re       regexps
	eligible *eligibility
	out      *Outcome

	deployment *api.Deployment // of this version, not yet successful
}

func (r *run) stopped() bool { return r.job == nil || deref(r.job.Stop) }

func (r *run) batch() bool {
	return r.eval.Type == api.JobTypeBatch || r.eval.Type == api.JobTypeSysbatch
}

func (r *run) desired(group string) *api.DesiredUpdates {
	d := r.out.Annotations.DesiredTGUpdates[group]
	if d == nil {
		d = &api.DesiredUpdates{}
		r.out.Annotations.DesiredTGUpdates[group] = d
	}
	return d
}

func (r *run) stop(s Stop) {
	r.out.Stops = append(r.out.Stops, s)
	r.proposed.remove(s.Alloc)
}

func (r *run) put(a *api.Allocation) {
	r.out.Puts = append(r.out.Puts, a)
	r.proposed.add(a)
}

// unstop takes the last stop back.
func (r *run) unstop() {
	last := len(r.out.Stops) - 1
	r.proposed.restore(r.out.Stops[last].Alloc)
	r.out.Stops = r.out.Stops[:last]
}

func lookupGroup(job *api.Job, name string) *api.TaskGroup {
	for _, tg := range job.TaskGroups {
		if *tg.Name == name {
			return tg
		}
	}
	return nil
}

func ptr[T any](v T) *T { return &v }

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
