package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// toldOf is a division that a GPU of testNow was told of; refusals are 5 s old.
func toldOf(gpu string, state model.DivisionState, profiles ...string) model.Division {
	return model.Division{GPU: gpu, State: state, Profiles: profiles, At: testNow.Add(-5 * time.Second)}
}

// givenJustNow is the refusal of a GPU that a task was given.
func givenJustNow(gpu string, again time.Duration, profiles ...string) model.Division {
	v := toldOf(gpu, model.DivisionRefused, profiles...)
	v.Why, v.Again = "a task was given it 34s ago", testNow.Add(again)
	return v
}

// driverRefused is the refusal of a GPU by its driver.
func driverRefused(gpu string, profiles ...string) model.Division {
	v := toldOf(gpu, model.DivisionRefused, profiles...)
	v.Why = "NVML error 999"
	return v
}

// TestWhatNodesWereTold: what a node is doing, or is to be asked again soon, serves
// who waits, so that no other GPU is divided for it; and what was refused is told.
func TestWhatNodesWereTold(t *testing.T) {
	at := func(d time.Duration) string { return testNow.Add(d).UTC().Format(time.TimeOnly) }
	tests := map[string]struct {
		cluster, jobs string
		told          []model.Division
		want          []string
		// code and said are of the first job.
		code string
		said []string
	}{
		"one that nothing was said of": {
			cluster: `n1 .`, jobs: `a 1x1g.10gb`, want: []string{"n1.0 to 7 × 1g.10gb for a"},
			code: "dividing", said: []string{"GPU n1.0 of n1 is divided for it"},
		},
		"a task was given it just now": {
			cluster: `n1 . . .`, jobs: `a 1x1g.10gb`, told: []model.Division{givenJustNow("n1.1", 26*time.Second, "1g.10gb")}, code: "dividing",
			said: []string{"; GPU n1.1 of n1 is to be divided for it: its node refused at " + at(-5*time.Second) + ": a task was given it 34s ago; it is tried again at " + at(26*time.Second)},
		},
		"and its time has come": {
			cluster: `n1 .`, jobs: `a 1x1g.10gb`, told: []model.Division{givenJustNow("n1.0", 0, "1g.10gb")},
			want: []string{"n1.0 to 7 × 1g.10gb for a"}, code: "dividing", said: []string{"GPU n1.0 of n1 is divided for it"},
		},
		"one does not suffice": {
			cluster: `n1 . . .`, jobs: `a 8x1g.10gb gang`, told: []model.Division{givenJustNow("n1.1", 26*time.Second, "1g.10gb")},
			want: []string{"n1.0 to 7 × 1g.10gb for a"}, code: "dividing", said: []string{"GPU n1.1 of n1 is to be divided for it", "GPU n1.0 of n1 is divided for it"},
		},
		"it was given to somebody again": {
			cluster: `n1 . #`, jobs: `a 1x1g.10gb`, told: []model.Division{givenJustNow("n1.1", 26*time.Second, "1g.10gb")},
			want: []string{"n1.0 to 7 × 1g.10gb for a"}, code: "dividing",
		},
		"it stays in use": {
			cluster: `n1 . .`, jobs: `a 1x1g.10gb`, told: []model.Division{givenJustNow("n1.0", 4*time.Minute, "1g.10gb")},
			want: []string{"n1.1 to 7 × 1g.10gb for a"}, code: "dividing",
			said: []string{"GPU n1.1 of n1 is divided for it", "GPU n1.0 of n1 is not divided: its node refused at " + at(-5*time.Second) + ": a task was given it 34s ago; it is tried again at " + at(4*time.Minute)},
		},
		"a node that names a time in years is asked within the half hour": {
			cluster: `n1 .`, jobs: `a 1x1g.10gb`, told: []model.Division{givenJustNow("n1.0", 1e6*time.Second, "1g.10gb")},
			code: "dividing", said: []string{"tried again at " + at(30*time.Minute-5*time.Second)},
		},
		"its driver refuses": {
			cluster: `n1 .`, jobs: `a 1x1g.10gb`, told: []model.Division{driverRefused("n1.0", "1g.10gb")}, code: "dividing",
			said: []string{"; GPU n1.0 of n1 is not divided: its node refused at " + at(-5*time.Second) + ": NVML error 999; it is tried again at " + at(30*time.Minute-5*time.Second)},
		},
		"many drivers refuse": {
			cluster: `n1 . . . . .`, jobs: `a 1x1g.10gb`, code: "dividing", said: []string{"GPU n1.2 of n1 is not divided", "; and so for 2 GPUs more"},
			told: []model.Division{driverRefused("n1.0", "1g.10gb"), driverRefused("n1.1", "1g.10gb"), driverRefused("n1.2", "1g.10gb"), driverRefused("n1.3", "1g.10gb"), driverRefused("n1.4", "1g.10gb")},
		},
		"to make it whole is refused for now": {
			cluster: `n1 3g.40gb 3g.40gb`, jobs: `a 1x1`, told: []model.Division{givenJustNow("n1.1", 26*time.Second)}, code: "dividing",
			said: []string{"GPU n1.1 of n1 is to be made whole for it"},
		},
		"to make it whole is refused by the driver": {
			cluster: `n1 3g.40gb #`, jobs: `a 1x1`, told: []model.Division{driverRefused("n1.0")}, code: "no_capacity",
			said: []string{"GPU n1.0 of n1 is not made whole: its node refused"},
		},
		"it is being divided": {
			cluster: `n1 . .`, jobs: `a 1x1g.10gb`, told: []model.Division{toldOf("n1.1", model.DivisionPending, "1g.10gb", "1g.10gb")},
			code: "dividing", said: []string{"GPU n1.1 of n1 is being divided for it"},
		},
		"it is being divided for as many as it has instances": {
			cluster: `n1 . .`, jobs: "a 1x3g.40gb\nb 1x3g.40gb\nc 1x3g.40gb", told: []model.Division{toldOf("n1.0", model.DivisionPending, "3g.40gb", "3g.40gb")},
			want: []string{"n1.1 to 2 × 3g.40gb for c"}, code: "dividing", said: []string{"GPU n1.0 of n1 is being divided for it"},
		},
		"another shape is being made": {
			cluster: `n1 . .`, jobs: `a 1x3g.40gb`, told: []model.Division{toldOf("n1.0", model.DivisionPending, "1g.10gb")},
			want: []string{"n1.1 to 2 × 3g.40gb for a"}, code: "dividing",
		},
		"it is being made whole": {
			cluster: `n1 3g.40gb 3g.40gb`, jobs: `a 1x1`, told: []model.Division{toldOf("n1.1", model.DivisionPending)},
			code: "dividing", said: []string{"GPU n1.1 of n1 is being made whole for it"},
		},
		"none is idle": {
			cluster: `n1 # 3g.40gb#`, jobs: `a 14x1g.10gb gang`, code: "dividing",
			said: []string{"; 2 GPUs can be divided for it once idle"},
		},
		"too few, were they idle": {cluster: `n1 # #`, jobs: `a 15x1g.10gb gang`, code: "no_node"},
		"nobody divides":          {cluster: `-n1 . .`, jobs: `a 1x1g.10gb`, code: "no_node"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := drawMIG(t, tt.cluster)
			askMIG(t, s, tt.jobs)
			s.Nodes[0].Divisions = tt.told
			plan, err := Decide(s, Policy{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range plan.Repartitions {
				got = append(got, fmt.Sprintf("%s to %s for %s", p.GPU, mig.Tell(p.To), p.For.ID))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("divisions (-want +got):\n%s", diff)
			}
			d := plan.Decisions[0]
			if d.Detail.Code != tt.code {
				t.Errorf("code %q, want %q", d.Detail.Code, tt.code)
			}
			for _, want := range tt.said {
				if !strings.Contains(d.Reason, want) {
					t.Errorf("%s is told %q, want %q", d.Job, d.Reason, want)
				}
			}
			checkPlan(t, s, plan)
			for _, fault := range slices.Concat(divisionFaults(s, plan), toldFaults(s, plan)) {
				t.Error(fault)
			}
		})
	}
}

// TestPendingIsGivenToNobody: neither whole nor in parts.
func TestPendingIsGivenToNobody(t *testing.T) {
	s := drawMIG(t, "n1 . .\nn2 3g.40gb+3g.40gb")
	askMIG(t, s, "both 1x2\none 1x1\nhalf 1x3g.40gb")
	s.Nodes[0].Divisions = []model.Division{toldOf("n1.0", model.DivisionPending, "3g.40gb")}
	s.Nodes[1].Divisions = []model.Division{toldOf("n2.0", model.DivisionPending)}
	plan, err := Decide(s, Policy{Order: "besteffort"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, d := range plan.Decisions {
		for _, m := range d.Members {
			got[d.Job] = append(got[d.Job], m.GPUs...)
		}
	}
	if diff := cmp.Diff(map[string][]string{"one": {"n1.1"}}, got); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
	// Once it is done, it is any other's.
	p, err := Prepare(s, Policy{Order: "besteffort"})
	if err != nil {
		t.Fatal(err)
	}
	done := s.Nodes[0]
	done.Divisions = nil
	if err := p.Apply(Change{PutNodes: []model.Node{done}}); err != nil {
		t.Fatal(err)
	}
	if plan := p.Decide(testNow); len(plan.Decisions[0].Members) != 1 {
		t.Errorf("then: %s", plan.Decisions[0].Reason)
	}
}

// toldFaults checks that no GPU is told anew that is busy with what it was told, and
// that none is given that is being divided.
func toldFaults(s *model.Snapshot, plan *model.Plan) (faults []string) {
	for i := range s.Nodes {
		for _, v := range s.Nodes[i].Divisions {
			until := v.At.Add(30 * time.Minute)
			if !v.Again.IsZero() && v.Again.Before(until) {
				until = v.Again
			}
			for _, p := range plan.Repartitions {
				if p.GPU == v.GPU && (v.State == model.DivisionPending || v.State == model.DivisionRefused && s.Now.Before(until)) {
					faults = append(faults, fmt.Sprintf("%s is told again: %+v", p.GPU, v))
				}
			}
			for _, d := range plan.Decisions {
				for _, m := range d.Members {
					for _, g := range m.GPUs {
						if whole, _, _ := strings.Cut(g, "/"); whole == v.GPU && v.State == model.DivisionPending {
							faults = append(faults, fmt.Sprintf("%s is given to %s, and is being divided", g, d.Job))
						}
					}
				}
			}
		}
	}
	return faults
}

// TestToldInAnyState: whatever nodes were told, nothing is told again too soon or
// given while it is divided, and who is told to wait for a division is not hopeless.
func TestToldInAnyState(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		var cluster, jobs strings.Builder
		var gpus []string
		for n := range rapid.IntRange(1, 2).Draw(t, "nodes") {
			fmt.Fprintf(&cluster, "n%d", n)
			for i := range rapid.IntRange(1, 4).Draw(t, "gpus") {
				cluster.WriteString(" " + rapid.SampledFrom([]string{".", ".", "#", "3g.40gb+3g.40gb", "3g.40gb+3g.40gb#"}).Draw(t, "gpu"))
				gpus = append(gpus, fmt.Sprintf("n%d.%d", n, i))
			}
			cluster.WriteString("\n")
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "jobs") {
			fmt.Fprintf(&jobs, "j%d %dx%s %s\n", i, rapid.IntRange(1, 3).Draw(t, "members"), rapid.SampledFrom([]string{"1", "2", "1g.10gb", "3g.40gb"}).Draw(t, "what"), rapid.SampledFrom([]string{"", "gang"}).Draw(t, "how"))
		}
		s := drawMIG(quiet{}, cluster.String())
		askMIG(quiet{}, s, jobs.String())
		for _, gpu := range gpus {
			profiles := rapid.SampledFrom([][]string{nil, {"3g.40gb", "3g.40gb"}, {"1g.10gb"}}).Draw(t, "profiles")
			v := rapid.SampledFrom([]model.Division{
				{}, {}, toldOf(gpu, model.DivisionPending, profiles...), toldOf(gpu, model.DivisionDone, profiles...),
				driverRefused(gpu, profiles...), givenJustNow(gpu, 20*time.Second, profiles...), givenJustNow(gpu, -time.Second, profiles...), givenJustNow(gpu, time.Hour, profiles...),
			}).Draw(t, "told")
			for i := range s.Nodes {
				if v.GPU != "" && strings.HasPrefix(gpu, s.Nodes[i].ID+".") {
					s.Nodes[i].Divisions = append(s.Nodes[i].Divisions, v)
				}
			}
		}
		plan, err := Decide(s, Policy{Order: "besteffort"})
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range slices.Concat(divisionFaults(s, plan), toldFaults(s, plan)) {
			t.Errorf("%s\n%s: %s", cluster.String(), jobs.String(), fault)
		}
		for _, d := range plan.Decisions {
			seen[d.Detail.Code]++
			if told := strings.Contains(d.Reason, " for it"); told && (d.Detail.Code == "no_node" || d.Detail.Code == "too_large") {
				t.Errorf("%s: %s", d.Detail.Code, d.Reason)
			}
		}
		other := *s
		other.Nodes, other.Jobs = rapid.Permutation(s.Nodes).Draw(t, "order"), rapid.Permutation(s.Jobs).Draw(t, "jobs")
		again, err := Decide(&other, Policy{Order: "besteffort"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plan, again); diff != "" {
			t.Errorf("plans (-as drawn +in another order):\n%s", diff)
		}
	})
	if seen["dividing"] == 0 || seen["placed"] == 0 {
		t.Errorf("seen: %v", seen)
	}
}
