package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// The reasons of PurchaseUse.
const (
	useTimeout = "timeout"
	useLost    = "lost"
	useUnused  = "unused"
)

// use finds what has come of a purchase.
func (b *buyer) use(p *model.Purchase) {
	u := &model.PurchaseUse{ID: p.ID, State: p.State, For: p.For, Started: !p.Started.IsZero()}
	b.uses[p.ID] = u
	defer func() { b.out.Uses = append(b.out.Uses, *u) }()
	nodes, pool := b.nodes[p.ID], b.c.poolOf(p.Pool)
	jobs := b.jobsOn(nodes)
	own := keyNamed(p.For)
	inherited := false
	if !u.Started && p.Open() {
		u.With = b.waiting(p)
		if name, why := b.heir(p, u, jobs); b.c.burst.Hold == "" && !slices.Contains(jobs, own) && name.ID != "" {
			u.For, u.Why, own, inherited = name, why, keyNamed(name), true
			u.With = slices.DeleteFunc(u.With, func(o model.JobName) bool { return o == name })
		}
	}
	u.Busy = slices.Contains(jobs, own)
	if u.Started = u.Started || u.Busy; u.Started {
		u.With = nil
	}
	if u.Started && !u.Busy && len(jobs) > 0 {
		// Who uses it pays for it.
		u.For, u.Busy = model.JobName{Namespace: jobs[0].namespace, ID: jobs[0].id}, true
		u.Why = fmt.Sprintf("%s has ended there, and %s runs on it", jobName(own), jobName(jobs[0]))
	}
	if !p.Open() || b.c.burst.Hold != "" {
		return
	}
	missing, ready := b.readiness(p, nodes, pool)
	if ready && u.State != model.PurchasePresent {
		u.State = model.PurchasePresent
	}
	switch {
	case u.Busy:
	case b.broken(p, nodes, pool) != "":
		u.State, u.Reason, u.Why = model.PurchaseFailed, useLost, b.broken(p, nodes, pool)
	case missing != "" && p.State == model.PurchasePresent:
		u.State, u.Reason, u.Why = model.PurchaseFailed, useLost, fmt.Sprintf("its node %s is gone, so what is left of it is given back: a gang is on one purchase or on none", missing)
	case u.Started:
	case !inherited && b.noUse(p) != "":
		u.State, u.Why = model.PurchaseGiving, b.noUse(p)
	case u.State != model.PurchasePresent && b.c.now.After(p.ExpectBy):
		u.State, u.Reason = model.PurchaseFailed, useTimeout
		u.Why = fmt.Sprintf("%d of its %s were ready by %s; all of it is given back", b.readyCount(p, nodes, pool), plural(p.Nodes, "node"), p.ExpectBy.UTC().Format(time.RFC3339))
	case u.State == model.PurchasePresent && b.c.now.After(p.ExpectBy.Add(unusedFor(pool))):
		u.State, u.Reason, u.Why = model.PurchaseGiving, useUnused, fmt.Sprintf("it has been ready for long, and %s has not started on it", jobName(own))
	}
}

// broken says that a node of a purchase has been down for as long as a new one would
// take to boot; "" if none has. An agent that is started again is back sooner.
func (b *buyer) broken(p *model.Purchase, nodes map[string]int32, pool *model.BuyPool) string {
	if p.Broken.IsZero() || pool == nil || b.c.now.Sub(p.Broken) < pool.Boot {
		return ""
	}
	for _, name := range p.Names {
		if node, there := nodes[name]; there && b.c.present[node].Unschedulable == nodeDown {
			return fmt.Sprintf("its node %s is down since %s, and a new one takes %s, so what is left of it is given back: a gang is on one purchase or on none",
				name, clock(p.Broken, b.c.now), pool.Boot)
		}
	}
	return ""
}

// nodeDown is how a node is called of which Nomad hears nothing.
const nodeDown = "down"

// unusedFor is for how long beyond when it had to be there a purchase waits for its
// gang.
func unusedFor(pool *model.BuyPool) time.Duration {
	if pool == nil {
		return time.Hour
	}
	return max(pool.Join, 10*time.Minute)
}

// readiness says which node of a purchase is not there, and whether all are ready.
func (b *buyer) readiness(p *model.Purchase, nodes map[string]int32, pool *model.BuyPool) (missing string, ready bool) {
	ready = true
	for _, name := range p.Names {
		node, there := nodes[name]
		switch {
		case slices.Contains(p.Leaving, name):
		case !there || slices.Contains(p.Gone, name):
			missing, ready = name, false
		default:
			ready = ready && b.ready(node, pool)
		}
	}
	return missing, ready
}

func (b *buyer) readyCount(p *model.Purchase, nodes map[string]int32, pool *model.BuyPool) (n int) {
	for _, name := range p.Names {
		if node, there := nodes[name]; there && b.ready(node, pool) {
			n++
		}
	}
	return n
}

// noUse says why the gang needs a purchase no more that has not started on it; ""
// if it does.
func (b *buyer) noUse(p *model.Purchase) string {
	own := keyNamed(p.For)
	j := b.c.jobs[own]
	switch {
	case j == nil:
		return fmt.Sprintf("%s is no more", jobName(own))
	case j.State == model.StateStopping && len(j.Members) == 0 && !waits(j):
		return ""
	case b.c.burstMode(j) == model.BurstNever:
		return fmt.Sprintf("%s is not to have bought nodes any more", jobName(own))
	case !waits(j):
		return fmt.Sprintf("%s has started elsewhere", jobName(own))
	case b.c.givenTo[own]:
		return fmt.Sprintf("%s starts elsewhere, where there is room now", jobName(own))
	}
	return ""
}

// giveBack lists what is to go.
func (b *buyer) giveBack() {
	for i := range b.c.burst.Bought {
		p := &b.c.burst.Bought[i]
		u := b.uses[p.ID]
		pool := b.c.poolOf(p.Pool)
		by, due := b.periodOf(p, pool)
		why, all := u.Why, u.State == model.PurchaseFailed || u.State == model.PurchaseGiving
		if why == "" {
			why = p.Why
		}
		if !all && u.Started && b.c.burst.Hold == "" {
			if text := b.spentOut(p, pool); text != "" {
				all, why = true, text
				u.State, u.Why = model.PurchaseGiving, text
				b.tellUse(u)
			}
		}
		for _, name := range p.Names {
			node, there := b.nodes[p.ID][name]
			idle := ""
			if !all && !slices.Contains(p.Leaving, name) {
				if idle = b.idle(p, u, node, there, due); idle == "" {
					continue
				}
			}
			if slices.Contains(p.Gone, name) {
				continue
			}
			text := why
			if idle != "" {
				text = idle
			}
			b.give(model.GiveBack{Pool: p.Pool, Purchase: p.ID, Name: name, Node: b.nodeID(node, there), By: by, Why: text})
		}
	}
	b.giveStrays()
}

func (b *buyer) tellUse(u *model.PurchaseUse) {
	for i := range b.out.Uses {
		if b.out.Uses[i].ID == u.ID {
			b.out.Uses[i] = *u
		}
	}
}

func (b *buyer) give(g model.GiveBack) {
	if b.leaving[g.Pool] == nil {
		b.leaving[g.Pool] = map[string]bool{}
	}
	b.leaving[g.Pool][g.Name] = true
	b.out.GiveBack = append(b.out.GiveBack, g)
}

func (b *buyer) nodeID(node int32, there bool) string {
	if !there {
		return ""
	}
	return b.c.tree.Nodes[node].Model.ID
}

// periodOf is the end of a purchase's billing period, and whether it is near.
func (b *buyer) periodOf(p *model.Purchase, pool *model.BuyPool) (by time.Time, due bool) {
	if pool == nil || p.Billed.IsZero() {
		return b.c.now, true
	}
	in, due := burst.GiveBack(b.c.now.Sub(p.Billed), pool.MinBilling, pool.Period, b.policy.Lead)
	return b.c.now.Add(in), due
}

// idle says that a node does nothing and is not to be paid for again; "" if it
// stays.
func (b *buyer) idle(p *model.Purchase, u *model.PurchaseUse, node int32, there, due bool) string {
	if b.c.burst.Hold != "" || !there || !u.Started || u.Busy || p.Idle.IsZero() || b.busy[node] || !due {
		return ""
	}
	been := b.c.now.Sub(p.Idle)
	// Who waits for it could have started long ago: it is not kept for that for ever.
	if been < b.policy.Idle || b.claimed(p.ID) && been < b.policy.Idle+unusedFor(b.c.poolOf(p.Pool)) {
		return ""
	}
	return fmt.Sprintf("%s has ended there, the node is idle since %s, and its billing period ends", jobName(keyNamed(p.For)), clock(p.Idle, b.c.now))
}

// claimed reports whether somebody who waits is to have a purchase's nodes.
func (b *buyer) claimed(id string) bool {
	return slices.ContainsFunc(b.lots, func(s *lot) bool { return s.id == id && s.claimed })
}

// spentOut says that the money for a purchase is gone: what it costs until it can
// have been given back is more than is left.
func (b *buyer) spentOut(p *model.Purchase, pool *model.BuyPool) string {
	j := b.c.jobs[keyNamed(p.For)]
	if j == nil || pool == nil || p.Billed.IsZero() {
		return ""
	}
	been := b.c.now.Sub(p.Billed)
	later := burst.Bill(left(p), p.Price, been+b.policy.Lead+time.Minute, pool.MinBilling, pool.Period)
	rest, of := b.budget(j, p.ID)
	if rest < 0 || max(p.Spent, later) <= rest {
		return ""
	}
	return fmt.Sprintf("%s is spent: %s so far, and %s if it stayed for %s more, of %s", of, b.money(p.Spent), b.money(later), (b.policy.Lead + time.Minute).Round(time.Second), b.money(rest))
}

// giveStrays lists nodes that no purchase has, once they do nothing.
func (b *buyer) giveStrays() {
	if b.c.burst.Hold != "" {
		return
	}
	for _, node := range b.c.bought {
		on := b.c.tree.Nodes[node].Model.Bought
		why := on.Surplus
		switch p := b.c.purchase(on.Purchase); {
		case why != "":
		case p == nil:
			why = "it is of no purchase that is known"
		case !slices.Contains(p.Names, on.Name):
			why = "its name is none of its purchase's"
		}
		if why == "" || b.busy[node] || on.Name == "" || b.leaving[on.Pool][on.Name] || on.Surplus != "" && b.named(on) {
			continue
		}
		b.give(model.GiveBack{Pool: on.Pool, Purchase: on.Purchase, Name: on.Name, Node: b.c.tree.Nodes[node].Model.ID, By: b.c.now, Why: why})
	}
}

// named reports whether another node has the same name and counts: a pool knows
// nodes by their names, so this one cannot be given back without that.
func (b *buyer) named(on *model.Bought) bool {
	_, other := b.nodes[on.Purchase][on.Name]
	return other
}
