package core

import (
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// What becomes of purchases that are not, or not any more, what was bought.
func TestPurchasesThatFail(t *testing.T) {
	tests := map[string]struct {
		set       func(*model.Snapshot, *model.Purchase)
		state     model.PurchaseState
		reason    string
		givenBack int
	}{
		"not there in time": {
			func(s *model.Snapshot, p *model.Purchase) {
				arrive(s, p, p.Names[0])
				s.Now = p.ExpectBy.Add(time.Second)
			},
			model.PurchaseFailed, "1 of its 2 nodes were ready by", 2},
		"with another model": {
			func(s *model.Snapshot, p *model.Purchase) {
				arrive(s, p, p.Names...)
				for i := range s.Nodes[1].GPUs {
					s.Nodes[1].GPUs[i].Model = "A100"
				}
				s.Now = p.ExpectBy.Add(time.Second)
			}, model.PurchaseFailed, "1 of its 2 nodes were ready by", 2},
		"a node was taken away": {
			func(s *model.Snapshot, p *model.Purchase) { arrive(s, p, p.Names[0]); p.State = model.PurchasePresent },
			model.PurchaseFailed, "-1 is gone, so what is left of it is given back", 2},
		"a node is down for as long as a new one takes": {
			func(s *model.Snapshot, p *model.Purchase) {
				arrive(s, p, p.Names...)
				p.State, p.Started, p.Idle, s.Nodes[1].Unschedulable = model.PurchasePresent, testNow, testNow, "down"
				p.Broken, s.Now = testNow, testNow.Add(6*time.Minute)
			}, model.PurchaseFailed, "-1 is down since 03:04 UTC, and a new one takes 6m0s, so what is left of it is given back", 2},
		"its gang is no more": {
			func(s *model.Snapshot, p *model.Purchase) { s.Jobs = s.Jobs[:1] }, model.PurchaseGiving, "m is no more", 2},
		"its gang fits here now": {
			func(s *model.Snapshot, p *model.Purchase) { s.Jobs, s.Allocs = s.Jobs[1:], nil }, model.PurchaseGiving, "m starts elsewhere", 2},
		"its gang does not start": {
			func(s *model.Snapshot, p *model.Purchase) {
				arrive(s, p, p.Names...)
				p.State, s.Jobs[1].Hold, s.Now = model.PurchasePresent, "on hold", p.ExpectBy.Add(16*time.Minute)
			}, model.PurchaseGiving, "m has not started on it", 2},
		"its money is spent": {
			func(s *model.Snapshot, p *model.Purchase) {
				arrive(s, p, p.Names...)
				p.State, p.Started = model.PurchasePresent, testNow
				s.Jobs[1].Budget, p.Billed, s.Now = 10, testNow, testNow.Add(2*time.Hour)
				s.Jobs[1].State, s.Jobs[1].Started = model.StateRunning, testNow
				for i, name := range p.Names {
					s.Jobs[1].Members = append(s.Jobs[1].Members, model.Member{Group: "g0", Index: i, Rank: i, Node: "id-" + name, GPUs: []string{"id-" + name + ".0", "id-" + name + ".1", "id-" + name + ".2", "id-" + name + ".3"}})
				}
			}, model.PurchaseGiving, "its budget (caravan_budget) is spent", 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 aaaa\nb1 r1 n2 aaaa")
			submit(t, s, "m 2x4 runs:2h")
			s.Jobs[0].Duration = 9 * time.Hour
			s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 4)}}
			s.Nodes = s.Nodes[:0:0]
			drawn := draw(t, "b1 r1 n1 aaaa\nb1 r1 n2 aaaa")
			bursts(s, "m", func(j *model.Job) { j.Deadline, j.Checkpoint = testNow.Add(4*time.Hour), time.Hour })
			s.Nodes = drawn.Nodes
			record(s, plan(t, s, Policy{}))
			p := &s.Burst.Bought[0]
			home := s.Nodes
			s.Nodes = nil
			test.set(s, p)
			s.Nodes = append(s.Nodes, home...)
			out := plan(t, s, Policy{})
			u := out.Demand.Uses[0]
			if u.State != test.state || !strings.Contains(u.Why, test.reason) || len(out.Demand.GiveBack) != test.givenBack {
				t.Errorf("use = %+v, %d given back; want %s, %q, %d", u, len(out.Demand.GiveBack), test.state, test.reason, test.givenBack)
			}
			// What has just failed is not bought again in the same breath.
			for _, again := range out.Demand.Buy {
				if u.Reason == useTimeout || u.Reason == useUnused || again.Market == p.Market {
					t.Errorf("bought again in the same pool: %+v", again)
				}
			}
		})
	}
}

// What a gang is told that waits stays the same while nothing changes but the time:
// else every look would be news.
func TestBurstReasonsAreStable(t *testing.T) {
	s := draw(t, "b1 r1 n1 aaaa")
	submit(t, s, "m 1x4 runs:2h\nn 1x4 runs:2h\no 9x4 runs:2h")
	s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 4)}}
	s.Jobs[0].Duration, s.Jobs[0].Started = time.Hour, testNow
	bursts(s, "m", func(j *model.Job) { j.Deadline = testNow.Add(9 * time.Hour) })
	bursts(s, "n", nil)
	bursts(s, "o", func(j *model.Job) { j.Deadline = testNow.Add(time.Hour) })
	policy := Policy{}
	policy.Burst.WaitOver = 30 * time.Hour
	first := plan(t, s, policy)
	s.Now = testNow.Add(7 * time.Minute)
	second := plan(t, s, policy)
	for i := range first.Decisions {
		a, b := first.Decisions[i].Reason, second.Decisions[i].Reason
		if a != b || first.Decisions[i].Detail.Burst == nil {
			t.Errorf("told first %q\nand later %q", a, b)
		}
	}
}

// Nodes are kept for a while for a gang that is to have what is left of a purchase,
// and not for ever where it does not start on them.
func TestIdleNodesAreNotKeptForever(t *testing.T) {
	s := draw(t, "b1 r1 n1 aaaa")
	submit(t, s, "k 1x4 runs:2h")
	s.Jobs[0].Duration = 99 * time.Hour
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.ID == "k" {
			j.Burst, j.Groups[0].Resources.CPUMHz = model.BurstOnly, 4000
		}
	}
	pool := buyPool("eu", 1)
	p := model.Purchase{
		ID: "eu-1", Pool: "eu", For: model.JobName{ID: "m"}, Market: model.MarketOnDemand, Nodes: 1, Names: []string{"eu-1-0"}, Price: 8, Cost: 16,
		Ordered: testNow, Billed: testNow, ExpectBy: testNow.Add(15 * time.Minute), State: model.PurchasePresent, Started: testNow, Idle: testNow,
	}
	s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{pool}, Bought: []model.Purchase{p}}
	arrive(s, &p, p.Names...)
	s.Nodes[len(s.Nodes)-1].Capacity.CPUMHz = 1000 // less than was promised
	s.Now = testNow.Add(10 * time.Minute)
	out := plan(t, s, Policy{})
	if len(out.Demand.GiveBack) != 0 || !strings.Contains(out.Decisions[len(out.Decisions)-1].Reason, "waits for the nodes of purchase eu-1") {
		t.Fatalf("given back at once: %+v; %s", out.Demand.GiveBack, out.Decisions[len(out.Decisions)-1].Reason)
	}
	s.Now = testNow.Add(21 * time.Minute)
	if out = plan(t, s, Policy{}); len(out.Demand.GiveBack) != 1 {
		t.Errorf("kept for a gang that does not start: %+v", out.Demand)
	}
}

// A node whose agent may still come back is waited for, and a purchase that failed
// does not keep its pool closed until the end of a billing period.
func TestBrokenPurchases(t *testing.T) {
	s := draw(t, "b1 r1 n1 aaaa\nb1 r1 n2 aaaa")
	submit(t, s, "m 2x4 runs:2h")
	s.Jobs[0].Duration = 9 * time.Hour
	pool := buyPool("eu", 4)
	pool.Period, pool.Spot = time.Hour, 0
	s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{pool}}
	bursts(s, "m", func(j *model.Job) { j.Deadline, j.Checkpoint = testNow.Add(4*time.Hour), time.Hour })
	record(s, plan(t, s, Policy{}))
	p := &s.Burst.Bought[0]
	arrive(s, p, p.Names...)
	p.State, p.Started, p.Idle, p.Broken = model.PurchasePresent, testNow, testNow, testNow
	s.Nodes[3].Unschedulable = "down"
	s.Now = testNow.Add(5 * time.Minute)
	out := plan(t, s, Policy{})
	if u := out.Demand.Uses[0]; u.State != model.PurchasePresent || len(out.Demand.GiveBack) != 0 {
		t.Fatalf("after five minutes: %+v, given back %+v", u, out.Demand.GiveBack)
	}
	s.Now = testNow.Add(7 * time.Minute)
	record(s, plan(t, s, Policy{}))
	if p = &s.Burst.Bought[0]; p.State != model.PurchaseFailed || len(p.Leaving) != 2 {
		t.Fatalf("after seven: %+v", p)
	}
	s.Now = testNow.Add(13 * time.Minute)
	if out = plan(t, s, Policy{}); len(out.Demand.Buy) != 1 || out.Demand.Buy[0].Nodes != 2 {
		t.Errorf("its nodes are paid for until %s, and nothing is bought again: %s", p.Until, out.Decisions[0].Reason)
	}
}

// A node of no purchase takes a place of its pool's quota, but not when it is down: it
// is no more.
func TestStraysThatAreDownTakeNoQuota(t *testing.T) {
	for down, want := range map[string]int{"": 0, "down": 1} {
		s := draw(t, "b1 r1 n1 aaaa")
		submit(t, s, "m 1x4 runs:2h")
		s.Jobs[0].Duration = 9 * time.Hour
		s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 1)}}
		bursts(s, "m", func(j *model.Job) { j.Burst = model.BurstOnly })
		s.Allocs = nil
		stray := s.Nodes[0]
		stray.ID, stray.Name, stray.GPUs, stray.Unschedulable = "stray", "stray", nil, down
		stray.Bought = &model.Bought{Pool: "eu", Name: "old-0", Purchase: "old"}
		s.Nodes = append(s.Nodes, stray)
		if out := plan(t, s, Policy{}); len(out.Demand.Buy) != want {
			t.Errorf("%q: %d purchases, want %d: %s", down, len(out.Demand.Buy), want, out.Decisions[0].Reason)
		}
	}
}
