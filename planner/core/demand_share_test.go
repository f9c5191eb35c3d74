package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// sharedPurchase is a node of four GPUs that was bought for m, on which n is to start beside it.
func sharedPurchase(t *testing.T) (*model.Snapshot, *model.Purchase) {
	t.Helper()
	s := draw(t, "b1 r1 n1 aaaa")
	submit(t, s, "m 1x2 runs:2h\nn 1x2 runs:2h")
	s.Jobs[0].Duration = 9 * time.Hour
	s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 4)}}
	for _, id := range []string{"m", "n"} {
		bursts(s, id, func(j *model.Job) { j.Deadline = testNow.Add(4 * time.Hour) })
	}
	record(s, plan(t, s, Policy{}))
	if n := len(s.Burst.Bought); n != 1 {
		t.Fatalf("%d purchases, want one", n)
	}
	return s, &s.Burst.Bought[0]
}

// Who is to share a purchase has its room there, whoever comes in between and goes first.
func TestSharesAPurchase(t *testing.T) {
	tests := map[string]struct {
		set  func(*model.Snapshot, *model.Purchase)
		want []string // who starts on it
	}{
		"who comes later goes first, and gets none of it": {func(*model.Snapshot, *model.Purchase) {}, []string{"m", "n"}},
		"were it not remembered, it would": {
			func(_ *model.Snapshot, p *model.Purchase) { p.With = nil }, []string{"k", "m"}},
		"who is to share it is gone": {
			func(s *model.Snapshot, _ *model.Purchase) {
				s.Jobs = slices.DeleteFunc(s.Jobs, func(j model.Job) bool { return j.ID == "n" })
			}, []string{"m"}},
		"before its gang": {
			func(s *model.Snapshot, p *model.Purchase) { bursts(s, "n", func(j *model.Job) { j.Priority = 100 }) }, []string{"m", "n"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, p := sharedPurchase(t)
			if diff := cmp.Diff([]model.JobName{{ID: "n"}}, p.With); diff != "" {
				t.Fatalf("beside m (-want +got):\n%s", diff)
			}
			again := plan(t, s, Policy{})
			if got := again.Decisions[1].Reason; !strings.Contains(got, "on which it is to start beside m: 1 node of pool eu") || len(again.Demand.Buy) > 0 {
				t.Errorf("n is told %q, and bought is %+v", got, again.Demand.Buy)
			}
			submit(t, s, "k 1x2 runs:2h")
			bursts(s, "k", func(j *model.Job) { j.Priority = 98 })
			bursts(s, "m", func(j *model.Job) { j.Priority = 99 })
			test.set(s, p)
			arrive(s, p, p.Names...)
			var got []string
			for _, d := range plan(t, s, Policy{}).Decisions {
				if len(d.Members) > 0 && d.Members[0].Node == "id-"+p.Names[0] {
					got = append(got, d.Job)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("started on it (-want +got):\n%s", diff)
			}
		})
	}
}

// A purchase that its gang needs no more is that of who is to share it.
func TestInheritsAPurchase(t *testing.T) {
	gone := func(s *model.Snapshot, id string) {
		s.Jobs = slices.DeleteFunc(s.Jobs, func(j model.Job) bool { return j.ID == id })
	}
	tests := map[string]struct {
		set   func(*model.Snapshot, *model.Purchase)
		state model.PurchaseState
		owner string
		why   string
	}{
		"its gang is no more": {
			func(s *model.Snapshot, _ *model.Purchase) { gone(s, "m") }, model.PurchaseWanted, "n", "m is no more; n is to start on it"},
		"nobody else is there either": {
			func(s *model.Snapshot, _ *model.Purchase) { gone(s, "m"); gone(s, "n") }, model.PurchaseGiving, "m", "m is no more"},
		"nobody else may pay for it": {
			func(s *model.Snapshot, p *model.Purchase) {
				gone(s, "m")
				bursts(s, "n", func(j *model.Job) { j.Budget = p.Cost / 2 })
			}, model.PurchaseGiving, "m", "m is no more"},
		"its gang is on hold when it is there": {
			func(s *model.Snapshot, p *model.Purchase) {
				bursts(s, "m", func(j *model.Job) { j.Hold = "on hold" })
				arrive(s, p, p.Names...)
			}, model.PurchasePresent, "n", "n runs on it, and m does not"},
		"its gang is on hold before": {
			func(s *model.Snapshot, p *model.Purchase) {
				bursts(s, "m", func(j *model.Job) { j.Hold = "on hold" })
			}, model.PurchaseWanted, "m", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, p := sharedPurchase(t)
			test.set(s, p)
			out := plan(t, s, Policy{})
			u := out.Demand.Uses[0]
			if u.State != test.state || u.For.ID != test.owner || u.Why != test.why || (len(out.Demand.GiveBack) > 0) != (test.state == model.PurchaseGiving) {
				t.Errorf("use = %+v, given back %+v; want %s, of %s: %q", u, out.Demand.GiveBack, test.state, test.owner, test.why)
			}
			if len(out.Demand.Buy) > 0 && test.state != model.PurchaseGiving {
				t.Errorf("bought beside it: %+v", out.Demand.Buy)
			}
		})
	}
}
