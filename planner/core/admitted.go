package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// admitted takes note of a placement.
func (c *cycle) admitted(j *model.Job, g *gang, r place.Result, d *model.Decision) {
	c.epoch++
	c.noteClaim(j, g)
	if g.landing != nil {
		c.hasLanded(g.landing)
	}
	if c.truthful {
		c.views[viewTrue].Take(g.unit, r.Placed)
	} else {
		c.takers = append(c.takers, taker{g.unit, r.Placed})
	}
	if c.looksAhead() && g.landing == nil {
		c.starts = append(c.starts, start{keyOf(j), c.claimsOf(g.unit, r.Placed), g.runs})
	}
	if g.lent {
		if b, any := c.borrows(g, r.Placed); any {
			d.Backfill = &b
		}
	}
	c.givenTo[keyOf(j)] = true
	if c.yield != nil && j.State == model.StateRunning {
		c.yield.given[keyOf(j)] = true
	}
	d.Members = c.membersAt(d.Members, j, g, r)
	for k := range r.Placed {
		p := &r.Placed[k]
		c.placedNow = append(c.placedNow, other{node: p.Node, group: g.groups[p.Part].Name})
		c.given = append(c.given, given{keyOf(j), p.Node, maskOf(p.GPUs)})
	}
}

// membersAt appends a gang's members in their places.
func (c *cycle) membersAt(out []model.Member, j *model.Job, g *gang, r place.Result) []model.Member {
	ranks := c.ranks(j, g)
	next := make([]int, len(g.groups))
	out = slices.Grow(out, len(r.Placed))
	for k := range r.Placed {
		p := &r.Placed[k]
		node := c.tree.Nodes[p.Node].Model
		m := model.Member{
			Group: g.groups[p.Part].Name, Index: g.indexes[p.Part][next[p.Part]], Rank: ranks[k],
			Node: node.ID, GPUs: c.uuidsOn(p.Node, p.GPUs),
		}
		next[p.Part]++
		for _, t := range p.Tasks {
			m.Tasks = append(m.Tasks, uuids(node, t))
		}
		out = append(out, m)
	}
	return out
}

// ranks are the ranks that a gang's members in force leave free.
func (c *cycle) ranks(j *model.Job, g *gang) []int {
	var used map[int]bool
	if holdsMembers(j) && gangOf(j) != model.GangNone {
		used = make(map[int]bool, len(j.Members))
		for i := range j.Members {
			if gangOf(j) == model.GangJob || j.Members[i].Group == g.groups[0].Name {
				used[j.Members[i].Rank] = true
			}
		}
	}
	out := make([]int, 0, g.members)
	for rank := 0; len(out) < g.members; rank++ {
		if !used[rank] {
			out = append(out, rank)
		}
	}
	return out
}
