package strategy

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/sdk"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

func purchase(id string, state burstapi.State, price float64, names ...string) burstapi.Purchase {
	return burstapi.Purchase{ID: id, Gang: "default/" + id, Nodes: len(names), Names: names, Market: burstapi.Spot, PricePerNodeHour: price, State: state, Why: "due in 1h, here in 3h"}
}

func giving(names ...string) (out []burstapi.GiveBack) {
	for _, n := range names {
		out = append(out, burstapi.GiveBack{Name: n, Why: "idle at the end of its hour"})
	}
	return out
}

func TestFollow(t *testing.T) {
	one := purchase("one", burstapi.Wanted, 10, "a", "b")
	two := purchase("two", burstapi.Wanted, 5, "c", "d", "e")
	there := purchase("there", burstapi.Present, 10, "x", "y")
	tests := map[string]struct {
		pool      burstapi.Pool
		count     int
		limits    limits
		down      bool
		direction sdk.ScaleDirection
		want      int
		buy       []string
		reason    string
	}{
		"nothing is wanted": {burstapi.Pool{Why: "nobody needs nodes"}, 0, limits{}, false, sdk.ScaleDirectionNone, 0, nil, "nobody needs nodes"},
		"from nothing": {burstapi.Pool{Purchases: []burstapi.Purchase{one}, Currency: "EUR"}, 0, limits{}, false, sdk.ScaleDirectionUp, 2, []string{"one"},
			"buy 2 nodes (spot, 10.00 EUR an hour each, about 0.00 in all) for default/one: due in 1h, here in 3h"},
		"two at once": {burstapi.Pool{Purchases: []burstapi.Purchase{one, two}}, 0, limits{}, false, sdk.ScaleDirectionUp, 5, []string{"one", "two"}, ""},
		"a step for one": {burstapi.Pool{Purchases: []burstapi.Purchase{one, two}}, 0, limits{step: 4}, false, sdk.ScaleDirectionUp, 2, []string{"one"},
			"purchase two for default/two waits for the next evaluation"},
		"a step for none": {burstapi.Pool{Purchases: []burstapi.Purchase{two}}, 0, limits{step: 2}, false, sdk.ScaleDirectionNone, 0, nil,
			"needs 3 nodes at once, and max_scale_up is 2: raise it"},
		"too dear": {burstapi.Pool{Currency: "EUR", Purchases: []burstapi.Purchase{there, one, two}}, 2, limits{price: 36}, false, sdk.ScaleDirectionUp, 5, []string{"two"},
			"the pool would cost 40.00 EUR an hour, and max_price_per_hour is 36.00"},
		"they are coming": {burstapi.Pool{Purchases: []burstapi.Purchase{purchase("p", burstapi.Coming, 1, "a", "b")}, Why: "for p"}, 1, limits{}, false,
			sdk.ScaleDirectionUp, 2, nil, "2 nodes are wanted and 1 are ready: for p"},
		"all there":                 {burstapi.Pool{Purchases: []burstapi.Purchase{there}}, 2, limits{}, false, sdk.ScaleDirectionNone, 2, nil, ""},
		"one is to go":              {burstapi.Pool{Purchases: []burstapi.Purchase{there}, GiveBack: giving("x")}, 2, limits{}, false, sdk.ScaleDirectionDown, 1, nil, "give back x: idle"},
		"all are to go":             {burstapi.Pool{Purchases: []burstapi.Purchase{{ID: "there", State: burstapi.GivingBack, Names: []string{"x", "y"}}}, GiveBack: giving("x", "y")}, 2, limits{}, false, sdk.ScaleDirectionDown, 0, nil, ""},
		"a failed one":              {burstapi.Pool{Purchases: []burstapi.Purchase{{ID: "f", State: burstapi.Failed, Names: []string{"x"}}}}, 1, limits{}, false, sdk.ScaleDirectionDown, 0, nil, ""},
		"nobody's nodes":            {burstapi.Pool{Why: "nobody needs nodes"}, 3, limits{}, false, sdk.ScaleDirectionDown, 0, nil, "3 nodes are ready and 0 are wanted: nobody needs nodes"},
		"as many come as go":        {burstapi.Pool{Purchases: []burstapi.Purchase{one}, GiveBack: giving("x", "y")}, 2, limits{}, false, sdk.ScaleDirectionUp, 4, []string{"one"}, ""},
		"and there was no room":     {burstapi.Pool{Purchases: []burstapi.Purchase{one}, GiveBack: giving("x", "y")}, 2, limits{}, true, sdk.ScaleDirectionDown, 0, []string{"one"}, ""},
		"what goes is paid as well": {burstapi.Pool{PricePerNodeHour: 10, Purchases: []burstapi.Purchase{one}, GiveBack: giving("x", "y")}, 2, limits{price: 39}, false, sdk.ScaleDirectionDown, 0, nil, "max_price_per_hour"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := follow(test.pool, test.count, test.limits, test.down)
			var buy []string
			for _, b := range v.buy {
				buy = append(buy, b.ID)
			}
			if v.direction != test.direction || v.count != test.want || !slices.Equal(buy, test.buy) {
				t.Errorf("direction %s, count %d, buy %v; want %s, %d, %v", v.direction, v.count, buy, test.direction, test.want, test.buy)
			}
			if !strings.Contains(v.reason, test.reason) {
				t.Errorf("reason %q, want %q", v.reason, test.reason)
			}
		})
	}
}

// Whatever the planner says, purchases are made whole, within the limits, and a
// count that is asked for differs from the present one.
func TestFollowKeepsToItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		states := []burstapi.State{burstapi.Wanted, burstapi.Coming, burstapi.Present, burstapi.GivingBack, burstapi.Failed}
		var pool burstapi.Pool
		node := 0
		for range rapid.IntRange(0, 5).Draw(t, "purchases") {
			b := purchase("p", rapid.SampledFrom(states).Draw(t, "state"), rapid.Float64Range(0.1, 50).Draw(t, "price"))
			for range rapid.IntRange(1, 4).Draw(t, "nodes") {
				node++
				b.Names = append(b.Names, strings.Repeat("n", node))
				if b.State != burstapi.Wanted && rapid.Bool().Draw(t, "leaves") {
					pool.GiveBack = append(pool.GiveBack, giving(b.Names[len(b.Names)-1])...)
				}
			}
			pool.Purchases = append(pool.Purchases, b)
		}
		count := rapid.IntRange(0, 12).Draw(t, "count")
		l := limits{step: rapid.IntRange(0, 6).Draw(t, "step"), price: rapid.Float64Range(0, 200).Draw(t, "limit")}
		v := follow(pool, count, l, rapid.Bool().Draw(t, "down"))
		fresh := 0
		for _, b := range v.buy {
			fresh += len(b.Names)
		}
		if l.step > 0 && fresh > l.step {
			t.Errorf("%d nodes are bought, and the step is %d", fresh, l.step)
		}
		if v.count < 0 || (v.direction == sdk.ScaleDirectionNone) != (v.count == count) {
			t.Errorf("direction %s with a count of %d where %d are", v.direction, v.count, count)
		}
		if v.direction == sdk.ScaleDirectionUp && v.count < fresh {
			t.Errorf("a count of %d has no room for the %d nodes that are bought", v.count, fresh)
		}
	})
}

type planner struct {
	answer burstapi.Answer
	err    error
}

func (p *planner) Burst(context.Context) (burstapi.Answer, error) { return p.answer, p.err }

func evaluation(config map[string]string) *sdk.ScalingCheckEvaluation {
	return &sdk.ScalingCheckEvaluation{Check: &sdk.ScalingPolicyCheck{Strategy: &sdk.ScalingPolicyStrategy{Config: config}}, Action: &sdk.ScalingAction{}}
}

func TestRun(t *testing.T) {
	p := &planner{answer: burstapi.Answer{Leader: true, Index: 7, Now: time.Unix(0, 0), Pools: []burstapi.Pool{{Name: "eu", Purchases: []burstapi.Purchase{purchase("one", burstapi.Wanted, 10, "a", "b")}}}}}
	plugin := New(hclog.NewNullLogger())
	if _, err := plugin.Run(evaluation(map[string]string{KeyPool: "eu"}), 0); err == nil {
		t.Error("a plugin that is not configured runs")
	}
	plugin.planner = p
	got, err := plugin.Run(evaluation(map[string]string{KeyPool: "eu"}), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := &sdk.ScalingAction{Count: 2, Direction: sdk.ScaleDirectionUp, Meta: map[string]any{MetaPool: "eu", MetaIndex: "7", MetaPurchases: "one"},
		Reason: "buy 2 nodes (spot, 10.00  an hour each, about 0.00 in all) for default/one: due in 1h, here in 3h"}
	if diff := cmp.Diff(want, got.Action); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A policy's max may leave no room for what comes beside what goes: the two are then
// asked for by turns, so that neither waits for ever.
func TestRunAsksByTurnsWhereAsManyComeAsGo(t *testing.T) {
	pool := burstapi.Pool{Name: "eu", Purchases: []burstapi.Purchase{purchase("one", burstapi.Wanted, 10, "a", "b")}, GiveBack: giving("x", "y")}
	plugin := New(hclog.NewNullLogger())
	plugin.planner = &planner{answer: burstapi.Answer{Leader: true, Pools: []burstapi.Pool{pool}}}
	var got []int64
	for range 4 {
		out, err := plugin.Run(evaluation(map[string]string{KeyPool: "eu"}), 2)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, out.Action.Count)
	}
	if want := []int64{4, 0, 4, 0}; !slices.Equal(got, want) {
		t.Errorf("counts = %v, want %v", got, want)
	}
}

func TestRunHolds(t *testing.T) {
	fine := burstapi.Answer{Leader: true, Pools: []burstapi.Pool{{Name: "eu"}, {Name: "us"}}}
	tests := map[string]struct {
		planner planner
		config  map[string]string
		count   int64
		want    []string
	}{
		"planner away":     {planner{err: errors.New("connection refused")}, map[string]string{KeyPool: "eu"}, 3, []string{"hold pool eu at 3 nodes", "connection refused"}},
		"planner not sure": {planner{answer: burstapi.Answer{Why: "Nomad has no leader"}}, map[string]string{KeyPool: "eu"}, 3, []string{"hold pool eu at 3 nodes", "Nomad has no leader"}},
		"no such pool":     {planner{answer: fine}, map[string]string{KeyPool: "moon"}, 0, []string{`pool is "moon": want one of the planner's pools: eu, us`}},
		"a count below 0":  {planner{answer: fine}, map[string]string{KeyPool: "eu"}, -1, []string{"want 0 or more"}},
		"every fault": {planner{answer: fine}, map[string]string{KeyMaxScaleUp: "0", KeyMaxPrice: "NaN", "max_scale": "3"}, 0,
			[]string{`pool is ""`, `max_scale_up is "0"`, `max_price_per_hour is "NaN"`, `max_scale is "3": want one of pool, max_scale_up, max_price_per_hour`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			plugin := New(hclog.NewNullLogger())
			plugin.planner = &test.planner
			_, err := plugin.Run(evaluation(test.config), test.count)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q", err, want)
				}
			}
		})
	}
}
