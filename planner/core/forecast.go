package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// outlook is when and where a gang is expected to start, and why then.
type outlook struct {
	known  bool
	at     time.Duration
	runs   time.Duration
	claims []claimOn
	in     domainFit
	// basis says what it follows from, or why it is not known.
	basis string
}

// maxTries is at how many times a gang is tried that may not fit where each of
// its groups does, and maxOdd for how many such gangs in one cycle.
const (
	maxTries = 6
	maxOdd   = 16
)

// foresee finds out when a gang could start first, and where.
func (a *ahead) foresee(j *model.Job, g *gang, w who) outlook {
	o := outlook{runs: g.runs}
	switch {
	case g.unit.Only != nil || g.astray || g.grown > 0:
		o.basis = "unknown: it has to be where its other members are"
		return o
	case a.c.endings == 0 && !a.timed:
		o.basis = "unknown: " + a.unknown(g, false)
		return o
	case a.work <= 0:
		o.basis = "not estimated: too much is to be looked at in one decision"
		return o
	case !g.plain() && a.odd >= maxOdd:
		o.basis = fmt.Sprintf("not estimated: it is for the first %d gangs of unequal members only", maxOdd)
		return o
	case !g.plain():
		a.odd++
	}
	w.queue, w.self = g.queue, keyOf(j)
	tries := 0
	a.eachTime(g, g.runs, w, func(at time.Duration, where []domainFit) bool {
		for _, f := range where {
			claims, ok := a.locate(g, at, f, w)
			if ok {
				o.known, o.at, o.claims, o.in = true, at, claims, f
				return false
			}
			a.c.unsure = true
			if tries++; tries == maxTries {
				return false
			}
		}
		return true
	})
	if o.known = o.known && o.at > 0; !o.known {
		o.basis, o.claims = "unknown: "+a.unknown(g, tries > 0), nil
		return o
	}
	if a.c.terse {
		return o
	}
	if len(o.claims) > 0 && o.in.path == "" {
		o.in = a.c.fitAround(o.claims)
	}
	o.basis = a.basisOf(j, &o, w)
	return o
}

// fitAround is the smallest domain around claims.
func (c *cycle) fitAround(claims []claimOn) domainFit {
	lo, hi := claims[0].node, claims[0].node
	for _, on := range claims {
		lo, hi = min(lo, on.node), max(hi, on.node)
	}
	if lo == hi {
		return places{node: true}.fit(c, lo)
	}
	return places{}.fit(c, c.domainAround(lo, hi))
}

// locate finds places for a gang in a domain at a time.
func (a *ahead) locate(g *gang, at time.Duration, f domainFit, w who) ([]claimOn, bool) {
	e := a.c.views[viewAhead]
	mark := e.State.Mark()
	defer e.State.Revert(mark)
	if g.plain() {
		return a.locateAlike(g, at, f, w)
	}
	for node := f.lo; node < f.hi; node++ {
		e.State.Try(node, a.rowOf(node, at, g.runs, w))
	}
	unit := *g.unit
	if f.domain >= 0 {
		unit.Within = f.domain
	} else {
		unit.Within = a.c.tree.Nodes[f.node].Leaf
	}
	r, ok := e.Place(&unit)
	if !ok {
		return nil, false
	}
	return a.c.claimsOf(&unit, r.Placed), true
}

// What has been done with a node: the state shows it, or it takes nobody else and need not
// be shown.
const (
	isShown = 1 + iota
	isFull
)

// locateAlike finds places for equal members: first where something becomes free
// until then, so that as little as can be is kept of what is free already. That
// leaves to others what are the extra nodes of EASY (Mu'alem and Feitelson,
// TPDS'01, section 2.2).
func (a *ahead) locateAlike(g *gang, at time.Duration, f domainFit, w who) ([]claimOn, bool) {
	e, part := a.c.views[viewAhead], g.unit.Parts[0]
	island := g.unit.Topology.Mode == model.TopologyRequire && g.unit.Topology.Level == model.LevelIsland
	var nodes []int32
	for node := f.lo; node < f.hi; node++ {
		if a.members[node] > 0 {
			nodes = append(nodes, node)
		}
	}
	claims := make([]claimOn, 0, min(len(nodes), part.Count))
	left, shown := part.Count, a.c.scratch.counts(e.State.Len())
	put := func(node int32, limit uint64) {
		switch shown[node] {
		case isFull:
			return
		case 0:
			row := a.rowOf(node, at, g.runs, w)
			n, claim, all := a.c.catalog.Unchosen(part.Request, node, &row, left, limit)
			if all && bits.OnesCount64(row.GPUs&^claim.GPUs) < part.Request.GPUs {
				left -= n
				claims = append(claims, claimOn{node, topo.Claim{GPUs: claim.GPUs, Resources: claim.Resources, Ports: part.Request.Ports, Usage: part.Request.Usage()}})
				shown[node] = isFull
				return
			}
			e.State.Try(node, row)
			shown[node] = isShown
		}
		before := *e.State.Row(node)
		left -= e.PutInto(part.Request, node, left, limit)
		after := *e.State.Row(node)
		claim := topo.Claim{GPUs: before.GPUs &^ after.GPUs, Resources: minus(before.Free, after.Free), Ports: part.Request.Ports, Usage: part.Request.Usage()}
		if after.GPUs != before.GPUs || after.Free != before.Free {
			claims = append(claims, claimOn{node, claim})
		}
	}
	if part.Request.GPUs > 0 && !island {
		for _, node := range nodes {
			if left == 0 {
				break
			}
			if fresh := a.baseAt(node, at).GPUs &^ a.baseAt(node, 0).GPUs; bits.OnesCount64(fresh) >= part.Request.GPUs {
				put(node, fresh)
			}
		}
	}
	slices.SortStableFunc(nodes, func(x, y int32) int { return cmp.Compare(a.members[x], a.members[y]) })
	for _, node := range nodes {
		if left == 0 {
			break
		}
		for _, limit := range a.limits(node, island) {
			put(node, limit)
		}
	}
	for _, node := range nodes {
		shown[node] = 0
	}
	return claims, left == 0
}

// limits are the GPUs of a node that members may be among.
func (a *ahead) limits(node int32, island bool) []uint64 {
	if !island {
		return []uint64{^uint64(0)}
	}
	return a.c.tree.Nodes[node].Shape.Islands
}

func minus(a, b model.Resources) model.Resources {
	return model.Resources{CPUMHz: a.CPUMHz - b.CPUMHz, Cores: a.Cores - b.Cores, MemoryMiB: a.MemoryMiB - b.MemoryMiB, DiskMiB: a.DiskMiB - b.DiskMiB}
}

// basisOf says on what a start rests: who has to end for it.
func (a *ahead) basisOf(j *model.Job, o *outlook, w who) string {
	latest := time.Duration(-1)
	var names []string
	note := func(at time.Duration, text func() string) {
		if at <= 0 || at > o.at || at < latest {
			return // most are, and texts cost
		}
		if at > latest {
			latest, names = at, names[:0]
		}
		if name := text(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, on := range o.claims {
		for i := range a.c.held[on.node] {
			h := &a.c.held[on.node][i]
			if on.claim.GPUs == 0 || h.gpus&on.claim.GPUs != 0 {
				note(a.leaves(h), func() string { return a.endText(j, h) })
			}
		}
		for i := range a.on[on.node] {
			b := &a.on[on.node][i]
			if w.minds(b) && (b.closed || on.claim.GPUs == 0 || b.claim.GPUs&on.claim.GPUs != 0) {
				note(b.until, func() string { return a.bookedText(b) })
			}
		}
	}
	if len(names) == 0 {
		return "others of its queue ahead of it"
	}
	slices.Sort(names)
	have := "has"
	if len(names) > 1 {
		have = "have"
	}
	return nameList(names) + " " + have + " ended"
}

// purgedName names a job that is gone, but for tasks that may still run.
func purgedName(k jobKey, until, now time.Time) string {
	return fmt.Sprintf("the purged job %s (its tasks may take until %s)", jobName(k), clockBy(until, now))
}

// endText names who holds something, and says how its end is known.
func (a *ahead) endText(j *model.Job, h *holder) string {
	if h.on != nil && !h.on.Until.IsZero() {
		return purgedName(h.job, h.on.Until, a.c.now)
	}
	name := a.c.holderName(j, h.job, h.alloc)
	if isLeaving(h.of, h) {
		return name + " (stopping)"
	}
	return name + " (" + a.endOf(h.of).String() + ")"
}

func (a *ahead) bookedText(b *booking) string {
	if b.job.id == "" {
		return b.name
	}
	runs := "ahead of it"
	if j := a.c.jobs[b.job]; j != nil {
		if d, declared := a.c.expected(j); d < eternity {
			runs += ", " + expiry{runs: d, declared: declared}.String()
		}
	}
	return jobName(b.job) + " (" + runs + ")"
}

// String says how long something is expected to run, and who says so.
func (e expiry) String() string {
	by := "as others like it"
	if e.declared {
		by = "by its author"
	}
	text := fmt.Sprintf("est. %s, %s", span(e.runs), by)
	if e.overdue {
		text += ", outlived"
	}
	return text
}

// span says a duration without what is 0 of it.
func span(d time.Duration) string {
	switch {
	case d >= time.Hour:
		d = d.Round(time.Minute)
	case d >= time.Second:
		d = d.Round(time.Second)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// clock says a time to come.
func clock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04 UTC")
	}
	return t.Format("Jan 2 15:04 UTC")
}

// clockBy says a time by which something has ended, which is not within a minute
// that has begun before.
func clockBy(t, now time.Time) string {
	return clock(t.Add(time.Minute-1).Truncate(time.Minute), now)
}

// foretell adds to what a gang is told when it is expected to start, and books
// that for those behind it.
func (c *cycle) foretell(j *model.Job, g *gang, w *wait) {
	if !(w.forRoom || len(c.apart) > 0 && !w.never()) || w.detail.Code == codePreempting || g.grown > 0 || g.astray {
		return
	}
	if len(c.postponed) > 0 {
		return
	}
	a := c.openAhead()
	o := g.outlook
	if o == nil && c.guessIsVain(g, w) {
		return
	}
	if o == nil {
		if o = c.guessStart(j, g); o == nil {
			w.detail.Basis = fmt.Sprintf("not estimated: it is for the first %d that wait", c.policy.MaxForecasts())
			return
		}
	}
	w.detail.Basis = o.basis
	if !o.known {
		return
	}
	a.keptUntil(j, w.detail.Held, o.at)
	at := c.now.Add(o.at)
	if by := c.standing(j).Latest; c.displacesBefore(j, o.at) {
		// It would be late; but the order displaces others before.
		w.detail.Basis = "not estimated: others give way to it in time for its deadline"
		w.reason += fmt.Sprintf("; starts by %s at the latest, to meet its deadline", clock(by, c.now))
		return
	}
	w.detail.Start = at
	if c.terse {
		return
	}
	w.detail.Basis = "when " + o.basis
	w.reason += fmt.Sprintf("; starts about %s in %s when %s", clock(at, c.now), domainName(o.in.level, o.in.path), o.basis)
}

// guessIsVain reports whether nothing hangs on when a gang is expected to start that
// has no reservation: nobody reads it, nothing is kept for it until then, nothing is
// bought or set apart, and what is booked for it is seen by others like it only.
func (c *cycle) guessIsVain(g *gang, w *wait) bool {
	return c.terse && c.policy.Backfills() && c.asked == nil && g.plain() && len(w.detail.Held) == 0 && len(c.burst.Pools)+len(c.apart) == 0
}

// until is when it will have ended.
func (o *outlook) until() time.Duration { return endOf(o.at, o.runs) }

// endOf is when something ends that begins at a time and lasts for so long.
func endOf(at, lasts time.Duration) time.Duration {
	if lasts >= eternity-at {
		return eternity
	}
	return at + lasts
}

// claimsOf is what placed members take of their nodes.
func (c *cycle) claimsOf(u *place.Unit, placed []place.Placed) []claimOn {
	out := make([]claimOn, len(placed))
	for i := range placed {
		out[i] = claimOn{placed[i].Node, c.views[viewNow].Claim(u, &placed[i])}
	}
	return out
}
