package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Backfill: the first gangs that wait get a reservation, a place and a time at
// which they will start. Who comes behind them may use what is free until then,
// if by its estimate it ends before, or does not use what the gang needs. With
// one reservation that is EASY (Lifka, The ANL/IBM SP scheduling system,
// JSSPP'95); with one for each gang it is conservative backfill (Mu'alem and
// Feitelson, Utilization, predictability, workloads, and user runtime estimates
// in scheduling the IBM SP2 with backfilling, TPDS 12(6), 2001). A reservation is
// made anew in each plan, so what ends early is made use of at once.

// reserve gives a gang that waits a place and a time. It is false where the time
// is not known: then nodes are kept for it from now on.
func (c *cycle) reserve(j *model.Job, g *gang) (kept, bool) {
	a := c.openAhead()
	o := a.foresee(j, g, who{})
	if c.mayDivide(g) {
		otherwise := eternity
		if o.known {
			otherwise = o.at
		}
		if k, ok := c.reserveToDivide(j, g, otherwise); ok {
			return k, true
		}
	}
	if !o.known || c.displacesBefore(j, o.at) {
		return kept{}, false
	}
	g.outlook = &o
	a.told++
	c.beginHolding()
	k := kept{in: o.in, timed: true}
	for _, on := range o.claims {
		a.book(on.node, booking{from: o.at, until: o.until(), claim: on.claim, job: keyOf(j)})
		c.keepClear(on.node)
		k.nodes = append(k.nodes, on.node)
	}
	k.nodes = sortedNodes(k.nodes)
	c.holds = append(c.holds, hold{job: keyOf(j)})
	c.epoch++
	return k, true
}

// displacesBefore reports whether others give way to a job before a time, so that it
// keeps the promise of its deadline.
func (c *cycle) displacesBefore(j *model.Job, at time.Duration) bool {
	by := c.standing(j).Latest
	return !by.IsZero() && c.now.Add(at).After(by) && c.policy.Preempt.Enabled && c.policy.Preemptive()
}

// keepsNothing reports whether a gang displaces others as soon as its turn has come. Who
// was promised a deadline displaces nobody who was promised his: those must not come
// into his way.
func (c *cycle) keepsNothing(j *model.Job) bool {
	st := c.standing(j)
	return st.Passed && st.Latest.IsZero()
}

// guessStart finds out when a gang could start that has no reservation, and notes
// that as what is expected; nil if that is done for enough others.
func (c *cycle) guessStart(j *model.Job, g *gang) *outlook {
	a := c.openAhead()
	if a.told >= c.policy.MaxForecasts() {
		return nil
	}
	a.told++
	o := a.foresee(j, g, who{foreseen: true})
	for _, on := range o.claims {
		a.book(on.node, booking{from: o.at, until: o.until(), claim: on.claim, foreseen: true, job: keyOf(j)})
	}
	return &o
}

// keepClear shows of a node, to those who do not end in time, what nobody else
// needs later.
func (c *cycle) keepClear(node int32) {
	state := c.views[viewNow].State
	if state.Row(node).GPUs == 0 && c.ahead.offersNothing(node) {
		return
	}
	c.showClear(node)
}

// showClear does so wherever it is. Who has started in this plan counts, too.
func (c *cycle) showClear(node int32) {
	c.ahead.sync()
	state := c.views[viewNow].State
	owner := state.Row(node).Owner
	row := c.ahead.row(node, 0, eternity, who{})
	row.Owner = owner
	state.Try(node, row)
}

// keptNow notes what is kept for a gang from now on, until it starts.
func (c *cycle) keptNow(j *model.Job, g *gang, nodes []int32) {
	if !c.looksAhead() {
		return
	}
	a := c.openAhead()
	for _, node := range nodes {
		now := c.views[viewNow].State.Row(node)
		b := booking{until: eternity, closed: now.Owner != 0, kept: true, job: keyOf(j)}
		if !b.closed {
			row := a.row(node, 0, eternity, who{queue: g.queue})
			b.claim = topo.Claim{GPUs: row.GPUs &^ now.GPUs, Resources: minus(row.Free, now.Free), Ports: now.Ports}
		}
		a.book(node, b)
	}
}

// keptUntil notes when it starts.
func (a *ahead) keptUntil(j *model.Job, nodes []string, at time.Duration) {
	for _, id := range nodes {
		node, _ := a.c.tree.Find(id)
		for i := range a.on[node] {
			if b := &a.on[node][i]; b.kept && b.job == keyOf(j) {
				b.until = at
				a.touch(node)
			}
		}
	}
}

// lending is what the view shows of those who end in time.
type lending struct {
	open bool
	// runs is for how long who borrows runs, queue its queue where that matters.
	runs  time.Duration
	queue string
	// seen is up to which version of the view of all the nodes are alike.
	seen int
}

// placeInTime places a gang that ends before those start who have reserved the
// place.
func (c *cycle) placeInTime(g *gang) (place.Result, bool) {
	a := c.ahead
	if a == nil || g.grown > 0 || len(a.bounds) == 0 && g.queue == "" {
		return place.Result{}, false
	}
	if g.queue == "" && a.bounds[len(a.bounds)-1] < g.runs && !a.overlooks(g.runs) {
		return place.Result{}, false
	}
	a.sync()
	told := c.answersOf(g)
	if told != nil && told.failedIn == a.cycle && g.runs >= told.failed {
		return place.Result{}, false
	}
	e := a.lend(g.runs, g.queue)
	mark := e.State.Mark()
	r, ok := e.Place(g.unit)
	e.State.Revert(mark)
	if !ok {
		if told != nil {
			told.failed, told.failedIn = g.runs, a.cycle
		}
		return r, false
	}
	c.views[viewNow].Take(g.unit, r.Placed)
	g.lent = true
	return r, true
}

// lend shows what somebody may use who runs for so long.
func (a *ahead) lend(runs time.Duration, queue string) *place.Engine {
	e, all, l := a.c.views[viewLent], a.c.views[viewNow].State, &a.lent
	show := func(node int32) {
		row := *all.Row(node)
		if row.GPUs == 0 && e.State.Row(node).GPUs == 0 && a.offersNothing(node) {
			return
		}
		if a.booked[node] {
			owner := row.Owner
			row = a.row(node, 0, runs, who{queue: queue})
			row.Owner = a.ownerFor(node, owner, queue)
		}
		if old := e.State.Row(node); !sameRow(old, &row) {
			e.State.Try(node, row)
		}
	}
	changed, now, ok := all.Since(l.seen)
	switch {
	case !l.open:
		l.open = true
		changed, now, ok = all.Since(a.c.opened)
		for _, node := range a.given {
			show(node)
		}
	case l.queue != queue:
		for _, node := range a.given {
			show(node)
		}
	default:
		// What begins between the two run times is what one of them minds.
		lo, hi := min(l.runs, runs), max(l.runs, runs)
		for _, bound := range a.bounds {
			if lo <= bound && bound < hi {
				for _, node := range a.begins[bound] {
					show(node)
				}
			}
		}
	}
	for _, node := range changed {
		show(node)
	}
	if !ok {
		for node := range int32(all.Len()) {
			show(node)
		}
	}
	l.runs, l.queue, l.seen = runs, queue, now
	return e
}

// offersNothing reports whether a node has nothing now for anybody who waits, whatever is
// given away of its time: all its GPUs are held, and nobody asks for none. Most of those
// on which somebody has reserved his place are such, and nobody reads why they are not
// for others.
func (a *ahead) offersNothing(node int32) bool {
	return a.c.postponing && len(a.c.jobsOf(someBare)) == 0 && a.baseAt(node, 0).GPUs == 0
}

func sameRow(a, b *topo.Row) bool {
	return a.GPUs == b.GPUs && a.Free == b.Free && a.Owner == b.Owner && a.Closed == b.Closed && slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Users, b.Users)
}

// borrows says, of a gang placed where others will start, who does first, or for whom
// the nodes are kept already, and until when it is expected to have ended.
func (c *cycle) borrows(g *gang, placed []place.Placed) (b model.Backfill, any bool) {
	first := eternity
	for i := range placed {
		p := &placed[i]
		for k := range c.ahead.on[p.Node] {
			o := &c.ahead.on[p.Node][k]
			if o.foreseen || o.job.id == "" || o.from <= 0 || !o.closed && len(p.GPUs) > 0 && o.claim.GPUs&maskOf(p.GPUs) == 0 {
				continue
			}
			at := o.from
			if o.drained {
				at = o.until
			}
			if b.Drained || !o.drained && at >= first {
				continue
			}
			first = at
			b = model.Backfill{For: model.JobName{Namespace: o.job.namespace, ID: o.job.id}, Start: c.now.Add(at), Until: c.now.Add(g.runs), Drained: o.drained}
		}
	}
	return b, first < eternity
}

// backfillReason says so.
func (c *cycle) backfillReason(b *model.Backfill) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf("; it is expected to have ended at %s, before %s starts there at %s",
		clock(b.Until, c.now), jobName(jobKey{b.For.Namespace, b.For.ID}), clock(b.Start, c.now))
}
