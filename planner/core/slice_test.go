package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// inSlicesOf makes the groups of the last job come in slices.
func inSlicesOf(size int, level string) func(*model.Snapshot) {
	return func(s *model.Snapshot) {
		for i := range s.Jobs[len(s.Jobs)-1].Groups {
			s.Jobs[len(s.Jobs)-1].Groups[i].Slice = model.Slice{Size: size, Level: level}
		}
	}
}

func TestSlices(t *testing.T) {
	tests := map[string]struct {
		cluster, job, want string
		set                func(*model.Snapshot)
		code, reason       string
	}{
		"a slice in each of two racks": {
			cluster: "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r2 n3 ..\nb1 r2 n4 ..", job: "M 4x2 require:block", set: inSlicesOf(2, "rack"),
			want: "b1 r1 n1 MM\nb1 r1 n2 MM\nb1 r2 n3 MM\nb1 r2 n4 MM", code: "placed",
			reason: "placed 4 members with 8 GPUs in block b1, on 4 nodes; in slices of 2, each in one rack: b1/r1, b1/r2",
		},
		"not two halves of a slice": {
			cluster: "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r2 n3 ..\nb1 r2 n4 aa\nb1 r3 n5 ..\nb1 r3 n6 aa", job: "M 4x2 require:block", set: inSlicesOf(2, "rack"),
			want: "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r2 n3 ..\nb1 r2 n4 aa\nb1 r3 n5 ..\nb1 r3 n6 aa", code: "no_domain",
			reason: "needs 4 members with 2 GPUs each (8 GPUs) in one block, every 2 of them in one rack; block b1 has room for 2 of 4 now, 4 if it were not for the slices, the rest that is free is elsewhere; it can start when n4 has room (a holds 2 GPUs); kept for it: n1, n2, n3, n4",
		},
		"a rack that takes both before two": {
			cluster: "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r2 n3 ..\nb1 r2 n4 ..\nb1 r3 n5 ....\nb1 r3 n6 ....", job: "M 4x2 prefer:block", set: inSlicesOf(2, "rack"),
			want: "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r2 n3 ..\nb1 r2 n4 ..\nb1 r3 n5 MMMM\nb1 r3 n6 MMMM", code: "placed",
			reason: "placed 4 members with 8 GPUs in block b1, on 2 nodes; in slices of 2, each in one rack: b1/r3",
		},
		"the rack with less left beside": {
			cluster: "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r1 n3 ..\nb1 r2 n4 ..\nb1 r2 n5 ..", job: "M 2x2 require:block", set: inSlicesOf(2, "rack"),
			want: "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r1 n3 ..\nb1 r2 n4 MM\nb1 r2 n5 MM", code: "placed",
			reason: "placed 2 members with 4 GPUs in rack b1/r2, on 2 nodes; in slices of 2, each in one rack: b1/r2",
		},
		"slices inside nodes": {
			cluster: "b1 r1 n1 .aaa\nb1 r1 n2 ..aa\nb1 r1 n3 ...a", job: "M 4x1", set: inSlicesOf(2, "node"),
			want: "b1 r1 n1 .aaa\nb1 r1 n2 MMaa\nb1 r1 n3 MM.a", code: "placed",
			reason: "placed 4 members with 4 GPUs in rack b1/r1, on 2 nodes; in slices of 2, each in one node: b1/r1/n2, b1/r1/n3",
		},
		"a node in no rack has no slice": {
			cluster: "b1 - n1 ....\nb1 - n2 ....\nb1 r1 n3 ..\nb1 r1 n4 ..", job: "M 2x2", set: inSlicesOf(2, "rack"),
			want: "b1 - n1 ....\nb1 - n2 ....\nb1 r1 n3 MM\nb1 r1 n4 MM", code: "placed",
			reason: "placed 2 members with 4 GPUs in rack b1/r1, on 2 nodes; in slices of 2, each in one rack: b1/r1",
		},
		"too large for any rack": {
			cluster: "b1 r1 n1 ..\nb1 r2 n2 ..", job: "M 2x2", set: inSlicesOf(2, "rack"),
			want: "b1 r1 n1 ..\nb1 r2 n2 ..", code: "too_large",
			reason: "needs 2 members with 2 GPUs each (4 GPUs), every 2 of them in one rack; the cluster has room for 0 of 2 even when everything in it is free and healthy, 2 if it were not for the slices; make the slices smaller or give them a wider level",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.job)
			tt.set(s)
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			if diff := cmp.Diff(trimLines(tt.want), redraw(s, plan)); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
			if d := plan.Decisions[0]; d.Detail.Code != tt.code || d.Reason != tt.reason {
				t.Errorf("%s:\n%s\nwant %s:\n%s", d.Detail.Code, d.Reason, tt.code, tt.reason)
			}
		})
	}
}

// What a group lacks of a slice goes where the rest of the slice is.
func TestSliceIsCompleted(t *testing.T) {
	s := draw(t, "b1 r1 n1 ..\nb1 r2 n2 ..\nb1 r2 n3 ..\nb1 r1 n4 ..\nb1 r2 n5 ..")
	submit(t, s, "M 4x2 gang:group")
	inSlicesOf(2, "rack")(s)
	j := &s.Jobs[0]
	j.State = model.StateRunning
	for i, n := range []string{"n1", "n2", "n3"} {
		j.Members = append(j.Members, model.Member{Group: "g0", Index: i, Rank: i, Node: n, GPUs: []string{n + ".0", n + ".1"}})
	}
	if d := decision(t, s, "M"); len(d.Members) != 1 || d.Members[0].Node != "n4" {
		t.Errorf("%+v, want the rest of the slice in rack r1: %s", d.Members, d.Reason)
	}
	j.Members = j.Members[:2] // two halves, and which is whose nobody knows
	if d := decision(t, s, "M"); len(d.Members) != 0 || !strings.Contains(d.Reason, "slices") {
		t.Errorf("%+v, want it to wait: %s", d.Members, d.Reason)
	}
}

// A gang that comes back gets the members that it has lost into the slice that
// lacks them, or as a whole other places.
func TestSliceComesBack(t *testing.T) {
	for _, tt := range []struct{ cluster, want string }{
		{"b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r2 n3 ..\nb1 r2 n4 ..\nb1 r2 n5 ..\nb1 r1 n6 ..", "n1 n6 n3 n4"},
		{"b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r2 n3 ..\nb1 r2 n4 ..\nb1 r3 n5 ..\nb1 r3 n6 ..", "n3 n4 n5 n6"},
		{"b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r2 n3 ..\nb1 r2 n4 ..\nb1 r3 n5 ..\nb1 r4 n6 ..", ""},
	} {
		s := draw(t, tt.cluster)
		struck(t, s, "M 4x2 n1,n2,n3,n4 failed:1")
		inSlicesOf(2, "rack")(s)
		plan := mustDecide(t, s, Policy{})
		checkPlan(t, s, plan)
		nodes := make([]string, 4)
		for _, m := range plan.Decisions[0].Members {
			nodes[m.Index] = m.Node
		}
		if got := strings.TrimSpace(strings.Join(nodes, " ")); got != tt.want {
			t.Errorf("%q, want %q: %s", got, tt.want, plan.Decisions[0].Reason)
		}
	}
}

// cliques draws NVLink domains of 18 nodes with 4 GPUs each (NVL72), of whose
// nodes the first few are taken.
func cliques(taken ...int) *model.Snapshot {
	s := &model.Snapshot{Now: testNow, Levels: []string{"block", "domain"}}
	for d, n := range taken {
		for i := range 18 {
			node := model.Node{ID: fmt.Sprintf("d%d-n%d", d, i), Levels: map[string]string{"block": "b1", "domain": fmt.Sprint("d", d)}}
			var uuids []string
			for g := range 4 {
				node.GPUs = append(node.GPUs, model.GPU{UUID: fmt.Sprintf("%s.%d", node.ID, g), Vendor: "nvidia", Type: "gpu", Model: "GB200"})
				uuids = append(uuids, node.GPUs[g].UUID)
			}
			if i < n {
				s.Allocs = append(s.Allocs, model.Alloc{ID: "a-" + node.ID, Node: node.ID, GPUs: uuids})
			}
			s.Nodes = append(s.Nodes, node)
		}
	}
	return s
}

// domainsTaken counts the members by NVLink domain.
func domainsTaken(d model.Decision) map[string]int {
	out := map[string]int{}
	for _, m := range d.Members {
		domain, _, _ := strings.Cut(m.Node, "-")
		out[domain]++
	}
	return out
}

func TestNVLinkDomains(t *testing.T) {
	tests := map[string]struct {
		taken    []int
		count    int
		slice    int
		topology model.Topology
		want     map[string]int
		reason   string
	}{
		"16 of 18 nodes of the clique with least left": {taken: []int{0, 2, 1}, count: 16, topology: model.Topology{Mode: "require", Level: "domain"}, want: map[string]int{"d1": 16}},
		"without being told":                           {taken: []int{0, 2, 1}, count: 16, want: map[string]int{"d1": 16}},
		"no clique has 16": {taken: []int{3, 3, 9}, count: 16, topology: model.Topology{Mode: "require", Level: "domain"}, want: map[string]int{},
			reason: "needs 16 members with 4 GPUs each (64 GPUs) in one domain; domain b1/d0 has room for 15 of 16 now, the rest that is free is elsewhere"},
		"two slices of 16":           {taken: []int{3, 2, 0}, count: 32, slice: 16, topology: model.Topology{Mode: "require", Level: "block"}, want: map[string]int{"d1": 16, "d2": 16}},
		"without slices wherever":    {taken: []int{3, 2, 0}, count: 32, topology: model.Topology{Mode: "require", Level: "block"}, want: map[string]int{"d0": 14, "d2": 18}},
		"more than a clique in one":  {taken: []int{0}, count: 32, slice: 16, want: map[string]int{}, reason: "the cluster has room for 16 of 32 even when everything in it is free and healthy"},
		"four slices of 8, by pairs": {taken: []int{0, 0, 0}, count: 32, slice: 8, want: map[string]int{"d0": 16, "d1": 16}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := cliques(tt.taken...)
			g := model.TaskGroup{Name: "worker", Count: tt.count, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 4}}}
			if tt.slice > 0 {
				g.Slice = model.Slice{Size: tt.slice, Level: "domain"}
			}
			s.Jobs = []model.Job{{ID: "j", Type: "batch", State: model.StateQueued, Gang: model.GangJob, Topology: tt.topology, Groups: []model.TaskGroup{g}}}
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			d := plan.Decisions[0]
			if diff := cmp.Diff(tt.want, domainsTaken(d)); diff != "" || !strings.Contains(d.Reason, tt.reason) {
				t.Errorf("members by domain (-want +got):\n%s\n%s", diff, d.Reason)
			}
			slices.SortFunc(d.Members, func(a, b model.Member) int { return a.Rank - b.Rank })
			for i, m := range d.Members {
				if tt.slice > 0 && m.Node[:2] != d.Members[i-i%tt.slice].Node[:2] {
					t.Errorf("rank %d is on %s, the first of its slice on %s", i, m.Node, d.Members[i-i%tt.slice].Node)
				}
			}
		})
	}
}
