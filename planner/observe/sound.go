package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The core refuses a snapshot with any fault in it. What Nomad shows has
// faults: a client that was set up anew shows its GPUs under two node IDs, a
// purged node leaves allocations behind. Each is set right here by itself,
// with a warning, so that it stops nothing else.

// soundNode makes a node harmless that the core would refuse.
func soundNode(e *nodeEntry, levels []string) {
	one := model.Snapshot{Levels: levels, Nodes: []model.Node{e.model}}
	err := one.Validate()
	if err == nil {
		return
	}
	e.warn("its data cannot be used, so nothing is placed on it: %s", oneLine(err))
	e.model = model.Node{
		ID: e.model.ID, Name: e.model.Name, Datacenter: e.model.Datacenter, Pool: e.model.Pool, Class: e.model.Class,
		Unschedulable: "its data cannot be used",
	}
}

// soundJob says what the core would refuse a job for; members are not looked
// at.
func soundJob(j model.Job, levels []string) error {
	j.State, j.Members = model.StateQueued, nil
	one := model.Snapshot{Levels: levels, Jobs: []model.Job{j}}
	return one.Validate()
}

func oneLine(err error) string {
	return strings.Join(strings.Split(err.Error(), "\n"), "; ")
}

// soundMembers drops what the core would refuse: members on nodes that are
// gone or of groups that the job does not have any more, and second ones of
// one place. Those whose GPUs another node lists now were on the same machine
// under its old ID; what they hold is counted there.
func soundMembers(j *model.Job, st *state, owner map[string]string) {
	type place struct {
		group string
		index int
	}
	elsewhere := func(m model.Member) bool {
		return slices.ContainsFunc(m.GPUs, func(id string) bool { on, listed := owner[id]; return listed && on != m.Node })
	}
	seen := map[place]bool{}
	j.Members = slices.DeleteFunc(slices.Clone(j.Members), func(m model.Member) bool {
		at := place{m.Group, m.Index}
		known := slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool { return g.Name == m.Group })
		drop := seen[at] || !known || st.nodes[m.Node] == nil || m.Index < 0 || m.Index > model.MaxCount || elsewhere(m)
		seen[at] = true
		return drop
	})
}

// soundGPUs leaves each GPU with one node: of two that list it the one that is
// up, and then the one that joined last.
func soundGPUs(nodes []model.Node, st *state) (owner map[string]string, warnings []Warning) {
	owner = map[string]string{}
	var twice map[string]bool
	for i := range nodes {
		for _, g := range nodes[i].GPUs {
			other, taken := owner[g.UUID]
			if !taken {
				owner[g.UUID] = nodes[i].ID
				continue
			}
			if twice == nil {
				twice = map[string]bool{}
			}
			twice[other], twice[nodes[i].ID] = true, true
			if st.prefer(nodes[i].ID, other) {
				owner[g.UUID] = nodes[i].ID
			}
		}
	}
	for i := range nodes {
		n := &nodes[i]
		if !twice[n.ID] {
			continue
		}
		before := len(n.GPUs)
		keepGPUs(n, func(g model.GPU) bool { return owner[g.UUID] == n.ID })
		if lost := before - len(n.GPUs); lost > 0 {
			warnings = append(warnings, Warning{Subject: "node " + cmp.Or(n.Name, n.ID), Text: fmt.Sprintf(
				"%d of its GPUs are listed by another node too, and count there; if this node ID (%s) is an old one of the same machine, wait for Nomad to collect it or purge it", lost, n.ID)})
		}
	}
	return owner, warnings
}

// prefer says whether node a rather than b has a GPU that both list.
func (st *state) prefer(a, b string) bool {
	x, y := st.nodes[a], st.nodes[b]
	if up := nodeCutOff(y.status); up != nodeCutOff(x.status) {
		return up
	}
	return x.createIndex > y.createIndex
}

// keepGPUs drops a node's GPUs but those, with their links. The node's lists
// are shared with other Views, so they are copied.
func keepGPUs(n *model.Node, keep func(model.GPU) bool) {
	var kept []int
	for i, g := range n.GPUs {
		if keep(g) {
			kept = append(kept, i)
		}
	}
	gpus := make([]model.GPU, 0, len(kept))
	var links [][]model.Link
	for _, i := range kept {
		gpus = append(gpus, n.GPUs[i])
		if n.Links != nil {
			row := make([]model.Link, 0, len(kept))
			for _, j := range kept {
				row = append(row, n.Links[i][j])
			}
			links = append(links, row)
		}
	}
	n.GPUs, n.Links = gpus, links
}

// soundAllocs makes the allocations fit the nodes. One on a node that is gone
// holds nothing that could be given away. One whose GPU is another node's now
// is on the same machine under its old ID, and holds there what it held.
func soundAllocs(allocs []model.Alloc, owner map[string]string, st *state) (out []model.Alloc, warnings []Warning) {
	out = make([]model.Alloc, 0, len(allocs))
	holder := map[string]string{}
	shared := st.sharedNodes()
	for _, a := range allocs {
		n := st.nodes[a.Node]
		if n == nil {
			continue
		}
		a.GPUs = heldInParts(a.GPUs, &n.model, shared[a.Node])
		for _, id := range a.GPUs {
			if on, ok := owner[id]; ok && on != a.Node {
				a.Node = on
				break
			}
		}
		fenced := a.Stopping || a.Lost
		refused := func(id string) bool {
			on, listed := owner[id]
			return listed && on != a.Node || holder[id] != "" && !fenced
		}
		if at := slices.IndexFunc(a.GPUs, refused); at >= 0 {
			warnings = append(warnings, Warning{Subject: "allocation " + a.ID, Text: fmt.Sprintf(
				"device %s is allocation %s's too, and counts there; stop one of the two", a.GPUs[at], holder[a.GPUs[at]])})
			a.GPUs = slices.DeleteFunc(slices.Clone(a.GPUs), refused)
		}
		if !fenced {
			for _, id := range a.GPUs {
				holder[id] = a.ID
			}
		}
		out = append(out, a)
	}
	return out, warnings
}
