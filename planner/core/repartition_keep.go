package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// A gang for which no idle GPU can be divided keeps one that is not idle yet, as
// another gang keeps nodes: where times are known that which is idle first, from then
// on, and else those that are idle already, until there are enough of them.

// comingGPU is a GPU that is kept to be divided once it is idle.
type comingGPU struct {
	node  int32
	mask  uint64
	uuid  string
	model string
	at    time.Duration
	// to are the instances that are wanted of it so far.
	to []string
}

// source is where members could have instances: one that there is, or a GPU that can
// be divided, or is kept to be.
type source struct {
	node  int32
	mask  uint64
	at    time.Duration
	count int
	// gpu and later are indexes in all and later, -1 if it is neither.
	gpu, later int
}

// keepToDivide keeps GPUs for a gang that can only start when some are divided, and
// does it if nobody else is to.
func (c *cycle) keepToDivide(j *model.Job, g *gang) (kept, bool) {
	if c.hasBought(j) || c.keepsNothing(j) && c.guaranteed[keyOf(j)] == nil {
		return kept{}, false
	}
	if c.policy.Backfills() && !c.overdue(j) {
		if k, ok := c.reserveToDivide(j, g, eternity); ok {
			return k, true
		}
	}
	return c.gather(j, g)
}

// mayHold reports whether another gang may keep something: so many may, and besides the
// first that has waited for too long.
func (c *cycle) mayHold(j *model.Job) bool {
	return len(c.holds)-c.divided < c.mostHolds(j) || c.guaranteed[keyOf(j)] != nil || c.overdue(j)
}

// mostHolds is how many gangs keep nodes at once, where this one is the last of them.
func (c *cycle) mostHolds(j *model.Job) int {
	most := c.policy.Holds()
	if wide := c.policy.WideHolds(); wide > most {
		asked := 0
		for i := range j.Groups {
			asked += gpusOfGroup(&j.Groups[i])
		}
		if all, _, _ := c.usableGPUs(); float64(asked) > queue.WidePart*float64(all) {
			return wide
		}
	}
	return most
}

// reserveToDivide gives a gang GPUs that are to be divided otherwise, and a time, if it
// starts so much earlier than otherwise that it is worth it: a GPU that has been divided
// stays so for a while.
func (c *cycle) reserveToDivide(j *model.Job, g *gang, otherwise time.Duration) (kept, bool) {
	d := c.openDivider()
	if len(g.unit.Parts) != 1 || !c.looksAhead() || c.openAhead().work <= 0 {
		return kept{}, false
	}
	d.turn, d.claims = true, nil
	defer func() { d.turn = false }()
	for _, whole := range d.models() {
		a, ok := d.asked(g.groups[0], whole)
		if !ok {
			continue
		}
		r := laterPlaces{at: eternity}
		if a.profile == "" {
			r = d.firstSeats(j, g, a)
		} else if a.count == 1 {
			r = d.firstSources(j, g, a)
		}
		if r.at > 0 && r.at < eternity && r.at < otherwise-divideAgain && r.divides() && !c.displacesBefore(j, r.at) {
			return d.book(j, g, a, &r), true
		}
	}
	return kept{}, false
}

// laterPlaces are what a gang could have from a time on.
type laterPlaces struct {
	at      time.Duration
	sources []source
	seats   []seatFor
}

// divides reports whether any GPU is to be divided otherwise for it.
func (r *laterPlaces) divides() bool {
	return len(r.seats) > 0 || slices.ContainsFunc(r.sources, func(s source) bool { return s.gpu >= 0 || s.later >= 0 })
}

// firstSources are the sources with which a gang of instances starts first, the fewest
// GPUs among them.
func (d *divider) firstSources(j *model.Job, g *gang, a asked) laterPlaces {
	list := d.sources(j, g, a)
	slices.SortStableFunc(list, func(x, y source) int { return cmp.Compare(x.at, y.at) })
	n, have, tries := len(g.indexes[0]), 0, 0
	for i := range list {
		if have += list[i].count; have < n || list[i].at == eternity || i+1 < len(list) && list[i+1].at == list[i].at {
			continue
		}
		if chosen, ok := d.choose(j, g, list[:i+1], list[i].at); ok {
			return laterPlaces{at: list[i].at, sources: chosen}
		}
		if tries++; tries == maxTries {
			break
		}
	}
	return laterPlaces{at: eternity}
}

// sources are all that a gang could have, with the times from which on nobody else has
// it.
func (d *divider) sources(j *model.Job, g *gang, a asked) []source {
	w := who{queue: g.queue, self: keyOf(j)}
	var out []source
	for _, v := range d.instancesOf(a.instance()) {
		if d.mayBeOn(v.node, j, g) && d.views[viewEmpty].State.Row(v.node).GPUs&v.mask != 0 {
			out = append(out, source{v.node, v.mask, d.idleFrom(v.node, v.mask, g, w), 1, -1, -1})
		}
	}
	geometry, _ := mig.Of(a.model)
	for i := range d.coming {
		l := &d.coming[i]
		if n := geometry.Most(l.to, a.profile); n > 0 && l.model == a.model && d.mayBeOn(l.node, j, g) && !d.bookedWithin(l.node, l.mask, l.at, g) {
			out = append(out, source{l.node, l.mask, l.at, n, -1, i})
		}
	}
	if !d.mayHold(j) {
		return out
	}
	most := geometry.Most(nil, a.profile)
	for i := range d.all {
		v := &d.all[i]
		if v.model != a.model || v.barred || most == 0 || !d.mayBeOn(v.node, j, g) || d.views[viewEmpty].State.Row(v.node).GPUs&v.mask != v.mask {
			continue
		}
		if !d.isChosen(v.uuid) && d.promisedOf(v.node)&v.mask == 0 {
			out = append(out, source{v.node, v.mask, max(v.from, d.idleFrom(v.node, v.mask, g, w)), most, i, -1})
		}
	}
	return out
}

// promisedOf are the GPUs of a node that somebody is to have to whom others give way.
func (c *cycle) promisedOf(node int32) uint64 {
	if c.yield == nil {
		return 0
	}
	return c.yield.promised[node].GPUs
}

// dividedFor is for how long a GPU is not to be had that is divided otherwise for somebody.
func dividedFor(g *gang) time.Duration { return max(g.runs, divideAgain) }

// freeFrom is from when on nobody has any of some devices of a node for so long, not
// before a time, as far as is known.
func (a *ahead) freeFrom(node int32, mask uint64, at, lasts time.Duration, w who) time.Duration {
	a.work--
	for i := range a.c.held[node] {
		if h := &a.c.held[node][i]; h.gpus&mask != 0 {
			at = max(at, a.leaves(h))
		}
	}
	for again := at < eternity; again; {
		again = false
		for i := range a.on[node] {
			b := &a.on[node][i]
			if b.until > at && (b.from <= at || b.from-at < lasts) && b.from < b.until && w.minds(b) && (b.closed || b.claim.GPUs&mask != 0) {
				at, again = b.until, b.until < eternity
			}
		}
	}
	return at
}

// bookedWithin reports whether somebody else is to have some devices of a node before a
// gang would have ended that begins at a time.
func (d *divider) bookedWithin(node int32, mask uint64, at time.Duration, g *gang) bool {
	a := d.openAhead()
	return slices.ContainsFunc(a.on[node], func(b booking) bool {
		return b.from > at && b.from-at < dividedFor(g) && !b.foreseen && b.claim.GPUs&mask != 0
	})
}

// idleFrom is from when on a gang may have some devices of a node; eternity if that is
// not known.
func (d *divider) idleFrom(node int32, mask uint64, g *gang, w who) time.Duration {
	at := d.openAhead().freeFrom(node, mask, 0, dividedFor(g), w)
	if at == 0 {
		if row := d.rowFor(node, g); row.GPUs&mask != mask {
			return eternity
		}
	}
	return at
}

// rowFor is what a gang may use of a node: what nobody needs later, or, in its turn,
// what nobody needs until it has ended.
func (d *divider) rowFor(node int32, g *gang) topo.Row {
	row := *d.views[viewNow].State.Row(node)
	a := d.cycle.ahead
	if a == nil || !d.turn || g.runs == eternity || !a.booked[node] {
		return row
	}
	a.sync()
	owner := row.Owner
	row = a.row(node, 0, dividedFor(g), who{queue: g.queue})
	row.Owner = a.ownerFor(node, owner, g.queue)
	for _, on := range d.claims {
		if on.node == node {
			row.Take(on.claim)
		}
	}
	return row
}

// choose takes of the sources that there are at a time as many as a gang needs: first
// instances, then a part of GPUs that are kept already, then whole ones. It is false if
// there is no room beside the GPUs.
func (d *divider) choose(j *model.Job, g *gang, list []source, at time.Duration) ([]source, bool) {
	order := slices.Clone(list)
	kind := func(s *source) int {
		switch {
		case s.gpu < 0 && s.later < 0:
			return 0
		case s.later >= 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(order, func(x, y source) int {
		return cmp.Or(cmp.Compare(kind(&x), kind(&y)), cmp.Compare(x.at, y.at), cmp.Compare(x.node, y.node), cmp.Compare(bits.TrailingZeros64(x.mask), bits.TrailingZeros64(y.mask)))
	})
	left, room, w := len(g.indexes[0]), map[int32]int{}, who{queue: g.queue, self: keyOf(j)}
	var out []source
	for _, s := range order {
		if s.later < 0 && s.at < at && d.cycle.ahead.freeFrom(s.node, s.mask, at, dividedFor(g), w) > at {
			continue // somebody else is to have it then
		}
		if _, known := room[s.node]; !known {
			room[s.node] = d.roomAt(g, s.node, at)
		}
		s.count = min(s.count, left, room[s.node])
		if s.count == 0 {
			continue
		}
		left, room[s.node] = left-s.count, room[s.node]-s.count
		if out = append(out, s); left == 0 {
			return out, true
		}
	}
	return nil, false
}

// roomFor is for how many members there is room in what is free, beside GPUs.
func (g *gang) roomFor(row *topo.Row) int {
	request := g.unit.Parts[0].Request
	free, want, n := row.Free, request.Resources, len(g.indexes[0])
	if row.Closed || !row.PortsFree(request.Ports) {
		return 0
	}
	for _, r := range [][2]int{{free.CPUMHz, want.CPUMHz}, {free.Cores, want.Cores}, {free.MemoryMiB, want.MemoryMiB}, {free.DiskMiB, want.DiskMiB}} {
		if r[1] > 0 {
			n = min(n, max(0, r[0])/r[1])
		}
	}
	if len(request.Ports) > 0 {
		n = min(n, 1)
	}
	return n
}

// roomAt is that of a node at a time.
func (d *divider) roomAt(g *gang, node int32, at time.Duration) int {
	row := d.openAhead().row(node, at, g.runs, who{queue: g.queue})
	return g.roomFor(&row)
}

func severalTimes(r model.Resources, n int) model.Resources {
	return model.Resources{CPUMHz: r.CPUMHz * n, Cores: r.Cores * n, MemoryMiB: r.MemoryMiB * n, DiskMiB: r.DiskMiB * n}
}

// book books what a gang is to have from a time on.
func (d *divider) book(j *model.Job, g *gang, a asked, r *laterPlaces) kept {
	c := d.cycle
	o := &outlook{known: true, at: r.at, runs: g.runs}
	one := g.unit.Parts[0].Request.Resources
	for i := range r.seats {
		o.claims = append(o.claims, claimOn{r.seats[i].node, topo.Claim{GPUs: r.seats[i].mask, Resources: one}})
	}
	for _, s := range r.sources {
		o.claims = append(o.claims, claimOn{s.node, topo.Claim{GPUs: s.mask, Resources: severalTimes(one, s.count)}})
	}
	k := kept{timed: true, divides: true}
	opened := d.comeTo(a, r)
	c.beginHolding()
	if !c.terse {
		o.in, o.basis = c.fitAround(o.claims), c.ahead.basisOf(j, o, who{queue: g.queue, self: keyOf(j)})
		d.tellLaterGPUs(a, r, &k, o)
	}
	for _, on := range o.claims {
		c.ahead.book(on.node, booking{from: r.at, until: endOf(r.at, dividedFor(g)), claim: on.claim, job: keyOf(j)})
		c.keepClear(on.node)
	}
	g.outlook = o
	c.ahead.told++
	if !opened {
		c.divided++ // it has a part of what another one keeps
	}
	return d.noteHold(j, g, k, o.claims)
}

// comeTo notes what instances are wanted of GPUs that are kept. It reports whether more
// GPUs are kept than before.
func (d *divider) comeTo(a asked, r *laterPlaces) bool {
	opened := len(r.seats) > 0
	for i := range r.sources {
		s := &r.sources[i]
		if s.gpu >= 0 {
			v := &d.all[s.gpu]
			s.later, opened = len(d.coming), true
			d.coming = append(d.coming, comingGPU{v.node, v.mask, v.uuid, v.model, r.at, nil})
		}
		if s.later >= 0 {
			l := &d.coming[s.later]
			l.to = append(slices.Clone(l.to), slices.Repeat([]string{a.profile}, s.count)...)
		}
	}
	return opened
}

// tellLaterGPUs says which GPUs are kept for a gang, and until when.
func (d *divider) tellLaterGPUs(a asked, r *laterPlaces, k *kept, o *outlook) {
	var names []string
	name := func(v *divisible) {
		names = append(names, d.gpuName(v.node, v.uuid))
		if v.from == r.at {
			o.basis = names[len(names)-1] + " may be divided again"
		}
	}
	how := "divided"
	for i := range r.seats {
		how = "made whole"
		for _, at := range r.seats[i].joins {
			name(&d.all[at])
		}
	}
	for _, s := range r.sources {
		if s.gpu >= 0 {
			name(&d.all[s.gpu])
		} else if s.later >= 0 {
			names = append(names, d.gpuName(s.node, d.coming[s.later].uuid))
		}
	}
	k.gpus = fmt.Sprintf("%s %s kept to be %s once idle, about %s", nameList(names), isAre(len(names)), how, clock(d.now.Add(r.at), d.now))
}

// noteHold notes what is kept for a gang.
func (d *divider) noteHold(j *model.Job, g *gang, k kept, claims []claimOn) kept {
	for _, on := range claims {
		k.nodes = append(k.nodes, on.node)
	}
	k.nodes = sortedNodes(k.nodes)
	d.cycle.holds = append(d.cycle.holds, hold{job: keyOf(j), divides: k.gpus})
	d.epoch++
	d.inTurn[gangOfIts(j, g)] = inTurn{later: true}
	return k
}

func (d *divider) gpuName(node int32, uuid string) string {
	return fmt.Sprintf("GPU %s of %s", uuid, nodeName(d.present[node]))
}

// tellDivided says of a gang that can only start when GPUs are divided what is done for
// it in its turn, and keeps GPUs for it if nothing is.
func (c *cycle) tellDivided(j *model.Job, g *gang, w *wait) {
	if w.forRoom = w.divided; w.divided || !c.mayDivide(g) {
		return
	}
	k, ok := c.keepToDivide(j, g)
	if !ok {
		return
	}
	w.forRoom, w.detail.Held = true, c.nodeIDs(k.nodes)
	w.reason += "; for it " + k.gpus
}
