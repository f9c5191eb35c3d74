package purchases

import (
	"slices"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// What was never made is not paid for, what was made for as long as it existed, at
// least what is billed at least, and what never came only until it was to go.
func TestWhatNeverCameCostsNothingMore(t *testing.T) {
	report := func(r burstapi.Report) burstapi.Report { r.Pool, r.Purchase = "eu", "p"; return r }
	order := report(burstapi.Report{Kind: burstapi.ReportOrdered})
	fail := report(burstapi.Report{Kind: burstapi.ReportFailed, Reason: burstapi.ReasonCapacity})
	failWith := func(lived map[string]float64, left ...string) burstapi.Report {
		return report(burstapi.Report{Kind: burstapi.ReportFailed, Reason: burstapi.ReasonTimeout, Nodes: left, Lived: lived})
	}
	gone := func(lived map[string]float64, names ...string) burstapi.Report {
		return report(burstapi.Report{Kind: burstapi.ReportGone, Nodes: names, Lived: lived})
	}
	back := &model.Demand{
		Uses:     []model.PurchaseUse{{ID: "p", State: model.PurchaseFailed, Reason: "timeout", Why: "0 of 2"}},
		GiveBack: []model.GiveBack{{Pool: "eu", Purchase: "p", Name: "p-0", By: t0}, {Pool: "eu", Purchase: "p", Name: "p-1", By: t0}},
	}
	tests := map[string]struct {
		reports []burstapi.Report // two minutes after it was decided; what follows a failure, 80 later
		joins   bool
		back    *model.Demand
		want    float64
	}{
		"failed before it was ordered":     {reports: []burstapi.Report{fail}},
		"the cloud had none":               {reports: []burstapi.Report{order, fail}},
		"one was made, and undone":         {reports: []burstapi.Report{order, failWith(map[string]float64{"p-0": 45})}, want: 10},
		"one was there for 61 minutes":     {reports: []burstapi.Report{order, failWith(map[string]float64{"p-0": 3660, "p-1": 0})}, want: 20},
		"both not ready in time":           {reports: []burstapi.Report{order, failWith(nil, "p-0", "p-1"), gone(map[string]float64{"p-0": 2400, "p-1": 2400}, "p-0", "p-1")}, want: 20},
		"the target does not know since":   {reports: []burstapi.Report{order, failWith(nil, "p-0"), gone(nil, "p-0")}, want: 20},
		"in doubt, and never made":         {reports: []burstapi.Report{order, failWith(nil, "p-0"), gone(map[string]float64{"p-0": 0}, "p-0")}},
		"left, and nobody says more":       {reports: []burstapi.Report{order, failWith(nil, "p-0")}, want: 20},
		"given back, never ordered":        {back: back},
		"given back, never came":           {reports: []burstapi.Report{order}, back: back, want: 20},
		"nothing is said, and yet it came": {reports: []burstapi.Report{order, fail}, joins: true, want: 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b, s := &Book{}, snapshot()
			b.Carry(s, &model.Demand{Buy: []model.Purchase{bought("p")}}, time.Minute, t0)
			if test.joins {
				joins(s, "n1", "p-0", "p")
				b.Carry(s, nil, time.Minute, t0.Add(time.Minute))
			}
			at := t0.Add(2 * time.Minute)
			for _, r := range test.reports {
				b.Report(&r, at)
				if r.Kind == burstapi.ReportFailed {
					at = at.Add(80 * time.Minute)
				}
			}
			b.Carry(s, test.back, time.Minute, t0.Add(20*time.Minute))
			b.Carry(s, nil, time.Minute, t0.Add(70*time.Minute))
			// All are by the hour, at 10.
			b.Carry(s, nil, time.Minute, t0.Add(3*time.Hour))
			out, sum := b.Burst(s.Burst, t0.Add(3*time.Hour)), 0.0
			for _, o := range out.Spent {
				if o.Queue == "" {
					sum += o.Amount
				}
			}
			for _, p := range out.Bought {
				sum += p.Spent
			}
			if sum != test.want {
				t.Errorf("it cost %g, want %g", sum, test.want)
			}
		})
	}
}

// A node that was given back and that Nomad has down counts as gone in the end.
func TestNodesThatAreDownEnd(t *testing.T) {
	for down, want := range map[string]int{"down": 1, "": 0} {
		b, s := &Book{}, snapshot()
		b.Carry(s, &model.Demand{Buy: []model.Purchase{bought("p")}}, time.Minute, t0)
		joins(s, "n1", "p-0", "p")
		s.Nodes[0].Unschedulable = down
		b.Carry(s, &model.Demand{GiveBack: []model.GiveBack{{Pool: "eu", Purchase: "p", Name: "p-0", By: t0}}}, time.Minute, t0.Add(time.Minute))
		b.Carry(s, nil, time.Minute, t0.Add(30*time.Minute))
		if n := len(b.Purchases[0].Gone); n != 0 {
			t.Errorf("%q: %d nodes count as gone too soon", down, n)
		}
		b.Carry(s, nil, time.Minute, t0.Add(2*time.Hour))
		if n := len(b.Purchases[0].Gone); n != want {
			t.Errorf("%q: %d nodes count as gone, want %d", down, n, want)
		}
	}
}

// Since when a node is down is noted from when it is seen, until it is back or leaves.
func TestNodesThatAreDownBreakPurchases(t *testing.T) {
	b, s := &Book{}, snapshot()
	b.Carry(s, &model.Demand{Buy: []model.Purchase{bought("p")}}, time.Minute, t0)
	joins(s, "n1", "p-0", "p")
	for i, step := range []struct {
		down string
		want time.Time
	}{{"", time.Time{}}, {"down", t0.Add(2 * time.Minute)}, {"down", t0.Add(2 * time.Minute)}, {"", time.Time{}}, {"down", t0.Add(5 * time.Minute)}} {
		s.Nodes[0].Unschedulable = step.down
		b.Carry(s, nil, time.Minute, t0.Add(time.Duration(i+1)*time.Minute))
		if got := b.Purchases[0].Broken; !got.Equal(step.want) {
			t.Errorf("step %d: broken since %v, want %v", i, got, step.want)
		}
	}
	b.Carry(s, &model.Demand{GiveBack: []model.GiveBack{{Pool: "eu", Purchase: "p", Name: "p-0", By: t0}}}, time.Minute, t0.Add(6*time.Minute))
	b.Carry(s, nil, time.Minute, t0.Add(7*time.Minute))
	if got := b.Purchases[0].Broken; !got.IsZero() {
		t.Errorf("one that is given back counts: broken since %v", got)
	}
}

// What is forgotten is gone and paid for, and nothing of it is left.
func TestForget(t *testing.T) {
	b, s := &Book{}, snapshot()
	b.Carry(s, &model.Demand{Buy: []model.Purchase{bought("p")}}, time.Minute, t0)
	b.Report(&burstapi.Report{Pool: "eu", Purchase: "p", Kind: burstapi.ReportOrdered}, t0)
	b.Report(&burstapi.Report{Pool: "eu", Purchase: "p", Kind: burstapi.ReportGone, Nodes: []string{"p-0"}}, t0.Add(30*time.Minute))
	b.Report(&burstapi.Report{Pool: "eu", Purchase: "p", Kind: burstapi.ReportInDoubt, Nodes: []string{"p-1"}}, t0.Add(30*time.Minute))
	// An hour of the one, and two of the other, at 10.
	e, names, known := b.Forget("p", t0.Add(90*time.Minute))
	if !known || !slices.Equal(names, []string{"p-1"}) || e.Total() != 30 || e.Pool != "eu" {
		t.Errorf("forgotten: %v, %v, it cost %g; want p-1, and 30", known, names, e.Total())
	}
	out := b.Burst(s.Burst, t0.Add(90*time.Minute))
	if len(out.Bought) != 0 || len(b.Doubts) != 0 || len(out.Spent) != 2 || out.Spent[0].Amount != 30 {
		t.Errorf("after all: %+v, in doubt %v", out, b.Doubts)
	}
	if _, _, known := b.Forget("p", t0); known {
		t.Error("it is known still")
	}
}
