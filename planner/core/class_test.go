package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// byService is an order with two classes, beyond one GPU-hour.
func byService() Policy {
	return Policy{Order: queue.OrderLAS, LAS: queue.LAS{Thresholds: []float64{3600}}, Preempt: preempt.Policy{Enabled: true}}
}

func TestDisplaceByClass(t *testing.T) {
	guaranteed := []model.Queue{{Path: "a", Guarantee: gpusOf(2)}, {Path: "b", Guarantee: gpusOf(2)}}
	tests := map[string]struct {
		cluster, running, jobs string
		set                    func(*model.Snapshot)
		policy                 func(*Policy)
		want                   []string
		// wantSaid is what who gives way is told, or else who waits.
		wantSaid string
	}{
		"a job of a lower class displaces one of a higher": {
			cluster: `b r n aabb`,
			running: `a 50 10m
			          b 50 2h`,
			jobs: `M 1x2 priority:50`, want: []string{"b to M"},
			wantSaid: "gives way to M (queue 1 of 2, after 0 GPU-seconds against queue 2 of 2, after 4.0 GPU-hours): ",
		},
		"none of its own class": {
			cluster: `b r n aabb`,
			running: `a 50 10m
			          b 50 11m`,
			jobs: `M 1x2 priority:50`, want: []string{},
			wantSaid: "; its place in the order: queue 1 of 2, after 0 GPU-seconds",
		},
		"none of a higher priority": {
			cluster: `b r n aabb`,
			running: `a 51 2h
			          b 50 11m`,
			jobs: `M 1x2 priority:50`, want: []string{},
		},
		"one of a lower priority, though the gap is small": {
			cluster: `b r n aabb`,
			running: `a 49 2h
			          b 50 11m`,
			jobs: `M 1x2 priority:50`, want: []string{"a to M"},
		},
		"the higher class first, where it costs the same": {
			cluster: `b r n aabb`,
			running: `a 50 2h always
			          b 50 2h always`,
			jobs: `M 1x2 priority:50`, want: []string{"a to M"},
			policy: func(p *Policy) { p.LAS.Thresholds = []float64{3600, 5 * 3600} },
			set:    func(s *model.Snapshot) { s.Jobs[0].AttainedGPUs = 7200 },
		},
		"who never gives way stays": {
			cluster: `b r n aaaa`, running: `a 50 2h never`, jobs: `M 1x2 priority:50`, want: []string{},
		},
		"who has just begun stays": {
			cluster: `b r n aaaa`, running: `a 50 20m`, jobs: `M 1x2 priority:50`, want: []string{},
			policy: func(p *Policy) { p.Preempt.MinRunTime = time.Hour },
		},
		"not where nobody is to be preempted": {
			cluster: `b r n aaaa`, running: `a 50 2h`, jobs: `M 1x2 priority:50`, want: []string{},
			policy: func(p *Policy) { p.Preempt.Enabled = false },
		},
		"it may go back and forth": {
			cluster: `b r n aaaa`, running: `a 50 2h`, jobs: `M 1x2 priority:50`, want: []string{"a to M"},
			set: func(s *model.Snapshot) {
				s.Jobs[1].Preempted = []model.Preempted{{At: testNow.Add(-3 * time.Hour), By: "a"}}
			},
		},
		"but not too often": {
			cluster: `b r n aaaa`, running: `a 50 2h gave:x gave:x`, jobs: `M 1x2 priority:50`, want: []string{},
			policy: func(p *Policy) { p.Preempt.MaxPerJob = 2 },
		},
		"within a queue": {
			cluster: `b r n aaaa`, running: `a 50 2h`, jobs: `M 1x2 priority:50`, want: []string{"a to M"},
			set: func(s *model.Snapshot) { s.Queues, s.Jobs[0].Queue, s.Jobs[1].Queue = guaranteed, "a", "a" },
		},
		"but not across queues": {
			cluster: `b r n aa..`, running: `a 50 2h`, jobs: `M 1x3 priority:50`, want: []string{},
			set: func(s *model.Snapshot) { s.Queues, s.Jobs[0].Queue, s.Jobs[1].Queue = guaranteed, "a", "b" },
		},
		"and not before its queue's time": {
			cluster: `b r n aaaa`, running: `a 50 2h`, jobs: `M 1x2 priority:50`, want: []string{},
			set: func(s *model.Snapshot) {
				s.Queues = []model.Queue{{Path: "a", Guarantee: gpusOf(2), MinRun: 3 * time.Hour}}
				s.Jobs[0].Queue, s.Jobs[1].Queue = "a", "a"
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			policy := byService()
			if tt.set != nil {
				tt.set(s)
			}
			if tt.policy != nil {
				tt.policy(&policy)
			}
			plan := mustDecide(t, s, policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(tt.want, gaveWay(plan)); diff != "" {
				t.Errorf("who gives way (-want +got):\n%s\n%s", diff, plan.Decisions[0].Reason)
			}
			said := plan.Decisions[0].Reason
			if len(plan.Preemptions) > 0 {
				said = plan.Preemptions[0].Reason
			}
			if !strings.Contains(said, tt.wantSaid) {
				t.Errorf("said: %q, want %q", said, tt.wantSaid)
			}
		})
	}
}

// Those that wait are decided on by priority, class and age, and the decision
// says where each stands.
func TestOrderByStanding(t *testing.T) {
	s := draw(t, `b r n ....`)
	submit(t, s, `had 1x1
	              new 1x1
	              newer 1x1
	              urgent 1x1 priority:1
	              starves 1x1
	              held 1x1`)
	s.Jobs[0].AttainedGPUs = 3600
	s.Jobs[4].AttainedGPUs, s.Jobs[4].Ran, s.Jobs[4].Submitted, s.Jobs[4].Accounted = 3600, time.Hour, testNow.Add(-20*time.Hour), testNow.Add(-8*time.Hour)
	s.Jobs[5].Hold = "no"
	plan := mustDecide(t, s, byService())
	var order, forgets []string
	for _, d := range plan.Decisions {
		order = append(order, d.Job+" "+string(d.Action))
		if d.Forgets {
			forgets = append(forgets, d.Job)
		}
	}
	if diff := cmp.Diff([]string{"urgent admit", "starves admit", "new admit", "newer admit", "had wait", "held wait"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"starves"}, forgets); diff != "" {
		t.Errorf("forgets (-want +got):\n%s", diff)
	}
	if d := plan.Decisions[4]; d.Detail.Standing != "queue 2 of 2, after 60.0 GPU-minutes" || !strings.HasSuffix(d.Reason, "; its place in the order: "+d.Detail.Standing) {
		t.Errorf("%q: %s", d.Detail.Standing, d.Reason)
	}
	if d := plan.Decisions[5]; d.Reason != "no" {
		t.Errorf("held: %q", d.Reason)
	}
}

// Another order changes nothing for those who run, unless jobs may be preempted.
func TestAnotherOrderDisturbsNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyContest(t)
		for _, order := range queue.Orders() {
			plan := mustDecide(t, s, Policy{Order: order, Elastic: queue.Elastic{Disabled: true}, Interactive: queue.Interactive{Classes: []string{"interactive"}}})
			if len(plan.Preemptions)+len(plan.Resizes) > 0 {
				t.Errorf("%s: %v give way, %d change their size", order, gaveWay(plan), len(plan.Resizes))
			}
			if faults := planFaults(s, plan); len(faults) > 0 {
				t.Errorf("%s: %s", order, strings.Join(faults, "; "))
			}
		}
	})
}

// What is decided under an order does not depend on how the snapshot is sorted.
func TestOrdersDoNotDependOnTheSnapshotsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyContest(t)
		for i := range s.Jobs {
			s.Jobs[i].Duration = time.Duration(rapid.IntRange(0, 3).Draw(t, "says")) * time.Hour
			s.Jobs[i].AttainedGPUs = float64(rapid.IntRange(0, 2).Draw(t, "had")) * 3600
		}
		other := *s
		other.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
		other.Jobs = rapid.Permutation(s.Jobs).Draw(t, "jobs")
		other.Allocs = rapid.Permutation(s.Allocs).Draw(t, "allocs")
		policy := Policy{Order: rapid.SampledFrom(queue.Orders()).Draw(t, "order"), Preempt: preempt.Policy{Enabled: true}}
		if diff := cmp.Diff(mustDecide(t, s, policy), mustDecide(t, &other, policy)); diff != "" {
			t.Errorf("%s (-as drawn +in another order):\n%s", policy.Order, diff)
		}
	})
}
