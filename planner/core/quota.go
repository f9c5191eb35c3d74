package core

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// accounts is what the jobs of a cluster use, kept up to date with its nodes.
type accounts struct {
	tree *queue.Tree
	// capacity is all that the cluster has.
	capacity queue.Vector
	byJob    map[jobKey]queue.Vector
	// onNode is, by node, what each holder of something there uses.
	onNode [][]usedBy
	// ledger is what all jobs use, but for those that have changed since, and
	// charged what it has been charged with for each.
	ledger  *queue.Ledger
	charged map[jobKey]charge
	changed map[jobKey]bool
}

// usedBy is what a job uses.
type usedBy struct {
	job    jobKey
	amount queue.Vector
}

// charge is what a ledger was charged with for a job.
type charge struct {
	home   queue.Home
	amount queue.Vector
	never  bool
}

// openAccounts makes the accounts for a new tree of nodes.
func (p *Prepared) openAccounts() {
	p.accounts = nil
	if len(p.queues) == 0 && !p.policy.NeedsTree() {
		return
	}
	models := map[string]bool{}
	for i := range p.tree.Kinds {
		models[p.tree.Kinds[i].Model] = true
	}
	a := &accounts{tree: queue.NewTree(p.queues, slices.Sorted(maps.Keys(models))), byJob: map[jobKey]queue.Vector{}, onNode: make([][]usedBy, len(p.tree.Nodes))}
	a.ledger, a.charged, a.changed = queue.NewLedger(a.tree), map[jobKey]charge{}, map[jobKey]bool{}
	a.capacity = a.tree.Amount(0, 0, 0)
	for i := range p.tree.Nodes {
		n := p.tree.Nodes[i].Model
		a.capacity.Add(a.tree.Amount(len(n.GPUs), n.Capacity.CPUMHz, n.Capacity.MemoryMiB))
	}
	p.accounts = a
}

// queueTree is nil where there are no queues.
func (p *Prepared) queueTree() *queue.Tree {
	if p.accounts == nil {
		return nil
	}
	return p.accounts.tree
}

// account notes what jobs use on a node now. What is lost is charged to nobody:
// its job is to get a substitute.
func (p *Prepared) account(node int32, holders []holder) {
	a := p.accounts
	if a == nil {
		return
	}
	for _, u := range a.onNode[node] {
		if sum := a.byJob[u.job]; sum != nil { // else it was nothing
			sum.Sub(u.amount)
		}
		a.changed[u.job] = true
	}
	a.onNode[node] = a.onNode[node][:0]
	for i := range holders {
		h := &holders[i]
		if h.lost || h.job.id == "" {
			continue
		}
		amount := p.amountOn(node, h.gpus, h.resources)
		a.changed[h.job] = true
		a.onNode[node] = append(a.onNode[node], usedBy{h.job, amount})
		sum := a.byJob[h.job]
		if sum == nil {
			sum = a.tree.Amount(0, 0, 0)
			a.byJob[h.job] = sum
		}
		sum.Add(amount)
	}
}

// amountOn is an amount on a node.
func (p *Prepared) amountOn(node int32, gpus uint64, r model.Resources) queue.Vector {
	amount := p.accounts.tree.Amount(bits.OnesCount64(gpus), r.CPUMHz, r.MemoryMiB)
	for _, g := range p.tree.Nodes[node].Groups {
		if n := bits.OnesCount64(gpus & g.Mask); n > 0 {
			p.accounts.tree.AddModel(amount, p.tree.Kinds[g.Kind].Model, n)
		}
	}
	return amount
}

// openLedger begins with what all jobs use already.
func (p *Prepared) openLedger() *queue.Ledger {
	a := p.accounts
	if a == nil {
		return nil
	}
	for key := range a.changed {
		p.recharge(key)
	}
	clear(a.changed)
	return a.ledger.Clone()
}

// recharge charges the ledger with what a job uses now, instead of what it used
// before.
func (p *Prepared) recharge(key jobKey) {
	a := p.accounts
	if old, charged := a.charged[key]; charged {
		a.ledger.Discharge(old.home, old.amount, old.never)
		delete(a.charged, key)
	}
	amount := a.byJob[key]
	if amount.Zero() {
		delete(a.byJob, key)
		return
	}
	if j := p.jobs[key]; j != nil {
		now := charge{a.tree.HomeOf(j), slices.Clone(amount), j.Preempt == model.PreemptNever}
		if surplus := p.surplusAmount(j); surplus != nil {
			now.amount.Sub(surplus)
		}
		a.ledger.Charge(now.home, now.amount, now.never)
		a.charged[key] = now
	}
}

// The answers to a gang that asks for its place.
type answer int

const (
	askYes answer = iota
	askNo
	// askLater: its queue has no right to so much before others had their turn.
	askLater
)

// ask places a gang if it fits and its queue may have so much at this stage.
func (c *cycle) ask(t *turn, g *gang, stage int) (r place.Result, a answer) {
	if l := g.landing; l != nil && l.amount != nil {
		// What is kept for it is charged already.
		c.ledger.Discharge(l.home, l.amount, t.never())
		defer func() {
			if a != askYes {
				c.ledger.Charge(l.home, l.amount, t.never())
			}
		}()
	}
	if !c.limited() {
		r, ok := c.place(g)
		if !ok {
			return r, askNo
		}
		if c.ledger != nil {
			c.ledger.Charge(t.home, c.amountOf(g, r), t.never())
		}
		return r, askYes
	}
	want := c.demand(g)
	g.refused = c.ledger.Check(t.home, want, t.never())
	switch {
	case g.refused != nil:
		// Later it would be refused too, and others of its queue would have taken by then
		// what they have a right to sooner, since they are smaller.
		return place.Result{}, askNo
	case c.ledger.Class(t.home, want) > stage:
		return place.Result{}, askLater
	}
	return c.askModels(t, g, stage)
}

func (t *turn) never() bool { return t.job.Preempt == model.PreemptNever }

// askModels places a gang on models of GPUs that its queue may have. Which it
// is may be known only when it is placed.
func (c *cycle) askModels(t *turn, g *gang, stage int) (place.Result, answer) {
	var without []string
	var late bool
	defer func() {
		if len(without) > 0 {
			c.prepare(t.job, g)
		}
	}()
	for {
		state := c.views[viewNow].State
		mark := state.Mark()
		r, ok := c.place(g)
		if !ok {
			if late {
				g.refused = nil
				return r, askLater
			}
			return r, askNo
		}
		got := c.amountOf(g, r)
		tooEarly := c.ledger.Class(t.home, got) > stage
		refused := c.ledger.Check(t.home, got, t.never())
		if !tooEarly && refused == nil {
			g.refused = nil
			c.ledger.Charge(t.home, got, t.never())
			t.d.Detail.BorrowedGPUs += c.ledger.Borrowed(t.home, got)
			return r, askYes
		}
		state.Revert(mark)
		late = late || tooEarly
		if refused != nil {
			g.refused = refused
		}
		more := c.accounts.tree.Models(got)
		if refused != nil && refused.Model() == "" || len(more) == 0 {
			if refused == nil {
				return r, askLater
			}
			return r, askNo
		}
		without = append(without, more...)
		c.prepareWithout(t.job, g, without)
	}
}

// prepareWithout compiles a gang's unit so that it gets none of some models.
func (c *cycle) prepareWithout(j *model.Job, g *gang, models []string) {
	given := g.groups
	defer func() { g.groups = given }()
	refused := make([]model.Constraint, len(models))
	for i, m := range models {
		refused[i] = model.Constraint{Left: deviceModel, Operand: "!=", Right: m}
	}
	g.groups = make([]*model.TaskGroup, len(given))
	for i, group := range given {
		g.groups[i] = withDevices(group, refused...)
	}
	c.prepare(j, g)
}

// asks is what a job asks for, all its members together.
func (a *accounts) asks(j *model.Job) queue.Vector {
	out := a.tree.Amount(0, 0, 0)
	for i := range j.Groups {
		g := &j.Groups[i]
		gpus := 0
		for _, d := range g.Devices {
			gpus += d.Count
		}
		out.Add(a.tree.Amount(g.Count*gpus, g.Count*g.Resources.CPUMHz, g.Count*g.Resources.MemoryMiB))
	}
	return out
}

// demand is what a gang takes wherever it is placed.
func (c *cycle) demand(g *gang) queue.Vector {
	out := c.accounts.tree.Amount(g.gpus, 0, 0)
	for i, group := range g.groups {
		n := len(g.indexes[i])
		out.Add(c.accounts.tree.Amount(0, n*group.Resources.CPUMHz, n*group.Resources.MemoryMiB))
	}
	return out
}

// amountOf is what a gang takes where it has been placed.
func (c *cycle) amountOf(g *gang, r place.Result) queue.Vector {
	out := c.accounts.tree.Amount(0, 0, 0)
	for i := range r.Placed {
		at := &r.Placed[i]
		node := c.tree.Nodes[at.Node].Model
		ask := g.groups[at.Part].Resources
		if ask.Cores > 0 && node.Capacity.Cores > 0 {
			ask.CPUMHz += ask.Cores * node.Capacity.CPUMHz / node.Capacity.Cores
		}
		out.Add(c.amountOn(at.Node, maskOf(at.GPUs), ask))
	}
	return out
}

// waitFor says why a gang is not placed, and keeps for it what it has a right
// to: nodes, if it is room that is lacking; else what its queue may use, so
// that jobs behind it do not take that bit by bit. A queue without a right
// keeps no nodes.
func (c *cycle) waitFor(t *turn, g *gang) wait {
	if g.landing != nil && g.landing.waits != "" {
		return c.stillFlying(g.landing)
	}
	if g.refused != nil && c.startShort(t.job, g) {
		return wait{}
	}
	if g.refused == nil {
		if !c.limited() {
			return c.explain(t.job, g)
		}
		c.asking = c.demand(g)
		w := c.explain(t.job, g)
		if w.detail.Code == codePreempting {
			// It will have it; what it gets is not for others of its queue too.
			c.ledger.Charge(t.home, c.asking, t.never())
		}
		return w
	}
	if !g.astray {
		if why := c.possibility(g); why.code != "" {
			return c.explain(t.job, g)
		}
	}
	truth := c.truth()
	w := wait{reason: fmt.Sprintf("needs %s%s; %s", g.wants(), g.where(), g.refused)}
	w.detail = model.Detail{Code: codeQuota, Filtered: truth.Filtered(g.unit.Parts[g.blocker(truth)].Request), FreeGPUs: c.freeGPUs(truth, g)}
	if g.refused.Ever() && c.policy.Holds() > 0 && g.grown == 0 {
		c.ledger.Keep(t.home, g.refused, c.demand(g))
	}
	return w
}

// borrowedReason says how much of what was placed is borrowed.
func (c *cycle) borrowedReason(t *turn) string {
	kept, all := c.countShares(t, &t.d), 0
	if t.d.Detail.BorrowedGPUs == 0 {
		return ""
	}
	for i := range t.d.Members {
		all += len(t.d.Members[i].GPUs)
	}
	beyond, name := t.d.Detail.BorrowedGPUs, c.accounts.tree.Name(t.home)
	switch open := min(beyond, all-kept); {
	case kept == 0:
		return fmt.Sprintf("; %s of it beyond what queue %s is guaranteed, so others may claim it back", plural(beyond, "GPU"), name)
	case open == 0:
		return fmt.Sprintf("; %s of it beyond what queue %s is guaranteed, but in capacity kept for it, so no other queue claims it back", plural(beyond, "GPU"), name)
	default:
		return fmt.Sprintf("; %s of it beyond what queue %s is guaranteed and what is kept for it, so others may claim it back", plural(open, "GPU"), name)
	}
}

// report says how the queues stand at the end of a plan.
func (c *cycle) report(plan *model.Plan) []model.QueueUse {
	if c.ledger == nil {
		return nil
	}
	var waiting []queue.Waiting
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if lacking := d.Detail.MembersWanted - len(d.Members); d.Action == model.ActionWait || lacking > 0 {
			gpus := d.Detail.WantedGPUs
			for _, m := range d.Members {
				gpus -= len(m.GPUs)
			}
			waiting = append(waiting, queue.Waiting{Home: c.accounts.tree.HomeOf(c.jobs[jobKey{d.Namespace, d.Job}]), GPUs: gpus})
		}
	}
	return c.ledger.Report(c.accounts.capacity, waiting)
}

// nameQueue notes the queue that a job counts for.
func (c *cycle) nameQueue(t *turn) {
	if len(c.queues) > 0 {
		t.d.Detail.Queue = c.accounts.tree.Name(t.home)
	}
}
