package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Purchases that several gangs share: beside the one that they are for, or after it. Who
// is to start beside it is remembered in the purchase, and its nodes are kept for all of
// them: else who comes later and goes before them would have the room that they wait for.

// lot is a purchase that others may share: beside its gang, or after it.
type lot struct {
	id, pool, market string
	nodes            int
	price            float64
	// begins is when it is ready, and free when all who have it so far have gone.
	begins, free time.Duration
	// with are those who start on it together; none once it has begun.
	with []*model.Job
	// claimed: somebody who waits is to have it.
	claimed bool
}

// openLots lists the purchases that there are.
func (b *buyer) openLots() {
	for i := range b.c.burst.Bought {
		p := &b.c.burst.Bought[i]
		u := b.uses[p.ID]
		if u.State != model.PurchaseWanted && u.State != model.PurchaseComing && u.State != model.PurchasePresent || len(p.Leaving) > 0 {
			continue
		}
		s := &lot{id: p.ID, pool: p.Pool, market: p.Market, nodes: p.Nodes, price: p.Price}
		j := b.c.jobs[keyNamed(u.For)]
		switch {
		case u.Started && u.Busy && j != nil:
			s.free = eternity // nobody knows
			if _, ends := b.c.expected(j); ends || j.Estimate > 0 {
				// Who has outlived its estimate does not end now for that.
				if at := b.c.openAhead().endOf(j).at; at > 0 {
					s.free = at
				}
			}
		case u.Started:
		case j != nil:
			if pool := b.c.poolOf(p.Pool); pool != nil && u.State != model.PurchasePresent {
				s.begins = max(0, p.Ordered.Add(pool.Boot).Sub(b.c.now))
			}
			s.with = []*model.Job{j}
			for _, name := range u.With {
				s.with = append(s.with, b.c.jobs[keyNamed(name)])
			}
			for _, j := range s.with {
				s.free = max(s.free, s.begins+min(b.work(j), eternity-s.begins))
			}
			s.claimed = len(s.with) > 1
		}
		b.lots = append(b.lots, s)
	}
}

// own is the purchase that a job waits for.
func (b *buyer) own(j *model.Job) *model.Purchase {
	for i := range b.c.burst.Bought {
		p := &b.c.burst.Bought[i]
		u := b.uses[p.ID]
		if u.State.Open() && !u.Started && u.For == nameOf(j) {
			return p
		}
	}
	return nil
}

// beside is the purchase on which a job is to start beside the gang that it is for.
func (b *buyer) beside(j *model.Job) *model.Purchase {
	for i := range b.c.burst.Bought {
		p := &b.c.burst.Bought[i]
		if u := b.uses[p.ID]; u.State.Open() && !u.Started && slices.Contains(u.With, nameOf(j)) {
			return p
		}
	}
	return nil
}

func (b *buyer) tellBeside(d *model.Decision, p *model.Purchase) {
	u := b.uses[p.ID]
	why := fmt.Sprintf("it waits for the nodes of purchase %s, on which it is to start beside %s: %s of pool %s, expected by %s", p.ID, jobName(keyNamed(u.For)), plural(p.Nodes, "node"), p.Pool, clock(p.ExpectBy, b.c.now))
	d.Detail.Burst = &model.BurstChoice{Purchase: p.ID, Budget: -1, Currency: b.c.burst.Currency, Why: why}
	d.Reason += "; " + why
}

// shared is a purchase of others, as an offer to a job.
func (b *buyer) shared(s *lot, j *model.Job) (burst.Offer, bool) {
	pool := b.c.poolOf(s.pool)
	if pool == nil || s.free >= eternity {
		return burst.Offer{}, false
	}
	if n := b.c.nodesFor(pool, j).nodes; n == 0 || n > s.nodes {
		return burst.Offer{}, false
	}
	o := b.offer(pool, s.market, s.nodes, j)
	o.Shares, o.Price, o.Boot, o.After = s.id, s.price, s.free, true
	if len(s.with) > 0 && b.c.misfit(pool, s.nodes, append(slices.Clone(s.with), j)...) == "" {
		o.Boot, o.After = s.begins, false
		o.Price = 0 // it is paid for anyway
	}
	return o, true
}

// share notes that a job is to have a purchase of others.
func (b *buyer) share(j *model.Job, v *burst.Valued) {
	for _, s := range b.lots {
		if s.id != v.Shares {
			continue
		}
		s.claimed = true
		if v.Boot == s.begins && len(s.with) > 0 && v.Price == 0 {
			s.with = append(s.with, j)
			b.keepFor(s.id, j)
		} else {
			s.with = nil
		}
		s.free = max(s.free, v.End)
	}
}

func nameOf(j *model.Job) model.JobName { return model.JobName{Namespace: j.Namespace, ID: j.ID} }

func keyNamed(n model.JobName) jobKey { return jobKey{n.Namespace, n.ID} }

// keepFor remembers that a job is to start on a purchase beside its gang.
func (b *buyer) keepFor(id string, j *model.Job) {
	for i := range b.out.Buy {
		if p := &b.out.Buy[i]; p.ID == id {
			p.With = append(p.With, nameOf(j))
			return
		}
	}
	u := b.uses[id]
	u.With = append(u.With, nameOf(j))
	b.tellUse(u)
}

// waiting are those who are still to start on a purchase beside its gang.
func (b *buyer) waiting(p *model.Purchase) (out []model.JobName) {
	for _, name := range p.With {
		key := keyNamed(name)
		if j := b.c.jobs[key]; j != nil && waits(j) && !b.c.givenTo[key] && b.c.burstMode(j) != model.BurstNever {
			out = append(out, name)
		}
	}
	return out
}

// heir is who gets a purchase that its gang does not use: who runs on it already, or, if
// the gang needs it no more, the first who is to and may pay for it.
func (b *buyer) heir(p *model.Purchase, u *model.PurchaseUse, jobs []jobKey) (name model.JobName, why string) {
	for _, name := range p.With {
		if key := keyNamed(name); slices.Contains(jobs, key) {
			return name, fmt.Sprintf("%s runs on it, and %s does not", jobName(key), jobName(keyNamed(p.For)))
		}
	}
	why = b.noUse(p)
	if why == "" {
		return model.JobName{}, ""
	}
	for _, name := range u.With {
		key := keyNamed(name)
		if rest, _ := b.budget(b.c.jobs[key], ""); rest < 0 || p.Cost <= rest {
			return name, fmt.Sprintf("%s; %s is to start on it", why, jobName(key))
		}
	}
	return model.JobName{}, ""
}
