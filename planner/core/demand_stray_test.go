package core

import (
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Nodes that join under a name that is none of their purchase's, or of no purchase,
// get nothing, whoever waits, and are given back.
func TestNodesThatNobodyHasBought(t *testing.T) {
	tests := map[string]struct {
		set  func(*model.Bought)
		want string
	}{
		"under another name": {func(b *model.Bought) { b.Name = "eu-1-9" }, "its name is none of its purchase's"},
		"of no purchase":     {func(b *model.Bought) { b.Purchase = "eu-9" }, "it is of no purchase that is known"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 aaaa")
			submit(t, s, "m 1x4 runs:2h")
			s.Jobs[0].Duration = 99 * time.Hour
			p := model.Purchase{
				ID: "eu-1", Pool: "eu", For: model.JobName{ID: "m"}, Market: model.MarketOnDemand, Nodes: 1, Names: []string{"eu-1-0"}, Price: 8, Cost: 16,
				Ordered: testNow, Billed: testNow, ExpectBy: testNow.Add(15 * time.Minute), State: model.PurchaseComing,
			}
			s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 2)}, Bought: []model.Purchase{p}}
			bursts(s, "m", func(j *model.Job) { j.Deadline = testNow.Add(4 * time.Hour) })
			arrive(s, &p, p.Names...)
			n := &s.Nodes[len(s.Nodes)-1]
			test.set(n.Bought)
			out := plan(t, s, Policy{})
			if d := decisionOn(out, "m"); d.Action != model.ActionWait {
				t.Errorf("m: %s: %s", d.Action, d.Reason)
			}
			if len(out.Demand.GiveBack) != 1 || out.Demand.GiveBack[0].Node != n.ID || !strings.Contains(out.Demand.GiveBack[0].Why, test.want) {
				t.Errorf("given back: %+v; want %s: %s", out.Demand.GiveBack, n.ID, test.want)
			}
			if u := out.Demand.Uses[0]; u.State != model.PurchaseComing {
				t.Errorf("the purchase is %s: %s", u.State, u.Why)
			}
		})
	}
}

// A budget that is spent buys nothing more, the job's own or its queue's.
func TestBudgetsThatAreSpent(t *testing.T) {
	tests := map[string]struct {
		set  func(*model.Snapshot)
		want string
	}{
		"the job's": {func(s *model.Snapshot) {
			s.Jobs[1].Budget = 50
			s.Burst.Spent = []model.Spent{{For: model.JobName{ID: "m"}, Amount: 60}}
		}, "its budget (caravan_budget) has 0.00 EUR left"},
		"the queue's": {func(s *model.Snapshot) {
			s.Jobs[1].Queue, s.Queues = "org", []model.Queue{{Path: "org", Budget: 50}}
			s.Burst.Spent = []model.Spent{{Queue: "org", Amount: 50}}
		}, "the budget of queue org has 0.00 EUR left"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 aaaa")
			submit(t, s, "m 1x4 runs:2h")
			s.Jobs[0].Duration = 9 * time.Hour
			s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 2)}}
			bursts(s, "m", func(j *model.Job) { j.Deadline = testNow.Add(4 * time.Hour) })
			test.set(s)
			out := plan(t, s, Policy{})
			if d := decisionOn(out, "m"); len(out.Demand.Buy) > 0 || !strings.Contains(d.Reason, test.want) {
				t.Errorf("bought %+v: %s; want %q", out.Demand.Buy, d.Reason, test.want)
			}
		})
	}
}
