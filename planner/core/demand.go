package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// What is wanted of pools in which nodes can be bought. When all have had their
// turn: what has become of purchases; for whom of those that still wait nodes are
// bought, all that a gang needs or none; and which nodes are given back.

// buyer is what a cycle knows of purchases.
type buyer struct {
	c      *cycle
	plan   *model.Plan
	policy burst.Policy
	out    *model.Demand
	// uses are the states of purchases, by ID, and of the nodes of each by name.
	uses  map[string]*model.PurchaseUse
	nodes map[string]map[string]int32
	// busy are nodes that hold something, or get it in this plan.
	busy map[int32]bool
	// inPool counts the nodes of a pool that are paid for, or will be, and priced what
	// they cost in an hour.
	inPool map[string]int
	priced map[string]float64
	// lots are purchases that others may share.
	lots []*lot
	// leaving are the names that are given back, by pool.
	leaving map[string]map[string]bool
	// yielding are the GPUs of those that give way to a deadline, once counted, less what
	// has been reckoned with.
	yielding int
	counted  bool
}

// wantNodes is what is wanted of the pools; nil where there is nothing to be bought
// or given back.
func (c *cycle) wantNodes(plan *model.Plan) *model.Demand {
	if len(c.burst.Pools) == 0 && len(c.burst.Bought) == 0 && len(c.bought) == 0 {
		return nil
	}
	b := &buyer{
		c: c, plan: plan, policy: c.policy.Burst.WithDefaults(), out: &model.Demand{},
		uses: map[string]*model.PurchaseUse{}, nodes: map[string]map[string]int32{}, busy: map[int32]bool{},
		inPool: map[string]int{}, priced: map[string]float64{}, leaving: map[string]map[string]bool{},
	}
	b.find()
	for i := range c.burst.Bought {
		b.use(&c.burst.Bought[i])
	}
	b.tally()
	b.buy()
	b.giveBack()
	b.sum()
	return b.out
}

// find notes which bought nodes there are, and which of them hold something.
func (b *buyer) find() {
	c := b.c
	for _, node := range c.bought {
		on := c.tree.Nodes[node].Model.Bought
		if len(c.holders(node)) > 0 {
			b.busy[node] = true
		}
		if on.Surplus != "" {
			continue
		}
		if b.nodes[on.Purchase] == nil {
			b.nodes[on.Purchase] = map[string]int32{}
		}
		b.nodes[on.Purchase][on.Name] = node
	}
	for i := range c.given {
		if c.tree.Nodes[c.given[i].node].Model.Bought != nil {
			b.busy[c.given[i].node] = true
		}
	}
}

// jobsOn are the jobs that hold something on some nodes, or get it in this plan.
func (b *buyer) jobsOn(nodes map[string]int32) []jobKey {
	var out []jobKey
	add := func(key jobKey) {
		if key.id != "" && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	for _, node := range nodes {
		for _, h := range b.c.holders(node) {
			add(h.job)
		}
		for i := range b.c.given {
			if b.c.given[i].node == node {
				add(b.c.given[i].job)
			}
		}
	}
	slices.SortFunc(out, func(x, y jobKey) int {
		return cmp.Or(strings.Compare(x.namespace, y.namespace), strings.Compare(x.id, y.id))
	})
	return out
}

// ready reports whether a node of a purchase is what was bought, and may be used.
func (b *buyer) ready(node int32, pool *model.BuyPool) bool {
	return BoughtFault(b.c.present[node], pool) == ""
}

// BoughtFault says what is missing of a node that was bought; "" if nothing is.
func BoughtFault(n *model.Node, pool *model.BuyPool) string {
	switch {
	case n.Unschedulable != "":
		return "it is " + n.Unschedulable
	case pool == nil || len(pool.Node.GPUs) == 0:
		return ""
	}
	want, healthy, other := pool.Node.GPUs[0].Model, 0, ""
	for i := range n.GPUs {
		g := &n.GPUs[i]
		switch {
		case g.Parent == "" && g.Model != want:
			other = g.Model
		case g.Unhealthy == "":
			healthy++
		}
	}
	switch {
	case healthy >= len(pool.Node.GPUs):
		return ""
	case healthy == 0 && other != "":
		return fmt.Sprintf("it has GPUs of model %q, and %q was promised", other, want)
	}
	return fmt.Sprintf("%d of its %d GPUs are there and healthy", healthy, len(pool.Node.GPUs))
}

// left is how many nodes of a purchase are paid for, or will be.
func left(p *model.Purchase) int { return max(0, p.Nodes-len(p.Gone)) }

// tally counts what there is in each pool.
func (b *buyer) tally() {
	for i := range b.c.burst.Bought {
		p := &b.c.burst.Bought[i]
		b.inPool[p.Pool] += left(p)
		b.priced[p.Pool] += float64(left(p)) * p.Price
	}
	for _, node := range b.c.bought {
		if b.c.tree.Nodes[node].Model.Unschedulable == nodeDown {
			continue // nobody pays for what is no more, and it is no purchase's
		}
		on := b.c.tree.Nodes[node].Model.Bought
		if p := b.c.purchase(on.Purchase); on.Surplus != "" || p == nil || !slices.Contains(p.Names, on.Name) {
			b.inPool[on.Pool]++
			if pool := b.c.poolOf(on.Pool); pool != nil {
				b.priced[on.Pool] += pool.Price(on.Market)
			}
		}
	}
}

// sum says how the pools stand.
func (b *buyer) sum() {
	for i := range b.c.burst.Pools {
		pool := &b.c.burst.Pools[i]
		d := model.PoolDemand{Name: pool.Name}
		bought := 0
		for k := range b.c.burst.Bought {
			p := &b.c.burst.Bought[k]
			if p.Pool != pool.Name {
				continue
			}
			for _, name := range p.Names {
				switch node, there := b.nodes[p.ID][name]; {
				case slices.Contains(p.Gone, name):
				case b.leaving[p.Pool][name]:
					d.Leaving++
				case there && b.ready(node, pool):
					d.Present++
					d.PricePerHour += p.Price
				default:
					d.Coming++
					d.PricePerHour += p.Price
				}
			}
		}
		for k := range b.out.Buy {
			if p := &b.out.Buy[k]; p.Pool == pool.Name {
				bought += p.Nodes
				d.Coming += p.Nodes
				d.PricePerHour += float64(p.Nodes) * p.Price
			}
		}
		d.Wanted = d.Present + d.Coming
		d.Why = b.poolText(pool, &d, bought)
		b.out.Pools = append(b.out.Pools, d)
	}
}

func (b *buyer) poolText(pool *model.BuyPool, d *model.PoolDemand, bought int) string {
	var parts []string
	if bought > 0 {
		parts = append(parts, plural(bought, "node")+" bought now")
	}
	if d.Present > 0 {
		parts = append(parts, plural(d.Present, "node")+" there")
	}
	if coming := d.Coming - bought; coming > 0 {
		parts = append(parts, fmt.Sprintf("%d to come", coming))
	}
	if d.Leaving > 0 {
		parts = append(parts, fmt.Sprintf("%d given back", d.Leaving))
	}
	if why := b.blocked(pool, ""); why != "" {
		parts = append(parts, why)
	}
	if until := b.cools(pool.Name); !until.IsZero() {
		parts = append(parts, fmt.Sprintf("nodes of it were given back just now, so until %s nothing is bought there for who has time until then", clock(until, b.c.now)))
	}
	if b.c.burst.Hold != "" {
		parts = append(parts, "nothing is bought: "+b.c.burst.Hold)
	}
	if len(parts) == 0 {
		return "no gang that waits gets nodes of it; caravan explain says why"
	}
	return strings.Join(parts, ", ")
}

// blocked says why nothing is bought in a pool for now; "" if it may be. Without a
// market it is that of both.
func (b *buyer) blocked(pool *model.BuyPool, market string) string {
	for i := range b.c.burst.Blocked {
		o := &b.c.burst.Blocked[i]
		if o.Pool == pool.Name && (o.Market == "" || o.Market == market) && o.Until.After(b.c.now) {
			return fmt.Sprintf("nothing is bought there until %s: %s", clock(o.Until, b.c.now), o.Why)
		}
	}
	for i := range b.c.burst.Bought {
		p := &b.c.burst.Bought[i]
		// What is found in this look is among the failures from the next one on.
		if u := b.uses[p.ID]; p.Pool == pool.Name && p.Open() && u != nil && !u.State.Open() && u.Reason != "" && (u.Reason != useLost || p.Market == market) {
			return fmt.Sprintf("nothing is bought there for now: purchase %s: %s", p.ID, u.Why)
		}
	}
	return ""
}

// cools is until when nothing is bought in a pool for who has the time, since nodes of
// it were given back just now; zero if nothing was.
func (b *buyer) cools(pool string) (until time.Time) {
	for i := range b.c.burst.Bought {
		if p := &b.c.burst.Bought[i]; p.Pool == pool && p.State != model.PurchaseFailed && len(p.Leaving) > 0 && p.Until.After(b.c.now) && p.Until.After(until) {
			until = p.Until
		}
	}
	return until
}
