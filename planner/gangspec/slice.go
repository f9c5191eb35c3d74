package gangspec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// slice reads in what slices a group's members come: "SIZE" or "SIZE:LEVEL".
func (p *parser) slice(g *api.TaskGroup, b *Bounds) {
	where := inGroup(g)
	v, ok := g.Meta[KeySlice]
	if !ok && len(p.job.TaskGroups) == 1 {
		where = "job"
		v, ok = p.job.Meta[KeySlice]
	}
	if !ok {
		return
	}
	v = strings.TrimSpace(v)
	text, level, named := strings.Cut(v, ":")
	if !named {
		level = model.LevelDomain
	}
	size, err := strconv.Atoi(text)
	outer := slices.DeleteFunc(slices.Clone(p.levels), func(l string) bool { return l == model.LevelIsland })
	switch {
	case err != nil || size < 2 || size > b.Count || b.Count%size != 0:
		p.fault(where, KeySlice, v, fmt.Sprintf("allowed is \"SIZE\" or \"SIZE:LEVEL\", SIZE 2 or more and a divisor of the group's count, %d", b.Count))
	case !slices.Contains(outer, level):
		p.fault(where, KeySlice, v, "the level "+oneOf(level, outer))
	case b.Elastic():
		p.fault(where, KeySlice, v, "a group in slices has a fixed count; leave "+KeyMin+" and "+KeyMax+" out")
	default:
		b.Slice = model.Slice{Size: size, Level: level}
	}
}

// checkSlices finds slices that the rest of the contract does not go with.
func (p *parser) checkSlices(spec Spec) {
	for _, b := range spec.Groups {
		if b.Slice.Size == 0 {
			continue
		}
		where, v := fmt.Sprintf("group %q", b.Group), fmt.Sprintf("%d:%s", b.Slice.Size, b.Slice.Level)
		if spec.Gang == model.GangNone {
			p.fault(where, KeySlice, v, "members that are placed one by one come in no slices; set "+KeyGang+" to job or group, or leave it out")
		}
		if t := spec.Topology; t.Mode == model.TopologyRequire && inside(t.Level, b.Slice.Level) {
			p.fault(where, KeySlice, v, fmt.Sprintf("the whole gang is in one %s by %s already, and that is inside one %s; require a wider level, or leave it out", t.Level, KeyTopology, b.Slice.Level))
		}
	}
}

// inside reports whether one of the standard levels is inside another one.
func inside(level, outer string) bool {
	a, b := slices.Index(levels, level), slices.Index(levels, outer)
	return a >= 0 && b >= 0 && a < b
}
