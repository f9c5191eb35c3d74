package core

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Who can never run does not hold up who waits behind it: M has been passed by short jobs
// for two days, and N is older.
func TestWhoCannotRunIsNotStuck(t *testing.T) {
	policy := Policy{Order: queue.OrderCaravan, Preempt: preempt.Policy{Enabled: true}}
	for name, tt := range map[string]struct {
		first  string
		change func(s *model.Snapshot, n *model.Job)
		want   []string
	}{
		"it is alike":                        {"N 2x3", nil, []string{"a to N", "b to N"}},
		"beside services for good":           {"N 1x4", nil, []string{"a to M", "b to M"}},
		"the services may be stopped for it": {"N 1x4", func(s *model.Snapshot, _ *model.Job) { s.Jobs[0].Preempt, s.Jobs[1].Preempt = "", "" }, []string{"a to N", "c to N"}},
		"its queue never may have so many": {"N 2x3", func(s *model.Snapshot, n *model.Job) {
			n.Preempt = model.PreemptNever
			s.Queues = []model.Queue{{Path: "q", Guarantee: map[string]int{"gpu": 4}}}
			for i := range s.Jobs {
				s.Jobs[i].Queue = "q"
			}
		}, []string{"a to M", "b to M"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := draw(t, `b r n1 caaa
			              b r n2 dbbb`)
			describe(t, s, `c 50 90h never
			                d 50 90h never
			                a 50 30m runs:1h
			                b 50 30m runs:1h`)
			slices.SortFunc(s.Jobs, func(a, b model.Job) int {
				return slices.Index([]string{"c", "d", "a", "b"}, a.ID) - slices.Index([]string{"c", "d", "a", "b"}, b.ID)
			})
			s.Jobs[0].Type, s.Jobs[1].Type = "service", "service"
			submit(t, s, tt.first+"\nM 2x3")
			for i := range 2 {
				j := &s.Jobs[4+i]
				j.Priority, j.Duration, j.Submitted = 50, 3*time.Hour, s.Now.Add(time.Duration(i-48)*time.Hour)
			}
			s.History.Demands = slices.Repeat([]float64{3600, 3600000}, 20)
			if tt.change != nil {
				tt.change(s, &s.Jobs[4])
			}
			plan := mustDecide(t, s, policy)
			checkPlan(t, s, plan)
			got := gaveWay(plan)
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("who gives way (-want +got):\n%s", diff)
				for _, d := range plan.Decisions {
					t.Log(d.Job, d.Reason)
				}
			}
		})
	}
}
