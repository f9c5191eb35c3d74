package daemon

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/recording"
	"github.com/caravan-sched/caravan/planner/observe"
)

// codeHold is the reason's code of a job that is not to be decided on.
const codeHold = "hold"

// decideOn decides on a snapshot that was made from the View. While the
// planner does not see all of the cluster, everything waits: what is in use
// cannot be told from what is free.
func (d *Daemon) decideOn(v *observe.View, snap *model.Snapshot) (*model.Plan, error) {
	plan, err := d.decide(snap)
	why := v.Blind()
	if err != nil {
		return plan, err
	}
	if why == "" {
		told := *plan
		told.Decisions = slices.Clone(plan.Decisions) // the plan itself may be recorded
		tellAvoided(&told, v)
		return &told, nil
	}
	held := &model.Plan{Decisions: make([]model.Decision, len(plan.Decisions)), Queues: plan.Queues, Reservations: plan.Reservations}
	for i, old := range plan.Decisions {
		held.Decisions[i] = model.Decision{
			Namespace: old.Namespace, Job: old.Job, Action: model.ActionWait, Reason: why,
			Detail: model.Detail{Code: codeHold, MembersWanted: old.Detail.MembersWanted, WantedGPUs: old.Detail.WantedGPUs, Ahead: old.Detail.Ahead},
		}
	}
	return held, nil
}

// decideAndRecord decides by the policy in force. What the cluster's own
// snapshot came to is kept for bug reports; a question's is not.
func (d *Daemon) decideAndRecord(snap *model.Snapshot) (*model.Plan, error) {
	policy := d.queues.order()
	if v := d.view.Load(); v == nil || v.Snapshot != snap {
		return core.Decide(snap, policy)
	}
	plan, err := d.keeper.decide(snap, policy, d.log, d.metrics.diverged)
	if err == nil {
		d.recorded.Store(&recording.Recording{Recording: recording.Version, Planner: Version, Policy: policy, Snapshot: snap, Plan: plan})
	}
	return plan, err
}
