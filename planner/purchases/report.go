package purchases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// part notes that a node is gone.
func (b *Book) part(e *Entry, name string, now time.Time) {
	if slices.Contains(e.Gone, name) || !slices.Contains(e.Names, name) {
		return
	}
	before := e.total(now)
	e.Gone = append(e.Gone, name)
	e.Parted += max(0, before-e.total(now))
}

// partAfter notes that a node is gone which its target says has existed for so many
// seconds; 0 is one that was never made.
func (b *Book) partAfter(e *Entry, name string, seconds float64) {
	if slices.Contains(e.Gone, name) || !slices.Contains(e.Names, name) {
		return
	}
	e.Gone = append(e.Gone, name)
	if seconds > 0 {
		e.Parted += burst.Bill(1, e.Price, time.Duration(seconds*float64(time.Second)), e.MinBilling, e.Period)
	}
}

// Report takes over what the target says; false: nobody knows the purchase.
func (b *Book) Report(r *burstapi.Report, now time.Time) bool {
	if r.Kind == burstapi.ReportInDoubt {
		b.doubt(r, now)
		return true
	}
	e := b.find(r.Purchase)
	if e == nil || e.Pool != r.Pool {
		return false
	}
	switch r.Kind {
	case burstapi.ReportOrdered, burstapi.ReportPresent:
		if e.Billed.IsZero() {
			e.Billed = now
		}
		if e.State == model.PurchaseWanted {
			e.State, e.ExpectBy = model.PurchaseComing, latest(e.ExpectBy, now.Add(e.Join))
		}
	case burstapi.ReportGone:
		names := r.Nodes
		if len(names) == 0 {
			names = e.Names
		}
		for _, name := range names {
			if seconds, known := r.Lived[name]; known {
				b.partAfter(e, name, seconds)
			} else {
				b.part(e, name, now)
			}
		}
	case burstapi.ReportFailed:
		b.failed(e, r, now)
	}
	return true
}

// failed takes over that a purchase could not be had. What is left of it is paid for
// until it is gone, what existed for as long as it did, and what was never made not
// at all.
func (b *Book) failed(e *Entry, r *burstapi.Report, now time.Time) {
	if e.State != model.PurchaseFailed {
		why := fmt.Sprintf("%s: %s", r.Reason, r.Message)
		if r.Message == "" {
			why = string(r.Reason)
		}
		e.State, e.Message, e.Ended = model.PurchaseFailed, why, now
		b.fail(e, now, r.Reason == burstapi.ReasonCapacity, why)
	}
	// Nomad has seen nodes of which the target says nothing: they existed.
	silent := e.Joined && len(r.Nodes) == 0 && len(r.Lived) == 0
	for _, name := range e.Names {
		if !slices.Contains(e.Leaving, name) {
			e.Leaving = append(e.Leaving, name)
		}
		switch {
		case slices.Contains(r.Nodes, name):
			e.Until, e.Made = latest(e.Until, now), true
		case silent:
			b.part(e, name, now)
		default:
			b.partAfter(e, name, r.Lived[name])
		}
	}
	if len(e.Gone) == e.Nodes {
		b.charge(e, now)
	}
}

// doubt takes over which nodes of a purchase are in doubt. It is kept whether or not
// the purchase is known: they may be paid for.
func (b *Book) doubt(r *burstapi.Report, now time.Time) {
	since := map[string]time.Time{}
	b.Doubts = slices.DeleteFunc(b.Doubts, func(d Doubt) bool {
		if d.Pool != r.Pool || d.Purchase != r.Purchase {
			return false
		}
		since[d.Name] = d.Since
		return true
	})
	for _, name := range r.Nodes {
		at, before := since[name]
		if !before {
			at = now
		}
		b.Doubts = append(b.Doubts, Doubt{Pool: r.Pool, Purchase: r.Purchase, Name: name, Since: at, Why: r.Message})
	}
	slices.SortStableFunc(b.Doubts, func(x, y Doubt) int { return strings.Compare(x.Pool+"/"+x.Name, y.Pool+"/"+y.Name) })
	if len(b.Doubts) > maxDoubts {
		b.Doubts = b.Doubts[:maxDoubts]
	}
}

// Forget lets go of a purchase: what of it nobody has said is gone counts as gone now,
// and what it has cost as spent. The names are those; false is that nobody knows it.
func (b *Book) Forget(id string, now time.Time) (out Entry, names []string, known bool) {
	e := b.find(id)
	if e == nil {
		return out, nil, false
	}
	for _, name := range e.Names {
		if !slices.Contains(e.Gone, name) {
			names = append(names, name)
			b.part(e, name, now)
		}
	}
	b.charge(e, now)
	out = *e
	b.Purchases = slices.DeleteFunc(b.Purchases, func(o Entry) bool { return o.ID == id })
	b.Doubts = slices.DeleteFunc(b.Doubts, func(d Doubt) bool { return d.Purchase == id })
	return out, names, true
}

// Total is what a purchase has cost of which nothing is left.
func (e *Entry) Total() float64 { return e.Parted }
