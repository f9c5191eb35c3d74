package core

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// bruteForce reports whether a legal placement of a whole job exists, by trying
// them all. It knows what anyCluster and anyJob draw, and shares no code with
// the placement that it checks.
func bruteForce(s *model.Snapshot, j *model.Job) bool {
	b := &brute{snapshot: s, job: j, apart: feasible.DistinctHosts(j.Constraints), perDC: map[string]int{}}
	for i := range s.Nodes {
		if s.Nodes[i].Unschedulable == "" {
			b.slots = append(b.slots, newSlot(s, &s.Nodes[i]))
		}
	}
	for i := range j.Groups {
		for range j.Groups[i].Count {
			b.members = append(b.members, &j.Groups[i])
		}
	}
	return b.place(0)
}

type brute struct {
	snapshot *model.Snapshot
	job      *model.Job
	members  []*model.TaskGroup
	slots    []*slot
	apart    bool
	// perDC counts members by group and datacenter.
	perDC map[string]int
	// at are the nodes of the members placed so far.
	at []*model.Node
	// domain is where the members placed so far have to be; a node's ID while
	// its island is still open.
	domain string
}

// slot is what is left of a node.
type slot struct {
	node   *model.Node
	free   uint64
	mhz    int
	ported bool
	used   bool // by this job
}

func newSlot(s *model.Snapshot, n *model.Node) *slot {
	sl := &slot{node: n, mhz: n.Capacity.CPUMHz}
	for g := range n.GPUs {
		if n.GPUs[g].Unhealthy == "" {
			sl.free |= 1 << g
		}
	}
	for _, a := range s.Allocs {
		if a.Node != n.ID {
			continue
		}
		for g := range n.GPUs {
			if slices.Contains(a.GPUs, n.GPUs[g].UUID) {
				sl.free &^= 1 << g
			}
		}
		sl.mhz -= a.Resources.CPUMHz
		sl.ported = sl.ported || len(a.Ports) > 0
	}
	return sl
}

// place tries every node for member i and, with each, everything for the rest.
func (b *brute) place(i int) bool {
	if i == len(b.members) {
		return true
	}
	g := b.members[i]
	for _, sl := range b.slots {
		key, before := g.Name+sl.node.Datacenter, b.domain
		if !b.allows(sl, g) || len(g.Constraints) > 0 && b.perDC[key] >= 2 || !b.joinsSlice(i, sl.node) || !b.enter(sl.node) {
			continue
		}
		was := *sl
		sl.mhz -= g.Resources.CPUMHz
		sl.ported, sl.used = sl.ported || len(g.Ports) > 0, true
		b.perDC[key]++
		b.at = append(b.at, sl.node)
		if b.serve(sl, g, 0, func() bool { return b.place(i + 1) }) {
			return true
		}
		b.at = b.at[:i]
		b.perDC[key]--
		*sl, b.domain = was, before
	}
	return false
}

// joinsSlice reports whether a node has a domain for the slice of member i, and
// the same as the slice's members before it.
func (b *brute) joinsSlice(i int, n *model.Node) bool {
	g := b.members[i]
	if g.Slice.Size == 0 {
		return true
	}
	nth := 0
	for nth < i && b.members[i-1-nth] == g {
		nth++
	}
	here := domainsOf(b.snapshot, n, g.Slice.Level, nil)[0]
	return here != "" && (nth%g.Slice.Size == 0 || domainsOf(b.snapshot, b.at[i-1], g.Slice.Level, nil)[0] == here)
}

func (b *brute) allows(sl *slot, g *model.TaskGroup) bool {
	red := slices.ContainsFunc(b.job.Constraints, func(c model.Constraint) bool { return c.Left == "${meta.color}" })
	return sl.mhz >= g.Resources.CPUMHz && sl.mhz >= 0 && !(len(g.Ports) > 0 && sl.ported) && !(b.apart && sl.used) &&
		!(red && sl.node.Attributes["meta.color"] != "red")
}

// enter moves on to a node; false if the topology required forbids it.
func (b *brute) enter(n *model.Node) bool {
	t := b.job.Topology
	switch {
	case t.Mode != model.TopologyRequire:
		return true
	case t.Level == model.LevelIsland:
		if b.domain == "" {
			b.domain = n.ID
		}
		return b.domain == n.ID || strings.HasPrefix(b.domain, n.ID+"/")
	}
	here := domainsOf(b.snapshot, n, t.Level, nil)[0]
	if here == "" || b.domain != "" && b.domain != here {
		return false
	}
	b.domain = here
	return true
}

// serve tries every set of GPUs for every device request of a member.
func (b *brute) serve(sl *slot, g *model.TaskGroup, ask int, then func() bool) bool {
	if ask == len(g.Devices) {
		return then()
	}
	for set := uint64(0); set < 1<<len(sl.node.GPUs); set++ {
		if set&^sl.free != 0 || bits.OnesCount64(set) != g.Devices[ask].Count {
			continue
		}
		before := b.domain
		if b.suits(sl.node, g.Devices[ask].Name, set) {
			sl.free &^= set
			if b.serve(sl, g, ask+1, then) {
				return true
			}
			sl.free |= set
		}
		b.domain = before
	}
	return false
}

// suits reports whether a set of GPUs is of one device group of that name and,
// where an island is required, in it.
func (b *brute) suits(n *model.Node, name string, set uint64) bool {
	kind := ""
	for k, gpu := range n.GPUs {
		if set>>k&1 == 0 {
			continue
		}
		if kind != "" && kind != gpu.Model || name != "gpu" && name != "nvidia/gpu" && name != "nvidia/gpu/"+gpu.Model {
			return false
		}
		kind = gpu.Model
		if t := b.job.Topology; t.Mode == model.TopologyRequire && t.Level == model.LevelIsland {
			here := fmt.Sprint(n.ID, "/", gpu.Island)
			if b.domain != n.ID && b.domain != here {
				return false
			}
			b.domain = here
		}
	}
	return true
}
