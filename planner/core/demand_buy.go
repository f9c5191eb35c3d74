package core

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// maxBuyers is for how many gangs that wait it is found out in one cycle whether
// nodes are bought for them.
const maxBuyers = 64

// work is how long a job runs still, eternity if nobody knows.
func (b *buyer) work(j *model.Job) time.Duration {
	total, _ := b.c.expected(j)
	if total == eternity {
		return eternity
	}
	if j.Checkpoint > 0 || j.Preempt == model.PreemptAlways {
		return max(total-j.Ran, total/20, time.Second)
	}
	return total
}

// buy decides for those who wait, in their order.
func (b *buyer) buy() {
	b.openLots()
	left := maxBuyers
	for i := range b.plan.Decisions {
		d := &b.plan.Decisions[i]
		j := b.c.jobs[jobKey{d.Namespace, d.Job}]
		if j == nil || !b.mayBuy(d, j) {
			continue
		}
		if p := b.own(j); p != nil {
			b.tellOwn(d, p)
			continue
		}
		if p := b.beside(j); p != nil {
			b.tellBeside(d, p)
			continue
		}
		if left--; left < 0 {
			return
		}
		b.decide(d, j)
	}
}

// mayBuy reports whether a gang waits for something that bought nodes would mend.
func (b *buyer) mayBuy(d *model.Decision, j *model.Job) bool {
	switch d.Detail.Code {
	case codeNoCapacity, codeNoDomain, codeBehind, codeNoNode, codeTooLarge:
	default:
		return false
	}
	return d.Action == model.ActionWait && j.State == model.StateQueued && len(j.Members) == 0 && b.c.burstMode(j) != model.BurstNever && len(b.c.burst.Pools) > 0
}

func (b *buyer) tellOwn(d *model.Decision, p *model.Purchase) {
	u, pool := b.uses[p.ID], b.c.poolOf(p.Pool)
	choice := &model.BurstChoice{Buys: true, Purchase: p.ID, Budget: -1, Currency: b.c.burst.Currency}
	switch ready := b.readyCount(p, b.nodes[p.ID], pool); u.State {
	case model.PurchasePresent:
		choice.Why = fmt.Sprintf("its %s of pool %s are ready (purchase %s)", plural(p.Nodes, "node"), p.Pool, p.ID)
	default:
		choice.Why = fmt.Sprintf("waits for purchase %s: %d of %s of pool %s are ready, expected by %s; %s", p.ID, ready, plural(p.Nodes, "node"), p.Pool, clock(p.ExpectBy, b.c.now), p.Why)
	}
	d.Detail.Burst = choice
	d.Reason += "; " + choice.Why
}

// decide decides for one gang, and buys.
func (b *buyer) decide(d *model.Decision, j *model.Job) {
	g := b.gangOf(d, j)
	offers := b.offers(j)
	choice := burst.Choose(g, offers, b.policy)
	if choice.Why == burst.NoOffer {
		choice.Why += b.misfits(j)
	}
	told := b.tell(&g, &choice)
	d.Detail.Burst = told
	if b.c.burst.Hold != "" && choice.Buy {
		choice.Buy, told.Why = false, told.Why+"; but nothing is bought: "+b.c.burst.Hold
	}
	switch {
	case choice.Buy:
		p := b.order(j, &choice)
		told.Buys, told.Purchase = true, p.ID
		told.Why = "nodes are bought for it: " + told.Why
	case len(choice.Offers) > 0 && choice.Offers[0].Shares != "" && choice.Offers[0].Against == "":
		told.Purchase = choice.Offers[0].Shares
		b.share(j, &choice.Offers[0])
	}
	d.Reason += "; " + told.Why
}

// gangOf is what is known of a gang that waits.
func (b *buyer) gangOf(d *model.Decision, j *model.Job) burst.Gang {
	g := burst.Gang{
		GPUs: d.Detail.WantedGPUs, Mode: b.c.burstMode(j), Checkpoint: j.Checkpoint, Currency: b.c.burst.Currency, Now: b.c.now,
		Waited: max(0, b.c.now.Sub(j.Submitted)-j.Ran), Since: max(0, b.c.now.Sub(j.Submitted)),
	}
	if total, _ := b.c.expected(j); total < eternity {
		g.Work, g.Total = b.work(j), total
	}
	g.Budget, g.BudgetOf = b.budget(j, "")
	if !j.Deadline.IsZero() {
		g.HasDeadline, g.Deadline = true, j.Deadline.Sub(b.c.now)
	}
	never := d.Detail.Code == codeNoNode || d.Detail.Code == codeTooLarge
	switch standing := b.c.standing(j); {
	case never || g.Work <= 0:
	case !d.Detail.Start.IsZero():
		g.HomeKnown, g.HomeStart = true, max(0, d.Detail.Start.Sub(b.c.now))
	case !standing.Latest.IsZero() && b.c.policy.Preemptive() && standing.Latest.After(b.c.now) && b.giveWayTo(g.GPUs):
		// Others give way to it in time, with what the order keeps as its margin.
		g.HomeKnown, g.HomeStart = true, max(0, standing.Latest.Sub(b.c.now)-b.policy.Margin)
	}
	if g.HomeKnown {
		g.HomeEnd = g.HomeStart + g.Work
	}
	return g
}

// giveWayTo reports whether those that run, give way and have no deadline have so many
// GPUs, beside what others count on. Who has a deadline would be late in his turn.
func (b *buyer) giveWayTo(gpus int) bool {
	if !b.c.policy.Preempt.Enabled {
		return false
	}
	if !b.counted {
		b.counted = true
		for j := range b.c.allJobs() {
			if !holdsMembers(j) || !j.Deadline.IsZero() || !b.c.policy.Preempt.GivesWay(j) {
				continue
			}
			for i := range j.Members {
				b.yielding += len(j.Members[i].GPUs)
			}
		}
	}
	if gpus > b.yielding {
		return false
	}
	b.yielding -= gpus
	return true
}

// misfits say of each pool why a job does not fit on its nodes.
func (b *buyer) misfits(j *model.Job) string {
	var out strings.Builder
	for i := range b.c.burst.Pools {
		pool := &b.c.burst.Pools[i]
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&out, "%spool %s: %s", sep, pool.Name, cmp.Or(b.c.nodesFor(pool, j).why, "it has no price"))
	}
	return out.String()
}

// offers are the ways to get nodes for a job.
func (b *buyer) offers(j *model.Job) []burst.Offer {
	var out []burst.Offer
	for _, s := range b.lots {
		if o, ok := b.shared(s, j); ok {
			out = append(out, o)
		}
	}
	for i := range b.c.burst.Pools {
		pool := &b.c.burst.Pools[i]
		n := b.c.nodesFor(pool, j).nodes
		if n == 0 {
			continue
		}
		cools := time.Duration(0)
		if until := b.cools(pool.Name); !until.IsZero() {
			cools = until.Sub(b.c.now)
		}
		for _, market := range []string{model.MarketSpot, model.MarketOnDemand} {
			if price := pool.Price(market); price > 0 {
				o := b.offer(pool, market, n, j)
				o.Boot, o.MinBilling, o.Cools, o.Against = pool.Boot, pool.MinBilling, cools, b.unavailable(pool, market, n, price)
				out = append(out, o)
			}
		}
	}
	return out
}

// offer is what a pool's nodes come to for a job, wherever they are from.
func (b *buyer) offer(pool *model.BuyPool, market string, n int, j *model.Job) burst.Offer {
	o := burst.Offer{
		Pool: pool.Name, Market: market, Nodes: n, Price: pool.Price(market), Period: pool.Period, Lifetime: pool.SpotLifetime, Speed: 1,
		CarbonPerNodeHour: pool.PowerKW * pool.Carbon / 1000,
	}
	if at := slices.IndexFunc(j.Models, func(m model.ModelSpeed) bool { return m.Name == pool.Node.GPUs[0].Model }); at >= 0 {
		o.Speed = j.Models[at].Speed
	}
	gb := 0.0
	for _, name := range j.Data {
		at := slices.IndexFunc(b.c.burst.DataSets, func(d model.DataSet) bool { return d.Name == name })
		if at < 0 || slices.Contains(pool.Data, name) {
			continue
		}
		d := &b.c.burst.DataSets[at]
		gb += d.GB
		o.Moving += d.GB * d.Egress
	}
	o.Moving += j.OutputGB * pool.Egress
	if pool.Gbps > 0 {
		o.Transfer = time.Duration(min(gb*8/pool.Gbps, maxTransfer) * float64(time.Second))
	}
	return o
}

// maxTransfer is more than any transfer that is worth waiting for, in seconds.
const maxTransfer = 1e8

// unavailable says why so many nodes of a pool cannot be bought; "" if they can.
func (b *buyer) unavailable(pool *model.BuyPool, market string, n int, price float64) string {
	all, hourly := 0, 0.0
	for _, p := range b.c.burst.Pools {
		all += b.inPool[p.Name]
		hourly += b.priced[p.Name]
	}
	switch why := b.blocked(pool, market); {
	case b.inPool[pool.Name]+n > pool.Quota:
		return fmt.Sprintf("%s wanted, and %d of its quota of %d are taken", plural(n, "node"), b.inPool[pool.Name], pool.Quota)
	case b.policy.MaxNodes > 0 && all+n > b.policy.MaxNodes:
		return fmt.Sprintf("%s wanted, and %d of at most %d are bought (burst.max_nodes)", plural(n, "node"), all, b.policy.MaxNodes)
	case b.policy.MaxPricePerHour > 0 && hourly+float64(n)*price > b.policy.MaxPricePerHour:
		return fmt.Sprintf("%s more an hour beside %s, and at most %s may be spent (burst.max_price_per_hour)", b.money(float64(n)*price), b.money(hourly), b.money(b.policy.MaxPricePerHour))
	default:
		return why
	}
}

// order makes a purchase.
func (b *buyer) order(j *model.Job, choice *burst.Choice) *model.Purchase {
	v := &choice.Offers[0]
	pool := b.c.poolOf(v.Pool)
	p := model.Purchase{
		ID: purchaseID(v.Pool, j, b.c.now), Pool: v.Pool, For: nameOf(j), Market: v.Market, Nodes: v.Nodes,
		Price: v.Price, Cost: v.Cost, Deadline: j.Deadline, Ordered: b.c.now, ExpectBy: b.c.now.Add(max(pool.Join, pool.Boot)), State: model.PurchaseWanted, Why: choice.Why,
	}
	for i := range v.Nodes {
		p.Names = append(p.Names, p.ID+"-"+strconv.Itoa(i))
	}
	b.inPool[p.Pool] += p.Nodes
	b.priced[p.Pool] += float64(p.Nodes) * p.Price
	b.lots = append(b.lots, &lot{id: p.ID, pool: p.Pool, market: p.Market, nodes: p.Nodes, price: p.Price, begins: v.Boot, free: v.End, with: []*model.Job{j}})
	b.out.Buy = append(b.out.Buy, p)
	return &b.out.Buy[len(b.out.Buy)-1]
}

// purchaseID names a purchase: the same for the same decision, another one for any
// other.
func purchaseID(pool string, j *model.Job, now time.Time) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00%d", pool, j.Namespace, j.ID, now.UnixNano())
	text := strconv.FormatUint(h.Sum64(), 36)
	return pool + "-" + text[max(0, len(text)-10):]
}

// budget is what may still be spent on a job, and whose limit that is; -1 if there
// is none. The purchase named is not counted among what is spent.
func (b *buyer) budget(j *model.Job, but string) (rest float64, of string) {
	rest = -1
	tighter := func(limit float64, name string, counts func(*model.Job, model.JobName) bool, spent float64) {
		if limit <= 0 {
			return
		}
		for _, list := range [][]model.Purchase{b.c.burst.Bought, b.out.Buy} {
			for i := range list {
				p := &list[i]
				if p.ID == but || !counts(b.c.jobs[jobKey{p.For.Namespace, p.For.ID}], p.For) {
					continue
				}
				if cost := p.Spent; p.Open() {
					spent += max(cost, p.Cost)
				} else {
					spent += cost
				}
			}
		}
		if left := max(0, limit-spent); rest < 0 || left < rest {
			rest, of = left, name
		}
	}
	name := nameOf(j)
	tighter(j.Budget, "its budget (caravan_budget)", func(_ *model.Job, n model.JobName) bool { return n == name }, b.spent(func(s *model.Spent) bool { return s.For == name }))
	for i := range b.c.queues {
		q := &b.c.queues[i]
		if below(j.Queue, q.Path) {
			tighter(q.Budget, "the budget of queue "+q.Path, func(o *model.Job, _ model.JobName) bool { return o != nil && below(o.Queue, q.Path) },
				b.spent(func(s *model.Spent) bool { return s.Queue != "" && below(s.Queue, q.Path) }))
		}
	}
	return rest, of
}

func (b *buyer) spent(of func(*model.Spent) bool) (sum float64) {
	for i := range b.c.burst.Spent {
		if of(&b.c.burst.Spent[i]) {
			sum += b.c.burst.Spent[i].Amount
		}
	}
	return sum
}

func (b *buyer) money(x float64) string {
	return strings.TrimSpace(strconv.FormatFloat(x, 'f', 2, 64) + " " + b.c.burst.Currency)
}

// tell is a choice as the plan has it.
func (b *buyer) tell(g *burst.Gang, choice *burst.Choice) *model.BurstChoice {
	out := &model.BurstChoice{Budget: g.Budget, Currency: b.c.burst.Currency, Why: choice.Why}
	if g.HomeKnown {
		out.Home = b.c.now.Add(g.HomeEnd)
	}
	if choice.Again > 0 {
		out.Again = b.c.now.Add(choice.Again)
	}
	for i := range choice.Offers {
		v := &choice.Offers[i]
		o := model.BurstOffer{Pool: v.Pool, Market: v.Market, Nodes: v.Nodes, Start: b.c.now.Add(v.Start), Cost: v.Cost, Moving: v.Moving, Carbon: v.Carbon, Shares: v.Shares, Against: v.Against}
		if v.End < maxTellable {
			o.End = b.c.now.Add(v.End)
		}
		out.Offers = append(out.Offers, o)
	}
	return out
}
