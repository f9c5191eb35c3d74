package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// checkPlan verifies a plan against its snapshot with code of its own.
func checkPlan(t testing.TB, s *model.Snapshot, plan *model.Plan) {
	t.Helper()
	for _, fault := range planFaults(s, plan) {
		t.Error(fault)
	}
}

// ledger is what is held on one node.
type ledger struct {
	node  *model.Node
	gpus  map[string]string // UUID → holder
	used  model.Resources
	ports map[int]string
}

func planFaults(s *model.Snapshot, plan *model.Plan) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	ledgers, jobs := openLedgers(s), map[string]*model.Job{}
	for i := range s.Jobs {
		jobs[s.Jobs[i].Namespace+"/"+s.Jobs[i].ID] = &s.Jobs[i]
	}
	seen := map[string]bool{}
	for _, d := range plan.Decisions {
		key := d.Namespace + "/" + d.Job
		j := jobs[key]
		if j == nil || seen[key] {
			fault("decision on %q: unknown job or second decision", key)
			continue
		}
		seen[key] = true
		if d.Reason == "" || d.Detail.Code == "" {
			fault("%s: no reason or code", key)
		}
		if (d.Action == model.ActionAdmit) != (len(d.Members) > 0) {
			fault("%s: action %s with %d members", key, d.Action, len(d.Members))
		}
		if d.Action == model.ActionAdmit && (j.Hold != "" || j.RetryAfter.After(s.Now)) {
			fault("%s: admitted while on hold", key)
		}
		faults = append(faults, memberFaults(ledgers, j, d.Members)...)
		faults = append(faults, gangFaults(s, ledgers, j, d.Members)...)
	}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.State == model.StateQueued && !seen[j.Namespace+"/"+j.ID] {
			fault("%s: no decision", j.ID)
		}
	}
	for id, l := range ledgers {
		if c := l.node.Capacity; len(plan.Decisions) > 0 && (l.used.CPUMHz > c.CPUMHz || l.used.MemoryMiB > c.MemoryMiB || l.used.DiskMiB > c.DiskMiB) && touched(plan, id) {
			fault("node %s: %+v used of %+v", id, l.used, c)
		}
	}
	return faults
}

// openLedgers enters what is held before the plan.
func openLedgers(s *model.Snapshot) map[string]*ledger {
	ledgers := map[string]*ledger{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		l := &ledger{node: n, gpus: map[string]string{}, ports: map[int]string{}}
		for _, p := range n.ReservedPorts {
			l.ports[p] = "node"
		}
		for _, g := range n.GPUs {
			if g.Unhealthy != "" {
				l.gpus[g.UUID] = "unhealthy"
			}
		}
		ledgers[n.ID] = l
	}
	for _, a := range s.Allocs {
		l := ledgers[a.Node]
		for _, uuid := range a.GPUs {
			l.gpus[uuid] = "alloc " + a.ID
		}
		for _, p := range a.Ports {
			l.ports[p] = "alloc " + a.ID
		}
		l.used = plus(l.used, a.Resources)
	}
	for _, j := range s.Jobs {
		if !holdsMembers(&j) {
			continue
		}
		for _, m := range j.Members {
			if m.Ended {
				continue
			}
			if g := j.Groups[slices.IndexFunc(j.Groups, func(g model.TaskGroup) bool { return g.Name == m.Group })]; !hasAlloc(s, &j, m.Node) {
				ledgers[m.Node].used = plus(ledgers[m.Node].used, g.Resources)
				for _, p := range g.Ports {
					ledgers[m.Node].ports[p] = "member of " + j.ID
				}
			}
			for _, uuid := range m.GPUs {
				if ledgers[m.Node].gpus[uuid] == "" {
					ledgers[m.Node].gpus[uuid] = "member of " + j.ID
				}
			}
		}
	}
	return ledgers
}

func hasAlloc(s *model.Snapshot, j *model.Job, node string) bool {
	return slices.ContainsFunc(s.Allocs, func(a model.Alloc) bool { return a.Job == j.ID && a.Namespace == j.Namespace && a.Node == node })
}

func touched(plan *model.Plan, node string) bool {
	return slices.ContainsFunc(plan.Decisions, func(d model.Decision) bool {
		return slices.ContainsFunc(d.Members, func(m model.Member) bool { return m.Node == node })
	})
}

func plus(a, b model.Resources) model.Resources {
	return model.Resources{CPUMHz: a.CPUMHz + b.CPUMHz, Cores: a.Cores + b.Cores, MemoryMiB: a.MemoryMiB + b.MemoryMiB, DiskMiB: a.DiskMiB + b.DiskMiB}
}

// memberFaults checks every member by itself and enters it in the ledgers.
func memberFaults(ledgers map[string]*ledger, j *model.Job, members []model.Member) (faults []string) {
	for _, m := range members {
		who := fmt.Sprintf("%s %s[%d]", j.ID, m.Group, m.Index)
		l := ledgers[m.Node]
		at := slices.IndexFunc(j.Groups, func(g model.TaskGroup) bool { return g.Name == m.Group })
		if l == nil || at < 0 {
			faults = append(faults, who+": unknown node or group")
			continue
		}
		g := &j.Groups[at]
		if l.node.Unschedulable != "" {
			faults = append(faults, who+": on a closed node")
		}
		for _, uuid := range m.GPUs {
			if holder := l.gpus[uuid]; holder != "" {
				faults = append(faults, fmt.Sprintf("%s: GPU %s is held by %s", who, uuid, holder))
			}
			l.gpus[uuid] = who
		}
		for _, p := range g.Ports {
			if l.ports[p] != "" {
				faults = append(faults, fmt.Sprintf("%s: port %d is held by %s", who, p, l.ports[p]))
			}
			l.ports[p] = who
		}
		l.used = plus(l.used, g.Resources)
		faults = append(faults, askFaults(who, l.node, g, m)...)
	}
	return faults
}

// askFaults checks that each device request got GPUs of one device group.
func askFaults(who string, n *model.Node, g *model.TaskGroup, m model.Member) (faults []string) {
	tasks := m.Tasks
	if len(g.Devices) == 1 {
		tasks = [][]string{m.GPUs}
	}
	if len(tasks) != len(g.Devices) {
		return []string{fmt.Sprintf("%s: %d requests served, want %d", who, len(tasks), len(g.Devices))}
	}
	total := 0
	for i, d := range g.Devices {
		total += len(tasks[i])
		if len(tasks[i]) != d.Count {
			faults = append(faults, fmt.Sprintf("%s: request %d got %d GPUs, want %d", who, i, len(tasks[i]), d.Count))
		}
		model := ""
		for _, uuid := range tasks[i] {
			at := slices.IndexFunc(n.GPUs, func(g modelGPU) bool { return g.UUID == uuid })
			if at < 0 {
				faults = append(faults, fmt.Sprintf("%s: GPU %s is not on %s", who, uuid, n.ID))
				continue
			}
			gpu := n.GPUs[at]
			if model != "" && gpu.Model != model {
				faults = append(faults, who+": request served from two device groups")
			}
			model = gpu.Model
			var c feasible.Checker
			if !c.MatchesDevice(d, &feasible.DeviceGroup{Vendor: gpu.Vendor, Type: gpu.Type, Model: gpu.Model, Attributes: gpu.Attributes, Shared: gpu.Slices > 0}) {
				faults = append(faults, fmt.Sprintf("%s: GPU %s is no %s", who, uuid, d.Name))
			}
		}
	}
	if total != len(m.GPUs) {
		faults = append(faults, who+": GPUs and Tasks differ")
	}
	return faults
}

type modelGPU = model.GPU

// gangFaults checks that nothing is partial and that topology is kept.
func gangFaults(s *model.Snapshot, ledgers map[string]*ledger, j *model.Job, members []model.Member) (faults []string) {
	byGang := map[string][]model.Member{}
	for _, m := range members {
		switch j.Gang {
		case model.GangJob:
			byGang[""] = append(byGang[""], m)
		case model.GangGroup:
			byGang[m.Group] = append(byGang[m.Group], m)
		default:
			byGang[fmt.Sprint(m.Group, m.Index)] = append(byGang[fmt.Sprint(m.Group, m.Index)], m)
		}
	}
	for name, gang := range byGang {
		want := 1
		if j.Gang == model.GangJob || j.Gang == model.GangGroup {
			want = 0
			for _, g := range j.Groups {
				if j.Gang == model.GangJob || g.Name == name {
					want += g.Count
				}
			}
			for _, m := range j.Members {
				if m.Group == name || j.Gang == model.GangJob {
					want--
				}
			}
		}
		// One that runs may get fewer than it lacks, and one that does not may start
		// with fewer.
		short := len(gang) < want && (shortMembers(ledgers, j, gang) || j.State == model.StateRunning && len(j.Members) > 0 && j.Groups[0].Max > 0)
		if len(gang) != want && !short {
			faults = append(faults, fmt.Sprintf("%s: gang %q has %d members, want %d", j.ID, name, len(gang), want))
		}
		ranks, indexes := map[int]bool{}, map[string]bool{}
		together := gang
		for _, m := range j.Members {
			if j.Gang == model.GangJob || j.Gang == model.GangGroup && m.Group == name && !m.Ended {
				together = append(together, m)
			}
		}
		if j.Gang == model.GangJob {
			gang = together // beside whom it runs
		}
		for _, m := range gang {
			ranks[m.Rank] = true
			indexes[fmt.Sprint(m.Group, m.Index)] = true
		}
		if len(ranks) != len(gang) || len(indexes) != len(gang) {
			faults = append(faults, fmt.Sprintf("%s: gang %q: ranks or indexes are not unique", j.ID, name))
		}
		if len(j.Members) == 0 {
			faults = append(faults, rankFaults(s, ledgers, j.ID, gang)...)
			faults = append(faults, sliceFaults(s, ledgers, j, gang)...)
		}
		if j.Topology.Mode == model.TopologyRequire {
			domains := map[string]bool{}
			for _, m := range together {
				if j.Topology.Level == model.LevelIsland && m.Node != gang[0].Node {
					domains[m.Node] = true
				}
				for _, d := range domainsOf(s, ledgers[m.Node].node, j.Topology.Level, m.GPUs) {
					domains[d] = true
				}
			}
			if len(domains) > 1 || domains[""] {
				faults = append(faults, fmt.Sprintf("%s: gang %q is in the %ss %v", j.ID, name, j.Topology.Level, domains))
			}
		}
	}
	return faults
}

// shortMembers reports whether a gang may have these members of a group and no
// more: no fewer than its least, with whole nodes to themselves, and of its other
// groups all.
func shortMembers(ledgers map[string]*ledger, j *model.Job, gang []model.Member) bool {
	of, nodes := map[string]int{}, map[string]bool{}
	for _, m := range gang {
		of[m.Group]++
	}
	for i := range j.Groups {
		g := &j.Groups[i]
		if j.Gang == model.GangGroup && g.Name != gang[0].Group || of[g.Name] == g.Count {
			continue
		}
		if g.Max == 0 || of[g.Name] < max(1, g.Min) || of[g.Name] > g.Count {
			return false
		}
		for _, m := range gang {
			if m.Group == g.Name && (nodes[m.Node] || len(m.GPUs) == 0 || len(m.GPUs) != len(ledgers[m.Node].node.GPUs)) {
				return false
			}
			nodes[m.Node] = nodes[m.Node] || m.Group == g.Name
		}
	}
	return true
}

// sliceFaults checks that slices are each in one domain, and of a job of one
// group that they are so by rank.
func sliceFaults(s *model.Snapshot, ledgers map[string]*ledger, j *model.Job, gang []model.Member) (faults []string) {
	for _, g := range j.Groups {
		if g.Slice.Size == 0 || j.Gang == model.GangNone {
			continue
		}
		in, at := map[string]int{}, map[int]string{}
		for _, m := range gang {
			if m.Group == g.Name {
				d := domainsOf(s, ledgers[m.Node].node, g.Slice.Level, nil)[0]
				in[d]++
				at[m.Rank] = d
			}
		}
		for d, n := range in {
			if d == "" || n%g.Slice.Size != 0 {
				faults = append(faults, fmt.Sprintf("%s: %d members of %s in %s %q are no slices of %d", j.ID, n, g.Name, g.Slice.Level, d, g.Slice.Size))
			}
		}
		for rank := range at {
			if first := rank - rank%g.Slice.Size; len(j.Groups) == 1 && at[rank] != at[first] {
				faults = append(faults, fmt.Sprintf("%s: ranks %d and %d are of one slice, in %s and %s", j.ID, first, rank, at[first], at[rank]))
			}
		}
	}
	return faults
}

// rankFaults checks that ranks follow the tree: members that share a node, a
// rack or a block have ranks next to each other.
func rankFaults(s *model.Snapshot, ledgers map[string]*ledger, job string, gang []model.Member) (faults []string) {
	ranks := map[string][]int{}
	for _, m := range gang {
		for _, level := range append([]string{model.LevelNode}, s.Levels...) {
			if d := domainsOf(s, ledgers[m.Node].node, level, nil)[0]; d != "" {
				ranks[level+d] = append(ranks[level+d], m.Rank)
			}
		}
	}
	for domain, list := range ranks {
		if slices.Max(list)-slices.Min(list)+1 != len(list) {
			faults = append(faults, fmt.Sprintf("%s: ranks %v in %s are not next to each other", job, list, domain))
		}
	}
	return faults
}

// domainsOf names the domains of a level that a member touches.
func domainsOf(s *model.Snapshot, n *model.Node, level string, gpus []string) []string {
	switch level {
	case model.LevelNode:
		return []string{n.ID}
	case model.LevelIsland:
		out := []string{}
		for _, g := range n.GPUs {
			if slices.Contains(gpus, g.UUID) {
				out = append(out, fmt.Sprint(n.ID, "/", g.Island))
			}
		}
		return out
	}
	path := ""
	for _, l := range s.Levels {
		path += "/" + n.Levels[l]
		if l == level {
			break
		}
	}
	if n.Levels[level] == "" {
		return []string{""}
	}
	return []string{path}
}
