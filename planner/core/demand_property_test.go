package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Drawn clusters: whatever happens, nothing is wanted that may not be, and no gang
// is on bought nodes and others at once.
func TestDemandKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawBurst(t)
		p := Policy{Burst: burst.Policy{Default: model.BurstAllow, WaitOver: time.Duration(rapid.IntRange(0, 120).Draw(t, "wait")) * time.Minute, MaxNodes: rapid.IntRange(0, 6).Draw(t, "max")}}
		for step := range rapid.IntRange(1, 6).Draw(t, "steps") {
			out, err := Decide(s, p)
			if err != nil {
				t.Fatal(err)
			}
			checkDemand(t, s, p, out)
			run(s, out)
			record(s, out)
			happen(t, s)
			s.Now = s.Now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "minutes")+step) * time.Minute)
		}
	})
}

func drawBurst(t *rapid.T) *model.Snapshot {
	s := &model.Snapshot{Now: testNow, Levels: []string{"block", "rack"}}
	for i := range rapid.IntRange(0, 2).Draw(t, "nodes") {
		pool := buyPool("home", 1)
		n := boughtLike(&pool, i)
		n.Levels = map[string]string{"block": "b1"}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
		j := model.Job{ID: fmt.Sprintf("j%d", i), Type: "batch", State: model.StateQueued, Gang: rapid.SampledFrom([]model.Gang{model.GangJob, model.GangGroup, model.GangNone}).Draw(t, "gang"), Submitted: testNow.Add(-time.Hour)}
		j.Groups = []model.TaskGroup{{Name: "g0", Count: rapid.IntRange(1, 3).Draw(t, "count"), Devices: []model.DeviceAsk{{Name: "gpu", Count: rapid.IntRange(1, 4).Draw(t, "gpus")}}}}
		j.Duration = time.Duration(rapid.IntRange(0, 200).Draw(t, "runs")) * time.Minute
		j.Burst = rapid.SampledFrom([]string{"", model.BurstAllow, model.BurstNever, model.BurstOnly}).Draw(t, "burst")
		j.Budget = float64(rapid.SampledFrom([]int{0, 0, 5, 20, 100}).Draw(t, "budget"))
		if rapid.Bool().Draw(t, "due") {
			j.Deadline = testNow.Add(time.Duration(rapid.IntRange(10, 600).Draw(t, "deadline")) * time.Minute)
		}
		s.Jobs = append(s.Jobs, j)
	}
	s.Burst = model.Burst{Pools: []model.BuyPool{buyPool("eu", rapid.IntRange(1, 4).Draw(t, "quota"))}}
	if rapid.Bool().Draw(t, "two pools") {
		us := buyPool("us", 3)
		us.OnDemand, us.Spot, us.Period = 6, 0, time.Hour
		s.Burst.Pools = append(s.Burst.Pools, us)
	}
	return s
}

// happen lets nodes come, or go, and jobs end.
func happen(t *rapid.T, s *model.Snapshot) {
	for i := range s.Burst.Bought {
		p := &s.Burst.Bought[i]
		for _, name := range p.Names {
			at := slices.IndexFunc(s.Nodes, func(n model.Node) bool { return n.ID == "id-"+name })
			switch what := rapid.IntRange(0, 3).Draw(t, "what happens"); {
			case at < 0 && len(p.Leaving) == 0 && what > 0 && !slices.Contains(p.Gone, name):
				arrive(s, p, name)
			case slices.Contains(p.Leaving, name) && !slices.Contains(p.Gone, name) && !runsOn(s, "id-"+name):
				p.Gone = append(p.Gone, name)
				s.Nodes = slices.DeleteFunc(s.Nodes, func(n model.Node) bool { return n.ID == "id-"+name })
			}
		}
	}
	s.Burst.Bought = slices.DeleteFunc(s.Burst.Bought, func(p model.Purchase) bool { return len(p.Gone) == p.Nodes && !p.Until.After(s.Now) })
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j model.Job) bool {
		return j.State == model.StateRunning && rapid.Bool().Draw(t, "ends")
	})
}

func runsOn(s *model.Snapshot, node string) bool {
	return slices.ContainsFunc(s.Jobs, func(j model.Job) bool {
		return slices.ContainsFunc(j.Members, func(m model.Member) bool { return m.Node == node })
	})
}

// purchaseOn is the purchase that a node is of; nil if it is of none.
func purchaseOn(s *model.Snapshot, node string) *model.Purchase {
	at := slices.IndexFunc(s.Nodes, func(n model.Node) bool { return n.ID == node })
	if at < 0 || s.Nodes[at].Bought == nil {
		return nil
	}
	of := slices.IndexFunc(s.Burst.Bought, func(p model.Purchase) bool { return p.ID == s.Nodes[at].Bought.Purchase })
	if of < 0 {
		return nil
	}
	return &s.Burst.Bought[of]
}

// hasTime reports whether a job would be early enough on what is bought for it if that
// were bought only after a while.
func hasTime(s *model.Snapshot, p Policy, j *model.Job, b *model.Purchase, after time.Duration) bool {
	pool := s.Burst.Pools[slices.IndexFunc(s.Burst.Pools, func(o model.BuyPool) bool { return o.Name == b.Pool })]
	switch took := j.Duration; {
	case j.Deadline.After(s.Now):
		if b.Market == model.MarketSpot {
			took = burst.Expected(took, 0, burst.DefaultRestart+pool.Boot, pool.SpotLifetime, b.Nodes)
		}
		return after+pool.Boot+took+took/10 <= j.Deadline.Sub(s.Now)-burst.DefaultMargin
	case p.Burst.WaitOver > 0 && j.Burst != model.BurstOnly:
		return s.Now.Sub(j.Submitted)+after+pool.Boot <= p.Burst.WaitOver
	}
	return true
}

func checkDemand(t *rapid.T, s *model.Snapshot, p Policy, out *model.Plan) {
	inPool, all, boughtFor := map[string]int{}, 0, map[model.JobName]float64{}
	for _, list := range [][]model.Purchase{s.Burst.Bought, out.Demand.Buy} {
		for i := range list {
			inPool[list[i].Pool] += left(&list[i])
			all += left(&list[i])
			if list[i].Open() {
				boughtFor[list[i].For] += list[i].Cost
			}
		}
	}
	for i := range s.Burst.Pools {
		if pool := &s.Burst.Pools[i]; inPool[pool.Name] > pool.Quota {
			t.Fatalf("%d nodes of pool %s, quota %d", inPool[pool.Name], pool.Name, pool.Quota)
		}
	}
	if len(out.Demand.Buy) > 0 && p.Burst.MaxNodes > 0 && all > p.Burst.MaxNodes {
		t.Fatalf("%d nodes, at most %d", all, p.Burst.MaxNodes)
	}
	bought := map[string]bool{}
	for i := range s.Nodes {
		bought[s.Nodes[i].ID] = s.Nodes[i].Bought != nil
	}
	for _, b := range out.Demand.Buy {
		at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == b.For.ID })
		if j := &s.Jobs[at]; j.Burst == model.BurstNever || j.Budget > 0 && boughtFor[b.For] > j.Budget+1e-9 {
			t.Fatalf("bought for %s (%s, budget %g): %+v", j.ID, j.Burst, j.Budget, b)
		}
		for i := range s.Burst.Bought {
			if o := &s.Burst.Bought[i]; o.Pool == b.Pool && o.State != model.PurchaseFailed && len(o.Leaving) > 0 && o.Until.After(s.Now) && hasTime(s, p, &s.Jobs[at], &b, o.Until.Sub(s.Now)) {
				t.Fatalf("bought in pool %s for %s, which has time, while what was given back is paid for until %s", b.Pool, b.For.ID, o.Until)
			}
		}
	}
	for _, d := range out.Decisions {
		at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == d.Job })
		j, on := &s.Jobs[at], 0
		for _, m := range d.Members {
			if bought[m.Node] {
				on++
			}
		}
		for _, m := range d.Members {
			p := purchaseOn(s, m.Node)
			if p == nil || !p.Started.IsZero() || p.For.ID == j.ID || slices.Contains(p.With, model.JobName{ID: j.ID}) {
				continue
			}
			for _, name := range append(slices.Clone(p.With), p.For) {
				if !slices.ContainsFunc(out.Decisions, func(d model.Decision) bool {
					return d.Job == name.ID && slices.ContainsFunc(d.Members, func(m model.Member) bool { return purchaseOn(s, m.Node) == p })
				}) {
					t.Fatalf("%s starts on what was bought for %s, with %v, before %s does", j.ID, p.For.ID, p.With, name.ID)
				}
			}
		}
		mode := j.Burst
		switch {
		case mode == model.BurstNever && on > 0, mode == model.BurstOnly && on < len(d.Members):
			t.Fatalf("%s (%s) has %d of %d members on bought nodes", j.ID, mode, on, len(d.Members))
		case j.Gang != model.GangNone && on > 0 && on < len(d.Members):
			t.Fatalf("%s is on bought nodes and others: %+v", j.ID, d.Members)
		}
	}
	given := map[string]bool{}
	for _, g := range out.Demand.GiveBack {
		if given[g.Name] || g.Why == "" {
			t.Fatalf("given back twice, or without a reason: %+v", g)
		}
		given[g.Name] = true
	}
	// Who is to start beside another waits, for that and for nothing else.
	named := map[model.JobName]bool{}
	for _, u := range out.Demand.Uses {
		for _, name := range append(slices.Clone(u.With), u.For) {
			at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == name.ID })
			if u.Started || !u.State.Open() {
				continue
			}
			if named[name] || at >= 0 && s.Jobs[at].Burst == model.BurstNever {
				t.Fatalf("%s is to have two purchases, or none: %+v", name.ID, out.Demand.Uses)
			}
			named[name] = true
		}
	}
	// All of a purchase that has failed goes.
	for _, u := range out.Demand.Uses {
		for i := range s.Burst.Bought {
			o := &s.Burst.Bought[i]
			for _, name := range o.Names {
				if o.ID == u.ID && u.State == model.PurchaseFailed && !given[name] && !slices.Contains(o.Gone, name) {
					t.Fatalf("%s of a purchase that has failed is kept", name)
				}
			}
		}
	}
}
