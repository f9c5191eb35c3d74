package model

import (
	"slices"
	"time"
)

// The bounds of what a snapshot may say of pools and purchases.
const (
	maxBurstList = 10000
	maxBurstTime = 366 * 24 * time.Hour
	// MaxQuota bounds the nodes of a pool, and of a purchase.
	MaxQuota = 100_000
)

var (
	markets        = []string{MarketOnDemand, MarketSpot}
	purchaseStates = []PurchaseState{PurchaseWanted, PurchaseComing, PurchasePresent, PurchaseGiving, PurchaseFailed}
)

func (b *Burst) validate(f *faults, levels map[string]bool) {
	pools := map[string]bool{}
	for i := range b.Pools {
		p := &b.Pools[i]
		if p.Name == "" || pools[p.Name] {
			f.add("burst.pools[%d].name: %q: want each pool once, by its name", i, p.Name)
		}
		pools[p.Name] = true
		p.validate(f, i, levels)
	}
	names := map[string]bool{}
	for i, d := range b.DataSets {
		if d.Name == "" || names[d.Name] || !possible(d.GB) || !possible(d.Egress) {
			f.add("burst.data_sets[%d] (%s): want each once, with its size in GB and price of 0 or more", i, d.Name)
		}
		names[d.Name] = true
	}
	if len(b.Bought) > maxBurstList || len(b.Spent) > maxBurstList || len(b.Blocked) > maxBurstList {
		f.add("burst: %d purchases, %d amounts, %d blocks: want at most %d each", len(b.Bought), len(b.Spent), len(b.Blocked), maxBurstList)
	}
	ids := map[string]bool{}
	for i := range b.Bought {
		p := &b.Bought[i]
		if p.ID == "" || ids[p.ID] {
			f.add("burst.purchases[%d].id: %q: want each purchase once, by its ID", i, p.ID)
		}
		ids[p.ID] = true
		p.validate(f, i)
	}
	for i, s := range b.Spent {
		if !possible(s.Amount) {
			f.add("burst.spent[%d].amount: %g: want 0 to 3.4e38", i, s.Amount)
		}
		if (s.Queue == "") == (s.For.ID == "") {
			f.add("burst.spent[%d]: want either a job or a queue", i)
		}
	}
	for i, o := range b.Blocked {
		if o.Market != "" && !slices.Contains(markets, o.Market) {
			f.add("burst.blocked[%d].market: %q: want \"\", %q or %q", i, o.Market, MarketOnDemand, MarketSpot)
		}
	}
}

func (p *BuyPool) validate(f *faults, i int, levels map[string]bool) {
	p.Node.validate(f, i, levels)
	if p.Near != "" && !levels[p.Near] {
		f.add("burst.pools[%d] (%s).near: %q: is none of the snapshot's levels", i, p.Name, p.Near)
	}
	if p.Quota < 1 || p.Quota > MaxQuota {
		f.add("burst.pools[%d] (%s).quota: %d: want 1 to %d", i, p.Name, p.Quota, MaxQuota)
	}
	if len(p.Node.GPUs) == 0 {
		f.add("burst.pools[%d] (%s).node.gpus: none: want at least one", i, p.Name)
	}
	for _, n := range []struct {
		name  string
		value float64
	}{{"on_demand", p.OnDemand}, {"spot", p.Spot}, {"egress", p.Egress}, {"gbps", p.Gbps}, {"carbon", p.Carbon}, {"power_kw", p.PowerKW}} {
		if !possible(n.value) {
			f.add("burst.pools[%d] (%s).%s: %g: want 0 to 3.4e38", i, p.Name, n.name, n.value)
		}
	}
	if !(p.OnDemand > 0 || p.Spot > 0) {
		f.add("burst.pools[%d] (%s).on_demand: %g: want what a node costs in an hour, above 0, on demand, spot or both", i, p.Name, p.OnDemand)
	}
	for _, n := range []struct {
		name  string
		value time.Duration
	}{{"spot_lifetime_ns", p.SpotLifetime}, {"boot_ns", p.Boot}, {"join_ns", p.Join}, {"min_billing_ns", p.MinBilling}, {"period_ns", p.Period}} {
		if n.value < 0 || n.value > maxBurstTime {
			f.add("burst.pools[%d] (%s).%s: %d: want 0 to a year", i, p.Name, n.name, n.value)
		}
	}
}

func (p *Purchase) validate(f *faults, i int) {
	if p.Pool == "" || p.For.ID == "" {
		f.add("burst.purchases[%d] (%s): want its pool, and the job that it is for", i, p.ID)
	}
	if !slices.Contains(markets, p.Market) {
		f.add("burst.purchases[%d] (%s).market: %q: want %q or %q", i, p.ID, p.Market, MarketOnDemand, MarketSpot)
	}
	if !slices.Contains(purchaseStates, p.State) {
		f.add("burst.purchases[%d] (%s).state: %q: want one of %q", i, p.ID, p.State, purchaseStates)
	}
	if p.Nodes < 1 || p.Nodes > MaxQuota || len(p.Names) != p.Nodes {
		f.add("burst.purchases[%d] (%s).nodes: %d with %d names: want 1 to %d, with a name for each", i, p.ID, p.Nodes, len(p.Names), MaxQuota)
	}
	with := map[JobName]bool{p.For: true}
	for _, name := range p.With {
		if name.ID == "" || with[name] {
			f.add("burst.purchases[%d] (%s).with: %q in namespace %q: want each job once, and none that it is for", i, p.ID, name.ID, name.Namespace)
		}
		with[name] = true
	}
	seen := map[string]bool{}
	for _, name := range p.Names {
		if name == "" || seen[name] {
			f.add("burst.purchases[%d] (%s).names: %q: want each once", i, p.ID, name)
		}
		seen[name] = true
	}
	if !(p.Price > 0 && possible(p.Price)) || !possible(p.Cost) || !possible(p.Spent) {
		f.add("burst.purchases[%d] (%s): price %g, cost %g, spent %g: want a price above 0, and the others 0 or more", i, p.ID, p.Price, p.Cost, p.Spent)
	}
}

// validateBurst checks what a job says of nodes that are bought.
func (j *Job) validateBurst(f *faults, i int) {
	switch j.Burst {
	case "", BurstAllow, BurstNever, BurstOnly:
	default:
		f.add("jobs[%d] (%s).burst: %q: want \"\", %q, %q or %q", i, j.ID, j.Burst, BurstAllow, BurstNever, BurstOnly)
	}
	if !possible(j.Budget) || !possible(j.OutputGB) {
		f.add("jobs[%d] (%s): budget %g, output_gb %g: want 0 to 3.4e38", i, j.ID, j.Budget, j.OutputGB)
	}
	if j.Checkpoint < 0 {
		f.add("jobs[%d] (%s).checkpoint_ns: %d: want 0 (unknown) or more", i, j.ID, j.Checkpoint)
	}
}
