package core

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// wantKey tells shapes of gangs apart.
type wantKey struct {
	request        string
	members, level int
}

// shapesWanted are the shapes of gangs for which domains are kept whole: those
// that wait, and those that run, as what may well be asked for again. What fits
// on one node is seen to by the choice among nodes.
func (p *Prepared) shapesWanted() []place.Want {
	if p.wants != nil {
		return p.wants
	}
	if p.shapes == nil {
		p.shapes = map[wantKey]*place.Want{}
		for j := range p.allJobs() {
			p.countShapes(j, 1)
		}
	}
	keys := slices.SortedFunc(maps.Keys(p.shapes), func(a, b wantKey) int {
		return cmp.Or(strings.Compare(a.request, b.request), cmp.Compare(a.members, b.members), cmp.Compare(a.level, b.level))
	})
	p.wants = make([]place.Want, len(keys))
	for i, key := range keys {
		p.wants[i] = *p.shapes[key]
	}
	p.wants = place.HeaviestWants(p.wants)
	return p.wants
}

// countShapes counts the shapes of a job's gangs so many times more.
func (p *Prepared) countShapes(j *model.Job, times float64) {
	if gangOf(j) == model.GangNone || j.State == model.StateStopping {
		return
	}
	var largest *model.TaskGroup
	for i := range j.Groups {
		switch g := &j.Groups[i]; {
		case gangOf(j) == model.GangGroup:
			p.countShape(j, g, times)
		case largest == nil || gpusOfGroup(g) > gpusOfGroup(largest):
			largest = g
		}
	}
	if largest != nil {
		p.countShape(j, largest, times)
	}
}

// gpusOfGroup is how many GPUs a group takes.
func gpusOfGroup(g *model.TaskGroup) int {
	n := 0
	for _, d := range g.Devices {
		n += d.Count
	}
	return n * g.Count
}

func (p *Prepared) countShape(j *model.Job, g *model.TaskGroup, times float64) {
	if g.Count < 2 || gpusOfGroup(g) <= p.tree.MostGPUs {
		return
	}
	r := p.catalog.Compile(j, g).GPUsOnly()
	level := p.tree.LevelIndex(j.Topology.Level)
	if level < 0 {
		level = p.catalog.Natural(r, g.Count)
	}
	members := g.Count
	if s := g.Slice; s.Size > 0 && p.tree.LevelIndex(s.Level) >= 0 {
		members, level = s.Size, p.tree.LevelIndex(s.Level)
		times *= float64(g.Count / s.Size)
	}
	if level < 0 {
		return
	}
	key := wantKey{r.Key(), members, level}
	w := p.shapes[key]
	if w == nil {
		w = &place.Want{Request: r, Members: members, Level: level}
		p.shapes[key] = w
	}
	if w.Weight += times; w.Weight == 0 {
		delete(p.shapes, key)
	}
}
