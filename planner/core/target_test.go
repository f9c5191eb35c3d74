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

// TestTargets: where the order says how large gangs should be, they become that
// large, if it is worth it.
func TestTargets(t *testing.T) {
	mayPreempt := preempt.Policy{Enabled: true, MinRunTime: time.Minute}
	const full = "- - n1 aa\n- - n2 aa\n- - n3 aa\n- - n4 aa\n- - n5 bb\n"
	const flat, steep = " declared:1:1,2:1.02,4:1.04", " declared:1:1,8:8"
	tests := map[string]struct {
		cluster, elastic, waiting string
		policy                    Policy
		want                      []string
		gives                     []string
		code, reason              string
	}{
		"what one does not need another one gets": {cluster: full, elastic: "a 4 1 4 5h" + flat + "\nb 1 1 8 5h" + steep, policy: Policy{Order: queue.OrderGoodput, Preempt: mayPreempt},
			want: []string{"a -n2,n3,n4"}, reason: "shrinks from 4 to 1 members, since the order would have it run with 1"},
		"not what is within its count, if nothing is preempted": {cluster: full, elastic: "a 2 1 4 5h" + flat + "\nb 1 1 8 5h" + steep, policy: Policy{Order: queue.OrderGoodput},
			want: []string{"a -n3,n4"}},
		"not where no order has a wish":            {cluster: full, elastic: "a 2 1 4 5h" + flat + "\nb 1 1 8 5h" + steep, policy: Policy{Preempt: mayPreempt}, want: []string{}},
		"not if that is not repaid":                {cluster: full, elastic: "a 2 1 4 5h" + flat + "\nb 1 1 8 5h duration:5h1m" + steep, policy: Policy{Order: queue.OrderGoodput, Preempt: mayPreempt}, want: []string{}},
		"not soon after the last time":             {cluster: full, elastic: "a 2 1 4 5h resized:1m" + flat + "\nb 1 1 8 5h" + steep, policy: Policy{Order: queue.OrderGoodput, Preempt: mayPreempt}, want: []string{}},
		"not where sizes stay as they are":         {cluster: full, elastic: "a 2 1 4 5h" + flat + "\nb 1 1 8 5h" + steep, policy: Policy{Order: queue.OrderGoodput, Elastic: queue.Elastic{Disabled: true}}, want: []string{}},
		"idle nodes only as far as the order goes": {cluster: "- - n1 aa\n- - n2 ..\n- - n3 ..\n", elastic: "a 1 1 9 5h declared:1:1,2:1.9,3:1.91", policy: Policy{Order: queue.OrderGoodput}, want: []string{"a +n2"}},
		"to who waits, down to what the order says": {cluster: full, elastic: "a 4 1 4 5h" + flat + "\nb 1 1 1 5h", waiting: "w 3x2", policy: Policy{Order: queue.OrderGoodput, Preempt: mayPreempt},
			want: []string{}, gives: []string{"a gives 3 to w"}, code: "preempting"},
		"not what it lacks, if the order has another wish": {cluster: "- - n1 aa\n- - n2 aa\n- - n3 ..\n", elastic: "a 3 1 4 5h" + flat, policy: Policy{Order: queue.OrderGoodput}, want: []string{}, code: "target"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			stretch(t, s, tt.elastic)
			submit(t, s, tt.waiting)
			plan := mustDecide(t, s, tt.policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(tt.want, resized(plan)); diff != "" {
				t.Errorf("resizes (-want +got):\n%s\n%+v", diff, plan.Decisions)
			}
			if diff := cmp.Diff(append([]string{}, tt.gives...), gaveWay(plan)); diff != "" {
				t.Errorf("gives way (-want +got):\n%s", diff)
			}
			if tt.code != "" && plan.Decisions[0].Detail.Code != tt.code {
				t.Errorf("%s: %s", plan.Decisions[0].Detail.Code, plan.Decisions[0].Reason)
			}
			if tt.reason != "" && !strings.Contains(plan.Resizes[0].Reason, tt.reason) {
				t.Error(plan.Resizes[0].Reason)
			}
			for _, r := range plan.Resizes {
				if r.Action == model.ActionShrink && r.Benefit <= r.Cost.Total() {
					t.Errorf("benefit %d, cost %d", r.Benefit, r.Cost.Total())
				}
			}
		})
	}
}
