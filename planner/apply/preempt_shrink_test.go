package apply_test

import (
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestGiveMembers: an elastic gang runs on without those of its members that
// another gang gets, and the others do not start anew.
func TestGiveMembers(t *testing.T) {
	tests := map[string]struct {
		least int
		// leave are the indexes that are to leave, of three members.
		leave []int
		// wantLeft are the members left; 3 is that nothing happens.
		wantLeft int
	}{
		"the last one":             {1, []int{2}, 2},
		"the last two":             {1, []int{1, 2}, 1},
		"not one in the middle":    {1, []int{1}, 3},
		"not so many":              {2, []int{1, 2}, 3},
		"not all of them":          {1, []int{0, 1, 2}, 3},
		"none that is not there":   {1, []int{7}, 3},
		"one is there and one not": {1, []int{2, 3}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 3)
			low := elasticJob("batch", "job", 3, test.least, 3)
			low.ID, low.Name = ptr("low"), ptr("low")
			f.submit(low)
			e := apply.NewExecutor(f.client, f, options())
			placed(t, f, run(t, f, e, "low runs", phase("low", record.PhaseRunning)), "low", 3)
			f.submit(gatedJob("high", "batch", "job", 1, 8))
			run(t, f, e, "high waits", phase("high", record.PhaseQueued))
			v := f.view()
			plan := &model.Plan{Preemptions: []model.Preemption{{
				Namespace: "default", Job: "low", Action: model.ActionShrink, For: model.JobName{Namespace: "default", ID: "high"}, Reason: "gives members to high",
			}}}
			for _, index := range test.leave {
				m := model.Member{Group: "w", Index: index, Node: "elsewhere"}
				for _, have := range f.records["default/low"].Members {
					if have.Index == index {
						m.Node = have.Node
					}
				}
				plan.Preemptions[0].Members = append(plan.Preemptions[0].Members, m)
			}
			results := e.Execute(t.Context(), v, plan)
			did := slices.ContainsFunc(results, func(r apply.Result) bool { return r.Kind == apply.KindPreempt && r.Changed && r.Err == nil })
			if did != (test.wantLeft < 3) {
				t.Errorf("results %+v", results)
			}
			f.tick()
			running := 0
			for _, a := range f.allocs {
				if a.JobID == "low" && a.DesiredStatus == api.AllocDesiredStatusRun && a.ClientStatus == api.AllocClientStatusRunning {
					running++
				}
			}
			rec := f.records["default/low"]
			if running != test.wantLeft || len(rec.Members) != test.wantLeft || rec.Phase != record.PhaseRunning {
				t.Errorf("%d run, %d are recorded, it is %s; want %d", running, len(rec.Members), rec.Phase, test.wantLeft)
			}
			if did != (len(rec.Preempted) == 1 && rec.Preempted[0].By == "high") {
				t.Errorf("noted %+v", rec.Preempted)
			}
			if did {
				placed(t, f, run(t, f, e, "high runs", phase("high", record.PhaseRunning)), "high", 1)
				if now := f.records["default/low"]; now.Phase == record.PhaseRollback || now.Phase == record.PhaseQueued {
					t.Errorf("low is %s", now.Phase)
				}
			}
		})
	}
}
