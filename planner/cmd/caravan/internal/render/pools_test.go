package render

import (
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestPools(t *testing.T) {
	tests := map[string]struct {
		answer burstapi.Answer
		want   []string
	}{
		"none":         {burstapi.Answer{Leader: true}, []string{"No pools."}},
		"not used":     {burstapi.Answer{Why: "no pool is configured"}, []string{"No pools are shown: no pool is configured."}},
		"of a standby": {burstapi.Answer{Why: "this planner does not lead", Pools: []burstapi.Pool{{Name: "eu"}}}, []string{"Nobody is to act on this: this planner does not lead.", "eu"}},
		"in doubt": {burstapi.Answer{Leader: true, Pools: []burstapi.Pool{{Name: "eu", InDoubt: []burstapi.Doubt{{Name: "eu-1-0", Purchase: "eu-1", Why: "an apply was cut short"}}}}},
			[]string{"IN DOUBT", "eu-1-0", "an apply was cut short"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := Pools(&b, Style{}, test.answer); err != nil {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("wrote %q, want %q", b.String(), want)
				}
			}
		})
	}
}

func TestBurstOffers(t *testing.T) {
	var b strings.Builder
	if err := burst(&b, &model.BurstChoice{Currency: "EUR", Offers: []model.BurstOffer{{Pool: "eu", Market: "spot", Nodes: 2, Cost: 17.322}, {Shares: "eu-1", Nodes: 2, Against: "too late"}}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"eu spot", "17.32 EUR", "purchase eu-1", "too late"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("wrote %q, want %q", b.String(), want)
		}
	}
	b.Reset()
	if err := burst(&b, nil); err != nil || b.Len() > 0 {
		t.Errorf("wrote %q of nothing", b.String())
	}
}

// A pool's row has the price of what was bought, and without that the one on demand.
func TestNodePrice(t *testing.T) {
	bought := func(price float64, state burstapi.State) burstapi.Purchase {
		return burstapi.Purchase{Nodes: 1, PricePerNodeHour: price, State: state}
	}
	tests := map[string]struct {
		purchases []burstapi.Purchase
		want      string
	}{
		"nothing":   {nil, "8.00 EUR"},
		"spot":      {[]burstapi.Purchase{bought(3, burstapi.Coming)}, "3.00 EUR"},
		"both":      {[]burstapi.Purchase{bought(8, burstapi.Present), bought(3, burstapi.Wanted)}, "3.00 to 8.00 EUR"},
		"it failed": {[]burstapi.Purchase{bought(3, burstapi.Failed)}, "8.00 EUR"},
	}
	for name, test := range tests {
		if got := nodePrice(&burstapi.Pool{PricePerNodeHour: 8, Currency: "EUR", Purchases: test.purchases}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestForgotten(t *testing.T) {
	tests := map[string]struct {
		f    burstapi.Forgotten
		want string
	}{
		"with nodes": {burstapi.Forgotten{Purchase: "p", Pool: "eu", Gang: "default/m", State: burstapi.Present, Names: []string{"p-0", "p-1"}, Cost: 42.5, Currency: "EUR", Nodes: []string{"id-0"}},
			"Purchase p of pool eu for default/m, present, is forgotten: its nodes p-0, p-1 count as gone. It has cost 42.50 EUR. Nomad has nodes of it, which are given back when they do nothing: id-0.\n"},
		"never made": {burstapi.Forgotten{Purchase: "p", Pool: "eu", Gang: "default/m", State: burstapi.Failed},
			"Purchase p of pool eu for default/m, failed, is forgotten: all of its nodes were gone. It has cost nothing.\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := Forgotten(&b, test.f); err != nil || b.String() != test.want {
				t.Errorf("wrote %q (%v), want %q", b.String(), err, test.want)
			}
		})
	}
}
