package observe

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// contend says what the record knows of how the job may give way to others. One
// that is being updated does not, and neither does one of which Nomad has placed
// single members by itself: neither could be put back as it was.
func contend(j *model.Job, rec *record.Record) {
	if rec == nil {
		return
	}
	j.Started, j.Preempted = rec.Admitted, rec.Preempted
	if rec.Rollout != nil || rec.Unpinned && j.Gang != model.GangJob {
		j.Preempt = model.PreemptNever
	}
}
