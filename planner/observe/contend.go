package observe

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// contend says what the record knows of how the job competes with others: what
// it has had, and whether it may give way. One
// that is being updated does not, and neither does one of which Nomad has placed
// single members by itself: neither could be put back as it was.
func contend(j *model.Job, rec *record.Record) {
	if rec == nil {
		return
	}
	j.Backfilled = rec.Backfilled
	s := &rec.Service
	j.AttainedGPUs, j.Ran, j.RanByModel, j.Accounted = s.GPUSeconds, s.Ran, s.RanByModel, s.At
	j.ForgottenGPUs, j.ForgottenRan = s.ForgottenGPUSeconds, s.ForgottenRan
	j.Started, j.Preempted, j.Moving, j.Resized = rec.Admitted, rec.Preempted, rec.Moving, rec.Resizes
	j.Promised, j.Replace = rec.Promised, rec.Replace
	switch {
	case rec.KeepSize != "":
		j.KeepSize = rec.KeepSize
	case rec.Rollout != nil:
		j.KeepSize = "it is being updated"
	case rec.Unpinned:
		j.KeepSize = "Nomad has placed it by itself"
	}
	if rec.Rollout != nil || rec.Unpinned && j.Gang != model.GangJob {
		j.Preempt = model.PreemptNever
	}
}
