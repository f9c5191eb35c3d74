package purchases

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Pools is what is wanted of the pools, by a book and the plan that it has taken
// over. fault says what is missing of a node; "" if nothing is.
func (b *Book) Pools(s *model.Snapshot, d *model.Demand, fault func(*model.Node, *model.BuyPool) string) []burstapi.Pool {
	out := []burstapi.Pool{}
	if d == nil {
		d = &model.Demand{}
	}
	for i := range s.Burst.Pools {
		pool := &s.Burst.Pools[i]
		p := burstapi.Pool{
			Name: pool.Name, Currency: s.Burst.Currency, PricePerNodeHour: cmp.Or(pool.OnDemand, pool.Spot),
			Purchases: []burstapi.Purchase{}, GiveBack: []burstapi.GiveBack{}, Nodes: []burstapi.Node{},
		}
		if at := slices.IndexFunc(d.Pools, func(o model.PoolDemand) bool { return o.Name == pool.Name }); at >= 0 {
			p.Wanted, p.Present, p.Coming, p.Why = d.Pools[at].Wanted, d.Pools[at].Present, d.Pools[at].Coming, d.Pools[at].Why
		}
		for k := range b.Purchases {
			if e := &b.Purchases[k]; e.Pool == pool.Name {
				p.Purchases = append(p.Purchases, e.wire())
			}
		}
		for _, g := range d.GiveBack {
			if g.Pool == pool.Name {
				p.GiveBack = append(p.GiveBack, burstapi.GiveBack{Name: g.Name, By: g.By, Why: g.Why})
			}
		}
		for _, f := range s.Burst.Blocked {
			if f.Pool == pool.Name && f.Market == "" && f.Until.After(s.Now) {
				until := f.Until
				p.BlockedUntil, p.BlockedWhy = &until, f.Why
			}
		}
		for _, d := range b.Doubts {
			if d.Pool == pool.Name {
				p.InDoubt = append(p.InDoubt, burstapi.Doubt{Name: d.Name, Purchase: d.Purchase, Since: d.Since, Why: d.Why})
			}
		}
		p.Nodes = b.nodes(s, pool, d, fault)
		out = append(out, p)
	}
	return out
}

func (e *Entry) wire() burstapi.Purchase {
	// What is gone is not to be made again.
	names := slices.DeleteFunc(slices.Clone(e.Names), func(name string) bool { return slices.Contains(e.Gone, name) })
	p := burstapi.Purchase{
		ID: e.ID, Gang: jobText(e.For), Nodes: len(names), Names: names, Market: burstapi.Market(e.Market),
		PricePerNodeHour: e.Price, CostEstimate: e.Cost, Ordered: e.Ordered, ExpectBy: e.ExpectBy, State: burstapi.State(e.State), Why: e.Why,
	}
	if e.Message != "" && !e.Open() {
		p.Why = e.Message
	}
	if !e.Deadline.IsZero() {
		deadline := e.Deadline
		p.Deadline = &deadline
	}
	return p
}

func jobText(n model.JobName) string { return cmp.Or(n.Namespace, "default") + "/" + n.ID }

// nodes are those of a pool that Nomad knows.
func (b *Book) nodes(s *model.Snapshot, pool *model.BuyPool, d *model.Demand, fault func(*model.Node, *model.BuyPool) string) []burstapi.Node {
	out := []burstapi.Node{}
	gangs := map[string][]string{}
	add := func(node, job string) {
		if !slices.Contains(gangs[node], job) {
			gangs[node] = append(gangs[node], job)
		}
	}
	for i := range s.Allocs {
		if a := &s.Allocs[i]; a.Job != "" {
			add(a.Node, jobText(model.JobName{Namespace: a.Namespace, ID: a.Job}))
		}
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		for k := range j.Members {
			if m := &j.Members[k]; !m.Ended && j.State != model.StateStopping {
				add(m.Node, jobText(model.JobName{Namespace: j.Namespace, ID: j.ID}))
			}
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Bought == nil || n.Bought.Pool != pool.Name {
			continue
		}
		slices.Sort(gangs[n.ID])
		node := burstapi.Node{
			Name: n.Bought.Name, NodeID: n.ID, Purchase: n.Bought.Purchase, Market: burstapi.Market(n.Bought.Market),
			Gang: strings.Join(gangs[n.ID], ","), Why: cmp.Or(n.Bought.Surplus, fault(n, pool)), State: burstapi.Present,
		}
		node.Ready = node.Why == ""
		if !node.Ready {
			node.State = burstapi.Coming
		}
		if slices.ContainsFunc(d.GiveBack, func(g model.GiveBack) bool { return g.Pool == pool.Name && g.Name == node.Name }) {
			node.State = burstapi.GivingBack
		}
		out = append(out, node)
	}
	slices.SortFunc(out, func(x, y burstapi.Node) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.NodeID, y.NodeID))
	})
	return out
}
