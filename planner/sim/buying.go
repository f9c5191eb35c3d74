package sim

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/purchases"
)

// buying is what the planner of a simulation remembers of bought nodes: the same
// book that the daemon keeps.
type buying struct {
	pools    model.Burst
	policy   burst.Policy
	book     *purchases.Book
	nodes    []model.Node
	known    map[string]bool
	orders   []order
	returned []returned
	leaving  map[string]bool
	// said is what was last said of those that wait, by job.
	said map[string]string
}

func newBuying(c *Cluster, policy core.Policy) *buying {
	if len(c.Burst.Pools) == 0 {
		return nil
	}
	return &buying{pools: c.Burst, policy: policy.Burst.WithDefaults(), book: &purchases.Book{}, known: map[string]bool{}, leaving: map[string]bool{}, said: map[string]string{}}
}

// lookEvery is how often is looked at purchases at least, in seconds.
const lookEvery = 60

// rest is what changes in a snapshot beside nodes, jobs and allocations.
func (p *planner) rest(now float64, past model.History) *model.Snapshot {
	out := &model.Snapshot{Levels: p.cluster.Levels, Queues: p.past.With(p.queues, clock(now), p.halfLife), History: past}
	if p.buying != nil {
		out.Burst = p.buying.book.Burst(p.buying.pools, clock(now))
	}
	return out
}

// buy takes a plan over.
func (p *planner) buy(now float64, plan *model.Plan) []Action {
	b := p.buying
	if b == nil {
		return nil
	}
	for i := range plan.Decisions {
		if d := &plan.Decisions[i]; d.Action == model.ActionWait && d.Detail.Burst != nil {
			b.said[d.Job] = d.Detail.Burst.Why
		}
	}
	s := &model.Snapshot{Now: clock(now), Nodes: b.nodes, Burst: b.pools}
	named := func(id string) {
		if i, known := p.numbers[id]; known {
			s.Jobs = append(s.Jobs, *p.jobs[i])
		}
	}
	for _, o := range plan.Demand.Buy {
		named(o.For.ID)
	}
	for _, u := range plan.Demand.Uses {
		named(u.For.ID)
	}
	b.book.Carry(s, plan.Demand, b.policy.CoolDown, s.Now)
	for _, o := range plan.Demand.Buy {
		gang, there := p.numbers[o.For.ID]
		if !there {
			gang = -1
		}
		b.orders = append(b.orders, order{pool: o.Pool, names: o.Names, spot: o.Market == model.MarketSpot, gang: gang})
		b.book.Report(&burstapi.Report{Pool: o.Pool, Purchase: o.ID, Kind: burstapi.ReportOrdered}, s.Now)
	}
	var out []Action
	for _, g := range plan.Demand.GiveBack {
		if b.leaving[g.Name] {
			continue
		}
		b.leaving[g.Name] = true
		b.returned = append(b.returned, returned{g.Name, g.By.Sub(epoch).Seconds()})
		if g.Node != "" {
			out = append(out, p.drain(now, g.Node, g.Why)...)
		}
	}
	return out
}

// drain stops what runs on a node, as its target would have it.
func (p *planner) drain(now float64, node, why string) (out []Action) {
	for _, id := range p.running() {
		j := p.jobs[p.numbers[id]]
		if !slices.ContainsFunc(j.Members, func(m model.Member) bool { return m.Node == node }) || j.State != model.StateRunning {
			continue
		}
		actions, err := p.preempt(now, &model.Preemption{Namespace: j.Namespace, Job: j.ID, Action: model.ActionPreempt, For: model.JobName{ID: "give-back"}, Reason: why})
		if err == nil {
			out = append(out, actions...)
		}
	}
	return out
}

// running are the jobs that run, in order.
func (p *planner) running() (ids []string) {
	for id, i := range p.numbers {
		if p.jobs[i].State == model.StateRunning {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Orders implements buyer.
func (p *planner) Orders() ([]order, []returned) {
	b := p.buying
	orders, back := b.orders, b.returned
	b.orders, b.returned = nil, nil
	return orders, back
}

// Arrive implements buyer.
func (p *planner) Arrive(_ float64, name string, place int) error {
	b := p.buying
	for i := range b.book.Purchases {
		e := &b.book.Purchases[i]
		if !slices.Contains(e.Names, name) {
			continue
		}
		at := slices.IndexFunc(b.pools.Pools, func(o model.BuyPool) bool { return o.Name == e.Pool })
		pool := &b.pools.Pools[at]
		n := pool.Node
		n.ID, n.Name = name, name
		n.Bought = &model.Bought{Pool: e.Pool, Name: name, Purchase: e.ID, Market: e.Market}
		n.GPUs = slices.Clone(n.GPUs)
		for k := range n.GPUs {
			n.GPUs[k].UUID = fmt.Sprintf("%s.%d", name, k)
			p.gpus[n.GPUs[k].UUID] = device{gpu: int8(k)}
		}
		levels := map[string]string{}
		for level, value := range n.Levels {
			levels[level] = value
		}
		if pool.Near != "" {
			levels[pool.Near] = e.ID
		}
		n.Levels = levels
		p.nodes[name] = place
		b.nodes = append(slices.Clip(b.nodes), n)
		p.change.PutNodes = append(p.change.PutNodes, n)
		return nil
	}
	return fmt.Errorf("%w: node %s of no purchase has booted", ErrScheduler, name)
}

// Gone implements buyer.
func (p *planner) Gone(now float64, name string, victims []int) error {
	b := p.buying
	for _, i := range victims {
		if p.jobs[i].State == model.StateStopping {
			if err := p.Left(now, i); err != nil {
				return err
			}
			continue
		}
		p.back(now, i)
	}
	b.nodes = slices.DeleteFunc(slices.Clone(b.nodes), func(n model.Node) bool { return n.ID == name })
	p.change.PutNodes = slices.DeleteFunc(p.change.PutNodes, func(n model.Node) bool { return n.ID == name })
	if b.known[name] {
		p.change.DropNodes = append(p.change.DropNodes, name)
	}
	for i := range b.book.Purchases {
		if e := &b.book.Purchases[i]; slices.Contains(e.Names, name) {
			b.book.Report(&burstapi.Report{Pool: e.Pool, Purchase: e.ID, Kind: burstapi.ReportGone, Nodes: []string{name}}, clock(now))
			return nil
		}
	}
	return nil
}

// Spent implements buyer.
func (p *planner) Spent(now float64) (sum float64) {
	if p.buying == nil {
		return 0
	}
	state := p.buying.book.Burst(p.buying.pools, clock(now))
	for i := range state.Bought {
		sum += state.Bought[i].Spent
	}
	for _, s := range state.Spent {
		if s.Queue == "" {
			sum += s.Amount
		}
	}
	return sum
}

// Why implements buyer.
func (p *planner) Why(job int) string {
	if p.buying == nil || p.jobs[job] == nil {
		return ""
	}
	return p.buying.said[p.jobs[job].ID]
}

// noteKnown remembers which bought nodes the core has been told of.
func (b *buying) noteKnown(put []model.Node) {
	if b == nil {
		return
	}
	for i := range put {
		if put[i].Bought != nil {
			b.known[put[i].ID] = true
		}
	}
}
