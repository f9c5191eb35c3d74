package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// What is broken already is used up before anything whole is broken.
func TestChoices(t *testing.T) {
	tests := map[string]struct{ cluster, jobs, want string }{
		"prefer does not break a node for one member": {
			"b1 r1 n0 ........\nb1 r2 n1 a.......\nb1 r2 n2 a.......", "P 1x1 prefer:rack",
			"b1 r1 n0 ........\nb1 r2 n1 aP......\nb1 r2 n2 a.......",
		},
		"prefer does not take one member across islands": {
			"b1 r1 n0 a.|a.\nb1 r2 n1 ..|..", "P 1x2 prefer:rack",
			"b1 r1 n0 a.|a.\nb1 r2 n1 PP|..",
		},
		"a node without NVLink before a pair": {
			"b1 r1 n0 aa|..\nb1 r1 n1 .|.", "P 1x1",
			"b1 r1 n0 aa|..\nb1 r1 n1 P|.",
		},
		"the broken island before the whole one": {
			"b1 r1 n0 ..|...a", "P 1x1",
			"b1 r1 n0 ..|P..a",
		},
		"a broken island elsewhere before the whole one here": {
			"b1 r1 n0 ..|aaaa\nb1 r1 n1 ...a|....", "P 1x1",
			"b1 r1 n0 ..|aaaa\nb1 r1 n1 P..a|....",
		},
		"two members in pairs before one across islands": {
			"b1 r1 n0 aaa.|a...\nb1 r1 n1 ..|..|..|aa", "M 2x2",
			"b1 r1 n0 aaa.|a...\nb1 r1 n1 MM|MM|..|aa",
		},
		"a rack of the block that is broken already for what the queue asks for": {
			"b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r2 n3 ..\nb1 r2 n4 ..\nb2 r1 n5 ..\nb2 r1 n6 ..\nb2 r2 n7 a.\nb2 r2 n8 a.", "M 2x2\nN 4x2",
			"b1 r1 n1 NN\nb1 r1 n2 NN\nb1 r2 n3 NN\nb1 r2 n4 NN\nb2 r1 n5 MM\nb2 r1 n6 MM\nb2 r2 n7 a.\nb2 r2 n8 a.",
		},
		"a node of the rack that is broken already": {
			"b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r2 n3 ..\nb1 r2 n4 ..\nb1 r2 n5 ..\nb1 r3 n6 ..\nb1 r3 n7 ..", "P 1x2\nN 2x2 require:rack\nO 2x2 require:rack",
			"b1 r1 n1 NN\nb1 r1 n2 NN\nb1 r2 n3 PP\nb1 r2 n4 OO\nb1 r2 n5 OO\nb1 r3 n6 ..\nb1 r3 n7 ..",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.jobs)
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			if diff := cmp.Diff(trimLines(tt.want), redraw(s, plan)); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
		})
	}
}

// asking is a job of one member whose tasks ask for so many GPUs each.
func asking(counts ...int) model.Job {
	g := model.TaskGroup{Name: "g", Count: 1}
	for _, n := range counts {
		g.Devices = append(g.Devices, model.DeviceAsk{Name: "gpu", Count: n})
	}
	return model.Job{ID: "j", State: model.StateQueued, Gang: model.GangJob, Groups: []model.TaskGroup{g}}
}

// Each task of a member gets GPUs of one island where there are any.
func TestTasksStayInIslands(t *testing.T) {
	tests := map[string]struct {
		cluster string
		asks    []int
		want    [][]string
	}{
		"the pair for the task with two":  {"b1 r1 n ..|..", []int{1, 2, 1}, [][]string{{"n.2"}, {"n.0", "n.1"}, {"n.3"}}},
		"two tasks in two broken islands": {"b1 r1 n a...|a...", []int{2, 2}, [][]string{{"n.1", "n.2"}, {"n.5", "n.6"}}},
		"all in one island":               {"b1 r1 n ..|....", []int{2, 1}, [][]string{{"n.2", "n.3"}, {"n.4"}}},
		"when none is large enough":       {"b1 r1 n ..|..", []int{3, 1}, [][]string{{"n.0", "n.1", "n.2"}, {"n.3"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			s.Jobs = append(s.Jobs, asking(tt.asks...))
			d := decision(t, s, "j")
			if len(d.Members) != 1 {
				t.Fatal(d.Reason)
			}
			if diff := cmp.Diff(tt.want, d.Members[0].Tasks); diff != "" {
				t.Errorf("tasks (-want +got):\n%s", diff)
			}
		})
	}
}

// A task is across islands only if there is no way to give each one an island.
func TestTasksAreApartOnlyWhenTheyMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := model.Node{ID: "n"}
		room := make([]int, rapid.IntRange(1, 4).Draw(t, "islands"))
		free := 0
		for i := range room {
			room[i] = rapid.IntRange(0, 4).Draw(t, "free")
			for range room[i] {
				n.GPUs = append(n.GPUs, model.GPU{UUID: string(rune('a' + free)), Type: "gpu", Island: i})
				free++
			}
		}
		asks := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 4).Draw(t, "asks")
		total := 0
		for _, k := range asks {
			total += k
		}
		s := &model.Snapshot{Now: testNow, Nodes: []model.Node{n}, Jobs: []model.Job{asking(asks...)}}
		d := mustDecide(t, s, Policy{}).Decisions[0]
		if (d.Action == model.ActionAdmit) != (total <= free) {
			t.Fatalf("%d of %d: %s", total, free, d.Reason)
		}
		if total > free {
			return
		}
		tasks := d.Members[0].Tasks
		if len(asks) == 1 {
			tasks = [][]string{d.Members[0].GPUs}
		}
		islands := map[string]int{}
		for _, g := range n.GPUs {
			islands[g.UUID] = g.Island
		}
		apart := false
		for _, task := range tasks {
			for _, uuid := range task {
				apart = apart || islands[uuid] != islands[task[0]]
			}
		}
		var fits func(at int) bool
		fits = func(at int) bool {
			if at == len(asks) {
				return true
			}
			for i := range room {
				if room[i] >= asks[at] {
					room[i] -= asks[at]
					ok := fits(at + 1)
					room[i] += asks[at]
					if ok {
						return true
					}
				}
			}
			return false
		}
		if apart && fits(0) {
			t.Fatalf("asks %v on islands with %v free: %v", asks, room, tasks)
		}
	})
}
