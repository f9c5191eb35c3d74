package queue

import (
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// A gang of ten minutes is short on any number of GPUs up to half of the cluster, and beyond
// only where others give way, or where it needs few.
func TestWholeClusterIsNotShort(t *testing.T) {
	preempting := Policy{Order: OrderCaravan, Preempt: preempt.Policy{Enabled: true}}
	deadlines := preempting
	deadlines.Caravan.DeadlinesOnly = true
	for name, tc := range map[string]struct {
		policy     Policy
		all, asked int
		want       string
	}{
		"half of all":            {Policy{}, 128, 64, "said to run for 10m0s; has no more than 30m0s on 64 GPUs left, so it goes before longer ones; due at 2026-01-02 04:00 UTC"},
		"more than that":         {Policy{}, 128, 65, "said to run for 10m0s; by age, however short, since it needs more than half of all GPUs; due at 2026-01-02 04:00 UTC"},
		"others give way":        {preempting, 128, 65, "said to run for 10m0s; has no more than 29m32s on 65 GPUs left, so it goes before longer ones; due at 2026-01-02 04:00 UTC"},
		"but for deadlines only": {deadlines, 128, 65, "said to run for 10m0s; by age, however short, since it needs more than half of all GPUs; due at 2026-01-02 04:00 UTC"},
		"all of a few":           {Policy{}, 32, 32, "said to run for 10m0s; has no more than 1h0m0s on 32 GPUs left, so it goes before longer ones; due at 2026-01-02 04:00 UTC"},
		"most of a few more":     {Policy{}, 40, 33, "said to run for 10m0s; by age, however short, since it needs more than half of all GPUs; due at 2026-01-02 04:00 UTC"},
	} {
		tc.policy.Order = OrderCaravan
		e := Entry{Job: &model.Job{Submitted: start}, Waiting: true, Asked: tc.asked, Waited: h, Left: Estimate{Known: true, Total: 10 * time.Minute, Left: 10 * time.Minute}}
		st := tc.policy.Discipline().Stand(Situation{Now: start.Add(h), GPUs: tc.all, NodeGPUs: 8, Jobs: []Entry{e}})[0]
		if st.Why != tc.want {
			t.Errorf("%s: said %q, want %q", name, st.Why, tc.want)
		}
		if short, want := isShort(&st), tc.want[len("said to run for 10m0s; ")] == 'h'; short != want {
			t.Errorf("%s: short %t, want %t", name, short, want)
		}
	}
}
