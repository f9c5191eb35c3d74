package core

import (
	"reflect"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Bought nodes are apart from all others: a gang is on those of one pool or on none
// of them, unless its job says that it may be on both. Until the gang that nodes
// were bought for has started on them, nobody else is placed there.

// site is where a gang may be: on bought nodes of a pool, of any, or on others.
type site struct {
	known, bought bool
	pool          string
}

// limit is a task group that may be on a site only.
func (s site) limit(group *model.TaskGroup) *model.TaskGroup {
	limited := *group
	con := feasible.AtHome()
	switch {
	case s.pool != "":
		con = feasible.InPool(s.pool)
	case s.bought:
		con = feasible.InAnyPool()
	}
	limited.Constraints = append(slices.Clip(group.Constraints), con)
	return &limited
}

// reservedNode is why nobody may use a bought node.
type reservedNode struct {
	// job may use it nevertheless; "" is nobody. still are all who may and have not been
	// placed there: it, and those who are to start beside it.
	job   jobKey
	still []jobKey
	why   string
	// whole: all of what was bought is there, and is what was promised.
	whole bool
}

// burstMode is whether nodes are bought for a job: as it says, else as its queue or
// one above it, else as the policy does.
func (p *Prepared) burstMode(j *model.Job) string {
	if j.Burst != "" {
		return j.Burst
	}
	mode, deepest := "", -1
	for i := range p.queues {
		q := &p.queues[i]
		if q.Burst != "" && below(j.Queue, q.Path) && len(q.Path) > deepest {
			mode, deepest = q.Burst, len(q.Path)
		}
	}
	if mode == "" {
		mode = p.policy.Burst.WithDefaults().Default
	}
	return mode
}

// sites are where a gang may be, the best first; nil where there is nothing to
// choose.
func (c *cycle) sites(j *model.Job, g *gang) []site {
	if len(c.bought) == 0 && j.Burst != model.BurstOnly && !c.queueBurst {
		return nil
	}
	mode := c.burstMode(j)
	switch {
	case mode == model.BurstOnly && (j.MixSites || len(c.bought) == 0):
		return []site{{known: true, bought: true}}
	case len(c.bought) == 0 || j.MixSites && mode == model.BurstAllow:
		return nil
	}
	home := site{known: true}
	if held, ok := c.siteHeld(j, g); ok {
		return []site{held}
	}
	var out []site
	if mode != model.BurstOnly {
		out = append(out, home)
	}
	if mode == model.BurstNever {
		return out
	}
	var pools []string
	for _, node := range c.bought {
		if pool := c.tree.Nodes[node].Model.Bought.Pool; !slices.Contains(pools, pool) {
			pools = append(pools, pool)
		}
	}
	slices.Sort(pools)
	for _, pool := range pools {
		out = append(out, site{known: true, bought: true, pool: pool})
	}
	return out
}

// siteHeld is where a gang has members already.
func (c *cycle) siteHeld(j *model.Job, g *gang) (site, bool) {
	if gangOf(j) == model.GangNone || !holdsMembers(j) {
		return site{}, false
	}
	members := inOrderOf(j.Members)
	for i := range members {
		m := &members[i]
		at, ok := c.tree.Find(m.Node)
		if !ok || m.Ended || gangOf(j) == model.GangGroup && m.Group != g.groups[0].Name {
			continue
		}
		if b := c.tree.Nodes[at].Model.Bought; b != nil {
			return site{known: true, bought: true, pool: b.Pool}, true
		}
		return site{known: true}, true
	}
	return site{}, false
}

// purchase is the one with an ID; nil if there is none.
func (p *Prepared) purchase(id string) *model.Purchase {
	for i := range p.burst.Bought {
		if p.burst.Bought[i].ID == id {
			return &p.burst.Bought[i]
		}
	}
	return nil
}

// keepBought closes the bought nodes that nobody may use, or only the gang that
// they were bought for.
func (c *cycle) keepBought() {
	whole := map[string]bool{}
	for _, node := range c.bought {
		b := c.tree.Nodes[node].Model.Bought
		p := c.purchase(b.Purchase)
		r := reservedNode{}
		switch {
		case b.Surplus != "":
			r.why = b.Surplus
		case p == nil:
			r.why = "it is of no purchase that is known, and is given back"
		case !slices.Contains(p.Names, b.Name):
			r.why = "its name is none of its purchase's, and it is given back"
		case !p.Open() || slices.Contains(p.Leaving, b.Name):
			r.why = "it is given back"
		case p.Started.IsZero():
			r.job = keyNamed(p.For)
			r.still = append(r.still, r.job)
			for _, name := range p.With {
				r.still = append(r.still, keyNamed(name))
			}
			r.why = "it was bought for " + jobName(r.job)
			if _, known := whole[p.ID]; !known {
				whole[p.ID] = c.isWhole(p)
			}
			r.whole = whole[p.ID]
		default:
			continue
		}
		if c.reserved == nil {
			c.reserved = map[int32]reservedNode{}
		}
		c.reserved[node] = r
		c.closing = true
		c.setClosed(node, true)
		c.closedBy(node, r.why)
		if c.looksAhead() {
			c.openAhead().book(node, booking{until: eternity, closed: true, kept: r.job.id != "", job: r.job, name: r.why})
		}
	}
}

// isWhole reports whether all nodes of a purchase are there, and what was bought.
func (c *cycle) isWhole(p *model.Purchase) bool {
	pool, n := c.poolOf(p.Pool), 0
	for _, node := range c.bought {
		if b := c.tree.Nodes[node].Model.Bought; b.Purchase == p.ID && b.Surplus == "" && slices.Contains(p.Names, b.Name) && BoughtFault(c.present[node], pool) == "" {
			n++
		}
	}
	return n >= p.Nodes
}

func (c *cycle) setClosed(node int32, closed bool) {
	for _, view := range []int{viewNow, viewTrue, viewCalm, viewEmpty} {
		row := *c.views[view].State.Row(node)
		row.Closed = closed || c.present[node].Unschedulable != ""
		c.views[view].State.Try(node, row)
	}
}

// openOwn opens the nodes that were bought for a job, or on which it is to start beside
// another, in its turn.
func (c *cycle) openOwn(j *model.Job) (own []int32) {
	own = c.ownOf(j)
	for _, node := range own {
		c.setOwn(node, false)
	}
	return own
}

// closeOwn closes them again while there are others who are to start there, or it is one
// still itself.
func (c *cycle) closeOwn(j *model.Job, own []int32) {
	if len(own) == 0 {
		return
	}
	key := keyOf(j)
	placed := slices.ContainsFunc(c.given, func(g given) bool { return g.job == key && slices.Contains(own, g.node) })
	for _, node := range own {
		r := c.reserved[node]
		if placed {
			r.still = slices.DeleteFunc(slices.Clone(r.still), func(o jobKey) bool { return o == key })
			c.reserved[node] = r
		}
		if len(r.still) > 0 {
			c.setOwn(node, true)
		}
	}
}

// ownOf are the bought nodes that a job may use though they are closed.
func (c *cycle) ownOf(j *model.Job) (own []int32) {
	if len(c.reserved) == 0 {
		return nil
	}
	key := keyOf(j)
	for _, node := range c.bought {
		if r := c.reserved[node]; r.whole && c.closed[node] == r.why && slices.Contains(r.still, key) {
			own = append(own, node)
		}
	}
	return own
}

func (c *cycle) setOwn(node int32, closed bool) {
	c.setClosed(node, closed)
	c.epoch++ // what others alike were told does not hold for who may
}

// hasBought reports whether nodes were bought for a job, or for others beside whom it is
// to start, that are still to come, or to be used: then it keeps no others.
func (c *cycle) hasBought(j *model.Job) bool {
	name := nameOf(j)
	return slices.ContainsFunc(c.burst.Bought, func(p model.Purchase) bool {
		return p.Open() && p.Started.IsZero() && (p.For == name || slices.Contains(p.With, name))
	})
}

// boughtFor is the purchase that is still to come for a job, or to be used; nil if
// there is none.
func (c *cycle) boughtFor(j *model.Job) *model.Purchase {
	name := nameOf(j)
	at := slices.IndexFunc(c.burst.Bought, func(p model.Purchase) bool { return p.For == name && p.Open() && p.Started.IsZero() })
	if at < 0 {
		return nil
	}
	return &c.burst.Bought[at]
}

// setBurst takes over where nodes can be bought.
func (p *Prepared) setBurst(b *model.Burst) {
	if !reflect.DeepEqual(p.burst.Pools, b.Pools) {
		p.fits = nil
	}
	p.burst = *b
	p.queueBurst = slices.ContainsFunc(p.queues, func(q model.Queue) bool { return q.Burst != "" })
	p.burst.Pools = slices.Clone(b.Pools)
	slices.SortFunc(p.burst.Pools, func(x, y model.BuyPool) int { return strings.Compare(x.Name, y.Name) })
	p.burst.Bought = slices.Clone(b.Bought)
	slices.SortFunc(p.burst.Bought, func(x, y model.Purchase) int {
		if c := x.Ordered.Compare(y.Ordered); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
}

// poolOf is a pool; nil if there is none of that name.
func (p *Prepared) poolOf(name string) *model.BuyPool {
	for i := range p.burst.Pools {
		if p.burst.Pools[i].Name == name {
			return &p.burst.Pools[i]
		}
	}
	return nil
}

// boughtPlaced says in which pools the nodes were bought that a job has got.
func (t *turn) boughtPlaced() string {
	var pools []string
	for i := range t.took {
		if on := t.took[i].on; on.bought && on.pool != "" && !slices.Contains(pools, on.pool) {
			pools = append(pools, on.pool)
		}
	}
	if len(pools) == 0 {
		return ""
	}
	return "; on nodes bought in pool " + nameList(pools)
}
