package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// Reservations are an operator's word and are booked before anything is decided:
// maintenances, capacity for queues, and the starts of gangs.

// setApart books what is set apart: maintenances first, so that no capacity is
// kept on nodes that are closed.
func (c *cycle) setApart() {
	if len(c.apart) == 0 {
		return
	}
	a := c.openAhead()
	c.sizeReserve()
	c.uses = make([]model.ReservationUse, len(c.apart))
	shares := map[int]*share{}
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
			shares[i] = &share{r: r, from: from, until: until, nodes: nodes}
		case model.ReserveStart:
			c.guarantee(r, use, from)
		}
	}
	a.keepCapacity(shares)
	if len(c.queuesApart) > 0 {
		c.beginHolding() // what is kept is not free to all, so the two views differ
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
		if lacks := r.Unmatched(a.c.present, a.c.tree.Levels); len(lacks) > 0 {
			use.Reason += ": " + strings.Join(lacks, "; ")
		}
	case len(use.Jobs) == 0:
		use.Reason = fmt.Sprintf("%s will be empty by then", plural(len(nodes), "node"))
		if from == 0 {
			use.Reason = plural(len(nodes), "node") + " empty"
		}
	case from > 0:
		use.Reason = fmt.Sprintf("still there when it begins, or nobody knows: %s; %s", a.jobList(use.Jobs), a.evictText(r, "then", use.Jobs))
	default:
		use.Reason = fmt.Sprintf("it has begun, and still there: %s; %s", a.jobList(use.Jobs), a.evictText(r, "now", use.Jobs))
	}
	if r.Evict && from == 0 {
		a.c.evicting = append(a.c.evicting, r)
	}
}

// evictText says what becomes of those who are still there when it begins.
func (a *ahead) evictText(r *model.Reservation, when string, jobs []model.JobName) string {
	if !r.Evict {
		return "stop them, or set evict"
	}
	alone := slices.DeleteFunc(slices.Clone(jobs), func(n model.JobName) bool {
		j := a.c.jobs[jobKey{n.Namespace, n.ID}]
		return j != nil && j.Preempt != model.PreemptNever
	})
	switch {
	case len(alone) == 0:
		return "they are stopped " + when + " and queued again"
	case len(alone) == len(jobs):
		return "evict leaves them alone, since they may never be preempted or are not managed: stop them yourself"
	}
	return fmt.Sprintf("they are stopped %s and queued again, but for %s: evict leaves alone what may never be preempted or is not managed, so stop that yourself", when, a.jobList(alone))
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

// below reports whether a job's queue is one, or below it.
func below(path, queue string) bool { return path == queue || strings.HasPrefix(path, queue+"/") }

// apartFor is the queue whose capacity a job may use, the nearest above it; "" if
// there is none.
func (c *cycle) apartFor(j *model.Job) (queue string) {
	for _, q := range c.queuesApart {
		if below(j.Queue, q) && len(q) > len(queue) {
			queue = q
		}
	}
	if queue == "" && slices.Contains(c.queuesApart, interactiveQueue) && c.usesReserve(j) {
		return interactiveQueue
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
		case r.Kind == model.ReserveCapacity && begins < g.runs && !below(g.queue, r.Queue):
			names = append(names, fmt.Sprintf("%s kept for %s", plural(r.GPUs, "GPU"), queueWords(r.Queue)))
		}
	}
	return strings.Join(names, " and ")
}

// loosen says what to change so that what is kept for others does not keep a gang
// from ever starting.
func (c *cycle) loosen(g *gang) string {
	var names []string
	own := ""
	for i := range c.apart {
		r := &c.apart[i]
		if r.Kind != model.ReserveCapacity || c.uses[i].State == "over" || below(g.queue, r.Queue) {
			continue
		}
		if r.Queue == interactiveQueue {
			own = "lower policy.interactive.reserve, or "
			continue
		}
		names = append(names, r.Name)
	}
	if len(names) > 0 {
		own += fmt.Sprintf("keep less by the %s %s, or ", reservationWord(len(names)), nameList(names))
	}
	return own + "ask for fewer GPUs"
}

func reservationWord(n int) string {
	if n == 1 {
		return "reservation"
	}
	return "reservations"
}

// tellBefore says that what is set apart keeps a gang from starting: now, where
// there is room, or for as long as it is set apart, whoever ends.
func (c *cycle) tellBefore(g *gang, w *wait, text string, forever bool, truth *place.Engine) {
	if c.terse {
		return
	}
	lasting := "it cannot start as long as that is so, whoever ends: " + c.loosen(g)
	wants := "needs " + g.wants() + g.where()
	if !forever || c.placeable(truth, g) {
		w.reason = fmt.Sprintf("%s, which would fit, but not beside %s", wants, text)
		if forever {
			w.reason += "; " + lasting
		}
		return
	}
	best := c.bestDomain(truth, g)
	c.refine(truth, g, &best)
	w.detail.MembersFit, w.detail.Level, w.detail.Domain = best.fit, best.level, best.path
	room := plural(best.gpus, "GPU") + " free"
	if g.members > 1 {
		room = fmt.Sprintf("room for %d of %d", best.fit, g.members)
	}
	w.reason = fmt.Sprintf("%s; %s has %s now; and with all of it free it would not fit beside %s: %s",
		wants, domainName(best.level, best.path), room, text, lasting)
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
	for _, node := range c.ahead.given {
		row, list := *e.State.Row(node), c.ahead.on[node]
		for i := range list {
			if b := &list[i]; b.queue != "" && !below(g.queue, b.queue) {
				row.GPUs &^= b.claim.GPUs
			}
		}
		e.State.Try(node, row)
	}
	return c.placeable(e, g)
}
