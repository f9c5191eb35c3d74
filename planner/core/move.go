package core

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Defragmentation: a gang waits although enough GPUs are free, because they do
// not lie together. Gangs that run in a domain where it could be are stopped and
// start again elsewhere at once, if the GPU-seconds that it would wait are worth
// more than those that the moves lose. Nobody loses a place by it: each that is
// moved has one in the same plan, which is kept for it until it is there.

// compaction is what a cycle knows of who may be moved.
type compaction struct {
	policy preempt.Defrag
	// perHour is how many more gangs may be moved.
	perHour int
	// searches is for how many gangs it may still be tried.
	searches int
	// movers are the gangs that run, as they are stopped: whole.
	movers []mover
	// moved: this plan moves gangs for one that waits. What others are to have when
	// all have stopped is found out anew then; were there several who wait for that,
	// one could take another's place.
	moved bool
}

// mover is a gang that runs, all its parts together.
type mover struct {
	yielder
	// parts are its parts in yield.gangs, in their order; the last is the rest.
	parts []int
}

const (
	// maxCompactions is for how many gangs moves are looked for in one cycle.
	maxCompactions = 16
	// maxCompactRounds is how often others are tried when some have nowhere to go.
	maxCompactRounds = 6
	// compactBudget bounds the search for one gang.
	compactBudget = 1500
)

// newCompaction finds out who may be moved.
func (c *cycle) newCompaction() *compaction {
	policy := c.policy.Defrag.WithDefaults()
	out := &compaction{policy: policy, perHour: policy.MaxPerHour, searches: maxCompactions}
	for _, j := range c.jobs {
		for _, gave := range j.Preempted {
			if gave.Moved && c.now.Sub(gave.At) < time.Hour {
				out.perHour--
			}
		}
	}
	all := make([]int, len(c.yield.gangs))
	for i := range all {
		all[i] = i
	}
	for _, parts := range c.yield.byGang(all) {
		last := &c.yield.gangs[parts[len(parts)-1]]
		if !last.whole {
			continue
		}
		m := mover{yielder: *last, parts: parts}
		for _, v := range parts[:len(parts)-1] {
			part := &c.yield.gangs[v]
			m.members = append(slices.Clone(m.members), part.members...)
			m.holds = append(slices.Clone(m.holds), part.holds...)
			m.gpus += part.gpus
			m.cost = m.cost.Plus(part.cost)
		}
		out.movers = append(out.movers, m)
	}
	return out
}

// compact finds the cheapest gangs to be moved so that a gang fits, and says
// where to. It is false if there are none that may be, or if it is not worth
// their while. The state is as it was when it returns.
func (c *cycle) compact(j *model.Job, g *gang) (made, bool) {
	if c.compaction == nil {
		c.compaction = c.newCompaction()
	}
	k := c.compaction
	free := c.freeGPUs(c.views[viewNow], g)
	if g.gpus == 0 || k.searches <= 0 {
		return made{}, false
	}
	note := model.Compaction{For: model.JobName{Namespace: j.Namespace, ID: j.ID}, GPUs: g.gpus, Moves: []model.Preemption{}}
	defer func() { c.considered = append(c.considered, note) }()
	wait, basis := c.expectedWait(j, g)
	note.WaitSeconds, note.Basis, note.Benefit = int64(wait/time.Second), basis, benefitOf(g.gpus, wait)
	switch {
	case free < g.gpus:
		note.Why = fmt.Sprintf("only %d of the %s that it needs are free: no move makes more of them", free, plural(g.gpus, "GPU"))
		return made{}, false
	case len(c.landings) > 0 || k.moved:
		note.Why = "waits until the moves that are under way are through: gangs are moved for one that waits at a time"
		return made{}, false
	case k.perHour <= 0:
		note.Why = fmt.Sprintf("as many gangs as max_per_hour allows, %d, were moved within the last hour", k.policy.MaxPerHour)
		return made{}, false
	}
	k.searches--
	m, why := c.findMoves(j, g)
	if why != "" {
		note.Why = why
		return made{}, false
	}
	note.Cost = m.cost
	m.saves, m.sooner, m.basis = note.Benefit, wait, basis
	note.Moves = c.wouldMove(j, &m)
	if float64(m.saves) < k.policy.MinBenefitRatio*float64(m.cost.Total()) {
		note.Why = fmt.Sprintf("is not worth it: %s; the moves lose %s, and are to save %g times that", m.benefit(), gpuTime(m.cost.Total()), k.policy.MinBenefitRatio)
		return made{}, false
	}
	if full := c.overruns(&m); full != "" {
		note.Why = fmt.Sprintf("waits until others have stopped: %s would have to, and %s (preempt.max_at_once)", plural(len(m.moves), "gang"), full)
		return made{}, false
	}
	note.Done, note.Why = true, fmt.Sprintf("starts in %s after %s: %s; the moves lose %s", domainName(m.result.Level, m.result.Domain), plural(len(m.moves), "move"), m.benefit(), gpuTime(m.cost.Total()))
	k.perHour, k.moved = k.perHour-len(m.moves), true
	return m, true
}

// letStay takes back moves that are not made, because others give way for less.
func (k *compaction) letStay(m made, cost model.Cost, considered []model.Compaction) {
	k.perHour, k.moved = k.perHour+len(m.moves), false
	note := &considered[len(considered)-1]
	note.Done, note.Why = false, fmt.Sprintf("others give way instead, which loses %s, and not %s", gpuTime(cost.Total()), gpuTime(m.cost.Total()))
}

// benefitOf is what it saves that so many GPUs do not wait, in GPU-seconds.
func benefitOf(gpus int, wait time.Duration) int64 {
	seconds := int64(wait / time.Second)
	if seconds > math.MaxInt64/int64(gpus) {
		return math.MaxInt64
	}
	return int64(gpus) * seconds
}

// benefit says what moves save.
func (m *made) benefit() string {
	return fmt.Sprintf("it would wait %s longer otherwise, which is %s (%s)", tellFor(m.sooner), gpuTime(m.saves), m.basis)
}

func tellFor(d time.Duration) string {
	if d >= maxTellable {
		return "more than 100 days"
	}
	return d.Round(time.Second).String()
}

// findMoves finds the cheapest gangs, and why there are none.
func (c *cycle) findMoves(j *model.Job, g *gang) (made, string) {
	k := c.compaction
	var of []int // the mover of each victim
	exempt := map[string]int{}
	for i := range k.movers {
		if why := c.immovable(j, &k.movers[i]); why != "" {
			exempt[why]++
			continue
		}
		of = append(of, i)
	}
	var fits []domainFit
	problem := preempt.Problem{State: c.views[viewNow].State, GPUs: g.gpus, MaxVictims: min(k.policy.MaxPerGang, k.perHour), Budget: compactBudget}
	forbidden := g.forbidden()
	c.eachDomain(g, func(f domainFit) {
		if f.domain >= 0 || !forbidden[f.node] {
			problem.Places = append(problem.Places, preempt.Place{ID: len(fits), Lo: f.lo, Hi: f.hi})
			fits = append(fits, f)
		}
	})
	problem.Fits = func(p preempt.Place) bool { return c.fitsInto(g, fits[p.ID]) }
	if !g.plain() {
		problem.Budget = oddBudget
	}
	why := "no gangs that may be moved are in its way" + tellExempt(exempt, len(k.movers))
	for range maxCompactRounds {
		problem.Victims = problem.Victims[:0]
		for _, i := range of {
			problem.Victims = append(problem.Victims, preempt.Victim{Holds: c.unpromised(k.movers[i].holds, g.queue), Cost: k.movers[i].cost.Total(), After: -1})
		}
		if len(of) == 0 {
			break
		}
		solution, ok := preempt.Solve(problem)
		if !ok {
			break
		}
		chosen := make([]int, len(solution.Victims))
		for n, v := range solution.Victims {
			chosen[n] = of[v]
		}
		m, stuck := c.rehouse(g, fits[solution.Place.ID], chosen)
		if len(stuck) == 0 {
			return m, ""
		}
		why = fmt.Sprintf("%s would have to make room, and has no place elsewhere", jobName(keyOf(k.movers[stuck[0]].job)))
		of = slices.DeleteFunc(of, func(i int) bool { return slices.Contains(stuck, i) })
	}
	return made{}, why
}

// immovable says why a gang is not moved for a job; "" if it may be.
func (c *cycle) immovable(j *model.Job, m *mover) string {
	y, key := c.yield, keyOf(m.job)
	if key == keyOf(j) {
		return "it is of the same job"
	}
	for _, v := range m.parts {
		if y.taken[v] {
			return "it gives way already"
		}
	}
	if c.givenTo[key] {
		return "it gets members just now"
	}
	if c.ledger != nil {
		least := c.accounts.tree.MinRun(c.accounts.tree.HomeOf(m.job))
		if ran := c.now.Sub(m.job.Started); !m.job.Started.IsZero() && ran < least {
			return fmt.Sprintf("it has run for %s only; its queue grants %s", ran.Round(time.Second), least)
		}
	}
	return c.compaction.policy.Exempt(j, m.job, c.now)
}

// tellExempt says how many gangs are not moved, and for what reason most of them.
func tellExempt(exempt map[string]int, of int) string {
	best, n := "", 0
	for why, count := range exempt {
		n += count
		if best == "" || count > exempt[best] || count == exempt[best] && why < best {
			best = why
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; of %s that run %d may not be, one because %s", plural(of, "gang"), n, best)
}

// rehouse tries whether a gang fits into a domain when some have left it, and all
// of those elsewhere; stuck are those that do not.
func (c *cycle) rehouse(g *gang, into domainFit, movers []int) (m made, stuck []int) {
	k, now := c.compaction, c.views[viewNow]
	mark := now.State.Mark()
	defer now.State.Revert(mark)
	for _, i := range movers {
		for _, h := range k.movers[i].holds {
			c.yields(h, g.queue)
		}
	}
	var ok bool
	if m.result, ok = c.placeInto(g, into); !ok {
		return m, movers
	}
	order := slices.Clone(movers) // the hardest to place first
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &k.movers[a], &k.movers[b]
		return cmp.Or(cmp.Compare(y.gpus, x.gpus), queue.Compare(x.job, y.job))
	})
	m.moves = map[int]destination{}
	for _, i := range order {
		v := &k.movers[i]
		d, ok := c.elsewhere(&v.yielder)
		if !ok {
			stuck = append(stuck, i)
			continue
		}
		holds := make([]preempt.Hold, len(d.result.Placed))
		for n := range d.result.Placed {
			holds[n].Node = d.result.Placed[n].Node
		}
		d.cost = v.cost
		d.cost.Placement = max(0, v.cost.Placement-c.placeWorth(d.gang.gpus, d.gang.members, holds))
		m.cost = m.cost.Plus(d.cost)
		m.moves[v.parts[len(v.parts)-1]] = d
		m.now = append(m.now, v.parts...)
	}
	slices.Sort(m.now)
	return m, stuck
}

// overruns says which storage does not take the checkpoints of all that would be
// moved at once; "" if they may stop together.
func (c *cycle) overruns(m *made) string {
	y, loads := c.yield, maps.Clone(c.yield.loads)
	for i := range c.compaction.movers {
		v := &c.compaction.movers[i]
		if _, moves := m.moves[v.parts[len(v.parts)-1]]; !moves {
			continue
		}
		if !loads.Allow(y.policy, v.job, v.gpus) {
			return y.policy.Storage(v.job.CheckpointStorage).String()
		}
		loads.Add(v.job, v.gpus)
	}
	return ""
}

// wouldMove lists moves as the plan would have them.
func (c *cycle) wouldMove(j *model.Job, m *made) []model.Preemption {
	out := make([]model.Preemption, 0, len(m.moves))
	for i := range c.compaction.movers {
		v := &c.compaction.movers[i]
		d, ok := m.moves[v.parts[len(v.parts)-1]]
		if !ok {
			continue
		}
		p := model.Preemption{Namespace: v.job.Namespace, Job: v.job.ID, Action: model.ActionMove, Members: slices.Clone(v.members),
			To: c.membersAt(nil, d.job, &d.gang, d.result), For: model.JobName{Namespace: j.Namespace, ID: j.ID}, Cost: d.cost, Moves: d.name(), Benefit: m.saves}
		out = append(out, c.tellStop(j, &v.yielder, p, m))
	}
	return out
}

// Survey says for every gang that waits for room what a move of others would do
// for it, whether or not that is enabled, in the order in which they are decided
// on. It changes nothing. An error names every fault of the snapshot or policy.
func Survey(snapshot *model.Snapshot, policy Policy) ([]model.Compaction, error) {
	policy.Defrag.Enabled = true
	p, err := Prepare(snapshot, policy)
	if err != nil {
		return nil, err
	}
	c := newCycle(p, snapshot.Now)
	defer c.revert()
	c.decide()
	return slices.Clip(c.considered), nil
}
