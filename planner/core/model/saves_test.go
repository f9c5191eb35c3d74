package model_test

import (
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestSavesWork(t *testing.T) {
	since := int64(60)
	for name, tt := range map[string]struct {
		job  model.Job
		want bool
	}{
		"nothing is said":         {job: model.Job{Members: []model.Member{{}}}},
		"its tasks make them":     {job: model.Job{Saves: true}, want: true},
		"how often is said":       {job: model.Job{Checkpoint: 15 * time.Minute}, want: true},
		"a stop loses nothing":    {job: model.Job{Preempt: model.PreemptAlways}, want: true},
		"as by default":           {job: model.Job{Preempt: model.PreemptCheckpoint}},
		"never":                   {job: model.Job{Preempt: model.PreemptNever}},
		"a member has told of it": {job: model.Job{Members: []model.Member{{}, {SinceCheckpoint: &since}}}, want: true},
	} {
		if got := tt.job.SavesWork(); got != tt.want {
			t.Errorf("%s: saves its work: %t, want %t", name, got, tt.want)
		}
	}
}
