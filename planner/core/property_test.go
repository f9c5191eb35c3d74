package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// anyCluster draws a small cluster with some of it in use.
func anyCluster(t *rapid.T) *model.Snapshot {
	s := &model.Snapshot{Now: testNow, Levels: []string{"block", "rack"}}
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := model.Node{ID: fmt.Sprintf("n%d", i), Datacenter: rapid.SampledFrom([]string{"dc1", "dc2"}).Draw(t, "dc"), Levels: map[string]string{}}
		for _, level := range s.Levels {
			if v := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, level); v != "" {
				n.Levels[level] = level[:1] + v
			}
		}
		n.Attributes = map[string]string{"meta.color": rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "color")}
		n.Capacity = model.Resources{CPUMHz: rapid.IntRange(0, 4).Draw(t, "cpu") * 1000, MemoryMiB: 4000, DiskMiB: 4000}
		if rapid.IntRange(0, 7).Draw(t, "closed") == 0 {
			n.Unschedulable = "draining"
		}
		for g := range rapid.IntRange(0, 4).Draw(t, "gpus") {
			gpu := model.GPU{UUID: fmt.Sprintf("n%d.%d", i, g), Vendor: "nvidia", Type: "gpu", Model: rapid.SampledFrom([]string{"A", "A", "B"}).Draw(t, "model"), Island: g / 2, NUMA: -1}
			if rapid.IntRange(0, 9).Draw(t, "health") == 0 {
				gpu.Unhealthy = "lost"
			}
			if rapid.IntRange(0, 3).Draw(t, "busy") == 0 {
				a := model.Alloc{ID: "a" + gpu.UUID, Node: n.ID, GPUs: []string{gpu.UUID}, Resources: model.Resources{CPUMHz: 500}}
				if rapid.Bool().Draw(t, "ported") {
					a.Ports = []int{80}
				}
				s.Allocs = append(s.Allocs, a)
			}
			n.GPUs = append(n.GPUs, gpu)
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// anyJob draws a queued job. A plain one has one group and no distinctions.
func anyJob(t *rapid.T, id int, plain bool) model.Job {
	j := model.Job{ID: fmt.Sprintf("j%d", id), Type: "batch", State: model.StateQueued, Submitted: testNow.Add(time.Duration(rapid.IntRange(-9, 0).Draw(t, "age")) * time.Minute)}
	j.Saves = rapid.Bool().Draw(t, "saves")
	j.Gang = rapid.SampledFrom([]model.Gang{model.GangJob, model.GangJob, model.GangGroup, model.GangNone}).Draw(t, "gang")
	j.Topology = rapid.SampledFrom([]model.Topology{
		{}, {}, {Mode: "require", Level: "rack"}, {Mode: "require", Level: "block"}, {Mode: "prefer", Level: "rack"},
		{Mode: "require", Level: "node"}, {Mode: "require", Level: "island"}, {Mode: "prefer", Level: "node"}, {Mode: "prefer", Level: "island"},
	}).Draw(t, "topology")
	if rapid.IntRange(0, 4).Draw(t, "limited") == 0 {
		j.Constraints = append(j.Constraints, model.Constraint{Left: "${meta.color}", Operand: "=", Right: "red"})
	}
	groups := 1
	if !plain {
		groups = rapid.IntRange(1, 2).Draw(t, "groups")
		if rapid.IntRange(0, 5).Draw(t, "apart") == 0 {
			j.Constraints = append(j.Constraints, model.Constraint{Operand: "distinct_hosts"})
		}
	}
	for i := range groups {
		g := model.TaskGroup{Name: fmt.Sprintf("g%d", i), Count: rapid.IntRange(1, 3).Draw(t, "count")}
		g.Resources = model.Resources{CPUMHz: rapid.SampledFrom([]int{0, 500, 1500}).Draw(t, "mhz")}
		names := []string{"gpu", "nvidia/gpu", "nvidia/gpu/A", "nvidia/gpu/B"}
		for range rapid.SampledFrom([]int{0, 1, 1, 2, 2, 3}).Draw(t, "asks") {
			g.Devices = append(g.Devices, model.DeviceAsk{Name: rapid.SampledFrom(names).Draw(t, "name"), Count: rapid.SampledFrom([]int{1, 1, 2, 2, 9}).Draw(t, "gpus")})
		}
		if rapid.IntRange(0, 5).Draw(t, "sliced") == 0 {
			g.Count = rapid.SampledFrom([]int{2, 4}).Draw(t, "members")
			g.Slice = model.Slice{Size: 2, Level: rapid.SampledFrom([]string{"node", "rack", "block"}).Draw(t, "slice")}
		}
		if rapid.IntRange(0, 5).Draw(t, "port") == 0 {
			g.Ports = []int{80}
		}
		if !plain && rapid.IntRange(0, 5).Draw(t, "quota") == 0 {
			g.Constraints = append(g.Constraints, model.Constraint{Left: "${node.datacenter}", Operand: "distinct_property", Right: "2"})
		}
		j.Groups = append(j.Groups, g)
	}
	return j
}

func anySnapshot(t *rapid.T) *model.Snapshot {
	s := anyCluster(t)
	for i := range rapid.IntRange(1, 5).Draw(t, "jobs") {
		j := anyJob(t, i, false)
		if j.Gang != model.GangJob && rapid.Bool().Draw(t, "begun") {
			j.State = rapid.SampledFrom([]model.State{model.StateQueued, model.StateAdmitted, model.StateRunning}).Draw(t, "state")
			j.Members = anyMembers(t, s, &j)
		}
		s.Jobs = append(s.Jobs, j)
	}
	if rapid.Bool().Draw(t, "growing") {
		if j, ok := anyGrowing(t, s); ok {
			s.Jobs = append(s.Jobs, j)
		}
	}
	return s
}

// anyGrowing draws an elastic gang that runs on one whole node and asks for
// more; false if no node is free.
func anyGrowing(t *rapid.T, s *model.Snapshot) (model.Job, bool) {
	held := map[string]bool{}
	for _, a := range s.Allocs {
		held[a.Node] = true
	}
	for _, j := range s.Jobs {
		for _, m := range j.Members {
			held[m.Node] = true
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if held[n.ID] || len(n.GPUs) == 0 {
			continue
		}
		m := model.Member{Group: "g0", Index: rapid.IntRange(0, 1).Draw(t, "index"), Rank: rapid.IntRange(0, 2).Draw(t, "rank"), Node: n.ID}
		for _, gpu := range n.GPUs {
			m.GPUs = append(m.GPUs, gpu.UUID)
		}
		j := model.Job{ID: "growing", Type: "batch", State: model.StateRunning, Submitted: testNow, Members: []model.Member{m}}
		j.Gang = rapid.SampledFrom([]model.Gang{model.GangJob, model.GangGroup}).Draw(t, "gang")
		j.Topology = rapid.SampledFrom([]model.Topology{{}, {Mode: "require", Level: "rack"}, {Mode: "require", Level: "block"}, {Mode: "prefer", Level: "rack"}}).Draw(t, "topology")
		count := rapid.IntRange(2, 3).Draw(t, "count")
		j.Groups = []model.TaskGroup{{Name: "g0", Count: count, Min: 1, Max: 4, Devices: []model.DeviceAsk{{Name: "gpu", Count: len(n.GPUs)}}}}
		return j, true
	}
	return model.Job{}, false
}

// What an elastic gang grows by takes whole nodes.
func TestGrowthTakesWholeNodes(t *testing.T) {
	grew := 0
	for tries := 0; grew == 0 && tries < 10; tries++ {
		rapid.Check(t, func(t *rapid.T) {
			for range 4 { // in many of them no node is free
				grew += growInAny(t)
			}
		})
	}
	if grew == 0 {
		t.Error("nothing grew")
	}
}

// growInAny draws a cluster, and counts the members that a gang gets in it.
func growInAny(t *rapid.T) int {
	s := anyCluster(t)
	j, ok := anyGrowing(t, s)
	if !ok {
		return 0
	}
	s.Jobs = append(s.Jobs, j)
	members := decisionOn(mustDecide(t, s, Policy{}), j.ID).Members
	nodes := map[string]bool{j.Members[0].Node: true}
	for _, m := range members {
		at := slices.IndexFunc(s.Nodes, func(n model.Node) bool { return n.ID == m.Node })
		if len(m.GPUs) != len(s.Nodes[at].GPUs) || nodes[m.Node] {
			t.Fatalf("member %+v takes a part of its node, or shares it", m)
		}
		nodes[m.Node] = true
	}
	return len(members)
}

// anyMembers draws members in force on free GPUs anywhere, some ended.
func anyMembers(t *rapid.T, s *model.Snapshot, j *model.Job) (out []model.Member) {
	held := map[string]bool{}
	for _, a := range s.Allocs {
		held[a.GPUs[0]] = true
	}
	for _, o := range s.Jobs {
		for _, m := range o.Members {
			for _, uuid := range m.GPUs {
				held[uuid] = true
			}
		}
	}
	for _, g := range j.Groups {
		for index := range g.Count {
			if rapid.Bool().Draw(t, "missing") {
				continue
			}
			n := &s.Nodes[rapid.IntRange(0, len(s.Nodes)-1).Draw(t, "node")]
			m := model.Member{Group: g.Name, Index: index, Rank: index, Node: n.ID, Ended: rapid.IntRange(0, 3).Draw(t, "ended") == 0}
			need := 0
			for _, d := range g.Devices {
				need += d.Count
			}
			for _, gpu := range n.GPUs {
				if len(m.GPUs) < need && !held[gpu.UUID] {
					held[gpu.UUID] = true
					m.GPUs = append(m.GPUs, gpu.UUID)
				}
			}
			out = append(out, m)
		}
	}
	return out
}

func mustDecide(t rapidOrTest, s *model.Snapshot, p Policy) *model.Plan {
	plan, err := Decide(s, p)
	if err != nil {
		t.Fatalf("Decide: %v", err)
	}
	return plan
}

type rapidOrTest interface{ Fatalf(string, ...any) }

// Nothing is oversubscribed, no gang partial, no requirement broken.
func TestPlansAreLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		plan := mustDecide(t, s, Policy{Order: rapid.SampledFrom([]string{"fifo", "besteffort"}).Draw(t, "order"), Strict: rapid.Bool().Draw(t, "strict")})
		for _, fault := range planFaults(s, plan) {
			t.Error(fault)
		}
	})
}

// The order of the snapshot's lists does not matter.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		shuffled := *s
		shuffled.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
		shuffled.Jobs = rapid.Permutation(s.Jobs).Draw(t, "jobs")
		shuffled.Allocs = rapid.Permutation(s.Allocs).Draw(t, "allocs")
		for i := range shuffled.Jobs {
			if j := &shuffled.Jobs[i]; len(j.Members) > 1 {
				j.Members = rapid.Permutation(j.Members).Draw(t, "members")
			}
		}
		policy := Policy{Order: rapid.SampledFrom(queue.Orders()).Draw(t, "order")}
		if diff := cmp.Diff(mustDecide(t, s, policy), mustDecide(t, &shuffled, policy)); diff != "" {
			t.Fatalf("plans differ (-given +shuffled):\n%s", diff)
		}
	})
}

// Deciding leaves the prepared state as it was.
func TestDecideChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		p, err := Prepare(s, Policy{})
		if err != nil {
			t.Fatal(err)
		}
		rows := func() (out []string) {
			for _, v := range p.views {
				for n := range v.State.Len() {
					out = append(out, fmt.Sprintf("%+v", *v.State.Row(int32(n))))
				}
			}
			return out
		}
		before := rows()
		first := p.Decide(s.Now)
		if diff := cmp.Diff(before, rows()); diff != "" {
			t.Fatalf("state (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(first, p.Decide(s.Now)); diff != "" {
			t.Fatalf("second plan (-first +second):\n%s", diff)
		}
	})
}

// A gang alone is admitted exactly when a legal placement exists.
func TestFindsWhatBruteForceFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyCluster(t)
		j := anyJob(t, 0, rapid.Bool().Draw(t, "plain"))
		j.Gang = model.GangJob
		s.Jobs = []model.Job{j}
		d := mustDecide(t, s, Policy{}).Decisions[0]
		want := bruteForce(s, &s.Jobs[0])
		if got := d.Action == model.ActionAdmit; got != want {
			t.Fatalf("admitted %v, brute force says %v: %s", got, want, d.Reason)
		}
	})
}

// Equal members fit exactly when there is room for their number, in a cluster
// with more nodes than brute force could try.
func TestManyNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &model.Snapshot{Now: testNow, Levels: []string{"block", "rack"}}
		k, room := rapid.IntRange(1, 5).Draw(t, "gpus"), 0
		flat := rapid.Bool().Draw(t, "flat")
		for i := range rapid.IntRange(60, 90).Draw(t, "nodes") {
			n := model.Node{ID: fmt.Sprintf("n%d", i)}
			if !flat {
				n.Levels = map[string]string{"block": fmt.Sprint(i % 2), "rack": fmt.Sprint(i % 7)}
			}
			for g := range rapid.IntRange(0, 8).Draw(t, "size") {
				n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprintf("n%d.%d", i, g), Vendor: "nvidia", Type: "gpu", Model: "A", Island: g / 4})
			}
			room += len(n.GPUs) / k
			s.Nodes = append(s.Nodes, n)
		}
		count := max(1, room+rapid.IntRange(-room, 1).Draw(t, "spare"))
		s.Jobs = []model.Job{{ID: "j", State: model.StateQueued, Gang: model.GangJob, Groups: []model.TaskGroup{{Name: "g", Count: count, Devices: []model.DeviceAsk{{Name: "gpu", Count: k}}}}}}
		plan := mustDecide(t, s, Policy{})
		for _, fault := range planFaults(s, plan) {
			t.Error(fault)
		}
		if d := plan.Decisions[0]; (d.Action == model.ActionAdmit) != (count <= room) {
			t.Fatalf("%d members, room for %d: %s", count, room, d.Reason)
		}
	})
}

// An empty node more never makes the first in the queue unplaceable.
func TestMoreNodesNeverHurtTheHead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyCluster(t)
		j := anyJob(t, 0, true)
		j.Gang = model.GangJob
		s.Jobs = []model.Job{j}
		before := mustDecide(t, s, Policy{}).Decisions[0].Action
		extra := model.Node{ID: "more", Levels: map[string]string{"block": rapid.SampledFrom([]string{"b1", "b9"}).Draw(t, "block")}, Capacity: model.Resources{CPUMHz: 9000}}
		for g := range 4 {
			extra.GPUs = append(extra.GPUs, model.GPU{UUID: fmt.Sprint("more", g), Vendor: "nvidia", Type: "gpu", Model: "A"})
		}
		s.Nodes = append(s.Nodes, extra)
		if after := mustDecide(t, s, Policy{}).Decisions[0]; before == model.ActionAdmit && after.Action != before {
			t.Fatalf("was admitted, now: %s", after.Reason)
		}
	})
}
