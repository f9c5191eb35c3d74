package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/purchases"
	"github.com/caravan-sched/caravan/planner/record"
)

func burstRig(store *fakeTallies) *bursts {
	return &bursts{store: store, coolDown: time.Minute, pools: model.Burst{Currency: "EUR", Pools: []model.BuyPool{{Name: "eu", Quota: 4, OnDemand: 10, Join: 15 * time.Minute}}}}
}

var burstTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func aPurchase() model.Purchase {
	return model.Purchase{ID: "p", Pool: "eu", For: model.JobName{ID: "m"}, Market: model.MarketOnDemand, Nodes: 1, Names: []string{"p-0"}, Price: 10, Cost: 40, Ordered: burstTime, ExpectBy: burstTime.Add(15 * time.Minute), State: model.PurchaseWanted}
}

func burstView(b *bursts, at time.Time) *observe.View {
	return &observe.View{Taken: at, Index: 3, Snapshot: &model.Snapshot{Now: at, Burst: b.at(at)}}
}

// What one planner has decided and written, the next one knows; what it could not
// write, it has not decided.
func TestPurchasesOutliveAPlanner(t *testing.T) {
	store := &fakeTallies{}
	first := burstRig(store)
	if err := first.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan := &model.Plan{Demand: &model.Demand{Buy: []model.Purchase{aPurchase()}, Pools: []model.PoolDemand{{Name: "eu", Wanted: 1, Coming: 1}}}}
	store.fail = errors.New("no leader")
	if err := first.carry(t.Context(), burstView(first, burstTime), plan, burstTime); err == nil || !strings.Contains(err.Error(), "nothing of this plan is bought") {
		t.Fatalf("error = %v", err)
	}
	if pools, _, _ := first.answer(); pools != nil {
		t.Fatalf("told of what was not written: %+v", pools)
	}
	store.fail = nil
	if err := first.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.carry(t.Context(), burstView(first, burstTime), plan, burstTime); err != nil {
		t.Fatal(err)
	}
	pools, index, _ := first.answer()
	if len(pools) != 1 || len(pools[0].Purchases) != 1 || index != 3 {
		t.Fatalf("answer = %+v, index %d", pools, index)
	}
	second := burstRig(store)
	if err := second.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := second.at(burstTime).Bought; len(got) != 1 || got[0].ID != "p" {
		t.Fatalf("the next planner knows of %+v", got)
	}
	// The first one does not lead any more, and writes no more.
	if _, err := second.report(t.Context(), &burstapi.Report{Pool: "eu", Purchase: "p", Kind: burstapi.ReportOrdered}, burstTime.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := first.carry(t.Context(), burstView(first, burstTime), &model.Plan{Demand: &model.Demand{Uses: []model.PurchaseUse{{ID: "p", State: model.PurchaseFailed, For: model.JobName{ID: "m"}}}}}, burstTime); !errors.Is(err, record.ErrConflict) {
		t.Errorf("error = %v, want a conflict", err)
	}
	if known, err := second.report(t.Context(), &burstapi.Report{Pool: "eu", Purchase: "x", Kind: burstapi.ReportOrdered}, burstTime); known || err != nil {
		t.Errorf("a purchase of nobody is known: %v, %v", known, err)
	}
	writes := store.writes
	if err := second.carry(t.Context(), burstView(second, burstTime), &model.Plan{}, burstTime); err != nil || store.writes != writes {
		t.Errorf("%d writes of nothing new, %v", store.writes-writes, err)
	}
}

// A record that cannot be read lets nothing be bought or given back.
func TestDamagedPurchases(t *testing.T) {
	for name, store := range map[string]*fakeTallies{
		"by Nomad":  {docs: map[string]record.Document{fmt.Sprint(purchasesNames): {Index: 4}}, fail: record.ErrDamaged},
		"by a hand": {docs: map[string]record.Document{fmt.Sprint(purchasesNames): {Index: 4, JSON: []byte(`{"purchases":[{}]}`)}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := burstRig(store)
			if err := b.load(t.Context()); err != nil {
				t.Fatal(err)
			}
			if hold := b.at(burstTime).Hold; !strings.Contains(hold, "delete the Variable below caravan/purchases") {
				t.Errorf("hold = %q", hold)
			}
			store.fail = nil
			plan := &model.Plan{Demand: &model.Demand{Buy: []model.Purchase{aPurchase()}}}
			if err := b.carry(t.Context(), burstView(b, burstTime), plan, burstTime); err != nil || store.writes != 0 {
				t.Errorf("written over: %v", err)
			}
			if _, err := b.report(t.Context(), &burstapi.Report{Pool: "eu", Purchase: "p", Kind: burstapi.ReportGone}, burstTime); err == nil {
				t.Error("a report is kept")
			}
		})
	}
}

// Who asks before there is an answer, or where there is to be none, is told so.
func TestBurstUndecided(t *testing.T) {
	pools := burstRig(nil).pools
	tests := map[string]struct {
		of   *bursts
		want string
	}{
		"of a term that begins": {&bursts{}, "nothing was decided yet"},
		"before a decision":     {&bursts{pools: pools, book: &purchases.Book{}, loaded: true}, "nothing was decided yet"},
		"without pools":         {&bursts{book: &purchases.Book{}, loaded: true}, "no pool is configured"},
		"without pools, bought": {&bursts{book: &purchases.Book{Purchases: []purchases.Entry{{}}}, loaded: true}, "nothing was decided yet"},
		"damaged":               {&bursts{pools: pools, book: &purchases.Book{}, loaded: true, damaged: "it is damaged"}, "it is damaged"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.of.undecided(); got != tt.want {
				t.Errorf("told %q, want %q", got, tt.want)
			}
		})
	}
}

// Only a planner that leads, and sees the cluster as it is, is to be followed.
func TestBurstAnswersForLeadersOnly(t *testing.T) {
	d, _ := testDaemon(t)
	store := &fakeTallies{}
	d.bursts.store, d.bursts.pools = store, burstRig(store).pools
	now := burstTime
	d.now = func() time.Time { return now }
	answer := func(want string) {
		t.Helper()
		a := backend{d}.Burst()
		if a.Leader != (want == "") || a.Why != want {
			t.Errorf("leader %v, why %q; want why %q", a.Leader, a.Why, want)
		}
	}
	answer("nothing was decided yet")
	if err := d.bursts.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := burstView(&d.bursts, now)
	if err := d.bursts.carry(t.Context(), v, &model.Plan{Demand: &model.Demand{}}, now); err != nil {
		t.Fatal(err)
	}
	answer("")
	now = now.Add(3 * time.Minute)
	answer("the cluster was last seen 3m0s ago")
	now = burstTime
	d.leader.set(nil, "other", nil)
	answer("this planner does not lead")
	if err := (backend{d}).BurstReport(t.Context(), burstapi.Report{}); err == nil {
		t.Error("a report to a standby is kept")
	}
	d.cfg.ObserveOnly = true
	answer("this planner observes only")
}

// A purchase is forgotten once nothing runs on its nodes, or by force, and only where
// the cluster is seen.
func TestForgetPurchase(t *testing.T) {
	d, _ := testDaemon(t)
	store := &fakeTallies{}
	d.bursts.store, d.bursts.pools = store, burstRig(store).pools
	d.now = func() time.Time { return burstTime }
	forget := func(id string, force bool, want string) (burstapi.Forgotten, bool) {
		t.Helper()
		out, err := backend{d}.BurstForget(t.Context(), burstapi.Forget{Purchase: id, Force: force})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("forgetting %s: %v, want %q", id, err, want)
		}
		return out, err == nil
	}
	forget("p", false, "the cluster is not seen")
	if err := d.bursts.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := burstView(&d.bursts, burstTime)
	bought := aPurchase()
	v.Snapshot.Nodes = append(v.Snapshot.Nodes, model.Node{ID: "n", Bought: &model.Bought{Pool: bought.Pool, Name: bought.Names[0], Purchase: bought.ID}})
	v.Snapshot.Allocs = append(v.Snapshot.Allocs, model.Alloc{ID: "a", Job: "m", Node: "n"})
	if err := d.bursts.carry(t.Context(), v, &model.Plan{Demand: &model.Demand{Buy: []model.Purchase{bought}}}, burstTime); err != nil {
		t.Fatal(err)
	}
	forget(bought.ID, false, "is in use: default/m on "+bought.Names[0])
	forget("other", false, "there is no purchase")
	out, ok := forget(bought.ID, true, "")
	if !ok || out.Pool != bought.Pool || len(out.Names) != len(bought.Names) || len(out.Nodes) != 1 {
		t.Errorf("forgotten: %+v", out)
	}
	forget(bought.ID, true, "there is no purchase")
	d.leader.set(nil, "other", nil)
	forget(bought.ID, false, "does not lead")
}
