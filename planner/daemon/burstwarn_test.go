package daemon

import (
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// A pool that is taken out while it has purchases is named, also by the next planner,
// until it is put back.
func TestPoolTakenOutWithPurchases(t *testing.T) {
	store := &fakeTallies{}
	b := burstRig(store)
	if err := b.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan := &model.Plan{Demand: &model.Demand{Buy: []model.Purchase{aPurchase()}, Pools: []model.PoolDemand{{Name: "eu", Wanted: 1, Coming: 1}}}}
	if err := b.carry(t.Context(), burstView(b, burstTime), plan, burstTime); err != nil {
		t.Fatal(err)
	}
	if got := b.warnings(); got != nil {
		t.Errorf("warnings of a pool that is there: %v", got)
	}
	next := burstRig(store)
	pools := next.pools
	next.pools = model.Burst{}
	if err := next.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := next.warnings()
	if len(got) != 1 || got[0].Subject != "pool eu" || !strings.Contains(got[0].Text, aPurchase().ID) || !strings.Contains(got[0].Text, "put it back into the file") {
		t.Errorf("warnings = %v", got)
	}
	next.pools = pools
	if got := next.warnings(); got != nil {
		t.Errorf("warnings of a pool that was put back: %v", got)
	}
}
