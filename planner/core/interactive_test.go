package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Whatever the order is, an interactive job of one GPU finds a place on a full
// cluster within one decision: it has the room as soon as the cheapest that may
// give way has stopped.
func TestInteractiveDisplaces(t *testing.T) {
	tests := map[string]struct {
		cluster, running, jobs string
		set                    func(*model.Snapshot)
		policy                 func(*Policy)
		want                   []string
	}{
		"the cheapest gives way": {
			cluster: `b r n abbb`, running: "a 50 2h\nb 50 10m", jobs: "I 1x1 priority:50", want: []string{"b to I"},
		},
		"an elastic gang gives a member rather than all": {
			cluster: "b r n1 aaaa\nb r n2 aaaa\nb r n3 bbbb", running: "a 50 2h elastic:1\nb 50 1m", jobs: "I 1x1 priority:50", want: []string{"a gives 1 to I"},
		},
		"who asks for more is nobody special": {
			cluster: `b r n aaaa`, running: "a 50 2h", jobs: "I 1x2 priority:50", want: []string{},
		},
		"more, where that is allowed": {
			cluster: `b r n aaaa`, running: "a 50 2h", jobs: "I 1x2 priority:50", want: []string{"a to I"},
			policy: func(p *Policy) { p.Interactive.MaxGPUs = 2 },
		},
		"not one of a higher priority": {
			cluster: `b r n aaaa`, running: "a 51 2h", jobs: "I 1x1 priority:50", want: []string{},
		},
		"not another interactive one": {
			cluster: `b r n a`, running: "a 50 2h", jobs: "I 1x1 priority:50", want: []string{},
			set: func(s *model.Snapshot) { s.Jobs[0].PriorityClass = "interactive" },
		},
		"but one that is so for too long": {
			cluster: `b r n a`, running: "a 50 9h", jobs: "I 1x1 priority:50", want: []string{"a to I"},
			set: func(s *model.Snapshot) { s.Jobs[0].PriorityClass = "interactive" },
		},
		"not who never gives way, or has just begun": {
			cluster: `b r n aaab`, running: "a 50 2h never\nb 50 1m", jobs: "I 1x1 priority:50", want: []string{},
			policy: func(p *Policy) { p.Preempt.MinRunTime = 5 * time.Minute },
		},
		"by its queue": {
			cluster: `b r n aaaa`, running: "a 50 2h", jobs: "I 1x1 priority:50", want: []string{"a to I"},
			set: func(s *model.Snapshot) { s.Jobs[1].PriorityClass, s.Jobs[1].Queue = "", "dev/notebooks/ada" },
		},
		"nobody where nobody is to be preempted": {
			cluster: `b r n aaaa`, running: "a 50 2h", jobs: "I 1x1 priority:50", want: []string{},
			policy: func(p *Policy) { p.Preempt.Enabled = false },
		},
	}
	for name, tt := range tests {
		for _, order := range []string{queue.OrderFIFO, queue.OrderCaravan} {
			t.Run(name+", "+order, func(t *testing.T) {
				s := draw(t, tt.cluster)
				describe(t, s, tt.running)
				submit(t, s, tt.jobs)
				s.Jobs[len(s.Jobs)-1].PriorityClass = "interactive"
				policy := Policy{Order: order, Preempt: preempt.Policy{Enabled: true}, Interactive: queue.Interactive{Classes: []string{"interactive"}, Queues: []string{"dev"}}}
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
				if len(tt.want) == 0 {
					return
				}
				if said := plan.Preemptions[0].Reason; !strings.Contains(said, "(somebody waits in front of it)") {
					t.Errorf("said %q", said)
				}
				end := mustDecide(t, stopped(stopping(s, plan)), policy)
				if d := decisionOn(end, "I"); d.Action != model.ActionAdmit {
					t.Errorf("in the end: %s", d.Reason)
				}
			})
		}
	}
}

// Interactive jobs go before the others of their priority.
func TestInteractiveFirst(t *testing.T) {
	for _, order := range []string{queue.OrderFIFO, queue.OrderSJF, queue.OrderCaravan, queue.OrderFairShare} {
		s := draw(t, `b r n .`)
		submit(t, s, "old 1x1\nI 1x1\nhigh 1x1 priority:1")
		s.Jobs[0].Duration, s.Jobs[1].Duration, s.Jobs[2].Duration = time.Minute, time.Hour, time.Hour
		s.Jobs[1].PriorityClass = "interactive"
		plan := mustDecide(t, s, Policy{Order: order, Interactive: queue.Interactive{Classes: []string{"interactive"}}})
		var got []string
		for _, d := range plan.Decisions {
			got = append(got, d.Job)
		}
		if diff := cmp.Diff([]string{"high", "I", "old"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", order, diff)
		}
		if d := plan.Decisions[1]; !strings.HasSuffix(d.Reason, "; its place in the order: interactive, so it goes first") {
			t.Errorf("%s: %s", order, d.Reason)
		}
	}
}
