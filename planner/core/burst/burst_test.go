package burst

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

const (
	m = time.Minute
	h = time.Hour
)

func TestBill(t *testing.T) {
	tests := map[string]struct {
		nodes                int
		price                float64
		there, least, period time.Duration
		want                 float64
	}{
		"to the second":         {2, 10, 90 * m, m, time.Second, 30},
		"rounded up to an hour": {2, 10, 61 * m, 0, h, 40},
		"a whole hour":          {2, 10, h, 0, h, 20},
		"at least ten minutes":  {1, 60, 3 * m, 10 * m, time.Second, 10},
		"least, then rounded":   {1, 10, 3 * m, 61 * m, h, 20},
		"nothing":               {3, 10, 0, 0, h, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Bill(test.nodes, test.price, test.there, test.least, test.period); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("bill = %g, want %g", got, test.want)
			}
		})
	}
}

func TestGiveBack(t *testing.T) {
	tests := map[string]struct {
		been, least, period time.Duration
		wantIn              time.Duration
		wantNow             bool
	}{
		"in the middle of an hour":    {90 * m, 0, h, 30 * m, false},
		"shortly before its end":      {117 * m, 0, h, 3 * m, true},
		"billed by the second":        {90*m + 400*time.Millisecond, 0, time.Second, 600 * time.Millisecond, true},
		"before the least is over":    {2 * m, 30 * m, time.Second, 28 * m, false},
		"a clock that is behind":      {-5 * m, 0, h, h, false},
		"exactly at the period's end": {h, 0, h, 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in, now := GiveBack(test.been, test.least, test.period, 5*m)
			if in != test.wantIn || now != test.wantNow {
				t.Errorf("give back in %s, now %v, want %s, %v", in, now, test.wantIn, test.wantNow)
			}
		})
	}
}

// Daly's formula by hand: mean time between failures M = 10 h / 2 nodes = 5 h,
// checkpoints every hour, 10 h of work, restarts of 6 minutes:
// (5 + 0.1) · (e^(1/5) − 1) · 10 = 11.2915 h.
func TestExpected(t *testing.T) {
	got := Expected(10*h, h, 6*m, 10*h, 2)
	if want := 11.2915; math.Abs(got.Hours()-want) > 1e-3 {
		t.Errorf("expected %.4f h, want %.4f", got.Hours(), want)
	}
	// Without checkpoints it begins anew each time: 5.1 · (e² − 1) = 32.584 h.
	if got, want := Expected(10*h, 0, 6*m, 10*h, 2).Hours(), 32.584; math.Abs(got-want) > 1e-2 {
		t.Errorf("expected %.4f h without checkpoints, want %.4f", got, want)
	}
	if got := Expected(10000*h, 0, m, h, 8); got != never {
		t.Errorf("what cannot end takes %s", got)
	}
	if got := Expected(h, h, m, 0, 1); got != h {
		t.Errorf("nodes that are never taken away: %s", got)
	}
}

// The lines of Wu et al., NSDI'24: with C(0) = 6 h of work and R(0) = 12 h until the
// deadline, 2 h are to be done after 4 h; and with d = 30 min to change, nodes that
// stay are needed once R(t) < C(t) + 1 h.
func TestUniformProgress(t *testing.T) {
	tests := map[string]struct {
		left, since, rest time.Duration
		behind, must      bool
	}{
		"at the beginning":       {6 * h, 0, 12 * h, false, false},
		"on the line":            {4 * h, 4 * h, 8 * h, false, false},
		"a minute behind":        {4*h + m, 4 * h, 8 * h, true, false},
		"ahead":                  {3 * h, 4 * h, 8 * h, false, false},
		"the net, just not":      {4 * h, 7 * h, 5 * h, true, false},
		"the net":                {4 * h, 7*h + m, 5*h - m, true, true},
		"past the deadline":      {h, 13 * h, -h, true, true},
		"all of it ahead of now": {h, 0, 0, true, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := Progress{Total: 6 * h, Left: test.left, Since: test.since, Rest: test.rest, Change: 30 * m}
			if p.Behind() != test.behind || p.MustStay() != test.must {
				t.Errorf("behind %v, must stay %v, want %v, %v", p.Behind(), p.MustStay(), test.behind, test.must)
			}
		})
	}
}

func pools() []Offer {
	return []Offer{
		{Pool: "eu", Market: model.MarketOnDemand, Nodes: 2, Price: 10, Boot: 6 * m, MinBilling: m, Period: time.Second, Lifetime: 24 * h, Speed: 1, CarbonPerNodeHour: 4},
		{Pool: "eu", Market: model.MarketSpot, Nodes: 2, Price: 4, Boot: 6 * m, MinBilling: m, Period: time.Second, Lifetime: 24 * h, Speed: 1, CarbonPerNodeHour: 4},
		{Pool: "us", Market: model.MarketOnDemand, Nodes: 2, Price: 8, Boot: 10 * m, Period: h, Lifetime: 24 * h, Speed: 1, Moving: 5, CarbonPerNodeHour: 0.5},
	}
}

func TestChoose(t *testing.T) {
	base := Gang{GPUs: 16, Mode: model.BurstAllow, Work: 2 * h, Total: 2 * h, Checkpoint: 30 * m, Budget: -1, Currency: "EUR"}
	tests := map[string]struct {
		set    func(*Gang, []Offer, *Policy)
		buys   string // pool and market; "" is nothing
		cost   float64
		reason string
	}{
		"no deadline, no rule": {
			func(g *Gang, o []Offer, p *Policy) {}, "", 0, "it has no deadline that nodes are bought for"},
		"through here in time": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 4*h, true, h, 3*h
			}, "", 0, "it is through here at Jan 1 03:00 UTC, in time for its deadline at Jan 1 04:00 UTC: nothing is bought"},
		// By Daly: M = 12 h, (12 h + 8 min) · (e^(1/24) − 1) · 4 = 2.06514 h; 6 min of
		// booting before make 2.16514 h, at 2 · 4 an hour.
		"late here, so spot": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 4*h, true, 3*h, 5*h
			}, "eu spot", 17.322, "here it is through at Jan 1 05:00 UTC, too late for its deadline at Jan 1 04:00 UTC; 2 nodes of pool eu spot: ready in 6m0s, through in 2h10m0s"},
		// 2 h · 1.1 + 2 · (6 + 2 min) = 2 h 28 min is more than 2 h 30 min − 10 min.
		"no time for spot": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 150*m, true, 3*h, 5*h
			}, "eu on_demand", 42, "2 × 10.00 EUR × 2h6m0s = 42.00 EUR"},
		// 6 min and 2 h · 1.1 are more than 2 h − 10 min, and so are 6 min and 2 h; with
		// a quarter of them it is 36 min, and with two changes of 8 min there is time for spot.
		"too late by what is expected": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 2*h, true, 3*h, 5*h
			}, "eu spot", 17.322, "that is in time for its deadline at Jan 1 02:00 UTC only if it runs for less than is expected, and 25 % of it are enough (burst.hope)"},
		// 30 min and two changes of 8 min are more than 55 min − 10 min.
		"too late by what is expected, and no time for spot": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 55*m, true, 3*h, 5*h
			}, "eu on_demand", 42, "25 % of it are enough (burst.hope)"},
		"too late by what is expected, and that counts": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd, p.Hope = true, 2*h, true, 3*h, 5*h, 1
			}, "", 0, "it would take 2h18m0s, and 2h6m0s even if it ran for 100 % of what is expected (burst.hope), too late for the deadline at Jan 1 02:00 UTC less 10m0s"},
		// us is cheaper, but by half past two it is through only if it runs for less.
		"in time before what may be": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 150*m, true, 3*h, 5*h
				o[2].Price, o[2].Boot = 2, 20*m
			}, "eu on_demand", 42, ""},
		"too late for anything": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 45*m, true, 3*h, 5*h
			}, "", 0, "it would take 2h18m0s, and 36m0s even if it ran for 25 % of what is expected (burst.hope), too late for the deadline at Jan 1 00:45 UTC less 10m0s"},
		"too late for anything, but it runs nowhere else": {
			func(g *Gang, o []Offer, p *Policy) { g.HasDeadline, g.Deadline, g.Mode = true, 45*m, model.BurstOnly },
			"eu on_demand", 42, "that is too late for its deadline at Jan 1 00:45 UTC, and it runs nowhere else"},
		"too late for anything, and only spot": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.Mode = true, 45*m, model.BurstOnly
				o[0].Against, o[2].Against = "quota", "quota"
			}, "eu spot", 17.322, ""},
		"its deadline is over": {
			func(g *Gang, o []Offer, p *Policy) { g.HasDeadline, g.Deadline = true, -h }, "", 0, "its deadline was at Dec 31 23:00 UTC, which no price can mend"},
		"the budget": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 4*h, true, 3*h, 5*h
				g.Budget, g.BudgetOf = 15, "its budget (caravan_budget)"
			}, "", 0, "pool eu, spot: it costs 17.32 EUR, and its budget (caravan_budget) has 15.00 EUR left"},
		"nobody knows when it starts here, and there is time": {
			func(g *Gang, o []Offer, p *Policy) { g.HasDeadline, g.Deadline = true, 8*h }, "", 0, "it is early enough to buy at"},
		"nobody knows when it starts here, and time is short": {
			func(g *Gang, o []Offer, p *Policy) { g.HasDeadline, g.Deadline = true, 160*m }, "eu spot", 17.322, "nobody knows when it starts here, and its deadline is at Jan 1 02:40 UTC"},
		"only": {
			func(g *Gang, o []Offer, p *Policy) { g.Mode = model.BurstOnly }, "eu spot", 17.322, "it runs on bought nodes only"},
		"never": {
			func(g *Gang, o []Offer, p *Policy) { g.Mode = model.BurstNever }, "", 0, "no nodes are bought for it"},
		"nobody says how long": {
			func(g *Gang, o []Offer, p *Policy) { g.Mode, g.Work = model.BurstOnly, 0 }, "", 0, "set caravan_duration"},
		"the wait, in proportion": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, p.WaitGPUs = 2*h, 8
				g.Waited = 3 * h
			}, "", 0, "it waits until nobody knows when, nodes would be ready in 6m0s, and with 16 GPUs it may wait for 4h0m0s, until Jan 1 01:00 UTC"},
		// 2 h may pass; nodes take 6 min.
		"nobody knows when, and nodes would be there just in time": {
			func(g *Gang, o []Offer, p *Policy) { p.WaitOver, g.Waited = 2*h, 114*m }, "", 0, "it may wait for 2h0m0s, until Jan 1 00:06 UTC"},
		"nobody knows when, and nodes would be there a second late": {
			func(g *Gang, o []Offer, p *Policy) { p.WaitOver, g.Waited = 2*h, 114*m+time.Second }, "eu spot", 17.322, "it waits until nobody knows when, nodes would be ready in 6m0s, more than the 2h0m0s that it may"},
		"the wait is over": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, p.WaitGPUs = 2*h, 8
				g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 3*h, true, 3*h, 5*h
			}, "eu spot", 17.322, "it will have waited for 6h0m0s, more than the 4h0m0s that it may with 16 GPUs"},
		// 17.322 / (16 GPUs · (5 h − 2.16514 h)) = 0.3819.
		"the wait is not worth it": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, p.WaitPrice = 2*h, 0.3
				g.HomeKnown, g.HomeStart, g.HomeEnd = true, 3*h, 5*h
			}, "", 0, "it costs 0.38 EUR for each GPU and hour sooner, more than 0.30 EUR"},
		"here it is sooner": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver = h
				g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 57*m, true, 5*m, 125*m
			}, "", 0, "it would take 2h10m0s, and here it is through at Jan 1 02:05 UTC"},
		"here it would be sooner, but so it was said before": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver = h
				g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 61*m, true, 5*m, 125*m
			}, "eu spot", 17.322, "it will have waited for 1h6m0s, more than the 1h0m0s that it may"},
		"here it would be sooner, and nothing is worth a wait that is not shorter": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, p.WaitPrice = h, 100
				g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 61*m, true, 5*m, 125*m
			}, "", 0, "it would take 2h10m0s, and here it is through at Jan 1 02:05 UTC"},
		// At the latest it is through in 2 h 22 min on spot nodes, and is to be in 3 h 50 min.
		"nodes were given back, and there is time": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 4*h, true, 3*h, 5*h
				o[0].Cools, o[1].Cools, o[2].Against = 20*m, 20*m, "quota"
			}, "", 0, "nodes of it were given back just now, and nothing is bought there until Jan 1 00:20 UTC for who has time until then"},
		// On nodes that stay it is 2 h 18 min, of 3 h 10 min; on spot nodes there is no time.
		"nodes were given back, and there is none": {
			func(g *Gang, o []Offer, p *Policy) {
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 200*m, true, 3*h, 5*h
				o[0].Cools, o[1].Against, o[2].Against = 53*m, "none are left", "quota"
				g.Since = 2 * h
			}, "eu on_demand", 42, ""},
		"nodes were given back, and it may wait": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 2*h, 94*m, true, 3*h, 5*h
				o[0].Cools, o[1].Cools, o[2].Against = 20*m, 20*m, "quota"
			}, "", 0, "nothing is bought there until Jan 1 00:20 UTC"},
		"nodes were given back, and it may not wait": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 2*h, 95*m, true, 3*h, 5*h
				o[0].Cools, o[1].Cools, o[2].Against = 20*m, 20*m, "quota"
			}, "eu spot", 17.322, ""},
		"nodes were given back, and nobody says how long it may wait": {
			func(g *Gang, o []Offer, p *Policy) {
				g.Mode, o[0].Cools, o[1].Cools, o[2].Cools = model.BurstOnly, m, m, m
			}, "", 0, "nothing is bought there until Jan 1 00:01 UTC"},
		// An hour is over, and 2 h it may wait: nodes that others have are there in time
		// after 30 minutes, but not after 90, when others can be had after 6.
		"others' nodes, in time": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 2*h, h, true, 6*h, 8*h
				o[2].Shares, o[2].Boot, o[2].Price = "p1", 30*m, 1
			}, "", 0, "it waits for the nodes of purchase p1, which it can have in 30m0s"},
		"others' nodes, too late": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 2*h, h, true, 6*h, 8*h
				o[2].Shares, o[2].Boot, o[2].Price = "p1", 90*m, 1
			}, "eu spot", 17.322, "it will have waited for 7h0m0s"},
		// They are through in 3 minutes, as it is estimated, and a minute is left to wait.
		"others' nodes, soon but not surely": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 2*h, 119*m, true, 6*h, 8*h
				o[2].Shares, o[2].Boot, o[2].Price, o[2].After = "p1", 3*m, 1, true
			}, "eu spot", 17.322, "it will have waited for 7h59m0s"},
		"others' nodes, not surely but in time": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 2*h, 117*m, true, 6*h, 8*h
				o[2].Shares, o[2].Boot, o[2].Price, o[2].After = "p1", 3*m, 1, true
			}, "", 0, "it waits for the nodes of purchase p1, which it can have in 3m0s"},
		"others' nodes, late, and there are none else": {
			func(g *Gang, o []Offer, p *Policy) {
				p.WaitOver, g.Waited, g.HomeKnown, g.HomeStart, g.HomeEnd = 2*h, h, true, 6*h, 8*h
				o[2].Shares, o[2].Boot, o[2].Price, o[0].Against, o[1].Against = "p1", 90*m, 1, "quota", "quota"
			}, "", 0, "it waits for the nodes of purchase p1, which it can have in 1h30m0s"},
		// us costs 2 · 8 · 3 h + 5 = 53 against 42, but emits 3 kg less a node and hour.
		"carbon": {
			func(g *Gang, o []Offer, p *Policy) {
				p.CarbonPrice = 2
				o[1].Against = "none are left"
				g.Mode = model.BurstOnly
			}, "us on_demand", 53, "2 × 8.00 EUR × 3h0m0s = 48.00 EUR, and 5.00 EUR for data that is moved"},
		"spot is away, and it is not behind": {
			func(g *Gang, o []Offer, p *Policy) {
				o[1].Against = "none are left"
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd = true, 8*h, true, 9*h, 11*h
			}, "", 0, "spot nodes may come back, and it is not behind"},
		"spot is away, and it is behind": {
			func(g *Gang, o []Offer, p *Policy) {
				o[1].Against = "none are left"
				g.HasDeadline, g.Deadline, g.HomeKnown, g.HomeStart, g.HomeEnd, g.Since = true, 8*h, true, 9*h, 11*h, h
			}, "eu on_demand", 42, ""},
		"a failed pool": {
			func(g *Gang, o []Offer, p *Policy) {
				g.Mode = model.BurstOnly
				o[0].Against, o[1].Against = "quota", "quota"
			}, "us on_demand", 53, ""},
		"no checkpoints on nodes that live for minutes": {
			func(g *Gang, o []Offer, p *Policy) {
				g.Mode, g.Checkpoint, o[1].Lifetime = model.BurstOnly, 0, time.Minute
			}, "eu on_demand", 42, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g, o, p := base, pools(), Policy{}
			test.set(&g, o, &p)
			c := Choose(g, o, p)
			got, cost := "", 0.0
			if c.Buy {
				got, cost = c.Offers[0].Pool+" "+c.Offers[0].Market, c.Offers[0].Cost
			}
			if got != test.buys || math.Abs(cost-test.cost) > 0.01 {
				t.Errorf("buys %q for %.3f, want %q for %.3f: %s", got, cost, test.buys, test.cost, c.Why)
			}
			if !strings.Contains(c.Why, test.reason) {
				t.Errorf("why = %q\nwant %q", c.Why, test.reason)
			}
		})
	}
}

// Whatever the numbers: what is bought is affordable, and in time where time counts.
func TestChooseKeepsItsWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minutes := func(label string, low, high int) time.Duration {
			return time.Duration(rapid.IntRange(low, high).Draw(t, label)) * m
		}
		g := Gang{
			GPUs: rapid.IntRange(1, 64).Draw(t, "gpus"), Mode: rapid.SampledFrom([]string{model.BurstAllow, model.BurstNever, model.BurstOnly}).Draw(t, "mode"),
			Work: minutes("work", 0, 6000), Checkpoint: minutes("checkpoint", 0, 120), Waited: minutes("waited", 0, 600), HomeKnown: rapid.Bool().Draw(t, "known"),
			HomeStart: minutes("start", 0, 3000), HasDeadline: rapid.Bool().Draw(t, "has deadline"), Deadline: minutes("deadline", -600, 6000),
			Budget: float64(rapid.IntRange(-1, 2000).Draw(t, "budget")), BudgetOf: "b",
		}
		g.Total, g.Since, g.HomeEnd = g.Work, g.Waited, g.HomeStart+g.Work
		p := Policy{Hope: rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "hope"), WaitOver: minutes("over", 0, 600), WaitPrice: float64(rapid.IntRange(0, 5).Draw(t, "wait price"))}
		offers := pools()
		for i := range offers {
			offers[i].Cools = minutes("cools", 0, 60)
		}
		c := Choose(g, offers, p)
		if c.Why == "" {
			t.Fatal("no reason")
		}
		if !c.Buy {
			return
		}
		best := c.Offers[0]
		switch full := p.WithDefaults(); {
		case g.Mode == model.BurstNever || g.Work == 0:
			t.Fatalf("bought for nobody: %s", c.Why)
		case g.Budget >= 0 && best.Cost > g.Budget:
			t.Fatalf("costs %g of %g", best.Cost, g.Budget)
		case g.HasDeadline && g.Deadline > 0 && best.Market == model.MarketOnDemand && g.Mode != model.BurstOnly && best.Start+time.Duration(full.Hope*float64(best.End-best.Start)) > g.Deadline-full.Margin+time.Second:
			t.Fatalf("through in %s, deadline in %s", best.End, g.Deadline)
		case best.Hoped && slices.ContainsFunc(c.Offers, func(v Valued) bool { return !v.Hoped && v.Against == "" }):
			t.Fatalf("what may be in time before what is: %+v", c.Offers)
		case best.Cools > 0 && g.HasDeadline && g.Deadline > 0 && best.Cools+best.Late <= g.Deadline-full.Margin:
			t.Fatalf("bought where nodes were given back, though in %s it is early enough: through in %s then, deadline in %s", best.Cools, best.Late, g.Deadline)
		case best.Cools > 0 && (!g.HasDeadline || g.Deadline <= 0) && (g.Mode == model.BurstOnly || g.Waited+best.Cools+best.Start <= p.WaitOver):
			t.Fatalf("bought where nodes were given back for who has waited for %s and may for %s", g.Waited, p.WaitOver)
		case g.HasDeadline && g.Deadline > 0 && g.HomeKnown && g.Mode == model.BurstAllow && g.HomeEnd+full.Margin <= g.Deadline:
			t.Fatalf("here it would be in time: %s", c.Why)
		}
	})
}

func TestPolicyValidate(t *testing.T) {
	if err := (Policy{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	bad := Policy{Default: "only", WaitOver: -1, Safety: 0.5, Hope: 1.5, MaxNodes: -1, WaitPrice: math.NaN(), CarbonPrice: math.Inf(1)}
	err := bad.Validate()
	if err == nil || strings.Count(err.Error(), "\n") != 6 {
		t.Errorf("want seven faults: %v", err)
	}
}
