package core

import (
	"fmt"
	"maps"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
)

// sliced reports whether members of the gang come in slices.
func (g *gang) sliced() bool {
	return slices.ContainsFunc(g.unit.Parts, func(p place.Part) bool { return p.Slices.Size > 0 })
}

// joinSlices puts members that their group lacks into the slice that lacks them.
// They can only be placed where that is one.
func (c *cycle) joinSlices(j *model.Job, g *gang) {
	for i := range g.unit.Parts {
		part := &g.unit.Parts[i]
		if part.Slices.Size == 0 || part.Count == 0 || part.Count == g.groups[i].Count {
			continue
		}
		lacks := c.shortSlices(j, g.groups[i].Name, part.Slices)
		size := part.Slices.Size
		part.Slices = place.Slices{}
		if len(lacks) == 0 && part.Count%size == 0 {
			part.Slices = place.Slices{Size: size, Level: c.catalog.SliceLevel(g.groups[i].Slice.Level)}
			continue
		}
		only := slices.Sorted(maps.Keys(lacks))
		if len(only) != 1 || lacks[only[0]] != part.Count || len(g.unit.Parts) > 1 || !g.joinSlice(only[0], g.groups[i].Slice.Level) {
			g.astray, g.halved = true, true
			part.Slices = place.Slices{Size: size, Level: c.catalog.SliceLevel(g.groups[i].Slice.Level)}
			return
		}
	}
}

// shortSlices is how many members are missing for whole slices, by the domain or
// node that the others are in.
func (c *cycle) shortSlices(j *model.Job, group string, s place.Slices) map[int32]int {
	in := map[int32]int{}
	for i := range j.Members {
		m := &j.Members[i]
		at, ok := c.tree.Find(m.Node)
		if !holdsMembers(j) || m.Ended || m.Group != group || !ok {
			continue
		}
		if s.Level >= 0 {
			at = c.tree.DomainAt(at, s.Level)
		}
		in[at]++
	}
	for at, n := range in {
		if n%s.Size == 0 {
			delete(in, at)
		} else {
			in[at] = s.Size - n%s.Size
		}
	}
	return in
}

// joinSlice limits the gang to the domain, or node, of a slice.
func (g *gang) joinSlice(at int32, level string) bool {
	if level == model.LevelNode {
		return g.joinSpot(place.Spot{Node: at, GPUs: ^uint64(0)})
	}
	if g.unit.Within != g.home() {
		return true // it is narrow enough as it is, or too narrow
	}
	return g.joinDomain(at)
}

// inSlices says in what slices members come.
func (g *gang) inSlices() string {
	for i, p := range g.unit.Parts {
		if p.Slices.Size > 0 {
			return fmt.Sprintf(", every %d of them in one %s", p.Slices.Size, g.groups[i].Slice.Level)
		}
	}
	return ""
}

// slicesPlaced says where the slices of a job are that has been placed.
func (c *cycle) slicesPlaced(j *model.Job, members []model.Member) string {
	for i := range j.Groups {
		g := &j.Groups[i]
		if g.Slice.Size == 0 || gangOf(j) == model.GangNone {
			continue
		}
		level, seen := c.catalog.SliceLevel(g.Slice.Level), map[int32]bool{}
		for k := range members {
			at, ok := c.tree.Find(members[k].Node)
			if ok && level >= 0 {
				at = c.tree.DomainAt(at, level)
			}
			if ok && at >= 0 && members[k].Group == g.Name {
				seen[at] = true
			}
		}
		var names []string
		for _, at := range slices.Sorted(maps.Keys(seen)) {
			if level >= 0 {
				names = append(names, c.tree.Domains[at].Path)
			} else {
				names = append(names, c.nodePath(at))
			}
		}
		if len(names) == 0 {
			continue
		}
		return fmt.Sprintf("; in slices of %d, each in one %s: %s", g.Slice.Size, g.Slice.Level, nameList(names))
	}
	return ""
}

// sliceLacking is the domain of the one slice that lacks all the members of a gang
// that need new places, -1 if there is no such one; sliced: they are of slices.
func (c *cycle) sliceLacking(b *comeback) (domain int32, sliced bool) {
	domain = -1
	for i := range b.job.Groups {
		g := &b.job.Groups[i]
		lost := len(b.lostOf(g.Name))
		if g.Slice.Size == 0 || lost == 0 {
			continue
		}
		if sliced {
			return -1, true
		}
		sliced = true
		level, in := c.tree.LevelIndex(g.Slice.Level), map[int32]int{}
		for k := range b.seats {
			if s := &b.seats[k]; level >= 0 && s.member.Group == g.Name {
				in[c.tree.DomainAt(s.placed.Node, level)]++
			}
		}
		for at, n := range in {
			if n%g.Slice.Size != 0 && n%g.Slice.Size+lost == g.Slice.Size {
				domain = at
			} else if n%g.Slice.Size != 0 {
				return -1, true
			}
		}
	}
	return domain, sliced
}
