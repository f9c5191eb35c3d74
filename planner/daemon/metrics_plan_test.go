package daemon

import (
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestMetricsOfPlans(t *testing.T) {
	m := newMetrics()
	m.carried(&model.Plan{
		Preemptions: []model.Preemption{{Action: model.ActionPreempt, Cost: model.Cost{Lost: 120, Restart: 60, Placement: 10}}, {Action: model.ActionMove, Cost: model.Cost{Restart: 60, Placement: -5}}},
		Resizes:     []model.Resize{{Action: model.ActionGrow}},
	})
	m.stand([]model.QueueUse{{Path: "gone"}})
	m.stand([]model.QueueUse{{Path: "org", Guaranteed: map[string]int{"gpu": 8}, Used: map[string]int{"gpu": 12}, BorrowedGPUs: 4, WaitingGPUs: 16}})
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName()
			for _, l := range metric.GetLabel() {
				name += " " + l.GetValue()
			}
			if c := metric.GetCounter(); c != nil {
				got[name] = c.GetValue()
			} else if g := metric.GetGauge(); g != nil {
				got[name] = g.GetValue()
			}
		}
	}
	want := map[string]float64{
		"caravan_changes_total preempt": 1, "caravan_changes_total move": 1, "caravan_changes_total grow": 1, "caravan_changes_total shrink": 0,
		"caravan_changes_lost_gpu_seconds_total work": 120, "caravan_changes_lost_gpu_seconds_total restart": 120, "caravan_changes_lost_gpu_seconds_total placement": 10,
		"caravan_queue_gpus org guaranteed": 8, "caravan_queue_gpus org used": 12, "caravan_queue_gpus org borrowed": 4, "caravan_queue_gpus org waiting": 16,
	}
	for name, value := range want {
		if have, ok := got[name]; !ok || have != value {
			t.Errorf("%s: %g, want %g", name, have, value)
		}
	}
	if _, still := got["caravan_queue_gpus gone used"]; still {
		t.Error("a queue that is gone is shown")
	}
}
