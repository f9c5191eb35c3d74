package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Kept decides on one snapshot after the other of the same cluster. It finds out
// what has changed between two of them, and applies only that. Its plans are
// those of Decide. It is not safe for concurrent use.
type Kept struct {
	prepared *Prepared
	policy   Policy
	// last is what prepared is up to date with.
	last *model.Snapshot
}

// ErrDiverged: a cluster that was kept up to date is not as it would be if it
// were made ready anew.
var ErrDiverged = errors.New("the kept state of the cluster has diverged")

// Decide makes the plan for a snapshot, which must not be changed afterwards. An
// error names every fault of the snapshot or the policy.
func (k *Kept) Decide(snapshot *model.Snapshot, policy Policy) (*model.Plan, error) {
	if !k.follow(snapshot, policy) {
		k.prepared = nil
		p, err := Prepare(snapshot, policy)
		if err != nil {
			return nil, err
		}
		k.prepared = p
	}
	k.last, k.policy = snapshot, policy
	return k.prepared.Decide(snapshot.Now), nil
}

// Verify makes the last plan again, from nothing, and goes on from there. If it
// is another one than plan, it returns that and ErrDiverged.
func (k *Kept) Verify(plan *model.Plan) (*model.Plan, error) {
	if k.last == nil {
		return plan, nil
	}
	fresh := Kept{}
	want, err := fresh.Decide(k.last, k.policy)
	if err != nil {
		return plan, fmt.Errorf("%w: the snapshot is refused when it is looked at whole: %w", ErrDiverged, err)
	}
	*k = fresh
	a, errA := json.Marshal(plan)
	b, errB := json.Marshal(want)
	if err := errors.Join(errA, errB); err != nil {
		return want, fmt.Errorf("encode plans: %w", err)
	}
	if !bytes.Equal(a, b) {
		return want, fmt.Errorf("%w: %s", ErrDiverged, firstDifference(plan, want))
	}
	return plan, nil
}

// firstDifference says in which job two plans differ first.
func firstDifference(kept, fresh *model.Plan) string {
	for i := range fresh.Decisions {
		b := &fresh.Decisions[i]
		if i >= len(kept.Decisions) {
			break
		}
		if a := &kept.Decisions[i]; !reflect.DeepEqual(a, b) {
			return fmt.Sprintf("decision %d is on %s (%s: %s), and on %s (%s: %s) when everything is looked at anew", i,
				jobName(jobKey{a.Namespace, a.Job}), a.Action, a.Reason, jobName(jobKey{b.Namespace, b.Job}), b.Action, b.Reason)
		}
	}
	return fmt.Sprintf("%d decisions, and %d when everything is looked at anew; the first ones are alike", len(kept.Decisions), len(fresh.Decisions))
}

// follow brings the cluster up to date with a snapshot; false if it has to be
// made ready anew.
func (k *Kept) follow(snapshot *model.Snapshot, policy Policy) bool {
	if k.prepared == nil || snapshot.Version != 0 && snapshot.Version != model.SnapshotVersion {
		return false
	}
	ch, ok := k.prepared.difference(k.last, snapshot)
	if !ok || ch.most(k.last) {
		return false
	}
	if !reflect.DeepEqual(policy, k.policy) {
		ch.Policy = &policy
	}
	return k.prepared.Apply(ch) == nil
}

// most reports whether so much of a snapshot has changed that it is quicker to
// begin anew: a quarter of it.
func (ch *Change) most(s *model.Snapshot) bool {
	changed := len(ch.PutNodes) + len(ch.DropNodes) + len(ch.PutJobs) + len(ch.DropJobs) + len(ch.PutAllocs) + len(ch.DropAllocs)
	return 4*changed > bulk+len(s.Nodes)+len(s.Jobs)+len(s.Allocs)
}
