package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// elsewhere has a job that was promised its deadline in a rack, of which one has no nodes
// that can be used.
func elsewhere(s *model.Snapshot, j *model.Job, kept *model.Promised, domain string) {
	was := *kept
	was.Level, was.Domain = "rack", domain
	j.Topology, j.Promised = model.Topology{Mode: "require", Level: "rack"}, &was
	for _, id := range []string{"n3", "n4"} {
		n := s.Nodes[1]
		n.ID, n.Name, n.Unschedulable = id, id, "down"
		n.Levels = map[string]string{"block": "b1", "rack": "r2"}
		n.GPUs = nil
		for g := range 4 {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint(id, ".", g), Vendor: "nvidia", Type: "gpu", Model: "H100"})
		}
		s.Nodes = append(s.Nodes, n)
	}
}

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
		"in a domain": {set: func(_ *model.Snapshot, j *model.Job) { j.Topology = model.Topology{Mode: "require", Level: "rack"} },
			want: &model.Promise{Job: "M", Promised: &model.Promised{At: testNow, Deadline: by, GPUs: 8, Level: "rack", Domain: "b1/r1"}}, why: "counted in whole nodes of rack b1/r1"},
		"in the same domain": {set: func(s *model.Snapshot, j *model.Job) { elsewhere(s, j, kept, "b1/r1") }},
		"its domain has lost its nodes": {set: func(s *model.Snapshot, j *model.Job) { elsewhere(s, j, kept, "b1/r2") },
			want: &model.Promise{Job: "M", Promised: &model.Promised{At: kept.At, Deadline: by, GPUs: 8, Level: "rack", Domain: "b1/r1"}}, why: "counted in whole nodes of rack b1/r1"},
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
