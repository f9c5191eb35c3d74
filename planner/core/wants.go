package core

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// wantKey tells shapes of gangs apart.
type wantKey struct {
	request        *place.Request
	members, level int
}

type wanted struct {
	place.Want
	// first is the first job of this shape, and group the group of it.
	first jobKey
	group string
}

// shapesWanted are the shapes of gangs for which domains are kept whole: those
// that wait, and those that run, as what may well be asked for again. What fits
// on one node is seen to by the choice among nodes.
func (p *Prepared) shapesWanted() []place.Want {
	if p.wants != nil {
		return p.wants
	}
	found := map[wantKey]*wanted{}
	for _, j := range p.jobs {
		if gangOf(j) == model.GangNone || j.State == model.StateStopping {
			continue
		}
		var largest *model.TaskGroup
		for i := range j.Groups {
			switch g := &j.Groups[i]; {
			case gangOf(j) == model.GangGroup:
				p.addWant(found, j, g)
			case largest == nil || gpusOfGroup(g) > gpusOfGroup(largest):
				largest = g
			}
		}
		if largest != nil {
			p.addWant(found, j, largest)
		}
	}
	list := make([]*wanted, 0, len(found))
	for _, w := range found {
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b *wanted) int {
		return cmp.Or(strings.Compare(a.first.namespace, b.first.namespace), strings.Compare(a.first.id, b.first.id),
			strings.Compare(a.group, b.group))
	})
	p.wants = make([]place.Want, len(list))
	for i, w := range list {
		p.wants[i] = w.Want
	}
	p.wants = place.HeaviestWants(p.wants)
	return p.wants
}

// gpusOfGroup is how many GPUs a group takes.
func gpusOfGroup(g *model.TaskGroup) int {
	n := 0
	for _, d := range g.Devices {
		n += d.Count
	}
	return n * g.Count
}

func (p *Prepared) addWant(found map[wantKey]*wanted, j *model.Job, g *model.TaskGroup) {
	if g.Count < 2 || gpusOfGroup(g) <= p.tree.MostGPUs {
		return
	}
	r := p.catalog.Compile(j, g).GPUsOnly()
	level := p.tree.LevelIndex(j.Topology.Level)
	if level < 0 {
		level = p.catalog.Natural(r, g.Count)
	}
	if level < 0 {
		return
	}
	key := wantKey{r, g.Count, level}
	w := found[key]
	if w == nil {
		w = &wanted{Want: place.Want{Request: r, Members: g.Count, Level: level}, first: keyOf(j), group: g.Name}
		found[key] = w
	}
	w.Weight++
	k := keyOf(j)
	if cmp.Or(strings.Compare(k.namespace, w.first.namespace), strings.Compare(k.id, w.first.id), strings.Compare(g.Name, w.group)) < 0 {
		w.first, w.group = k, g.Name
	}
}
