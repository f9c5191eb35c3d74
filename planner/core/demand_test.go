package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/google/go-cmp/cmp"
)

// buyPool is a pool of nodes with four GPUs, for 8 an hour, or 3 as spot nodes.
func buyPool(name string, quota int) model.BuyPool {
	n := model.Node{ID: name, Levels: map[string]string{}, Capacity: model.Resources{CPUMHz: 8000, MemoryMiB: 8000}}
	for i := range 4 {
		n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint(i), Vendor: "nvidia", Type: "gpu", Model: "H100", NUMA: -1})
	}
	return model.BuyPool{
		Name: name, Node: n, Near: "block", Quota: quota, OnDemand: 8, Spot: 3, SpotLifetime: 24 * time.Hour,
		Boot: 6 * time.Minute, Join: 15 * time.Minute, MinBilling: time.Minute, Period: time.Second,
	}
}

// arrive adds nodes of a purchase to a snapshot, as if they were ready.
func arrive(s *model.Snapshot, p *model.Purchase, names ...string) {
	pool := s.Burst.Pools[slices.IndexFunc(s.Burst.Pools, func(o model.BuyPool) bool { return o.Name == p.Pool })]
	for _, name := range names {
		n := boughtLike(&pool, 0)
		n.ID, n.Name = "id-"+name, name
		n.Levels = map[string]string{"block": p.ID}
		n.Bought = &model.Bought{Pool: p.Pool, Name: name, Purchase: p.ID, Market: p.Market}
		for k := range n.GPUs {
			n.GPUs[k].UUID = fmt.Sprintf("%s.%d", n.ID, k)
		}
		s.Nodes = append(s.Nodes, n)
	}
}

// record takes a plan over into the snapshot, as a planner does.
func record(s *model.Snapshot, plan *model.Plan) {
	d := plan.Demand
	if d == nil {
		return
	}
	for _, u := range d.Uses {
		for i := range s.Burst.Bought {
			p := &s.Burst.Bought[i]
			if p.ID != u.ID {
				continue
			}
			p.State, p.For, p.With = u.State, u.For, u.With
			if u.Started && p.Started.IsZero() {
				p.Started = s.Now
			}
			switch {
			case u.Busy:
				p.Idle = time.Time{}
			case p.Idle.IsZero():
				p.Idle = s.Now
			}
		}
	}
	for _, g := range d.GiveBack {
		for i := range s.Burst.Bought {
			if p := &s.Burst.Bought[i]; p.ID == g.Purchase && slices.Contains(p.Names, g.Name) && !slices.Contains(p.Leaving, g.Name) {
				p.Leaving = append(p.Leaving, g.Name)
				p.Until = later(g.By, s.Now.Add(burst.DefaultCoolDown))
			}
		}
	}
	for _, p := range d.Buy {
		p.Billed = s.Now
		s.Burst.Bought = append(s.Burst.Bought, p)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func plan(t testing.TB, s *model.Snapshot, p Policy) *model.Plan {
	t.Helper()
	out, err := Decide(s, p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func bursts(s *model.Snapshot, id string, set func(*model.Job)) {
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.ID == id {
			j.Burst = model.BurstAllow
			if set != nil {
				set(j)
			}
		}
	}
}

func TestBuys(t *testing.T) {
	const full = "b1 r1 n1 aaaa\nb1 r1 n2 aaaa"
	due := func(in time.Duration) func(*model.Job) {
		return func(j *model.Job) { j.Deadline, j.Checkpoint = testNow.Add(in), 30*time.Minute }
	}
	tests := map[string]struct {
		cluster, jobs string
		set           func(*model.Snapshot, *Policy)
		// want are the purchases: the job, nodes, pool and market of each.
		want []string
		// reason is in that of the last decision.
		reason string
	}{
		"for a deadline, all nodes of the gang": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) {
				bursts(s, "m", due(4*time.Hour))
				s.Jobs[0].Duration = 9 * time.Hour
			},
			[]string{"m 2 eu spot"}, "nodes are bought for it: here it is through at"},
		"nothing, where it is through in time": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) { bursts(s, "m", due(4*time.Hour)); s.Jobs[0].Duration = time.Hour },
			nil, "in time for its deadline at Jan 2 07:04 UTC: nothing is bought"},
		"nothing for who does not ask": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) {
				s.Jobs[0].Duration = 9 * time.Hour
				s.Jobs[1].Deadline = testNow.Add(4 * time.Hour)
			},
			nil, "needs 2 members"},
		"for a queue that does": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) {
				s.Jobs[0].Duration = 9 * time.Hour
				s.Jobs[1].Deadline, s.Jobs[1].Queue, s.Jobs[1].Checkpoint = testNow.Add(4*time.Hour), "org/team", time.Hour
				s.Queues = []model.Queue{{Path: "org", Burst: model.BurstAllow}, {Path: "org/team"}}
			}, []string{"m 2 eu spot"}, ""},
		"nothing beyond the queue's budget": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) {
				s.Jobs[0].Duration = 9 * time.Hour
				bursts(s, "m", due(4*time.Hour))
				s.Jobs[1].Queue = "org/team"
				s.Queues = []model.Queue{{Path: "org", Budget: 100}, {Path: "org/team"}}
				s.Burst.Spent = []model.Spent{{Queue: "org/other", Amount: 90}}
			}, nil, "and the budget of queue org has 10.00 EUR left"},
		"nothing beyond the quota": {
			full, "m 5x4 runs:2h", func(s *model.Snapshot, _ *Policy) { bursts(s, "m", due(4*time.Hour)) },
			nil, "no pool has nodes that it would fit on: pool eu: it needs 5 nodes at least, and the quota is 4"},
		"what cannot be here at all": {
			full, "m 4x4 runs:2h", func(s *model.Snapshot, _ *Policy) { bursts(s, "m", due(150*time.Minute)) },
			[]string{"m 4 eu on_demand"}, "nobody knows when it starts here"},
		"two gangs that fit on one node together": {
			full, "m 1x2 runs:2h\nn 1x2 runs:2h", func(s *model.Snapshot, _ *Policy) {
				s.Jobs[0].Duration = 9 * time.Hour
				bursts(s, "m", due(4*time.Hour))
				bursts(s, "n", due(4*time.Hour))
			}, []string{"m 1 eu spot"}, "it waits for the nodes of purchase eu-"},
		"two gangs, one after the other": {
			full, "m 1x4 runs:1h\nn 1x4 runs:1h", func(s *model.Snapshot, _ *Policy) {
				s.Jobs[0].Duration = 9 * time.Hour
				bursts(s, "m", due(4*time.Hour))
				bursts(s, "n", due(4*time.Hour))
			}, []string{"m 1 eu spot"}, "it waits for the nodes of purchase eu-"},
		"two gangs that cannot share": {
			full, "m 2x4 runs:2h\nn 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) {
				s.Jobs[0].Duration = 9 * time.Hour
				bursts(s, "m", due(4*time.Hour))
				bursts(s, "n", due(4*time.Hour))
			}, []string{"m 2 eu spot", "n 2 eu spot"}, ""},
		"a snapshot that is stale": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) {
				bursts(s, "m", due(4*time.Hour))
				s.Jobs[0].Duration = 9 * time.Hour
				s.Burst.Hold = "Nomad does not answer"
			}, nil, "but nothing is bought: Nomad does not answer"},
		"the next pool": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) {
				bursts(s, "m", due(4*time.Hour))
				s.Jobs[0].Duration = 9 * time.Hour
				us := buyPool("us", 2)
				us.Spot = 0
				s.Burst.Pools = append(s.Burst.Pools, us)
				s.Jobs[1].Submitted = testNow
				s.Burst.Blocked = []model.BlockedPool{{Pool: "eu", Until: testNow.Add(time.Hour), Why: "quota"}}
			}, nil, "spot nodes may come back"},
		"the next pool, when it is behind": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) {
				bursts(s, "m", due(4*time.Hour))
				s.Jobs[0].Duration = 9 * time.Hour
				us := buyPool("us", 2)
				us.Spot = 0
				s.Burst.Pools = append(s.Burst.Pools, us)
				s.Burst.Blocked = []model.BlockedPool{{Pool: "eu", Until: testNow.Add(time.Hour), Why: "quota"}}
			}, []string{"m 2 us on_demand"}, ""},
		"the next pool, when it is urgent": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, _ *Policy) {
				bursts(s, "m", due(160*time.Minute))
				s.Jobs[0].Duration = 9 * time.Hour
				us := buyPool("us", 2)
				us.Spot = 0
				s.Burst.Pools = append(s.Burst.Pools, us)
				s.Burst.Blocked = []model.BlockedPool{{Pool: "eu", Until: testNow.Add(time.Hour), Why: "quota"}}
			}, []string{"m 2 us on_demand"}, ""},
		"a wait that is too long": {
			full, "m 2x4 runs:2h", func(s *model.Snapshot, p *Policy) {
				bursts(s, "m", nil)
				s.Jobs[0].Duration = 9 * time.Hour
				p.Burst.WaitOver = 2 * time.Hour
			}, []string{"m 2 eu spot"}, "it will have waited for"},
		"bought nodes only": {
			"b1 r1 n1 ....", "m 1x4 runs:2h", func(s *model.Snapshot, p *Policy) { bursts(s, "m", func(j *model.Job) { j.Burst = model.BurstOnly }) },
			[]string{"m 1 eu spot"}, "it runs on bought nodes only"},
		"nothing for who has room": {
			"b1 r1 n1 ....", "m 1x4 runs:2h", func(s *model.Snapshot, p *Policy) { bursts(s, "m", due(3*time.Hour)) }, nil, "placed"},
		"as much as may be spent in an hour": {
			full, "m 2x4 runs:2h\nn 2x4 runs:2h", func(s *model.Snapshot, p *Policy) {
				s.Jobs[0].Duration = 9 * time.Hour
				bursts(s, "m", due(4*time.Hour))
				bursts(s, "n", due(4*time.Hour))
				p.Burst.MaxPricePerHour = 10
			}, []string{"m 2 eu spot"}, "at most 10.00 EUR may be spent"},
		"another model than its own": {
			full, "m 1x4 runs:2h", func(s *model.Snapshot, p *Policy) {
				bursts(s, "m", due(4*time.Hour))
				s.Jobs[0].Duration = 9 * time.Hour
				s.Jobs[1].Models = []model.ModelSpeed{{Name: "A100", Speed: 1}}
			}, nil, "no pool has nodes that it would fit on: pool eu: "},
		"a constraint that its nodes do not meet": {
			full, "m 1x4 runs:2h", func(s *model.Snapshot, p *Policy) {
				bursts(s, "m", due(4*time.Hour))
				s.Jobs[1].Constraints = []model.Constraint{{Left: "${attr.x}", Operand: "=", Right: "y"}}
			}, nil, "${attr.x} = y"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, p := draw(t, test.cluster), Policy{}
			submit(t, s, test.jobs)
			s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 4)}}
			test.set(s, &p)
			out := plan(t, s, p)
			var got []string
			for _, o := range out.Demand.Buy {
				got = append(got, fmt.Sprintf("%s %d %s %s", o.For.ID, o.Nodes, o.Pool, o.Market))
				if len(o.Names) != o.Nodes || o.State != model.PurchaseWanted || o.Why == "" {
					t.Errorf("purchase %+v", o)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("purchases (-want +got):\n%s", diff)
			}
			if last := out.Decisions[len(out.Decisions)-1]; !strings.Contains(last.Reason, test.reason) {
				t.Errorf("reason = %q\nwant %q", last.Reason, test.reason)
			}
		})
	}
}

// A purchase from its decision to the last of its nodes.
func TestLifeOfAPurchase(t *testing.T) {
	s := draw(t, "b1 r1 n1 aaaa\nb1 r1 n2 aaaa")
	submit(t, s, "m 2x4 runs:2h\nk 1x4 runs:1h")
	s.Jobs[0].Duration = 9 * time.Hour
	pool := buyPool("eu", 4)
	pool.Spot, pool.Period = 0, time.Hour
	s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{pool}}
	bursts(s, "m", func(j *model.Job) { j.Deadline = testNow.Add(4 * time.Hour) })
	bursts(s, "k", nil)

	out := plan(t, s, Policy{})
	if len(out.Demand.Buy) != 1 || out.Demand.Pools[0].Wanted != 2 || out.Demand.Pools[0].Coming != 2 || out.Demand.Pools[0].PricePerHour != 16 {
		t.Fatalf("demand = %+v", out.Demand)
	}
	record(s, out)
	p := &s.Burst.Bought[0]

	out = plan(t, s, Policy{})
	if len(out.Demand.Buy) != 0 || !strings.Contains(out.Decisions[0].Reason, "waits for purchase "+p.ID+": 0 of 2 nodes of pool eu are ready") {
		t.Fatalf("bought twice, or no word of it: %+v, %s", out.Demand.Buy, out.Decisions[0].Reason)
	}

	// One node is there: nobody starts on it, and not somebody else either.
	s.Now = testNow.Add(5 * time.Minute)
	arrive(s, p, p.Names[0])
	out = plan(t, s, Policy{})
	if got := admitted(out); got != "" {
		t.Fatalf("%s started on a part of the purchase", got)
	}
	arrive(s, p, p.Names[1])
	out = plan(t, s, Policy{})
	if got := out.Decisions[0].Reason; !strings.Contains(got, "; on nodes bought in pool eu") {
		t.Errorf("reason = %q", got)
	}
	if got := admitted(out); got != "m" || out.Demand.Uses[0].State != model.PurchasePresent || !out.Demand.Uses[0].Busy {
		t.Fatalf("%s started, want m; uses = %+v", got, out.Demand.Uses)
	}
	run(s, out)
	record(s, out)
	if got := plan(t, s, Policy{}); len(got.Demand.GiveBack) != 0 || got.Demand.Pools[0].Present != 2 {
		t.Fatalf("demand while it runs = %+v", got.Demand)
	}

	// It has ended: k may use a node until the hour is over, then all are given back.
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j model.Job) bool { return j.ID == "m" })
	s.Now = testNow.Add(2*time.Hour + 10*time.Minute)
	out = plan(t, s, Policy{})
	if got := admitted(out); got != "k" {
		t.Fatalf("%q started on what is idle, want k", got)
	}
	if out.Demand.Uses[0].For.ID != "k" {
		t.Errorf("who uses it does not pay for it: %+v", out.Demand.Uses[0])
	}
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j model.Job) bool { return j.ID == "k" })
	out = plan(t, s, Policy{})
	record(s, out)
	s.Now = s.Now.Add(20 * time.Minute)
	out = plan(t, s, Policy{})
	if n := len(out.Demand.GiveBack); n != 0 {
		t.Fatalf("%d nodes are given back in the middle of a period", n)
	}
	record(s, out)
	s.Now = testNow.Add(3*time.Hour - 4*time.Minute)
	out = plan(t, s, Policy{})
	idle := "m has ended there, the node is idle since 05:14 UTC, and its billing period ends"
	want := []model.GiveBack{
		{Pool: "eu", Purchase: p.ID, Name: p.Names[0], Node: "id-" + p.Names[0], By: testNow.Add(3 * time.Hour), Why: idle},
		{Pool: "eu", Purchase: p.ID, Name: p.Names[1], Node: "id-" + p.Names[1], By: testNow.Add(3 * time.Hour), Why: idle},
	}
	if diff := cmp.Diff(want, out.Demand.GiveBack); diff != "" {
		t.Errorf("given back (-want +got):\n%s", diff)
	}
	if d := out.Demand.Pools[0]; d.Wanted != 0 || d.Leaving != 2 {
		t.Errorf("pool = %+v", d)
	}
	record(s, out)

	// What is given back is not bought again while it is paid for.
	submit(t, s, "o 1x4 runs:2h")
	bursts(s, "o", func(j *model.Job) { j.Burst, j.Submitted = model.BurstOnly, s.Now })
	out = plan(t, s, Policy{})
	if len(out.Demand.Buy) != 0 || admitted(out) != "" {
		t.Errorf("bought again at once: %+v, admitted %s", out.Demand.Buy, admitted(out))
	}
	s.Now = s.Burst.Bought[0].Until.Add(time.Second)
	if out = plan(t, s, Policy{}); len(out.Demand.Buy) != 1 {
		t.Errorf("never bought again: %s", out.Decisions[0].Reason)
	}
}

// admitted are the jobs that a plan starts.
func admitted(p *model.Plan) string {
	var out []string
	for _, d := range p.Decisions {
		if d.Action == model.ActionAdmit {
			out = append(out, d.Job)
		}
	}
	return strings.Join(out, " ")
}

// run lets those run that a plan starts.
func run(s *model.Snapshot, p *model.Plan) {
	for _, d := range p.Decisions {
		for i := range s.Jobs {
			if j := &s.Jobs[i]; j.ID == d.Job && d.Action == model.ActionAdmit {
				j.State, j.Members, j.Started = model.StateRunning, d.Members, s.Now
			}
		}
	}
}
