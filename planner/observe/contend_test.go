package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

func TestContend(t *testing.T) {
	at := time.Unix(5000, 0).UTC()
	gave := []model.Preempted{{At: at, By: "x"}}
	lent := &model.Backfill{For: model.JobName{ID: "y"}, Start: at.Add(time.Hour), Until: at.Add(time.Minute)}
	due := &model.Promised{At: at, Deadline: at.Add(time.Hour), GPUs: 8}
	byModel := map[string]time.Duration{"H100": time.Minute}
	service := record.Service{GPUSeconds: 100, Ran: time.Hour, RanByModel: byModel, GPUs: 4, Runs: true, At: at, ForgottenGPUSeconds: 40, ForgottenRan: time.Minute}
	want := model.Job{Gang: model.GangGroup, Started: at, Preempted: gave, Backfilled: lent, Promised: due, AttainedGPUs: 100, Ran: time.Hour, RanByModel: byModel, Accounted: at, ForgottenGPUs: 40, ForgottenRan: time.Minute}
	for name, tt := range map[string]struct {
		change func(*record.Record)
		want   string
		size   string
	}{
		"as it is":         {change: func(*record.Record) {}},
		"is being updated": {func(r *record.Record) { r.Rollout = &record.Rollout{} }, model.PreemptNever, "it is being updated"},
		"placed by Nomad":  {func(r *record.Record) { r.Unpinned = true }, model.PreemptNever, "Nomad has placed it by itself"},
		"keeps its size":   {func(r *record.Record) { r.KeepSize = "failed twice" }, "", "failed twice"},
		"was resized":      {change: func(r *record.Record) { r.Resizes = []time.Time{at} }},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &record.Record{Admitted: at, Preempted: gave, Backfilled: lent, Promised: due, Service: service}
			tt.change(rec)
			got, want := model.Job{Gang: model.GangGroup}, want
			want.Preempt, want.KeepSize, want.Resized = tt.want, tt.size, rec.Resizes
			contend(&got, rec)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	var none model.Job
	if contend(&none, nil); !cmp.Equal(none, model.Job{}) {
		t.Errorf("without a record: %+v", none)
	}
}

// A View has what is known of jobs that have ended.
func TestEstimates(t *testing.T) {
	f := newFake(t)
	f.putJob(gated(gpuJob("train", 2, 2)))
	o := f.observer(t)
	o.estimate = func(j *model.Job) { j.Estimate, j.EstimateRuns = time.Hour, len(j.Groups) }
	o.history = func() model.History { return model.History{Demands: []float64{3}} }
	v := refresh(t, o)
	if j := v.Snapshot.Jobs[0]; j.Estimate != time.Hour || j.EstimateRuns != 1 || v.Managed[0].Model.Estimate != time.Hour {
		t.Errorf("the snapshot says %s of %d runs, the view %s", j.Estimate, j.EstimateRuns, v.Managed[0].Model.Estimate)
	}
	if diff := cmp.Diff([]float64{3}, v.Snapshot.History.Demands); diff != "" {
		t.Errorf("demands (-want +got):\n%s", diff)
	}
}
