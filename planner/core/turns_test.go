package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Turns go back and forth, and however often a job gave way, but no turn is cut
// short.
func TestTurns(t *testing.T) {
	policy := Policy{Order: queue.OrderTimeslice, Timeslice: queue.Timeslice{Quantum: time.Hour}, Preempt: preempt.Policy{Enabled: true, MaxPerJob: 1}}
	for name, tt := range map[string]struct {
		running string
		minRun  time.Duration
		want    []string
	}{
		"a turn is over":               {"a 50 1h gave:M gave:M gave:M", 0, []string{"a to M"}},
		"a turn is not over":           {"a 50 59m", 0, []string{}},
		"no turn is shorter than that": {"a 50 1h", 2 * time.Hour, []string{}},
		"not for one of less priority": {"a 51 3h", 0, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b r n aaaa")
			describe(t, s, tt.running)
			submit(t, s, "M 1x4 priority:50")
			s.Jobs[1].Preempted = []model.Preempted{{At: testNow.Add(-2 * time.Hour), By: "a"}}
			policy := policy
			policy.Preempt.MinRunTime = tt.minRun
			plan := mustDecide(t, s, policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(tt.want, gaveWay(plan)); diff != "" {
				t.Errorf("who gives way (-want +got):\n%s\n%s", diff, plan.Decisions[0].Reason)
			}
		})
	}
}
