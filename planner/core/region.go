package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// A gang never spans regions. Where there are several it is routed: it is tried
// in one after the other, in the order of what speaks for them, and goes to the
// first that has room. What speaks for a region is, one after the other: the data
// that the job reads is there; its GPUs are cheaper; its power is cleaner.

// route is a region that a gang may go to.
type route struct {
	domain int32
	name   string
	// data counts the job's data sets that are there.
	data int
	// price is for a GPU and hour on the cheapest model that the job takes, and
	// carbon the grams of CO2 for a kWh; NaN where that is not known.
	price, carbon float64
}

// routes are the regions that a gang may go to, the best first; nil where there is
// nothing to choose. none says why there is none.
func (c *cycle) routes(j *model.Job, g *gang) (list []route, none string) {
	level := c.tree.LevelIndex(model.LevelRegion)
	if level < 0 || !c.federated() && len(j.Regions) == 0 {
		if len(j.Regions) > 0 {
			return nil, "no node says in which region it is; name the regions' level in the planner's configuration, or leave caravan_regions out"
		}
		return nil, ""
	}
	var there []string
	held := c.regionsHeld(j, g, level)
	for _, d := range c.tree.ByLevel[level] {
		name := c.tree.Nodes[c.tree.Domains[d].Lo].Model.Levels[model.LevelRegion]
		there = append(there, name)
		if len(j.Regions) > 0 && !slices.Contains(j.Regions, name) || len(held) > 0 && !held[d] {
			continue
		}
		list = append(list, c.routeTo(j, d, name))
	}
	if len(list) == 0 && len(held) == 0 {
		return nil, fmt.Sprintf("no node is in %s; there are the regions %s; name one of them in caravan_regions, or leave it out", nameList(j.Regions), nameList(there))
	}
	known := func(of func(*route) float64) bool {
		return !slices.ContainsFunc(list, func(r route) bool { return math.IsNaN(of(&r)) })
	}
	prices, carbons := known(func(r *route) float64 { return r.price }), known(func(r *route) float64 { return r.carbon })
	slices.SortStableFunc(list, func(a, b route) int {
		by := cmp.Compare(b.data, a.data)
		if by == 0 && prices {
			by = cmp.Compare(a.price, b.price)
		}
		if by == 0 && carbons {
			by = cmp.Compare(a.carbon, b.carbon)
		}
		return cmp.Or(by, cmp.Compare(slices.Index(j.Regions, a.name), slices.Index(j.Regions, b.name)))
	})
	return list, ""
}

// federated reports whether every node is in one of several regions.
func (c *cycle) federated() bool {
	level := c.tree.LevelIndex(model.LevelRegion)
	if level < 0 || len(c.tree.ByLevel[level]) < 2 {
		return false
	}
	in := 0
	for _, d := range c.tree.ByLevel[level] {
		in += int(c.tree.Domains[d].Hi - c.tree.Domains[d].Lo)
	}
	return in == len(c.tree.Nodes)
}

func (c *cycle) routeTo(j *model.Job, domain int32, name string) route {
	r := route{domain: domain, name: name, price: math.NaN(), carbon: math.NaN()}
	at := slices.IndexFunc(c.regions, func(o model.Region) bool { return o.Name == name })
	if at < 0 {
		return r
	}
	region := &c.regions[at]
	for _, data := range j.Data {
		if slices.Contains(region.Data, data) {
			r.data++
		}
	}
	if region.Carbon > 0 {
		r.carbon = region.Carbon
	}
	for name, price := range region.Price {
		speed := 1.0
		if len(j.Models) > 0 {
			k := slices.IndexFunc(j.Models, func(m model.ModelSpeed) bool { return m.Name == name })
			if k < 0 {
				continue
			}
			speed = j.Models[k].Speed
		}
		if each := price / speed; math.IsNaN(r.price) || each < r.price {
			r.price = each
		}
	}
	return r
}

// regionsHeld are the regions in which a gang has members already.
func (c *cycle) regionsHeld(j *model.Job, g *gang, level int) map[int32]bool {
	if gangOf(j) == model.GangNone || !holdsMembers(j) {
		return nil
	}
	out := map[int32]bool{}
	for i := range j.Members {
		m := &j.Members[i]
		at, ok := c.tree.Find(m.Node)
		if ok && !m.Ended && (gangOf(j) == model.GangJob || m.Group == g.groups[0].Name) {
			out[c.tree.DomainAt(at, level)] = true
		}
	}
	return out
}

// reads says which of the regions has what the job reads, or costs less.
func (r *route) merit(others []route, j *model.Job) string {
	switch {
	case r.data > 0:
		return fmt.Sprintf("it has %d of the %d data sets that the job reads", r.data, len(j.Data))
	case slices.ContainsFunc(others, func(o route) bool { return o.price > r.price }):
		return fmt.Sprintf("a GPU costs %s an hour there", number(r.price))
	case slices.ContainsFunc(others, func(o route) bool { return o.carbon > r.carbon }):
		return fmt.Sprintf("its power costs %s g of CO2 per kWh", number(r.carbon))
	}
	return ""
}

// regionPlaced says to which region a job has been routed, and why.
func (t *turn) regionPlaced() string {
	if len(t.took) == 0 || t.took[0].to == nil {
		return ""
	}
	var names []string
	for i := range t.took {
		if r := t.took[i].to; r != nil && !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	if len(names) > 1 {
		return "; in the regions " + strings.Join(names, ", ")
	}
	s := &t.took[0]
	text := "; in region " + s.to.name
	if len(s.full) > 0 {
		return text + ", since " + nameList(s.full) + " has no room now"
	}
	if why := s.to.merit(s.routes, t.job); why != "" {
		text += ": " + why
	}
	return text
}

// regionsWanted says for which region a gang waits, of those that it may go to.
func (g *gang) regionsWanted() string {
	var names []string
	for i := range g.options {
		if r := g.options[i].to; r != nil && !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	if len(names) < 2 {
		return ""
	}
	return fmt.Sprintf("; it may go to the regions %s: this is said of %s", strings.Join(names, ", "), g.options[g.at].to.name)
}

// dataNowhere says which of the data sets that a job reads no region has.
func (c *cycle) dataNowhere(j *model.Job) string {
	var names []string
	for _, data := range j.Data {
		if !slices.ContainsFunc(c.regions, func(r model.Region) bool { return slices.Contains(r.Data, data) }) {
			names = append(names, data)
		}
	}
	if len(names) == 0 {
		return ""
	}
	one, name, it := "data set", "name", "it"
	if len(names) > 1 {
		one, name, it = "data sets", "names", "them"
	}
	return fmt.Sprintf("; no region has the %s %s (caravan_data): check the %s, or have %s put into the planner's region blocks", one, nameList(names), name, it)
}

// home is the domain that the gang is limited to whatever else is: that of its region, or
// the one in which it was promised its deadline.
func (g *gang) home() int32 {
	if g.at < len(g.options) && g.options[g.at].to != nil {
		return g.options[g.at].to.domain
	}
	return g.promised
}
