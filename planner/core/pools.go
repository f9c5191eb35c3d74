package core

import (
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// A deadline is promised only of GPUs that the job can come by: of models that it
// takes, of which it has the members of a gang all on one; what its queue and its user
// may use; and, where queues are limited, what jobs of other queues do not hold, since
// they do not give way to it. Each of these is a pool, from which whoever may use it is
// counted to draw, so that rather too little is promised.

// maxPools bounds the pools.
const maxPools = 32

// poolList are the pools so far.
type poolList struct {
	c *cycle
	s *queue.Situation
	// wanting are the jobs that wait for a promise, by index.
	wanting []int
	masks   [][]uint64
	known   map[*place.Request]*candidates
	overlap map[overlapKey]overlap
}

// candidates are the GPUs that members alike may have, by node, how many they are, and of
// which models.
type candidates struct {
	mask   []uint64
	n      int
	models []string
}

// overlap says whether a request may have GPUs of a pool, and others.
type overlap struct{ some, others bool }

type overlapKey struct {
	request *place.Request
	pool    int
}

// countPools tells the discipline of pools, if deadlines are to be promised.
func (c *cycle) countPools(s *queue.Situation) {
	if order := c.policy.Order; order != queue.OrderDeadline && order != queue.OrderCaravan {
		return
	}
	l := poolList{c: c, s: s, known: map[*place.Request]*candidates{}, overlap: map[overlapKey]overlap{}}
	for i := range s.Jobs {
		if e := &s.Jobs[i]; e.Waiting && !e.Running && !e.Job.Deadline.IsZero() {
			l.wanting = append(l.wanting, i)
		}
	}
	if len(l.wanting) == 0 {
		return
	}
	for _, i := range l.wanting {
		l.models(&s.Jobs[i])
	}
	l.drawMasks()
	if a := c.accounts; a != nil && a.tree.Limited {
		l.limits()
		l.reaches()
	}
}

// requests are a job's for each of the ways to serve it: on one model throughout,
// where it names several.
func (l *poolList) requests(j *model.Job, group *model.TaskGroup) (out []*place.Request, models []model.ModelSpeed) {
	if len(j.Models) == 0 || j.MixModels {
		limited := group
		if len(j.Models) > 0 {
			limited = withDevices(group, onlyModels(j.Models))
		}
		return []*place.Request{l.c.catalog.Compile(j, limited)}, nil
	}
	for i := range j.Models {
		out = append(out, l.c.catalog.Compile(j, withDevices(group, onlyModels(j.Models[i:i+1]))))
	}
	return out, j.Models
}

// models makes the pool of the GPUs that a job may have. Of several models it is the
// one with the most GPUs on which it meets its deadline.
func (l *poolList) models(e *queue.Entry) {
	if len(e.Job.Groups) != 1 {
		return // which group gets which GPUs is not known
	}
	requests, models := l.requests(e.Job, &e.Job.Groups[0])
	best, most := []uint64(nil), -1
	least := l.c.policy.Deadline.LeastSpeed(e, l.c.now)
	for i, r := range requests {
		if models != nil && models[i].Speed < least && len(models) > 1 {
			continue
		}
		if u := l.usable(r); u.n > most {
			best, most = u.mask, u.n
		}
	}
	if most < 0 || most >= l.s.GPUs || len(l.masks) == maxPools || slices.ContainsFunc(l.masks, func(m []uint64) bool { return slices.Equal(m, best) }) {
		return
	}
	l.masks = append(l.masks, best)
	l.s.Pools = append(l.s.Pools, queue.Pool{Name: "that it may have", GPUs: most})
}

// usable finds the GPUs that a request may have.
func (l *poolList) usable(r *place.Request) *candidates {
	if known := l.known[r]; known != nil {
		return known
	}
	c := l.c
	out := &candidates{mask: make([]uint64, len(c.tree.Nodes))}
	for node := range int32(len(out.mask)) {
		gpus := l.mayHave(r, node)
		for _, group := range c.tree.Nodes[node].Groups {
			if name := c.tree.Kinds[group.Kind].Model; group.Mask&gpus != 0 && !slices.Contains(out.models, name) {
				out.models = append(out.models, name)
			}
		}
		row := c.views[viewEmpty].State.Row(node)
		if gpus &= row.GPUs; row.Closed || gpus == 0 {
			continue
		}
		for _, h := range c.holders(node) {
			if h.of == nil && !h.lost && (h.on == nil || !h.on.Stopping) {
				gpus &^= h.gpus
			}
		}
		out.mask[node] = gpus
		out.n += bits.OnesCount64(gpus)
	}
	l.known[r] = out
	return out
}

// mayHave are the GPUs of a node that a member may have, busy or not.
func (l *poolList) mayHave(r *place.Request, node int32) uint64 {
	if !r.Verdicts.Eligible(int(node)) {
		return 0
	}
	return l.c.catalog.Usable(r, node)
}

// drawMasks says who takes of the pools of models: who runs what he has there, who
// waits all that he asks for where he may have it.
func (l *poolList) drawMasks() {
	if len(l.masks) == 0 {
		return
	}
	c, at := l.c, map[jobKey]int{}
	for i := range l.s.Jobs {
		if l.s.Jobs[i].Running {
			at[keyOf(l.s.Jobs[i].Job)] = i
		}
	}
	for p, mask := range l.masks {
		held := map[int]int{}
		for node, gpus := range mask {
			if gpus == 0 {
				continue
			}
			for _, h := range c.holders(int32(node)) {
				if i, runs := at[h.job]; runs && h.gpus&gpus != 0 {
					held[i] += bits.OnesCount64(h.gpus & gpus)
				}
			}
		}
		for i, n := range held {
			l.draw(i, p, n, false)
		}
		for _, i := range l.wanting {
			// What it may not have there it has elsewhere, if it may have other GPUs.
			e := &l.s.Jobs[i]
			if on := l.overlaps(e, p); on.some && on.others {
				l.draw(i, p, min(e.Asked, l.s.Pools[p].GPUs), false)
			} else if on.some {
				l.draw(i, p, e.Asked, false)
			}
		}
	}
}

// overlaps says whether a job that waits may have GPUs of a pool, and others.
func (l *poolList) overlaps(e *queue.Entry, p int) (out overlap) {
	for g := range e.Job.Groups {
		requests, _ := l.requests(e.Job, &e.Job.Groups[g])
		for _, r := range requests {
			key := overlapKey{r, p}
			on, known := l.overlap[key]
			if !known {
				for node, gpus := range l.usable(r).mask {
					on.some = on.some || gpus&l.masks[p][node] != 0
					on.others = on.others || gpus&^l.masks[p][node] != 0
				}
				l.overlap[key] = on
			}
			out.some, out.others = out.some || on.some, out.others || on.others
		}
	}
	return out
}

func (l *poolList) draw(job, pool, gpus int, stays bool) {
	l.s.Jobs[job].Draws = append(l.s.Jobs[job].Draws, queue.Draw{Pool: pool, GPUs: gpus, Stays: stays})
}

// enter makes a pool, if there may be one more, and returns its number, -1 without.
func (l *poolList) enter(name string, gpus int) int {
	if len(l.s.Pools) >= 2*maxPools {
		return -1
	}
	l.s.Pools = append(l.s.Pools, queue.Pool{Name: name, GPUs: gpus})
	return len(l.s.Pools) - 1
}

// limits makes a pool of each limit that counts for a job that waits.
func (l *poolList) limits() {
	tree, at := l.c.accounts.tree, map[queue.LimitKey]int{}
	for _, i := range l.wanting {
		j := l.s.Jobs[i].Job
		for _, limit := range tree.Limits(tree.HomeOf(j), j.Preempt == model.PreemptNever) {
			if n := l.amount(i, limit.Model); n > 0 {
				if _, known := at[limit.Key]; !known {
					at[limit.Key] = l.enter(limit.Name, limit.GPUs)
				}
			}
		}
	}
	for i := range l.s.Jobs {
		e := &l.s.Jobs[i]
		if _, wants := slices.BinarySearch(l.wanting, i); !e.Running && !wants {
			continue
		}
		for _, limit := range tree.Limits(tree.HomeOf(e.Job), e.Job.Preempt == model.PreemptNever) {
			pool, known := at[limit.Key]
			if n := l.amount(i, limit.Model); known && pool >= 0 && n > 0 {
				l.draw(i, pool, n, true) // nobody is displaced for the sake of a limit
			}
		}
	}
}

// amount is how many GPUs of a model, of any for "", a job has, or is sure to take.
func (l *poolList) amount(i int, name string) int {
	e := &l.s.Jobs[i]
	switch {
	case e.Running && name == "":
		return e.Held
	case e.Running:
		if e.Model == name {
			return e.Held
		}
		return 0
	case name == "" || len(e.Job.Models) == 1 && e.Job.Models[0].Name == name:
		return e.Asked
	}
	for _, r := range l.onlyOn(e) {
		if r != name {
			return 0
		}
	}
	return e.Asked
}

// onlyOn are the models of the GPUs that a job may have.
func (l *poolList) onlyOn(e *queue.Entry) (names []string) {
	for g := range e.Job.Groups {
		requests, _ := l.requests(e.Job, &e.Job.Groups[g])
		for _, r := range requests {
			for _, name := range l.usable(r).models {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// reaches makes for each queue with jobs that wait a pool of all GPUs, of which jobs
// of other queues that run keep what they have.
func (l *poolList) reaches() {
	tree := l.c.accounts.tree
	var homes []queue.Home
	for _, i := range l.wanting {
		h := tree.HomeOf(l.s.Jobs[i].Job)
		if slices.ContainsFunc(homes, h.SameQueue) {
			continue
		}
		pool := l.enter("", l.s.GPUs)
		if pool < 0 {
			return
		}
		homes = append(homes, h)
		for k := range l.s.Jobs {
			e := &l.s.Jobs[k]
			if e.Running {
				l.draw(k, pool, e.Held, !h.SameQueue(tree.HomeOf(e.Job)) && !l.reclaims(h, i, e))
			}
		}
		for _, k := range l.wanting {
			l.draw(k, pool, l.s.Jobs[k].Asked, false)
		}
	}
}

// reclaims reports whether a job that waits may have back what another one has
// borrowed.
func (l *poolList) reclaims(h queue.Home, waits int, e *queue.Entry) bool {
	c := l.c
	if !c.policy.Preempt.Enabled || c.ledger == nil {
		return false
	}
	amount := c.accounts.tree.Amount(l.s.Jobs[waits].Asked, 0, 0)
	if names := l.onlyOn(&l.s.Jobs[waits]); len(names) == 1 {
		c.accounts.tree.AddModel(amount, names[0], l.s.Jobs[waits].Asked)
	}
	may, _ := c.ledger.Reclaim(h, amount, c.accounts.tree.HomeOf(e.Job))
	return may
}
