package httpapi

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
)

// holders maps a device's UUID to the allocation that holds it.
func holders(s *model.Snapshot) map[string]*model.Alloc {
	out := map[string]*model.Alloc{}
	for i := range s.Allocs {
		for _, id := range s.Allocs[i].GPUs {
			out[id] = &s.Allocs[i]
		}
	}
	return out
}

// managedGPU says whether the device is one of those that Caravan manages.
func managedGPU(g model.GPU, patterns []string) bool {
	return gangspec.MatchesAny(g.Vendor+"/"+g.Type+"/"+g.Model, patterns)
}

// Tree is the cluster as a tree of domains, with free and used GPUs.
func Tree(v *observe.View) Topology {
	s := v.Snapshot
	levels := s.Levels
	if len(levels) == 0 {
		levels = model.DefaultLevels
	}
	held := holders(s)
	root := &branch{Domain: Domain{Level: "cluster", Name: "cluster"}}
	used := map[string]bool{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		at := root
		for _, level := range levels {
			if value := n.Levels[level]; value != "" {
				used[level] = true
				at = at.child(level, value)
			}
		}
		leaf := at.child(model.LevelNode, n.ID)
		leaf.Domain = nodeDomain(n, held, v.Devices)
	}
	out := Topology{Root: root.finish()}
	for _, level := range levels {
		if used[level] {
			out.Levels = append(out.Levels, level)
		}
	}
	out.Levels = append(out.Levels, model.LevelNode)
	return out
}

// branch is a Domain under construction.
type branch struct {
	Domain
	children []*branch
	byName   map[[2]string]*branch
}

func (b *branch) child(level, name string) *branch {
	key := [2]string{level, name}
	if c, ok := b.byName[key]; ok {
		return c
	}
	c := &branch{Domain: Domain{Level: level, Name: name}}
	if b.byName == nil {
		b.byName = map[[2]string]*branch{}
	}
	b.byName[key] = c
	b.children = append(b.children, c)
	return c
}

// finish sums up and sorts, from the leaves to the root.
func (b *branch) finish() Domain {
	for _, c := range b.children {
		d := c.finish()
		b.Nodes += d.Nodes
		b.GPUs += d.GPUs
		b.FreeGPUs += d.FreeGPUs
		b.UsedGPUs += d.UsedGPUs
		b.UnhealthyGPUs += d.UnhealthyGPUs
		b.SharedGPUs, b.Slices, b.FreeSlices = b.SharedGPUs+d.SharedGPUs, b.Slices+d.Slices, b.FreeSlices+d.FreeSlices
		b.Children = append(b.Children, d)
	}
	slices.SortFunc(b.Children, func(x, y Domain) int {
		return cmp.Or(cmp.Compare(x.Level, y.Level), natural(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	return b.Domain
}

// natural compares names so that r2 comes before r10.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == 0 || y == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		n, m := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
		if c := cmp.Or(cmp.Compare(len(n), len(m)), cmp.Compare(n, m)); c != 0 {
			return c
		}
		a, b = a[x:], b[y:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits counts the digits that s begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

func nodeDomain(n *model.Node, held map[string]*model.Alloc, devices []string) Domain {
	d := Domain{Level: model.LevelNode, Name: n.Name, ID: n.ID, Nodes: 1, Unschedulable: n.Unschedulable}
	if d.Name == "" {
		d.Name = n.ID
	}
	mixed := false
	shared := map[string]bool{}
	for _, g := range n.GPUs {
		if !managedGPU(g, devices) {
			continue
		}
		if g.Slices > 0 {
			d.Slices++
			if held[g.UUID] == nil && g.Unhealthy == "" && n.Unschedulable == "" {
				d.FreeSlices++
			}
			shared[g.Parent] = true
			continue
		}
		mixed = mixed || (d.Model != "" && d.Model != g.Model)
		d.Model = g.Model
		d.GPUs++
		switch {
		case held[g.UUID] != nil:
			d.UsedGPUs++
		case g.Unhealthy != "":
			d.UnhealthyGPUs++
		case n.Unschedulable == "":
			d.FreeGPUs++
		}
	}
	if mixed {
		d.Model = ""
	}
	d.SharedGPUs = len(shared)
	return d
}

// CountCluster counts nodes with managed GPUs, and the GPUs.
func CountCluster(v *observe.View) Counts {
	var c Counts
	held := holders(v.Snapshot)
	for i := range v.Snapshot.Nodes {
		d := nodeDomain(&v.Snapshot.Nodes[i], held, v.Devices)
		if d.GPUs+d.SharedGPUs > 0 {
			c.Nodes++
		}
		c.GPUs += d.GPUs
		c.FreeGPUs += d.FreeGPUs
		c.UsedGPUs += d.UsedGPUs
		c.UnhealthyGPUs += d.UnhealthyGPUs
	}
	for i := range v.Snapshot.Jobs {
		switch v.Snapshot.Jobs[i].State {
		case model.StateQueued:
			c.Queued++
		case model.StateAdmitted:
			c.Admitted++
		case model.StateRunning:
			c.Running++
		}
	}
	return c
}

// Inside is one node from the inside, named by ID, by name or by the
// beginning of its ID.
func Inside(v *observe.View, name string) (NodeTopology, error) {
	n, err := findNode(v.Snapshot.Nodes, name)
	if err != nil {
		return NodeTopology{}, err
	}
	held := holders(v.Snapshot)
	out := NodeTopology{
		ID: n.ID, Name: n.Name, Datacenter: n.Datacenter, Pool: n.Pool, Levels: n.Levels,
		Unschedulable: n.Unschedulable, GPUs: []GPUUse{}, Islands: [][]int{}, Links: n.Links,
	}
	islands := map[int]int{}
	for i, g := range n.GPUs {
		use := GPUUse{GPU: g}
		if a := held[g.UUID]; a != nil {
			use.Namespace, use.Job, use.Alloc = a.Namespace, a.Job, a.ID
			use.Stopping, use.Lost = a.Stopping, a.Lost
		}
		out.GPUs = append(out.GPUs, use)
		at, ok := islands[g.Island]
		if !ok {
			at = len(out.Islands)
			islands[g.Island] = at
			out.Islands = append(out.Islands, nil)
		}
		out.Islands[at] = append(out.Islands[at], i)
	}
	for _, w := range v.Warnings {
		if w.Subject == "node "+n.Name || w.Subject == "node "+n.ID {
			out.Warnings = append(out.Warnings, Warning(w))
		}
	}
	return out, nil
}

// minPrefix is the shortest beginning of a node's ID that names it.
const minPrefix = 4

func findNode(nodes []model.Node, name string) (*model.Node, error) {
	var found []*model.Node
	for i := range nodes {
		n := &nodes[i]
		if n.ID == name {
			return n, nil
		}
		if n.Name == name || (len(name) >= minPrefix && strings.HasPrefix(n.ID, name)) {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, &Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no node %q", name), Do: "see nomad node status for names and IDs"}
	}
	ids := make([]string, 0, len(found))
	for _, n := range found {
		ids = append(ids, n.ID)
	}
	return nil, &Error{Status: http.StatusConflict, Message: fmt.Sprintf("%q names %d nodes: %s", name, len(found), strings.Join(ids, ", ")), Do: "use a whole ID"}
}
