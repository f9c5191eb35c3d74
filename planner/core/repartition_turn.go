package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Who waits for instances has its turn like anybody: a GPU that is idle then is
// divided for it, and is nobody else's from then on.

// inTurn is what a gang has been given in its turn.
type inTurn struct {
	// serving are indexes in the plan of what is divided for it now.
	serving []int
	// later: GPUs are kept to be divided for it once they are idle.
	later bool
}

// device is a MIG instance that there is.
type device struct {
	node int32
	mask uint64
}

// openDivider finds the GPUs that can be divided, when the first one asks.
func (c *cycle) openDivider() *divider {
	if c.divider != nil {
		return c.divider
	}
	d := &divider{cycle: c, at: map[string]int{}, spare: map[string][]int{}, inTurn: map[gangKey]inTurn{}, known: map[askKey]asked{}}
	c.divider = d
	for _, node := range slices.Sorted(maps.Keys(c.divides)) {
		d.addIdle(node)
	}
	return d
}

// mayDivide reports whether it may help a gang that GPUs are divided otherwise: it asks
// for instances, or for whole ones, and some are divided.
func (c *cycle) mayDivide(g *gang) bool {
	if len(c.divides) == 0 || g.astray || g.refused != nil || g.grown > 0 || g.gpus == 0 || g.picky() {
		return false
	}
	d := c.openDivider()
	together := g.members > 1 && g.unit.Topology.Mode == model.TopologyRequire
	for part, group := range g.groups {
		if len(g.indexes[part]) == 0 {
			continue
		}
		for _, whole := range d.models() {
			a, ok := d.asked(group, whole)
			if ok && (a.profile != "" && a.count == 1 && !together || a.profile == "" && d.anyDivided && len(g.groups) == 1) {
				return true
			}
		}
	}
	return false
}

// picky reports whether it matters which of the nodes that have room a gang gets, so
// that it is not enough to count them.
func (g *gang) picky() bool {
	u := g.unit
	if u.Apart || u.Only != nil || len(u.Taken)+len(u.TakenByPart)+len(u.Quotas) > 0 || g.sliced() {
		return true
	}
	for i := range u.Parts {
		if u.Parts[i].Request.OnePerNode {
			return true
		}
	}
	return false
}

// gangOfIts names a gang of a job.
func gangOfIts(j *model.Job, g *gang) gangKey {
	key := gangKey{job: keyOf(j), index: -1}
	switch gangOf(j) {
	case model.GangGroup:
		key.group = g.groups[0].Name
	case model.GangNone:
		key.group, key.index = g.groups[0].Name, g.indexes[0][0]
	}
	return key
}

// divideInTurn has idle GPUs divided for a gang in its turn, and for those of its job
// alike that start by themselves. What it is to have is taken from all who come
// later. It reports whether that is done for this gang.
func (c *cycle) divideInTurn(t *turn, g *gang) bool {
	d := c.openDivider()
	if !d.serveInTurn(t, g) {
		return false
	}
	if gangOf(t.job) != model.GangNone {
		return true
	}
	for i := range t.gangs {
		o := &t.gangs[i]
		if o.groups[0] != g.groups[0] || o.indexes[0][0] <= g.indexes[0][0] {
			continue
		}
		c.prepare(t.job, o)
		if o.picky() || c.limited() && (c.ledger.Class(t.home, c.demand(o)) > c.stage || c.ledger.Check(t.home, c.demand(o), t.never()) != nil) || !d.serveInTurn(t, o) {
			break
		}
	}
	return true
}

// serveInTurn serves one.
func (d *divider) serveInTurn(t *turn, g *gang) bool {
	if d.wanted == nil {
		d.noteWaiting()
	}
	d.turn = true
	ok := d.serve(t.job, g)
	if d.turn = false; !ok {
		return false
	}
	c := d.cycle
	d.inTurn[gangOfIts(t.job, g)] = inTurn{serving: d.serving}
	c.beginHolding()
	if c.looksAhead() {
		c.starts = append(c.starts, start{keyOf(t.job), d.claims, dividedFor(g)})
	}
	if c.limited() {
		c.ledger.Charge(t.home, c.demand(g), t.never())
	}
	c.holds = append(c.holds, hold{job: keyOf(t.job), divides: d.servingNames() + " divided now"})
	c.divided++
	c.epoch++
	return true
}

// instancesOf are the instances of a model that there are.
func (d *divider) instancesOf(name string) []device {
	if d.instances == nil {
		d.instances = map[string][]device{}
		for node := range d.tree.Nodes {
			for _, group := range d.tree.Nodes[node].Groups {
				kind := d.tree.Kinds[group.Kind].Model
				if !strings.Contains(kind, mig.Mark) {
					continue
				}
				topo.Each(group.Mask, func(i int) {
					d.instances[kind] = append(d.instances[kind], device{int32(node), 1 << i})
				})
			}
		}
	}
	return d.instances[name]
}

// servingNames are the GPUs that are divided for the present gang, "GPU 3 of n1 is".
func (d *divider) servingNames() string {
	if d.terse {
		return ""
	}
	var names []string
	for _, at := range d.serving {
		if name := fmt.Sprintf("GPU %s of %s", d.plan[at].GPU, nodeName(d.nodes[d.plan[at].Node])); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "instances are"
	}
	return nameList(names) + " " + isAre(len(names))
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
