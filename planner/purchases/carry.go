package purchases

import (
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

const (
	// keepFor is for how long a purchase that is over is still told of.
	keepFor = time.Hour
	// goneAfter is after what time a node counts as gone that was given back and that
	// Nomad does not know or has down, though nobody has said so.
	goneAfter = time.Hour
	// doubtFor is for how long a node is told of that may exist, if nobody says more.
	doubtFor = 48 * time.Hour
	// nodeDown is how Nomad calls a node that it hears nothing of.
	nodeDown = "down"
)

// Carry takes over what a plan decided, and what is seen of the nodes.
func (b *Book) Carry(s *model.Snapshot, d *model.Demand, coolDown time.Duration, now time.Time) {
	if d == nil {
		d = &model.Demand{}
	}
	b.see(s, now)
	for i := range d.Uses {
		if e := b.find(d.Uses[i].ID); e != nil {
			b.use(s, e, &d.Uses[i], now)
		}
	}
	for i := range d.GiveBack {
		g := &d.GiveBack[i]
		e := b.find(g.Purchase)
		if e == nil || !slices.Contains(e.Names, g.Name) || slices.Contains(e.Leaving, g.Name) {
			continue
		}
		e.Leaving = append(e.Leaving, g.Name)
		e.Until = latest(e.Until, g.By, now.Add(coolDown))
		if e.Message == "" {
			e.Message = g.Why
		}
	}
	for _, p := range d.Buy {
		e := Entry{Purchase: p, Queue: queueOf(s, p.For)}
		if at := slices.IndexFunc(s.Burst.Pools, func(o model.BuyPool) bool { return o.Name == p.Pool }); at >= 0 {
			pool := &s.Burst.Pools[at]
			e.MinBilling, e.Period, e.Boot, e.Join = pool.MinBilling, pool.Period, pool.Boot, pool.Join
		}
		b.Purchases = append(b.Purchases, e)
	}
	b.close(s, now)
}

func latest(times ...time.Time) (out time.Time) {
	for _, t := range times {
		if t.After(out) {
			out = t
		}
	}
	return out
}

func queueOf(s *model.Snapshot, name model.JobName) string {
	at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.Namespace == name.Namespace && j.ID == name.ID })
	if at < 0 {
		return ""
	}
	return s.Jobs[at].Queue
}

// see notes which nodes are there. Who joins before anybody has said that he is
// ordered is paid for since he was, by this planner's clock: no other is asked.
func (b *Book) see(s *model.Snapshot, now time.Time) {
	down := map[string]bool{}
	defer func() {
		for i := range b.Purchases {
			switch e := &b.Purchases[i]; {
			case !down[e.ID]:
				e.Broken = time.Time{}
			case e.Broken.IsZero():
				e.Broken = now
			}
		}
	}()
	for i := range s.Nodes {
		on := s.Nodes[i].Bought
		if on == nil {
			continue
		}
		e := b.find(on.Purchase)
		if e == nil || !slices.Contains(e.Names, on.Name) {
			continue
		}
		e.Joined = true
		down[e.ID] = down[e.ID] || on.Surplus == "" && s.Nodes[i].Unschedulable == nodeDown && !slices.Contains(e.Leaving, on.Name)
		if e.Billed.IsZero() {
			e.Billed = latest(e.Ordered, now.Add(-e.Boot))
		}
		if e.State == model.PurchaseWanted {
			e.State = model.PurchaseComing
		}
	}
}

// use takes over what has come of a purchase.
func (b *Book) use(s *model.Snapshot, e *Entry, u *model.PurchaseUse, now time.Time) {
	if u.State != e.State && e.Open() {
		switch e.State = u.State; u.State {
		case model.PurchaseFailed:
			e.Message, e.Ended = u.Why, now
			b.fail(e, now, u.Reason == "lost", u.Why)
		case model.PurchaseGiving:
			e.Message, e.Ended = u.Why, now
			if u.Reason != "" { // bought in vain, and it would be again
				b.fail(e, now, false, u.Why)
			}
		}
	}
	if u.For != e.For && u.For.ID != "" {
		b.charge(e, now)
		e.For, e.Queue = u.For, queueOf(s, u.For)
	}
	e.With = u.With
	if u.Started && e.Started.IsZero() {
		e.Started = now
		b.succeed(e)
	}
	switch {
	case u.Busy:
		e.Idle = time.Time{}
	case u.Started && e.Idle.IsZero():
		e.Idle = now
	}
}

// close ends what is over: nodes that are gone though nobody has said so, and
// purchases of which nothing is left.
func (b *Book) close(s *model.Snapshot, now time.Time) {
	known := map[string]bool{}
	for i := range s.Nodes {
		if on := s.Nodes[i].Bought; on != nil && s.Nodes[i].Unschedulable != nodeDown {
			known[on.Name] = true
		}
	}
	for i := range b.Purchases {
		e := &b.Purchases[i]
		rest := goneAfter
		if e.Billed.IsZero() {
			rest = e.Join // nobody has ever begun to make it
		}
		for _, name := range e.Leaving {
			if !known[name] && now.After(e.Until.Add(rest)) {
				b.part(e, name, now)
			}
		}
		if len(e.Gone) == e.Nodes {
			b.charge(e, now)
			switch {
			case e.Open() && len(e.Leaving) == e.Nodes:
				e.State = model.PurchaseGiving
			case e.Open(): // they were taken away
				e.State = model.PurchaseFailed
			}
			if e.Ended.IsZero() {
				e.Ended = now
			}
		}
	}
	b.Purchases = slices.DeleteFunc(b.Purchases, func(e Entry) bool {
		return len(e.Gone) == e.Nodes && now.After(e.Until) && (e.State != model.PurchaseFailed || now.Sub(e.Ended) > keepFor)
	})
	b.Failures = slices.DeleteFunc(b.Failures, func(f Failure) bool { return now.Sub(f.Until) > maxBlock })
	b.Doubts = slices.DeleteFunc(b.Doubts, func(d Doubt) bool { return now.Sub(d.Since) > doubtFor })
}
