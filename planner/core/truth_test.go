package core

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// What a decision to wait says is what trying everything finds.
func TestReasonsAreTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyCluster(t)
		j := anyJob(t, 0, rapid.Bool().Draw(t, "plain"))
		j.Gang = model.GangJob
		s.Jobs = []model.Job{j}
		d := mustDecide(t, s, Policy{}).Decisions[0]
		if d.Action == model.ActionAdmit {
			return
		}
		empty := emptied(s)
		loose, sliced := unsliced(j)
		loose.Topology = model.Topology{}
		never := d.Detail.Code == codeNoNode || d.Detail.Code == codeTooLarge
		if possible := bruteForce(empty, &j); never == possible {
			t.Fatalf("possible in an empty cluster: %v; code %s: %s", possible, d.Detail.Code, d.Reason)
		}
		if apart := (sliced || j.Topology.Mode == model.TopologyRequire) && bruteForce(s, &loose); !never && (d.Detail.Code == codeNoDomain) != apart {
			t.Fatalf("fits elsewhere: %v; code %s: %s", apart, d.Detail.Code, d.Reason)
		}
		if want := countFree(s, &j); d.Detail.FreeGPUs != want {
			t.Fatalf("free_gpus %d, want %d: %s", d.Detail.FreeGPUs, want, d.Reason)
		}
		checkFiltered(t, s, &j, d)
		in := s
		if never {
			in = empty
		}
		if d.Detail.Code != codeNoNode && !(never && d.Detail.Domain == "" && d.Detail.MembersFit == 0) {
			checkFit(t, in, &j, d)
		}
	})
}

// unsliced is a job whose members come in no slices, and whether they do.
func unsliced(j model.Job) (out model.Job, sliced bool) {
	j.Groups = slices.Clone(j.Groups)
	for i := range j.Groups {
		sliced = sliced || j.Groups[i].Slice.Size > 0
		j.Groups[i].Slice = model.Slice{}
	}
	return j, sliced
}

// emptied is a cluster without its allocations and troubles.
func emptied(s *model.Snapshot) *model.Snapshot {
	out := *s
	out.Allocs, out.Nodes = nil, slices.Clone(s.Nodes)
	for i := range out.Nodes {
		n := &out.Nodes[i]
		n.Unschedulable, n.GPUs = "", slices.Clone(n.GPUs)
		for k := range n.GPUs {
			n.GPUs[k].Unhealthy = ""
		}
	}
	return &out
}

// countFree counts the free GPUs, on nodes that the job may use and that have
// all the devices that some group asks for, of those devices.
func countFree(s *model.Snapshot, j *model.Job) int {
	total := 0
	for i := range s.Nodes {
		n := &s.Nodes[i]
		b := &brute{snapshot: s, job: j, domain: n.ID}
		slot := newSlot(s, n)
		rich := *slot
		rich.mhz = 1 << 20 // only the constraints matter
		if n.Unschedulable != "" || !b.allows(&rich, &model.TaskGroup{}) {
			continue
		}
		var usable uint64
		for _, g := range j.Groups {
			var mask uint64
			for _, ask := range g.Devices {
				var offered uint64
				for k := range n.GPUs {
					if b.suits(n, ask.Name, 1<<k) {
						offered |= 1 << k
					}
					b.domain = n.ID
				}
				if mask |= offered; offered == 0 {
					mask = 0
					break
				}
			}
			usable |= mask
		}
		for k := range n.GPUs {
			if usable&slot.free>>k&1 == 1 {
				total++
			}
		}
	}
	return total
}

// checkFiltered checks that the nodes counted are those that take no member of
// one of the groups.
func checkFiltered(t *rapid.T, s *model.Snapshot, j *model.Job, d model.Decision) {
	counted := 0
	for _, n := range d.Detail.Filtered {
		counted += n
	}
	for _, g := range j.Groups {
		one := *j
		g.Count, g.Slice = 1, model.Slice{}
		one.Groups, one.Topology = []model.TaskGroup{g}, model.Topology{}
		refused := 0
		for i := range s.Nodes {
			alone := *s
			alone.Nodes = s.Nodes[i : i+1]
			if !bruteForce(&alone, &one) {
				refused++
			}
		}
		if counted == refused {
			return
		}
	}
	t.Fatalf("filtered %v: no group is refused by so many nodes: %s", d.Detail.Filtered, d.Reason)
}

// checkFit checks that so many members fit into the domain named; of one group
// no more.
func checkFit(t *rapid.T, s *model.Snapshot, j *model.Job, d model.Decision) {
	in := *s
	in.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n model.Node) bool { return !isIn(s, &n, d.Detail.Level, d.Detail.Domain) })
	part := *j
	part.Topology = model.Topology{}
	if j.Topology == (model.Topology{Mode: model.TopologyRequire, Level: model.LevelIsland}) {
		part.Topology = j.Topology
	}
	fits := func(counts ...int) bool {
		part.Groups = slices.Clone(j.Groups)
		for i, n := range counts {
			part.Groups[i].Count = n
		}
		return bruteForce(&in, &part)
	}
	fit := d.Detail.MembersFit
	if len(j.Groups) == 1 {
		if !fits(fit) || fit < j.Groups[0].Count && fits(fit+max(1, j.Groups[0].Slice.Size)) {
			t.Fatalf("members_fit %d in %s %s is not what fits: %s", fit, d.Detail.Level, d.Detail.Domain, d.Reason)
		}
		return
	}
	for a := range j.Groups[0].Count + 1 {
		if b := fit - a; b >= 0 && b <= j.Groups[1].Count && fits(a, b) {
			return
		}
	}
	t.Fatalf("members_fit %d in %s %s: so many do not fit: %s", fit, d.Detail.Level, d.Detail.Domain, d.Reason)
}

// isIn reports whether a node is in a domain given by its path.
func isIn(s *model.Snapshot, n *model.Node, level, path string) bool {
	if level == "" {
		return true
	}
	var parts []string
	for _, l := range s.Levels {
		if v := n.Levels[l]; v != "" {
			parts = append(parts, v)
		}
		if l == level {
			break
		}
	}
	if level == model.LevelNode || level == model.LevelIsland {
		parts = append(parts, n.ID)
	} else if n.Levels[level] == "" {
		return false
	}
	return strings.Join(parts, "/") == path
}

// The same holds when others are ahead, whatever is kept for them.
func TestReasonsAreTrueBehindOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyCluster(t)
		for i := range rapid.IntRange(2, 4).Draw(t, "jobs") {
			s.Jobs = append(s.Jobs, anyJob(t, i, true))
		}
		now := *s
		now.Allocs = slices.Clone(s.Allocs)
		for _, d := range mustDecide(t, s, Policy{}).Decisions {
			j := &s.Jobs[slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == d.Job })]
			for _, m := range d.Members {
				g := &j.Groups[0]
				now.Allocs = append(now.Allocs, model.Alloc{ID: j.ID + m.Group + m.Node + string(rune('0'+m.Index)), Node: m.Node, GPUs: m.GPUs, Resources: g.Resources, Ports: g.Ports})
			}
			if d.Action == model.ActionAdmit || j.Gang != model.GangJob || d.Detail.Code == codeNoNode || d.Detail.Code == codeTooLarge {
				continue
			}
			if want := countFree(&now, j); d.Detail.FreeGPUs != want {
				t.Fatalf("free_gpus %d, want %d: %s", d.Detail.FreeGPUs, want, d.Reason)
			}
			checkFiltered(t, &now, j, d)
			fits := bruteForce(&now, j)
			if behind := d.Detail.Code == codeBehind; fits != behind {
				t.Fatalf("fits %v; code %s: %s", fits, d.Detail.Code, d.Reason)
			}
			if !fits {
				checkFit(t, &now, j, d)
			}
		}
	})
}
