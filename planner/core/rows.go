package core

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/beside"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// holder is something that holds a part of a node.
type holder struct {
	job       jobKey
	of        *model.Job // nil if it is nobody's that is known
	alloc     string     // "" while the member has no allocation yet
	gpus      uint64
	resources model.Resources
	ports     []uint16
	// on and member are what it is; a member that has become an allocation is
	// both.
	on     *model.Alloc
	member *model.Member
	// lost: its node is cut off, and its job does without it.
	lost bool
	// usage is what is known of how much it uses of the GPUs that it shares.
	usage *model.Usage
	// stays: nothing says that it ever ends by itself. A service does not, and
	// of what Caravan does not manage nobody knows.
	stays bool
}

// setRows computes what is free on a node, in every view.
func (p *Prepared) setRows(node int32) {
	before := p.usableOf(node, &p.empty[node])
	for view, row := range p.findRows(node) {
		p.views[view].State.Set(node, row)
	}
	if p.usable != nil && before != p.usableOf(node, &p.empty[node]) {
		p.usable = nil
	}
	p.noteNode(node)
}

// setAllRows is setRows for every node. The nodes are divided among two that work
// at the same time; what sums up nodes comes afterwards, in order.
func (p *Prepared) setAllRows() {
	n := int32(len(p.tree.Nodes))
	find := func(from, to int32) {
		for node := from; node < to; node++ {
			for view, row := range p.findRows(node) {
				p.views[view].State.Begin(node, row)
			}
		}
	}
	wait := beside.Do(func() { find(0, n/2) })
	find(n/2, n)
	wait()
	for node := range n {
		p.noteNode(node)
	}
}

// findRows finds who holds what of a node, and returns what is free in each view.
// It touches nothing but what is the node's own.
func (p *Prepared) findRows(node int32) [viewCount]topo.Row {
	n := &p.tree.Nodes[node]
	whole := topo.Row{GPUs: n.All, Free: n.Model.Capacity, Ports: ports(n.Model.ReservedPorts)}
	empty := p.findEmptyRow(node)
	calm, now := empty, empty
	p.held[node], p.empty[node] = p.findHolders(node), empty
	p.turned[node]++
	for i := range p.held[node] {
		h := &p.held[node][i]
		take(&now, h)
		if h.stays {
			take(&calm, h)
		}
	}
	return [viewCount]topo.Row{viewNow: now, viewTrue: now, viewCalm: calm, viewEmpty: empty, viewWhole: whole, viewAhead: {Closed: true}, viewLent: now}
}

// noteNode brings up to date what is known of all nodes together.
func (p *Prepared) noteNode(node int32) {
	if delete(p.divides, node); p.present[node].Divides {
		p.divides[node] = true
	}
	p.setEnding(node)
	p.account(node, p.held[node])
}

// emptyRow is a node as it would be if nobody held anything of it.
func (p *Prepared) emptyRow(node int32) topo.Row { return p.empty[node] }

func (p *Prepared) findEmptyRow(node int32) topo.Row {
	n := &p.tree.Nodes[node]
	row := topo.Row{GPUs: n.All, Free: n.Model.Capacity, Ports: ports(n.Model.ReservedPorts)}
	present := p.present[node]
	row.Closed = present.Unschedulable != ""
	for i := range present.GPUs {
		if present.GPUs[i].Unhealthy != "" || beingDivided(present, &present.GPUs[i]) {
			row.GPUs &^= 1 << i
		}
	}
	return row
}

func take(r *topo.Row, h *holder) {
	r.GPUs &^= h.gpus
	r.SetUser(h.gpus, h.usage)
	r.Free.CPUMHz -= h.resources.CPUMHz
	r.Free.Cores -= h.resources.Cores
	r.Free.MemoryMiB -= h.resources.MemoryMiB
	r.Free.DiskMiB -= h.resources.DiskMiB
	if len(h.ports) > 0 {
		r.Ports = topo.MergePorts(r.Ports, h.ports)
	}
}

func ports(list []int) []uint16 {
	if len(list) == 0 {
		return nil
	}
	out := make([]uint16, len(list))
	for i, p := range list {
		out[i] = uint16(p)
	}
	return topo.MergePorts(out, nil)
}

// holders lists what holds something on a node: every allocation, and every
// member in force that has none yet. The list must not be changed.
func (p *Prepared) holders(node int32) []holder { return p.held[node] }

func (p *Prepared) findHolders(node int32) []holder {
	allocs, members := p.allocsOn[node], p.membersOn[node]
	if len(allocs)+len(members) == 0 {
		return nil
	}
	slices.SortFunc(allocs, func(a, b *model.Alloc) int { return strings.Compare(a.ID, b.ID) })
	out := make([]holder, 0, len(allocs)+len(members))
	for _, a := range allocs {
		key := jobKey{a.Namespace, a.Job}
		out = append(out, holder{
			job: key, of: p.jobs[key], alloc: a.ID, on: a, gpus: p.gpuMask(node, a.GPUs), resources: a.Resources, ports: ports(a.Ports),
			stays: !p.endsItself(key) && !a.Stopping, lost: a.Lost, usage: p.usageOf(node, key),
		})
	}
	if len(members) == 0 {
		return out
	}
	slices.SortFunc(members, func(a, b jobMember) int {
		return cmp.Or(strings.Compare(a.job.Namespace, b.job.Namespace), strings.Compare(a.job.ID, b.job.ID),
			strings.Compare(a.member.Group, b.member.Group), cmp.Compare(a.member.Index, b.member.Index))
	})
	matched := make([]bool, len(allocs))
	for _, m := range members {
		h := p.memberHolder(node, m)
		if i := matchAlloc(allocs, matched, m, h.gpus, out); i >= 0 {
			// The allocation holds the rest; what the member was promised stays
			// its own even if Nomad gave it other GPUs.
			matched[i] = true
			out[i].gpus |= h.gpus
			out[i].member = m.member
			continue
		}
		out = append(out, h)
	}
	return out
}

func (p *Prepared) memberHolder(node int32, m jobMember) holder {
	h := holder{job: keyOf(m.job), of: m.job, member: m.member, gpus: p.gpuMask(node, m.member.GPUs), stays: m.job.Type == "service", usage: p.usageOf(node, keyOf(m.job))}
	for i := range m.job.Groups {
		g := &m.job.Groups[i]
		if g.Name != m.member.Group {
			continue
		}
		h.resources, h.ports = g.Resources, ports(g.Ports)
		if capacity := p.tree.Nodes[node].Model.Capacity; h.resources.Cores > 0 && capacity.Cores > 0 {
			h.resources.CPUMHz += h.resources.Cores * capacity.CPUMHz / capacity.Cores
		}
	}
	return h
}

// usageOf is what is known of how much a job uses of the shared GPUs of a node, nil
// where there are none.
func (p *Prepared) usageOf(node int32, key jobKey) *model.Usage {
	if len(p.tree.Nodes[node].Shape.Shared) == 0 || p.jobs[key] == nil {
		return nil
	}
	return p.jobs[key].Usage
}

// matchAlloc finds the allocation that a member has become: the one with its
// GPUs, else with its group and index, else of its group, else any of its job
// whose group the job does not have (Nomad may know the group by another name).
func matchAlloc(allocs []*model.Alloc, matched []bool, m jobMember, gpus uint64, holders []holder) int {
	best, bestRank := -1, 0
	for i, a := range allocs {
		if matched[i] || a.Job != m.job.ID || a.Namespace != m.job.Namespace || a.Stopping || a.Lost {
			continue
		}
		rank := 0
		switch {
		case gpus&holders[i].gpus != 0:
			rank = 4
		case a.Group == m.member.Group && a.Index == m.member.Index:
			rank = 3
		case a.Group == m.member.Group:
			rank = 2
		case !slices.ContainsFunc(m.job.Groups, func(g model.TaskGroup) bool { return g.Name == a.Group }):
			rank = 1
		}
		if rank > bestRank {
			best, bestRank = i, rank
		}
	}
	return best
}

func (p *Prepared) gpuMask(node int32, uuids []string) uint64 {
	var mask uint64
	gpus := p.tree.Nodes[node].Model.GPUs
	for _, uuid := range uuids {
		for i := range gpus {
			if gpus[i].UUID == uuid {
				mask |= 1 << i
				break
			}
		}
	}
	return mask
}

// endsItself reports whether a job is known to end one day.
func (p *Prepared) endsItself(key jobKey) bool {
	j := p.jobs[key]
	return j != nil && j.Type != "service"
}
