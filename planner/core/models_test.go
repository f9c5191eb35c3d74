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

// modelOf names a drawn node's GPUs by the first letter of its name.
var modelOf = map[byte]string{'h': "H100", 'a': "A100", 'l': "L4"}

// drawModels draws a cluster of several models.
func drawModels(t testing.TB, text string) *model.Snapshot {
	s := draw(t, text)
	for i := range s.Nodes {
		for g := range s.Nodes[i].GPUs {
			s.Nodes[i].GPUs[g].Model = modelOf[s.Nodes[i].ID[0]]
		}
	}
	return s
}

func TestModels(t *testing.T) {
	fast := []model.ModelSpeed{{Name: "A100", Speed: 0.5}, {Name: "H100", Speed: 1}}
	three := append(slices.Clone(fast), model.ModelSpeed{Name: "L4", Speed: 0.1})
	tests := map[string]struct {
		cluster, jobs, want string
		models              []model.ModelSpeed
		mix                 bool
		reason              string // of the last job
		wantModels          []string
	}{
		"the fastest, whatever is listed first": {
			cluster: "b1 r1 a1 ....\nb1 r1 h1 ....", jobs: "M 1x4", models: fast,
			want:   "b1 r1 a1 ....\nb1 r1 h1 MMMM",
			reason: "placed 1 member with 4 GPUs in island b1/r1/h1/0; on H100 at speed 1, the fastest of the 2 models that it takes",
		},
		"the next one where the fastest has no room for all": {
			cluster: "b1 r1 a1 ....\nb1 r1 a2 ....\nb1 r1 h1 ....\nb1 r1 h2 b...", jobs: "M 2x4", models: fast,
			want:   "b1 r1 a1 MMMM\nb1 r1 a2 MMMM\nb1 r1 h1 ....\nb1 r1 h2 b...",
			reason: "placed 2 members with 8 GPUs in rack b1/r1, on 2 nodes; on A100 at speed 0.5, since H100 (speed 1) has no room now",
		},
		"one model throughout, or it waits": {
			cluster: "b1 r1 a1 ....\nb1 r1 a2 bbbb\nb1 r1 h1 ....\nb1 r1 h2 cccc", jobs: "M 2x4", models: fast,
			want:   "b1 r1 a1 ....\nb1 r1 a2 bbbb\nb1 r1 h1 ....\nb1 r1 h2 cccc",
			reason: "needs 2 members with 4 GPUs each (8 GPUs); the cluster has room for 1 of 2 now; it can start when h2 has room (c holds 4 GPUs); kept for it: h1, h2; it takes H100 (speed 1) or A100 (speed 0.5): this is said of H100",
		},
		"mixed where that is allowed": {
			cluster: "b1 r1 a1 ....\nb1 r1 a2 bbbb\nb1 r1 h1 ....\nb1 r1 h2 cccc", jobs: "M 2x4", models: fast, mix: true,
			want:   "b1 r1 a1 MMMM\nb1 r1 a2 bbbb\nb1 r1 h1 MMMM\nb1 r1 h2 cccc",
			reason: "placed 2 members with 8 GPUs in rack b1/r1, on 2 nodes; on H100 and A100, mixed, at speed 0.5, that of the slowest, since no faster model has room for all",
		},
		"the slow model alone before a mixture that is no faster": {
			cluster: "b1 r1 a1 ....\nb1 r1 a2 ....\nb1 r1 h1 ....", jobs: "M 2x4", models: fast, mix: true,
			want:   "b1 r1 a1 MMMM\nb1 r1 a2 MMMM\nb1 r1 h1 ....",
			reason: "placed 2 members with 8 GPUs in rack b1/r1, on 2 nodes; on A100 at speed 0.5, since H100 (speed 1) has no room now",
		},
		"a model that it does not take is not used": {
			cluster: "b1 r1 l1 ....\nb1 r1 a1 bb..", jobs: "M 1x4", models: fast,
			want:   "b1 r1 l1 ....\nb1 r1 a1 bb..",
			reason: "needs 1 member with 4 GPUs; node b1/r1/a1 comes nearest with 2 GPUs free; it can start when a1 has room (b holds 2 GPUs); kept for it: a1; it takes H100 (speed 1) or A100 (speed 0.5): this is said of A100",
		},
		"waits where it is nearest": {
			cluster: "b1 r1 h1 bbbb\nb1 r1 h2 bbbb\nb1 r1 a1 ....\nb1 r1 a2 cccc", jobs: "M 2x4", models: three,
			want:   "b1 r1 h1 bbbb\nb1 r1 h2 bbbb\nb1 r1 a1 ....\nb1 r1 a2 cccc",
			reason: "needs 2 members with 4 GPUs each (8 GPUs); the cluster has room for 1 of 2 now; it can start when a2 has room (c holds 4 GPUs); kept for it: a1, a2; it takes H100 (speed 1) or A100 (speed 0.5) or L4 (speed 0.1): this is said of A100",
		},
		"each member by itself where they start one by one": {
			cluster: "b1 r1 h1 ..\nb1 r1 a1 ....", jobs: "M 3x2 gang:none", models: fast,
			want:   "b1 r1 h1 MM\nb1 r1 a1 MMMM",
			reason: "placed 3 members with 6 GPUs on 2 nodes; on H100 (1 member), A100 (2 members), the fastest with room for each",
		},
		"only one": {
			cluster: "b1 r1 h1 ..\nb1 r1 a1 ....", jobs: "M 1x2", models: fast[:1],
			want:   "b1 r1 h1 ..\nb1 r1 a1 MM..",
			reason: "placed 1 member with 2 GPUs in island b1/r1/a1/0; on A100",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := drawModels(t, tt.cluster)
			submit(t, s, tt.jobs)
			j := &s.Jobs[len(s.Jobs)-1]
			j.Models, j.MixModels = tt.models, tt.mix
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			if diff := cmp.Diff(trimLines(tt.want), redraw(s, plan)); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.reason, plan.Decisions[0].Reason); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

// A gang that names no models has one throughout, where there is room for it on one,
// and several rather than that it waits. So says the reason.
func TestModelsAreAlike(t *testing.T) {
	mixed := ", since no model has room for all of them now; it goes as fast as the slowest, and would wait for one model if it named some (caravan_models)"
	tests := map[string]struct {
		cluster, jobs, want string
		change              func(*model.Job)
		reason              string
	}{
		"one model in two racks before two in one": {
			cluster: "b1 r1 a1 ....\nb1 r1 h1 ....\nb1 r2 h2 ....\nb1 r3 h3 b...", jobs: "M 2x4",
			want:   "b1 r1 a1 ....\nb1 r1 h1 MMMM\nb1 r2 h2 MMMM\nb1 r3 h3 b...",
			reason: "placed 2 members with 8 GPUs in block b1, on 2 nodes",
		},
		"the others of the cluster too": {
			cluster: "b1 r1 a1 ....\nb1 r1 h1 ....\nb1 r2 l1 ....\nb1 r3 l2 ....", jobs: "M 2x4",
			want:   "b1 r1 a1 ....\nb1 r1 h1 ....\nb1 r2 l1 MMMM\nb1 r3 l2 MMMM",
			reason: "placed 2 members with 8 GPUs in block b1, on 2 nodes",
		},
		"several where none has room for all": {
			cluster: "b1 r1 a1 ....\nb1 r1 h1 ....\nb1 r2 h2 ....", jobs: "M 3x4",
			want:   "b1 r1 a1 MMMM\nb1 r1 h1 MMMM\nb1 r2 h2 MMMM",
			reason: "placed 3 members with 12 GPUs in block b1, on 3 nodes; on H100 (2 members), A100 (1 member)" + mixed,
		},
		"inside of what is required": {
			cluster: "b1 r1 a1 ....\nb1 r1 h1 ....\nb1 r2 h2 ....", jobs: "M 2x4 require:rack",
			want:   "b1 r1 a1 MMMM\nb1 r1 h1 MMMM\nb1 r2 h2 ....",
			reason: "placed 2 members with 8 GPUs in rack b1/r1, on 2 nodes; on A100 (1 member), H100 (1 member)" + mixed,
		},
		"not those that start one by one": {
			cluster: "b1 r1 a1 ....\nb1 r1 h1 ....\nb1 r1 h2 ....", jobs: "M 2x4 gang:none",
			want:   "b1 r1 a1 MMMM\nb1 r1 h1 MMMM\nb1 r1 h2 ....",
			reason: "placed 2 members with 8 GPUs on 2 nodes",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := drawModels(t, tt.cluster)
			submit(t, s, tt.jobs)
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			if diff := cmp.Diff(trimLines(tt.want), redraw(s, plan)); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.reason, plan.Decisions[len(plan.Decisions)-1].Reason); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

// One that names none grows on the model that it has, if that has room.
func TestGrowthIsAlike(t *testing.T) {
	for cluster, want := range map[string]string{
		"b1 r1 h1 ..\nb1 r1 a1 ..\nb1 r2 a2 ..": "a2: grows from 1 to 2 members: placed 1 member with 2 GPUs in island b1/r2/a2/0",
		"b1 r1 h1 ..\nb1 r1 a1 ..\nb1 r2 a2 x.": "h1: grows from 1 to 2 members: placed 1 member with 2 GPUs in island b1/r1/h1/0; on H100 (1 member), A100 (those that it has), since no model has room for all of them now; it goes as fast as the slowest, and would wait for one model if it named some (caravan_models)",
	} {
		s := drawModels(t, cluster)
		submit(t, s, "M 2x2")
		j := &s.Jobs[len(s.Jobs)-1]
		j.State, j.Groups[0].Min, j.Groups[0].Max = model.StateRunning, 1, 2
		j.Members = []model.Member{{Group: "g0", Node: "a1", GPUs: []string{"a1.0", "a1.1"}}}
		d := decision(t, s, "M")
		if len(d.Members) != 1 || d.Members[0].Node+": "+d.Reason != want {
			t.Errorf("grows by %+v: %s\nwant %s", d.Members, d.Reason, want)
		}
	}
}

// A gang that starts where a place was kept for it is told to be on the model there,
// whichever would be its first choice now.
func TestKeptPlaceTellsItsModel(t *testing.T) {
	s := drawModels(t, "b1 r1 h1 ..\nb1 r1 a1 ..")
	submit(t, s, "M 1x2")
	j := &s.Jobs[0]
	j.Models = []model.ModelSpeed{{Name: "H100", Speed: 1}, {Name: "A100", Speed: 0.5}}
	j.Moving = []model.Moving{{At: s.Now, Until: s.Now.Add(time.Minute), Namespace: "default", For: "other",
		Members: []model.Member{{Group: "g0", Node: "a1", GPUs: []string{"a1.0", "a1.1"}}}}}
	want := "placed 1 member with 2 GPUs in node b1/r1/a1; on A100 at speed 0.5, which it was to start on"
	if d := decision(t, s, "M"); len(d.Members) != 1 || d.Members[0].Node != "a1" || d.Reason != want {
		t.Errorf("on %+v: %s\nwant %s", d.Members, d.Reason, want)
	}
}

// What a gang grows by is of the model that it has.
func TestGrowthKeepsTheModel(t *testing.T) {
	s := drawModels(t, "b1 r1 h1 ..\nb1 r1 a1 ..\nb1 r1 a2 ..")
	submit(t, s, "M 2x2")
	j := &s.Jobs[0]
	j.State, j.Groups[0].Min, j.Groups[0].Max = model.StateRunning, 1, 2
	j.Models = []model.ModelSpeed{{Name: "H100", Speed: 1}, {Name: "A100", Speed: 0.5}}
	j.Members = []model.Member{{Group: "g0", Node: "a1", GPUs: []string{"a1.0", "a1.1"}}}
	d := decision(t, s, "M")
	if len(d.Members) != 1 || d.Members[0].Node != "a2" {
		t.Errorf("grows by %+v, want a2: %s", d.Members, d.Reason)
	}
}

// A gang that may displace others does so on the fastest model that it can.
func TestRoomIsMadeOnAnyModel(t *testing.T) {
	s := drawModels(t, "b1 r1 h1 bb\nb1 r1 a1 cc")
	s.Jobs[0].Priority, s.Jobs[1].Priority = 90, 10
	submit(t, s, "M 1x2 priority:50")
	s.Jobs[2].Models = []model.ModelSpeed{{Name: "H100", Speed: 1}, {Name: "A100", Speed: 0.5}}
	plan := mustDecide(t, s, preempting)
	if got := gaveWay(plan); len(plan.Preemptions) != 1 || plan.Preemptions[0].Job != "c" {
		t.Errorf("give way: %v, want c: %s", got, plan.Decisions[0].Reason)
	}
}

// A gang with models is admitted exactly when it fits on one of them
// throughout, or, where they may be mixed, on all of them; it gets the fastest.
func TestModelsAreExact(t *testing.T) {
	outcomes := map[string]int{}
	for tries := 0; len(outcomes) < 4 && tries < 10; tries++ {
		rapid.Check(t, func(t *rapid.T) {
			for range 5 {
				outcomes[checkModels(t)]++
			}
		})
	}
	for _, want := range []string{"", "A", "B", "AB"} {
		if outcomes[want] == 0 {
			t.Errorf("outcomes %v, want some of each of A, B, both and none", outcomes)
		}
	}
}

// checkModels decides on one gang and returns the models that brute force finds
// for it.
func checkModels(t *rapid.T) (want string) {
	s := anyCluster(t)
	j := anyJob(t, 0, true)
	j.Gang = model.GangJob
	j.Groups[0].Devices = []model.DeviceAsk{{Name: "nvidia/gpu", Count: rapid.IntRange(1, 2).Draw(t, "gpus")}}
	j.MixModels = rapid.Bool().Draw(t, "mix")
	order := rapid.Permutation([]string{"A", "B"}).Draw(t, "order")
	j.Models = []model.ModelSpeed{{Name: order[1], Speed: 1}, {Name: order[0], Speed: 2}}
	s.Jobs = []model.Job{j}
	plan := mustDecide(t, s, Policy{})
	for _, fault := range planFaults(s, plan) {
		t.Error(fault)
	}
	for _, name := range order {
		one := j
		one.Groups = slices.Clone(j.Groups)
		one.Groups[0].Devices = []model.DeviceAsk{{Name: "nvidia/gpu/" + name, Count: j.Groups[0].Devices[0].Count}}
		if want == "" && bruteForce(s, &one) {
			want = name
		}
	}
	if want == "" && j.MixModels && bruteForce(s, &j) {
		want = "AB"
	}
	d := plan.Decisions[0]
	if (d.Action == model.ActionAdmit) != (want != "") {
		t.Fatalf("%s: %s; brute force finds %q", d.Action, d.Reason, want)
	}
	for _, m := range d.Members {
		for _, uuid := range m.GPUs {
			if name := modelOfGPU(s, uuid); !strings.Contains(want, name) {
				t.Fatalf("has %s, want %q: %s", name, want, d.Reason)
			}
		}
	}
	return want
}

func modelOfGPU(s *model.Snapshot, uuid string) string {
	for i := range s.Nodes {
		for k := range s.Nodes[i].GPUs {
			if g := &s.Nodes[i].GPUs[k]; g.UUID == uuid {
				return g.Model
			}
		}
	}
	return ""
}
