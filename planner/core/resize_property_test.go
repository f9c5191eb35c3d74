package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// anyElastic draws a cluster of small nodes on which elastic gangs run, some
// beyond their counts, and others wait.
func anyElastic(t *rapid.T) *model.Snapshot {
	s := &model.Snapshot{Now: testNow, Levels: []string{"block", "rack"}}
	n := rapid.IntRange(2, 8).Draw(t, "nodes")
	runs := rapid.IntRange(1, 3).Draw(t, "running")
	for i := range runs {
		j := model.Job{ID: string(rune('a' + i)), Type: "batch", State: model.StateRunning, Gang: model.GangJob, Priority: 10 * rapid.IntRange(0, 2).Draw(t, "priority"),
			Started: testNow.Add(-time.Duration(rapid.IntRange(0, 300).Draw(t, "ran")) * time.Minute)}
		j.Submitted = j.Started
		j.Groups = []model.TaskGroup{{Name: "g0", Min: 1, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 2}}}}
		if rapid.IntRange(0, 4).Draw(t, "lately") == 0 {
			j.Resized = []time.Time{testNow.Add(-time.Minute)}
		}
		s.Jobs = append(s.Jobs, j)
	}
	for i := range n {
		id := "n" + string(rune('0'+i))
		node := model.Node{ID: id, Levels: map[string]string{"block": rapid.SampledFrom([]string{"b1", "b2"}).Draw(t, "block"), "rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")},
			Capacity: model.Resources{CPUMHz: 8000, MemoryMiB: 8000}}
		for g := range 2 {
			node.GPUs = append(node.GPUs, model.GPU{UUID: id + "." + string(rune('0'+g)), Vendor: "nvidia", Type: "gpu", Model: "H100", NUMA: -1})
		}
		at := rapid.IntRange(-3, runs-1).Draw(t, "holder")
		switch {
		case at >= 0:
			j := &s.Jobs[at]
			m := model.Member{Group: "g0", Index: len(j.Members), Rank: len(j.Members), Node: id, GPUs: []string{id + ".0", id + ".1"}}
			j.Members = append(j.Members, m)
			s.Allocs = append(s.Allocs, model.Alloc{ID: "at " + id, Job: j.ID, Group: "g0", Index: m.Index, Node: id, GPUs: m.GPUs})
		case at == -3:
			s.Allocs = append(s.Allocs, model.Alloc{ID: "by " + id, Node: id, GPUs: []string{id + ".0"}})
		}
		s.Nodes = append(s.Nodes, node)
	}
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j model.Job) bool { return len(j.Members) == 0 })
	for i := range s.Jobs {
		g := &s.Jobs[i].Groups[0]
		g.Count = rapid.IntRange(1, len(s.Jobs[i].Members)).Draw(t, "count")
		g.Max = max(len(s.Jobs[i].Members), g.Count+rapid.IntRange(0, 4).Draw(t, "max"))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "waiting") {
		j := model.Job{ID: "w" + string(rune('0'+i)), Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: testNow.Add(-time.Duration(i) * time.Minute)}
		j.Groups = []model.TaskGroup{{Name: "g0", Count: rapid.IntRange(1, 4).Draw(t, "members"), Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: rapid.IntRange(1, 2).Draw(t, "gpus")}}}}
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

// sized is what a cluster looks like when the resizes of a plan are through.
func sized(s *model.Snapshot, plan *model.Plan) *model.Snapshot {
	next := *s
	next.Jobs, next.Allocs = slices.Clone(s.Jobs), slices.Clone(s.Allocs)
	for _, r := range plan.Resizes {
		j := &next.Jobs[slices.IndexFunc(next.Jobs, func(j model.Job) bool { return j.ID == r.Job })]
		j.Resized = append(slices.Clone(j.Resized), s.Now)
		if r.Action == model.ActionGrow {
			j.Members = append(slices.Clone(j.Members), r.Members...)
			for _, m := range r.Members {
				next.Allocs = append(next.Allocs, model.Alloc{ID: "at " + m.Node, Job: j.ID, Group: m.Group, Index: m.Index, Node: m.Node, GPUs: m.GPUs})
			}
			continue
		}
		gone := func(node string) bool {
			return slices.ContainsFunc(r.Members, func(m model.Member) bool { return m.Node == node })
		}
		j.Members = slices.DeleteFunc(slices.Clone(j.Members), func(m model.Member) bool { return gone(m.Node) })
		next.Allocs = slices.DeleteFunc(next.Allocs, func(a model.Alloc) bool { return a.Job == j.ID && gone(a.Node) })
	}
	return &next
}

// What a gang has beyond its count is nobody's loss: whoever would be placed
// without it is placed, or has its room at once. And nothing swings: a gang that
// has grown or given back stays as it is until something else happens.
func TestGrowthDelaysNobody(t *testing.T) {
	grew, gave := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 4 {
			s := anyElastic(t)
			plan, err := Decide(s, Policy{})
			if err != nil {
				t.Fatal(err)
			}
			if faults := planFaults(s, plan); len(faults) > 0 {
				t.Error(strings.Join(faults, "; "))
			}
			checkResizes(t, s, plan)
			if modest, err := Decide(withoutSurplus(s), Policy{}); err != nil {
				t.Fatal(err)
			} else if d, m := firstWaiting(plan), firstWaiting(modest); m.Action == model.ActionAdmit && d.Action != model.ActionAdmit && d.Detail.Code != codePreempting {
				t.Errorf("%s is placed where nobody has more than its count, and else: %s", d.Job, d.Reason)
			}
			for _, p := range plan.Preemptions {
				gave++
				if !p.Returned || p.Action != model.ActionShrink {
					t.Errorf("%s", p.Reason)
				}
			}
			if grew += len(plan.Resizes); len(plan.Resizes) == 0 {
				continue
			}
			again, err := Decide(sized(s, plan), Policy{})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range again.Resizes {
				if slices.ContainsFunc(plan.Resizes, func(o model.Resize) bool { return o.Job == r.Job }) {
					t.Errorf("%v, and then %v", resized(plan), resized(again))
				}
			}
			for _, p := range again.Preemptions {
				if slices.ContainsFunc(plan.Resizes, func(o model.Resize) bool { return o.Job == p.Job }) && !slices.ContainsFunc(plan.Decisions, func(d model.Decision) bool { return d.Action == model.ActionAdmit }) {
					t.Errorf("%v, and then %v", resized(plan), gaveWay(again))
				}
			}
		}
	})
	t.Logf("%d grew, %d gave back", grew, gave)
	if grew == 0 || gave == 0 {
		t.Error("want some of each")
	}
}

func firstWaiting(plan *model.Plan) model.Decision {
	for _, d := range plan.Decisions {
		if strings.HasPrefix(d.Job, "w") {
			return d
		}
	}
	return model.Decision{}
}

// withoutSurplus is a cluster in which no gang has more than its count.
func withoutSurplus(s *model.Snapshot) *model.Snapshot {
	out := *s
	out.Jobs, out.Allocs = slices.Clone(s.Jobs), slices.Clone(s.Allocs)
	p, err := Prepare(s, Policy{})
	if err != nil {
		panic(err)
	}
	for i := range out.Jobs {
		j := &out.Jobs[i]
		for _, m := range p.surplusMembers(j) {
			j.Members = slices.DeleteFunc(slices.Clone(j.Members), func(o model.Member) bool { return o.Index == m.Index })
			out.Allocs = slices.DeleteFunc(out.Allocs, func(a model.Alloc) bool { return a.Node == m.Node && a.Job == j.ID })
		}
	}
	return &out
}

// checkResizes checks a plan's resizes with code of its own.
func checkResizes(t *rapid.T, s *model.Snapshot, plan *model.Plan) {
	held := map[string]string{}
	for _, a := range s.Allocs {
		for _, gpu := range a.GPUs {
			held[gpu] = a.ID
		}
	}
	kept := map[string]bool{}
	for _, d := range plan.Decisions {
		for _, m := range d.Members {
			for _, gpu := range m.GPUs {
				held[gpu] = d.Job
			}
		}
		for _, node := range d.Detail.Held {
			kept[node] = true
		}
	}
	for _, r := range plan.Resizes {
		j := s.Jobs[slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == r.Job })]
		if r.Reason == "" || r.From != len(j.Members) || r.To > j.Groups[0].Max || r.To < j.Groups[0].Count || r.Action == model.ActionGrow && r.Benefit <= r.Cost.Total() {
			t.Errorf("%+v of %+v", r, j.Groups[0])
		}
		for _, m := range r.Members {
			if len(m.GPUs) != 2 || kept[m.Node] || m.Index >= j.Groups[0].Max {
				t.Errorf("%s grows onto %+v (kept: %v)", r.Job, m, kept[m.Node])
			}
			for _, gpu := range m.GPUs {
				if held[gpu] != "" {
					t.Errorf("%s grows onto GPU %s of %s", r.Job, gpu, held[gpu])
				}
				held[gpu] = r.Job
			}
		}
	}
}

func TestResizesDoNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyElastic(t)
		a, err := Decide(s, Policy{})
		if err != nil {
			t.Fatal(err)
		}
		other := *s
		other.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
		other.Jobs = rapid.Permutation(s.Jobs).Draw(t, "jobs")
		other.Allocs = rapid.Permutation(s.Allocs).Draw(t, "allocs")
		b, err := Decide(&other, Policy{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("plans (-as drawn +in another order):\n%s", diff)
		}
	})
}
