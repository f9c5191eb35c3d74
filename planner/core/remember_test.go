package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// TestPromisesAreRemembered: a plan says what is promised from now on and what cannot be
// kept any more, and nothing of what stays as it is.
func TestPromisesAreRemembered(t *testing.T) {
	by := testNow.Add(2 * time.Hour)
	kept := &model.Promised{At: testNow.Add(-time.Minute), Deadline: by, GPUs: 8}
	tests := map[string]struct {
		order string
		set   func(*model.Snapshot, *model.Job)
		want  *model.Promise // without its reason
		why   string
	}{
		"is promised":        {want: &model.Promise{Job: "M", Promised: &model.Promised{At: testNow, Deadline: by, GPUs: 8}}, why: "it can meet its deadline"},
		"is promised still":  {set: func(_ *model.Snapshot, j *model.Job) { j.Promised = kept }},
		"cannot be promised": {set: func(_ *model.Snapshot, j *model.Job) { j.Duration = 3 * time.Hour }},
		"a node has failed": {set: func(s *model.Snapshot, j *model.Job) { j.Promised, s.Nodes[1].Unschedulable = kept, "down" },
			want: &model.Promise{Job: "M"}, why: "was promised at 2026-01-02T03:03:05Z and cannot be met any more (4 GPUs can be used, and were 8 then)"},
		"another deadline": {set: func(_ *model.Snapshot, j *model.Job) { j.Promised, j.Deadline = kept, by.Add(time.Hour) },
			want: &model.Promise{Job: "M", Promised: &model.Promised{At: testNow, Deadline: by.Add(time.Hour), GPUs: 8}}, why: "it can meet"},
		"it runs": {set: func(_ *model.Snapshot, j *model.Job) {
			j.State, j.Started = model.StateRunning, testNow
			j.Members = []model.Member{{Group: "g0", Node: "n1", GPUs: []string{"n1.0", "n1.1", "n1.2", "n1.3"}}, {Group: "g0", Index: 1, Rank: 1, Node: "n2", GPUs: []string{"n2.0", "n2.1", "n2.2", "n2.3"}}}
		}, want: &model.Promise{Job: "M", Promised: &model.Promised{At: testNow, Deadline: by, GPUs: 8}}, why: "it meets its deadline"},
		"an order without promises": {order: queue.OrderFIFO, set: func(_ *model.Snapshot, j *model.Job) { j.Promised = kept }},
	}
	for name, tt := range tests {
		orders := []string{queue.OrderDeadline, queue.OrderCaravan}
		if tt.order != "" {
			orders = []string{tt.order}
		}
		for _, order := range orders {
			t.Run(name+", "+order, func(t *testing.T) {
				s := draw(t, "b1 r1 n1 ....\nb1 r1 n2 ....")
				submit(t, s, "M 2x4 runs:1h")
				s.Jobs[0].Deadline = by
				if tt.set != nil {
					tt.set(s, &s.Jobs[0])
				}
				plan := mustDecide(t, s, Policy{Order: order})
				checkPlan(t, s, plan)
				var got *model.Promise
				for i := range plan.Promises {
					got = &plan.Promises[i]
					if !strings.Contains(got.Reason, tt.why) {
						t.Errorf("reason %q, want %q in it", got.Reason, tt.why)
					}
					got.Reason = ""
				}
				if diff := cmp.Diff(tt.want, got); diff != "" || len(plan.Promises) > 1 {
					t.Errorf("%d promises (-want +got):\n%s", len(plan.Promises), diff)
				}
			})
		}
	}
}
