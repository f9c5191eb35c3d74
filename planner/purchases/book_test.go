package purchases

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func snapshot() *model.Snapshot {
	return &model.Snapshot{
		Jobs:  []model.Job{{ID: "m", Queue: "org/a"}, {ID: "k", Queue: "org/b"}},
		Burst: model.Burst{Currency: "EUR", Pools: []model.BuyPool{{Name: "eu", Quota: 4, OnDemand: 10, Boot: 5 * time.Minute, Join: 15 * time.Minute, MinBilling: time.Minute, Period: time.Hour}}},
	}
}

func bought(id string) model.Purchase {
	return model.Purchase{ID: id, Pool: "eu", For: model.JobName{ID: "m"}, Market: model.MarketOnDemand, Nodes: 2, Names: []string{id + "-0", id + "-1"}, Price: 10, Cost: 40,
		Ordered: t0, ExpectBy: t0.Add(15 * time.Minute), State: model.PurchaseWanted, Why: "why"}
}

func joins(s *model.Snapshot, id, name, purchase string) {
	s.Nodes = append(s.Nodes, model.Node{ID: id, Name: name, Bought: &model.Bought{Pool: "eu", Name: name, Purchase: purchase}})
}

// Two nodes at 10 an hour, billed by the hour: m has them for two hours and a bit, k
// for one more, then both go.
func TestLedger(t *testing.T) {
	b, s := &Book{}, snapshot()
	b.Carry(s, &model.Demand{Buy: []model.Purchase{bought("p")}}, 10*time.Minute, t0)
	if !b.Report(&burstapi.Report{Pool: "eu", Purchase: "p", Kind: burstapi.ReportOrdered}, t0.Add(2*time.Minute)) {
		t.Fatal("the purchase is not known")
	}
	e := &b.Purchases[0]
	if e.State != model.PurchaseComing || !e.Billed.Equal(t0.Add(2*time.Minute)) || !e.ExpectBy.Equal(t0.Add(17*time.Minute)) || e.Queue != "org/a" {
		t.Fatalf("entry = %+v", e)
	}
	m := model.JobName{ID: "m"}
	b.Carry(s, &model.Demand{Uses: []model.PurchaseUse{{ID: "p", State: model.PurchaseComing, For: m, With: []model.JobName{{ID: "k"}}}}}, time.Minute, t0.Add(6*time.Minute))
	if got := b.Burst(s.Burst, t0.Add(6*time.Minute)).Bought[0].With; !slices.Equal(got, []model.JobName{{ID: "k"}}) {
		t.Errorf("to start beside m: %v, want k", got)
	}
	b.Carry(s, &model.Demand{Uses: []model.PurchaseUse{{ID: "p", State: model.PurchasePresent, Started: true, Busy: true, For: m}}}, time.Minute, t0.Add(7*time.Minute))
	if e = &b.Purchases[0]; len(e.With) > 0 || !e.Started.Equal(t0.Add(7*time.Minute)) || !e.Idle.IsZero() || e.State != model.PurchasePresent {
		t.Fatalf("entry = %+v", e)
	}
	if got := b.Burst(s.Burst, t0.Add(30*time.Minute)).Bought[0].Spent; got != 20 {
		t.Errorf("spent %g in the first hour, want 20", got)
	}
	// k takes over in the third hour: m has paid for three.
	k := model.JobName{ID: "k"}
	b.Carry(s, &model.Demand{Uses: []model.PurchaseUse{{ID: "p", State: model.PurchasePresent, Started: true, Busy: true, For: k}}}, time.Minute, t0.Add(132*time.Minute))
	out := b.Burst(s.Burst, t0.Add(190*time.Minute))
	if out.Bought[0].For != k || out.Bought[0].Spent != 20 {
		t.Errorf("k has spent %g, want 20: %+v", out.Bought[0].Spent, out.Bought[0])
	}
	want := []model.Spent{{For: m, Amount: 60}, {Queue: "org/a", Amount: 60}}
	if diff := cmp.Diff(want, out.Spent); diff != "" {
		t.Errorf("spent (-want +got):\n%s", diff)
	}
	b.Carry(s, &model.Demand{GiveBack: []model.GiveBack{
		{Pool: "eu", Purchase: "p", Name: "p-0", By: t0.Add(242 * time.Minute), Why: "idle"}, {Pool: "eu", Purchase: "p", Name: "p-1", By: t0.Add(242 * time.Minute), Why: "idle"},
	}}, 10*time.Minute, t0.Add(240*time.Minute))
	if e = &b.Purchases[0]; !e.Until.Equal(t0.Add(250*time.Minute)) || len(e.Leaving) != 2 {
		t.Errorf("entry = %+v", e)
	}
	b.Report(&burstapi.Report{Pool: "eu", Purchase: "p", Kind: burstapi.ReportGone, Nodes: []string{"p-0"}}, t0.Add(241*time.Minute))
	b.Report(&burstapi.Report{Pool: "eu", Purchase: "p", Kind: burstapi.ReportGone}, t0.Add(241*time.Minute))
	b.Carry(s, nil, time.Minute, t0.Add(251*time.Minute))
	out = b.Burst(s.Burst, t0.Add(251*time.Minute))
	if len(out.Bought) != 0 || len(out.Spent) != 4 || out.Spent[1].Amount != 20 {
		t.Errorf("after all: %+v, %+v", out.Bought, out.Spent)
	}
	// The next month begins with nothing for queues.
	if got := b.Burst(s.Burst, t0.Add(30*time.Hour)).Spent; len(got) != 2 {
		t.Errorf("in December: %+v", got)
	}
}

func TestFailuresBackOff(t *testing.T) {
	b, s, now := &Book{}, snapshot(), t0
	for i, want := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 80 * time.Minute, 2 * time.Hour, 2 * time.Hour} {
		id := fmt.Sprintf("p%d", i)
		b.Carry(s, &model.Demand{Buy: []model.Purchase{bought(id)}}, time.Minute, now)
		b.Report(&burstapi.Report{Pool: "eu", Purchase: id, Kind: burstapi.ReportFailed, Reason: burstapi.ReasonQuota, Message: "8 of 8 in use."}, now)
		// It may be said twice.
		b.Report(&burstapi.Report{Pool: "eu", Purchase: id, Kind: burstapi.ReportFailed, Reason: burstapi.ReasonQuota}, now)
		blocked := b.Burst(s.Burst, now).Blocked
		if len(blocked) != 1 || blocked[0].Until.Sub(now) != want || blocked[0].Why != "quota: 8 of 8 in use" || blocked[0].Market != "" {
			t.Fatalf("failure %d: %+v, want %s", i, blocked, want)
		}
		now = blocked[0].Until.Add(time.Second)
	}
	last := bought("last")
	b.Carry(s, &model.Demand{Buy: []model.Purchase{last}}, time.Minute, now)
	b.Carry(s, &model.Demand{Uses: []model.PurchaseUse{{ID: "last", State: model.PurchasePresent, Started: true, Busy: true, For: last.For}}}, time.Minute, now)
	if len(b.Failures) != 0 {
		t.Errorf("a success leaves %+v", b.Failures)
	}
	b.Report(&burstapi.Report{Pool: "eu", Purchase: "last", Kind: burstapi.ReportFailed, Reason: burstapi.ReasonCapacity}, now)
	if got := b.Burst(s.Burst, now).Blocked; len(got) != 1 || got[0].Market != model.MarketOnDemand {
		t.Errorf("without capacity: %+v, want its market only", got)
	}
}

func TestReports(t *testing.T) {
	b, s := &Book{}, snapshot()
	b.Carry(s, &model.Demand{Buy: []model.Purchase{bought("p")}}, time.Minute, t0)
	for _, r := range []burstapi.Report{{Pool: "eu", Purchase: "x", Kind: burstapi.ReportGone}, {Pool: "us", Purchase: "p", Kind: burstapi.ReportGone}} {
		if b.Report(&r, t0) {
			t.Errorf("%+v is known", r)
		}
	}
	// A name that is none of the purchase's changes nothing.
	b.Report(&burstapi.Report{Pool: "eu", Purchase: "p", Kind: burstapi.ReportGone, Nodes: []string{"q-7"}}, t0)
	if len(b.Purchases[0].Gone) != 0 {
		t.Errorf("gone: %v", b.Purchases[0].Gone)
	}
	// A node joins before anybody has said that it is ordered: it is paid for since.
	joins(s, "n1", "p-0", "p")
	b.Carry(s, nil, time.Minute, t0.Add(4*time.Minute))
	if e := b.Purchases[0]; !e.Billed.Equal(t0) || e.State != model.PurchaseComing {
		t.Errorf("billed from %s, %s; want from when it was decided", e.Billed, e.State)
	}
}

// What nobody has ever begun to make, and what nobody has said is gone.
func TestForgottenPurchasesEnd(t *testing.T) {
	b, s := &Book{}, snapshot()
	b.Carry(s, &model.Demand{Buy: []model.Purchase{bought("p")}}, time.Minute, t0)
	failed := &model.Demand{
		Uses:     []model.PurchaseUse{{ID: "p", State: model.PurchaseFailed, Reason: "timeout", Why: "0 of 2"}},
		GiveBack: []model.GiveBack{{Pool: "eu", Purchase: "p", Name: "p-0", By: t0}, {Pool: "eu", Purchase: "p", Name: "p-1", By: t0}},
	}
	now := t0.Add(16 * time.Minute)
	b.Carry(s, failed, time.Minute, now)
	b.Carry(s, nil, time.Minute, now.Add(10*time.Minute))
	if n := len(b.Purchases[0].Gone); n != 0 {
		t.Fatalf("%d nodes count as gone too soon", n)
	}
	b.Carry(s, nil, time.Minute, now.Add(17*time.Minute))
	if n := len(b.Purchases[0].Gone); n != 2 {
		t.Fatalf("%d nodes count as gone, want 2", n)
	}
	b.Carry(s, nil, time.Minute, now.Add(3*time.Hour))
	if len(b.Purchases) != 0 {
		t.Errorf("it is never forgotten: %+v", b.Purchases)
	}
}

func TestAnswer(t *testing.T) {
	b, s := &Book{}, snapshot()
	p := bought("p")
	p.Deadline = t0.Add(4 * time.Hour)
	b.Carry(s, &model.Demand{Buy: []model.Purchase{p}}, time.Minute, t0)
	gone := bought("q")
	b.Carry(s, &model.Demand{Buy: []model.Purchase{gone}}, time.Minute, t0)
	b.Report(&burstapi.Report{Pool: "eu", Purchase: "q", Kind: burstapi.ReportGone, Nodes: []string{"q-0"}}, t0)
	joins(s, "n1", "p-0", "p")
	joins(s, "n2", "old-0", "old")
	s.Allocs = []model.Alloc{{ID: "a", Job: "m", Node: "n1"}}
	s.Jobs[0].Members = []model.Member{{Group: "g", Node: "n1"}}
	b.Carry(s, nil, time.Minute, t0.Add(6*time.Minute))
	d := &model.Demand{
		Pools:    []model.PoolDemand{{Name: "eu", Wanted: 2, Present: 1, Coming: 1, Why: "1 there"}},
		GiveBack: []model.GiveBack{{Pool: "eu", Purchase: "old", Name: "old-0", By: t0, Why: "of no purchase"}},
	}
	got := b.Pools(s, d, func(n *model.Node, _ *model.BuyPool) string {
		if n.ID == "n2" {
			return "it is draining"
		}
		return ""
	})
	deadline := t0.Add(4 * time.Hour)
	want := []burstapi.Pool{{
		Name: "eu", Wanted: 2, Present: 1, Coming: 1, Why: "1 there", PricePerNodeHour: 10, Currency: "EUR",
		Purchases: []burstapi.Purchase{{ID: "p", Gang: "default/m", Nodes: 2, Names: []string{"p-0", "p-1"}, Market: burstapi.OnDemand, PricePerNodeHour: 10, CostEstimate: 40,
			Deadline: &deadline, Ordered: t0, ExpectBy: t0.Add(15 * time.Minute), State: burstapi.Coming, Why: "why"},
			{ID: "q", Gang: "default/m", Nodes: 1, Names: []string{"q-1"}, Market: burstapi.OnDemand, PricePerNodeHour: 10, CostEstimate: 40,
				Ordered: t0, ExpectBy: t0.Add(15 * time.Minute), State: burstapi.Wanted, Why: "why"}},
		GiveBack: []burstapi.GiveBack{{Name: "old-0", By: t0, Why: "of no purchase"}},
		Nodes: []burstapi.Node{
			{Name: "old-0", NodeID: "n2", Purchase: "old", State: burstapi.GivingBack, Why: "it is draining"},
			{Name: "p-0", NodeID: "n1", Purchase: "p", State: burstapi.Present, Gang: "default/m", Ready: true},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

// Whatever is said in whatever order: what is spent never shrinks, unless a target says
// how long nodes have existed, and all of it is somebody's.
func TestMoneyIsNeverLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, s, now := &Book{}, snapshot(), t0
		before := 0.0
		for step := range rapid.IntRange(1, 20).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes")) * time.Minute)
			exact := false
			id := fmt.Sprintf("p%d", rapid.IntRange(0, 2).Draw(t, "purchase"))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if b.find(id) == nil {
					p := bought(id)
					p.Ordered = now
					b.Carry(s, &model.Demand{Buy: []model.Purchase{p}}, time.Minute, now)
				}
			case 1:
				r := burstapi.Report{Pool: "eu", Purchase: id, Kind: rapid.SampledFrom([]burstapi.Kind{burstapi.ReportOrdered, burstapi.ReportPresent, burstapi.ReportFailed, burstapi.ReportGone, burstapi.ReportInDoubt}).Draw(t, "kind")}
				if r.Kind == burstapi.ReportFailed {
					r.Reason, exact = burstapi.ReasonError, true
				}
				if rapid.Bool().Draw(t, "one") {
					r.Nodes = []string{id + "-1"}
				}
				if rapid.Bool().Draw(t, "lived") {
					r.Lived, exact = map[string]float64{id + "-0": float64(rapid.IntRange(0, 7200).Draw(t, "seconds"))}, true
				}
				b.Report(&r, now)
			case 2:
				u := model.PurchaseUse{ID: id, State: rapid.SampledFrom([]model.PurchaseState{model.PurchaseComing, model.PurchasePresent, model.PurchaseGiving}).Draw(t, "state"),
					For: model.JobName{ID: rapid.SampledFrom([]string{"m", "k"}).Draw(t, "for")}, Started: true, Busy: rapid.Bool().Draw(t, "busy")}
				b.Carry(s, &model.Demand{Uses: []model.PurchaseUse{u}}, time.Minute, now)
			default:
				text, err := b.Encode()
				if err != nil {
					t.Fatal(err)
				}
				again, err := Decode(text)
				if err != nil {
					t.Fatal(err)
				}
				b = again.Clone()
			}
			out := b.Burst(s.Burst, now)
			total := 0.0
			for _, p := range out.Bought {
				total += p.Spent
				if len(p.Gone) > p.Nodes || slices.Contains(p.Gone, "") {
					t.Fatalf("purchase %+v", p)
				}
			}
			for _, j := range b.Jobs {
				total += j.Amount
			}
			if total < before-1e-6 && !exact || total < 0 || math.IsNaN(total) {
				t.Fatalf("step %d: spent %g, before %g", step, total, before)
			}
			before = total
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{"", "[]", `{"purchases":[{}]}`, `{"purchases":[{"id":"p","pool":"eu","nodes":2,"names":["a"],"price":1}]}`, `{"purchases":[{"id":"p","pool":"eu","nodes":1,"names":["a"],"price":0}]}`} {
		if b, err := Decode([]byte(text)); err == nil {
			t.Errorf("%q is read as %+v", text, b)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"purchases":[{"id":"p","pool":"eu","nodes":1,"names":["a"],"price":1,"leaving":["a","b"]}],"failures":[{"pool":"eu","count":-5}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		b, err := Decode([]byte(text))
		if err != nil {
			return
		}
		s := snapshot()
		b.Carry(s, nil, time.Minute, t0)
		for i := range b.Purchases {
			e := &b.Purchases[i]
			b.Report(&burstapi.Report{Pool: e.Pool, Purchase: e.ID, Kind: burstapi.ReportFailed, Reason: burstapi.ReasonError}, t0)
		}
		b.Pools(s, nil, func(*model.Node, *model.BuyPool) string { return "" })
	})
}
