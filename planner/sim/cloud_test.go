package sim

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

func pools(quota int, spot float64) model.Burst {
	n := model.Node{Datacenter: "dc1", Pool: "default", Capacity: model.Resources{CPUMHz: 1 << 20, MemoryMiB: 1 << 21, DiskMiB: 1 << 24}}
	for i := range 4 {
		n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint(i), Vendor: "nvidia", Type: "gpu", Model: "H100", NUMA: -1})
	}
	n.ID = "eu"
	return model.Burst{Currency: "EUR", Pools: []model.BuyPool{{
		Name: "eu", Node: n, Quota: quota, OnDemand: 10, Spot: spot, SpotLifetime: 3 * time.Hour, Boot: 6 * time.Minute, Join: 15 * time.Minute, MinBilling: time.Minute, Period: time.Second,
	}}}
}

func bought(t testing.TB, b model.Burst, policy core.Policy, jobs []trace.Job, seed uint64) (*Outcome, []Event) {
	t.Helper()
	c, err := Regular(4, 4)
	if err != nil {
		t.Fatal(err)
	}
	c = c.WithPools(b)
	p, err := NewPlanner(c, policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	estimates := make([]float64, len(jobs))
	for i := range jobs {
		estimates[i] = jobs[i].Duration
	}
	out, err := Run(t.Context(), Setup{Cluster: c, Jobs: jobs, Estimates: estimates, Scheduler: p, Interval: 10, Checkpoints: DefaultCheckpoints, Seed: seed, Log: func(e Event) { events = append(events, e) }})
	if err != nil {
		t.Fatal(err)
	}
	return out, events
}

const hour = 3600

// What is bought is used as soon as it is there, however shortly before it was decided: m's
// nodes are ordered at 60 s and boot for 6 minutes, and s comes 5 s before they are ready.
func TestBootedNodesAreDecidedOnAtOnce(t *testing.T) {
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: 10 * hour, GPUs: 4},
		{ID: "m", Submit: 60, Duration: 2 * hour, GPUs: 8, Deadline: 5 * hour},
		{ID: "s", Submit: 415, Duration: hour, GPUs: 1},
	}
	policy := core.Policy{Order: "fifo", Burst: burst.Policy{Default: model.BurstAllow, Ahead: 5 * time.Hour}}
	_, events := bought(t, pools(2, 0), policy, jobs, 1)
	for _, e := range events {
		if e.Event == EventStart && e.Job == "m" && e.At != 60+6*60 {
			t.Errorf("m starts at %g s, want 420", e.At)
		}
	}
}

// a keeps the cluster for ten hours; m needs two nodes for two hours and is due in
// five. Its nodes boot for 6 minutes, and are given back five minutes after it has
// ended, at 10 an hour: 2 · 10 · (6 + 120 + 5 and a bit) min is 43.7 to 44.4.
func TestSimulatedPurchase(t *testing.T) {
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: 10 * hour, GPUs: 4},
		{ID: "m", Submit: 60, Duration: 2 * hour, GPUs: 8, Deadline: 5 * hour},
	}
	policy := core.Policy{Order: "fifo", Burst: burst.Policy{Default: model.BurstAllow, Ahead: 5 * time.Hour}}
	out, _ := bought(t, pools(2, 0), policy, jobs, 1)
	m := out.Metrics()
	if m.Deadlines != 1 || m.DeadlinesMet != 1 || m.Bought < 43.6 || m.Bought > 44.6 {
		t.Errorf("deadlines %d, met %g, bought for %g; want 1, 1, 43.6 to 44.6", m.Deadlines, m.DeadlinesMet, m.Bought)
	}
	if got := out.jobs[1].booting; got != 6*60 {
		t.Errorf("m waits %g s for nodes to boot: want 360", got)
	}
	if got := out.jobs[1].first; got < 60+6*60 || got > 60+8*60 {
		t.Errorf("m starts after %g s, want as soon as its nodes have booted", got)
	}
	// With a quota of one node it cannot be had, and waits for ever.
	c, err := Regular(4, 4)
	if err != nil {
		t.Fatal(err)
	}
	c = c.WithPools(pools(2, 0))
	if _, err := Run(t.Context(), Setup{Cluster: c, Jobs: jobs, Scheduler: NewKube(c, nil, nil)}); !errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), "only the planner's own policies buy nodes") {
		t.Errorf("error = %v", err)
	}
}

// Spot nodes are taken away: the same seeds cost less than on demand, and the
// deadline holds all the same.
func TestSimulatedSpot(t *testing.T) {
	jobs := []trace.Job{{ID: "a", Submit: 0, Duration: 60 * hour, GPUs: 4}}
	for i := range 6 {
		at := float64(60 + i*6*hour)
		jobs = append(jobs, trace.Job{ID: fmt.Sprintf("m%d", i), Submit: at, Duration: 2 * hour, GPUs: 4, Deadline: at + 12*hour})
	}
	policy := core.Policy{Order: "fifo", Burst: burst.Policy{Default: model.BurstAllow, Ahead: 12 * time.Hour}}
	taken := 0
	for seed := range uint64(3) {
		dear, _ := bought(t, pools(2, 0), policy, jobs, seed)
		cheap, events := bought(t, pools(2, 3), policy, jobs, seed)
		a, b := dear.Metrics(), cheap.Metrics()
		if a.DeadlinesMet != 1 || b.DeadlinesMet != 1 || b.Bought >= a.Bought || b.Bought <= 0 {
			t.Errorf("seed %d: on demand %g (%g met), spot %g (%g met)", seed, a.Bought, a.DeadlinesMet, b.Bought, b.DeadlinesMet)
		}
		for _, e := range events {
			if e.Event == EventFail {
				taken++
			}
		}
	}
	if taken == 0 {
		t.Error("no spot node was ever taken away from a job")
	}
}

// Whatever is submitted: all jobs are done, and never is more there than the quota,
// which the engine refuses.
func TestSimulatedPurchasesHoldTogether(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var jobs []trace.Job
		at := 0.0
		for i := range rapid.IntRange(1, 12).Draw(rt, "jobs") {
			at += float64(rapid.IntRange(0, 3).Draw(rt, "after") * hour / 2)
			j := trace.Job{ID: fmt.Sprint("j", i), Submit: at, Duration: float64(rapid.IntRange(60, 4*hour).Draw(rt, "runs")), GPUs: rapid.IntRange(1, 4).Draw(rt, "gpus")}
			if rapid.Bool().Draw(rt, "due") {
				j.Deadline = at + float64(rapid.IntRange(600, 12*hour).Draw(rt, "deadline"))
			}
			jobs = append(jobs, j)
		}
		policy := core.Policy{Order: rapid.SampledFrom([]string{"fifo", "caravan", "backfill"}).Draw(rt, "order")}
		policy.Burst = burst.Policy{Default: model.BurstAllow, WaitOver: time.Duration(rapid.IntRange(0, 3).Draw(rt, "wait")) * time.Hour}
		b := pools(rapid.IntRange(1, 3).Draw(rt, "quota"), float64(rapid.IntRange(0, 4).Draw(rt, "spot")))
		if rapid.Bool().Draw(rt, "by the hour") {
			b.Pools[0].Period = time.Hour
		}
		out, _ := bought(t, b, policy, jobs, uint64(rapid.IntRange(0, 3).Draw(rt, "seed")))
		m := out.Metrics()
		if m.Unfinished > 0 || m.Bought < 0 || math.IsNaN(m.Bought) {
			rt.Fatalf("%d unfinished, bought for %g", m.Unfinished, m.Bought)
		}
	})
}

// A job that fits on bought nodes only, which a budget forbids: the others are done,
// and it is counted as unfinished, with the reason.
func TestSimulatedBudgetForbids(t *testing.T) {
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: hour, GPUs: 4},
		{ID: "m", Submit: 60, Duration: 2 * hour, GPUs: 8, Deadline: 9 * hour},
		{ID: "b", Submit: 120, Duration: hour, GPUs: 4},
	}
	policy := core.Policy{Order: "fifo", Burst: burst.Policy{Default: model.BurstAllow, WaitOver: time.Hour, MaxPricePerHour: 15}}
	out, _ := bought(t, pools(2, 0), policy, jobs, 1)
	m, left := out.Metrics(), out.Unfinished()
	if m.Unfinished != 1 || len(left) != 1 || left[0].Job != "m" || !strings.Contains(left[0].Why, "at most 15.00 EUR may be spent (burst.max_price_per_hour)") {
		t.Errorf("unfinished are %d, %+v; want m, with the budget", m.Unfinished, left)
	}
	if len(out.Done()) != 2 || m.MakespanS > 3*hour || m.JCTMean < 0 || m.Deadlines != 1 || m.DeadlinesMet != 0 {
		t.Errorf("%d done in %g s, mean %g s, %d deadlines, %g met", len(out.Done()), m.MakespanS, m.JCTMean, m.Deadlines, m.DeadlinesMet)
	}
}
