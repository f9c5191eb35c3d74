package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Reservations are an operator's word and are booked before anything is decided:
// maintenances, capacity for queues, and the starts of gangs.

// setApart books what is set apart.
func (c *cycle) setApart() {
	if len(c.apart) == 0 {
		return
	}
	a := c.openAhead()
	c.uses = make([]model.ReservationUse, len(c.apart))
	for i := range c.apart {
		r, use := &c.apart[i], &c.uses[i]
		*use = model.ReservationUse{Name: r.Name, Kind: r.Kind, State: "active", From: r.From, Until: r.Until}
		nodes := c.nodesApart(i)
		use.Nodes = len(nodes)
		from, until := time.Duration(0), eternity
		if !r.From.IsZero() {
			from = max(0, r.From.Sub(c.now))
		}
		if !r.Until.IsZero() {
			until = r.Until.Sub(c.now)
		}
		switch {
		case until <= 0:
			use.State, use.Reason = "over", "it is over; take it out of the configuration"
			continue
		case from > 0:
			use.State = "planned"
		}
		switch r.Kind {
		case model.ReserveMaintenance:
			a.maintain(r, use, nodes, from, until)
		case model.ReserveCapacity:
			a.keepCapacity(r, use, nodes, from, until)
		case model.ReserveStart:
			c.guarantee(r, use, from)
		}
	}
}

// nodesApart are the nodes that a reservation is about.
func (c *cycle) nodesApart(i int) []int32 {
	if c.apartNodes == nil {
		c.apartNodes = make([][]int32, len(c.apart))
		for k := range c.apart {
			c.apartNodes[k] = c.findApart(&c.apart[k])
		}
	}
	return c.apartNodes[i]
}

func (p *Prepared) findApart(r *model.Reservation) (nodes []int32) {
	for node := range int32(len(p.tree.Nodes)) {
		if r.Covers(p.tree.Nodes[node].Model, p.tree.Levels) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// maintain closes nodes from when a maintenance begins until it ends, and before
// that for whoever would not have ended. Of whom nobody knows that, they are
// closed for the lead time too.
func (a *ahead) maintain(r *model.Reservation, use *model.ReservationUse, nodes []int32, from, until time.Duration) {
	closed := from <= r.Lead
	if closed && from > 0 {
		use.State = "draining"
	}
	name := fmt.Sprintf("maintenance %s until %s", r.Name, clock(r.Until, a.c.now))
	if !closed {
		a.minded = append(a.minded, from)
	}
	for _, node := range nodes {
		a.book(node, booking{from: from, until: until, lead: r.Lead, closed: true, name: name})
		if closed {
			a.c.closing = true
			for _, view := range []int{viewNow, viewTrue, viewCalm, viewEmpty} {
				row := *a.c.views[view].State.Row(node)
				row.Closed = true
				a.c.views[view].State.Try(node, row)
			}
			a.c.closedBy(node, name)
		}
		for i := range a.c.held[node] {
			h := &a.c.held[node][i]
			if name := (model.JobName{Namespace: h.job.namespace, ID: h.job.id}); h.job.id != "" && a.leaves(h) > from && !slices.Contains(use.Jobs, name) {
				use.Jobs = append(use.Jobs, name)
			}
		}
	}
	slices.SortFunc(use.Jobs, func(x, y model.JobName) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.ID, y.ID))
	})
	switch {
	case len(nodes) == 0:
		use.Reason = "it names no node that there is; correct its nodes or its domain"
	case len(use.Jobs) == 0:
		use.Reason = fmt.Sprintf("%s will be empty by then", plural(len(nodes), "node"))
		if from == 0 {
			use.Reason = plural(len(nodes), "node") + " empty"
		}
	case from > 0:
		use.Reason = fmt.Sprintf("still there when it begins, or nobody knows: %s; %s", a.jobList(use.Jobs), evictText(r))
	default:
		use.Reason = fmt.Sprintf("it has begun, and still there: %s; %s", a.jobList(use.Jobs), evictText(r))
	}
	if r.Evict && from == 0 {
		a.c.evicting = append(a.c.evicting, r)
	}
}

func evictText(r *model.Reservation) string {
	if r.Evict {
		return "they are stopped then and queued again"
	}
	return "stop them, or set evict"
}

func (a *ahead) jobList(jobs []model.JobName) string {
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = jobName(jobKey{j.Namespace, j.ID})
	}
	return nameList(names)
}

// closedBy notes why a node is closed, for those who wait for it.
func (c *cycle) closedBy(node int32, name string) {
	if c.closed == nil {
		c.closed = map[int32]string{}
	}
	c.closed[node] = name
}

// minds reports whether somebody who runs for so long would still run when a
// maintenance begins for which nothing is closed yet.
func (a *ahead) overlooks(runs time.Duration) bool {
	return runs < eternity && slices.ContainsFunc(a.minded, func(from time.Duration) bool { return from < runs })
}

// keepCapacity keeps GPUs for a queue: beside those that it uses, free ones, or
// what becomes free. They are kept where the queue has most already.
func (a *ahead) keepCapacity(r *model.Reservation, use *model.ReservationUse, nodes []int32, from, until time.Duration) {
	if r.Level != "" && r.Domain == "" {
		nodes = a.bestForQueue(r, nodes)
	}
	use.GPUs = r.GPUs
	state := a.c.views[viewTrue].State
	var order []int32
	for _, node := range nodes {
		use.Used += a.usedBy(node, r.Queue)
		if !state.Row(node).Closed {
			order = append(order, node)
		}
	}
	free := func(node int32) int { return bits.OnesCount64(state.Row(node).GPUs) }
	slices.SortStableFunc(order, func(x, y int32) int { return cmp.Compare(free(y), free(x)) })
	left := max(0, r.GPUs-use.Used)
	got := 0
	for _, node := range order {
		if left == 0 {
			break
		}
		all := a.c.emptyRow(node).GPUs &^ a.maskOf(node, r.Queue)
		mask := lowestOf(state.Row(node).GPUs, left)
		got += bits.OnesCount64(mask)
		mask |= lowestOf(all&^state.Row(node).GPUs, left-bits.OnesCount64(mask))
		left -= bits.OnesCount64(mask)
		if mask == 0 {
			continue
		}
		a.book(node, booking{from: from, until: until, claim: topo.Claim{GPUs: mask}, name: "what is kept for queue " + r.Queue, queue: r.Queue})
		a.c.keepClear(node)
	}
	use.Reason = fmt.Sprintf("queue %s uses %d, %d are free for it", r.Queue, use.Used, got)
	switch missing := r.GPUs - use.Used - got; {
	case left > 0:
		use.Reason += fmt.Sprintf("; %d of %d are not there: keep fewer, or on more nodes", left, r.GPUs)
	case missing > 0:
		use.Reason += fmt.Sprintf(", %d more as soon as others have ended", missing)
	}
	a.c.queuesApart = append(a.c.queuesApart, r.Queue)
}

// lowestOf are the lowest bits of a mask, at most n.
func lowestOf(mask uint64, n int) (out uint64) {
	for ; mask != 0 && n > 0; n-- {
		bit := mask & -mask
		out, mask = out|bit, mask&^bit
	}
	return out
}

// below reports whether a job's queue is one, or below it.
func below(path, queue string) bool { return path == queue || strings.HasPrefix(path, queue+"/") }

// maskOf is what jobs of a queue hold of a node.
func (a *ahead) maskOf(node int32, queue string) (mask uint64) {
	for i := range a.c.held[node] {
		h := &a.c.held[node][i]
		if j := a.c.jobs[h.job]; j != nil && below(j.Queue, queue) {
			mask |= h.gpus
		}
	}
	return mask
}

func (a *ahead) usedBy(node int32, queue string) int { return bits.OnesCount64(a.maskOf(node, queue)) }

// bestForQueue are the nodes of the domain in which a queue has, or could have,
// most.
func (a *ahead) bestForQueue(r *model.Reservation, nodes []int32) (best []int32) {
	level, most := a.c.tree.LevelIndex(r.Level), -1
	byDomain := map[int32][]int32{}
	for _, node := range nodes {
		if d := a.c.tree.DomainAt(node, level); d >= 0 {
			byDomain[d] = append(byDomain[d], node)
		}
	}
	for _, d := range a.c.tree.ByLevel[level] {
		n := 0
		for _, node := range byDomain[d] {
			n += 2*a.usedBy(node, r.Queue) + bits.OnesCount64(a.c.views[viewTrue].State.Row(node).GPUs)
		}
		if len(byDomain[d]) > 0 && n > most {
			best, most = byDomain[d], n
		}
	}
	return best
}

// apartFor is the queue whose capacity a job may use, the nearest above it; "" if
// there is none.
func (c *cycle) apartFor(j *model.Job) (queue string) {
	for _, q := range c.queuesApart {
		if below(j.Queue, q) && len(q) > len(queue) {
			queue = q
		}
	}
	return queue
}

// guarantee notes a job that goes first.
func (c *cycle) guarantee(r *model.Reservation, use *model.ReservationUse, from time.Duration) {
	key := jobKey{r.For.Namespace, r.For.ID}
	switch j := c.jobs[key]; {
	case j == nil:
		use.Reason = "there is no such job yet: " + jobName(key)
	case !waits(j):
		use.Reason = jobName(key) + " has started"
	case from > 0:
		use.Reason = jobName(key) + " waits in its own place until then"
	default:
		use.State = "draining"
		if c.guaranteed == nil {
			c.guaranteed = map[jobKey]*model.ReservationUse{}
		}
		c.guaranteed[key] = use
	}
}

// guaranteedFirst puts those first whose start is guaranteed.
func (c *cycle) guaranteedFirst(list []*model.Job) []*model.Job {
	if len(c.guaranteed) == 0 {
		return list
	}
	var first, rest []*model.Job
	for _, j := range list {
		if c.guaranteed[keyOf(j)] != nil {
			first = append(first, j)
		} else {
			rest = append(rest, j)
		}
	}
	return append(first, rest...)
}

// reservations is how they stand at the end of a plan.
func (c *cycle) reservations(plan *model.Plan) []model.ReservationUse {
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		use := c.guaranteed[jobKey{d.Namespace, d.Job}]
		if use == nil {
			continue
		}
		use.Start, use.Reason = d.Detail.Start, d.Reason
		if d.Action == model.ActionAdmit {
			use.State, use.Start = "active", c.now
		}
	}
	return c.uses
}

// notBefore says what is set apart so that a gang waits that would fit; "" if
// nothing is.
func (c *cycle) notBefore(g *gang) string {
	var names []string
	for i := range c.apart {
		r := &c.apart[i]
		begins := r.From.Sub(c.now)
		switch {
		case c.uses[i].State == "over":
		case r.Kind == model.ReserveMaintenance && begins > r.Lead && begins < g.runs && g.runs < eternity:
			names = append(names, fmt.Sprintf("maintenance %s from %s on, before which it would not end", r.Name, clock(r.From, c.now)))
		case r.Kind == model.ReserveCapacity && begins < g.runs && g.queue != r.Queue:
			names = append(names, fmt.Sprintf("%s kept for queue %s", plural(r.GPUs, "GPU"), r.Queue))
		}
	}
	return strings.Join(names, " and ")
}

// shun keeps from a gang, until that is undone, the nodes on which it would still
// run when a maintenance begins.
func (c *cycle) shun(g *gang) {
	if c.ahead == nil || !c.ahead.overlooks(g.runs) {
		return
	}
	for i := range c.apart {
		if r := &c.apart[i]; r.Kind == model.ReserveMaintenance && c.uses[i].State != "over" && r.From.Sub(c.now) < g.runs {
			for _, node := range c.nodesApart(i) {
				c.views[viewNow].State.Keep(node, shunned)
			}
		}
	}
}

// shunned keeps nodes from everybody who is being looked for room for.
const shunned = -2

// besideApart reports whether a gang fits into a view beside what is kept for
// queues that it is not of.
func (c *cycle) besideApart(view int, g *gang) bool {
	if len(c.queuesApart) == 0 {
		return true
	}
	e := c.views[view]
	mark := e.State.Mark()
	defer e.State.Revert(mark)
	for node, list := range c.ahead.on {
		row := *e.State.Row(node)
		for i := range list {
			if b := &list[i]; b.queue != "" && b.queue != g.queue {
				row.GPUs &^= b.claim.GPUs
			}
		}
		e.State.Try(node, row)
	}
	return c.placeable(e, g)
}
