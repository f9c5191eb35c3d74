package optimality

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// room is what a node has free, in numbers: GPUs by island, and CPU.
type room struct {
	node    *model.Node
	islands []int
	mhz     int
}

func (r *room) gpus() int {
	n := 0
	for _, i := range r.islands {
		n += i
	}
	return n
}

// rooms are what the nodes have free without some allocations.
func rooms(s *model.Snapshot, gone map[string]bool) []room {
	var out []room
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Unschedulable != "" {
			continue
		}
		r := room{node: n, mhz: n.Capacity.CPUMHz}
		for k := range n.GPUs {
			g := &n.GPUs[k]
			for len(r.islands) <= g.Island {
				r.islands = append(r.islands, 0)
			}
			held := slices.ContainsFunc(s.Allocs, func(a model.Alloc) bool { return !gone[a.ID] && slices.Contains(a.GPUs, g.UUID) })
			if !held && g.Unhealthy == "" {
				r.islands[g.Island]++
			}
		}
		out = append(out, r)
	}
	return out
}

// ask is what one member needs.
type ask struct {
	gpus, mhz int
	// alone: it shares its node with no other member.
	alone bool
}

func asksOf(j *model.Job) []ask {
	var out []ask
	alone := slices.ContainsFunc(j.Constraints, func(c model.Constraint) bool { return c.Operand == "distinct_hosts" })
	for _, g := range j.Groups {
		for range g.Count {
			out = append(out, ask{g.Devices[0].Count, g.Resources.CPUMHz, alone})
		}
	}
	return out
}

// fits tries every way to spread members over nodes. together: each has its GPUs
// in one island.
func fits(in []room, asks []ask, together bool) bool {
	if len(asks) == 0 {
		return true
	}
	for i := range in {
		r := &in[i]
		if r.mhz < asks[0].mhz {
			continue
		}
		before := *r
		r.islands, r.mhz = slices.Clone(r.islands), r.mhz-asks[0].mhz
		if asks[0].alone {
			r.mhz = -1 // nothing more
		}
		found := false
		switch {
		case together:
			for k := range r.islands {
				if !found && r.islands[k] >= asks[0].gpus {
					r.islands[k] -= asks[0].gpus
					found = fits(in, asks[1:], true)
					r.islands[k] += asks[0].gpus
				}
			}
		case r.gpus() >= asks[0].gpus:
			takeAny(r, asks[0].gpus)
			found = fits(in, asks[1:], false)
		}
		*r = before
		if found {
			return true
		}
	}
	return false
}

// takeAny takes GPUs of whatever islands.
func takeAny(r *room, n int) {
	for k := range r.islands {
		t := min(n, r.islands[k])
		r.islands[k], n = r.islands[k]-t, n-t
	}
}

// domain is where a gang could be.
type domain struct {
	level, path string
	rooms       []room
}

// domains lists everything in which a gang may be, by level, the tightest level
// first. To one member all levels that it prefers are as near.
func domains(s *model.Snapshot, free []room, j *model.Job) [][]domain {
	t := j.Topology
	if t.Mode != model.TopologyRequire && len(asksOf(j)) == 1 {
		t = model.Topology{}
	}
	levels := []string{model.LevelIsland, model.LevelNode}
	for _, l := range slices.Backward(s.Levels) {
		levels = append(levels, l)
	}
	levels = append(levels, "")
	at := slices.Index(levels, t.Level)
	switch {
	case t.Mode == model.TopologyRequire:
		levels = levels[:at+1]
	case t.Level != "":
		levels = levels[at:]
	}
	out := make([][]domain, 0, len(levels))
	for _, level := range levels {
		out = append(out, domainsOf(s, free, level, t))
	}
	return out
}

func domainsOf(s *model.Snapshot, free []room, level string, t model.Topology) []domain {
	var out []domain
	for _, r := range free {
		outer, inside := pathOf(s, r.node, level)
		if _, has := pathOf(s, r.node, t.Level); t.Mode == model.TopologyRequire && !has || !inside {
			continue
		}
		switch level {
		case model.LevelIsland:
			for k := range r.islands {
				one := room{r.node, make([]int, len(r.islands)), r.mhz}
				one.islands[k] = r.islands[k]
				out = append(out, domain{level, outer, []room{one}})
			}
		default:
			at := slices.IndexFunc(out, func(d domain) bool { return d.path == outer })
			if at < 0 {
				at, out = len(out), append(out, domain{level: level, path: outer})
			}
			out[at].rooms = append(out[at].rooms, r)
		}
	}
	return out
}

// pathOf names a node's domain of a level, if it has one.
func pathOf(s *model.Snapshot, n *model.Node, level string) (path string, has bool) {
	if level == "" {
		return "", true
	}
	for _, l := range s.Levels {
		if v := n.Levels[l]; v != "" {
			path += v + "/"
		}
		if l == level {
			return path, n.Levels[l] != ""
		}
	}
	return path + n.ID, true
}

// cost is how good a gang's domain is, lower being better: first the level, then,
// on one node, whether some member is across islands, then for how many members
// there would be room beside.
type cost struct{ level, across, spare int }

func (c cost) String() string {
	across := ""
	if c.across > 0 {
		across = ", across islands"
	}
	return fmt.Sprintf("the domain at level %d from the inside%s, with room for %d members more", c.level, across, c.spare)
}

func (c cost) worse(o cost) bool {
	switch {
	case c.level != o.level:
		return c.level > o.level
	case c.across != o.across:
		return c.across > o.across
	}
	return c.spare > o.spare
}

// best is the least cost at which a gang fits, false if it does not.
func best(s *model.Snapshot, free []room, j *model.Job) (least cost, ok bool) {
	asks := asksOf(j)
	for level, list := range domains(s, free, j) {
		for _, d := range list {
			if !fits(d.rooms, asks, false) {
				continue
			}
			if c := costIn(d, level, j, asks); !ok || least.worse(c) {
				least, ok = c, true
			}
		}
		if ok {
			return least, true
		}
	}
	return cost{}, false
}

// costIn is what it costs to be in a domain that has room. For one member what is
// left beside does not count, and for groups of several kinds it has no one
// number.
func costIn(d domain, level int, j *model.Job, asks []ask) cost {
	c := cost{level: level}
	onNode := d.level == model.LevelNode || d.level == model.LevelIsland
	if len(j.Groups) > 1 {
		return c
	}
	if onNode && !fits(d.rooms, asks, true) {
		c.across = 1
	}
	if len(asks) == 1 {
		return c
	}
	for _, r := range d.rooms {
		n := r.gpus() / asks[0].gpus
		if asks[0].mhz > 0 {
			n = min(n, r.mhz/asks[0].mhz)
		}
		if asks[0].alone {
			n = min(n, 1)
		}
		c.spare += n
	}
	c.spare -= len(asks)
	return c
}
