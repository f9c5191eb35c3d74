package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
)

const testGPU = "NVIDIA H100 80GB HBM3"

// drawMIG draws nodes whose GPUs may be divided, one node per line: its name, and
// each GPU: "." is whole and free, "#" whole and held, and profiles joined by "+"
// are a divided one, each with "#" behind it if it is held. A "-" before the name
// is a node whose plugin divides nothing.
func drawMIG(t testing.TB, text string) *model.Snapshot {
	t.Helper()
	s := &model.Snapshot{Now: testNow}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		name, fixed := strings.CutPrefix(fields[0], "-")
		n := model.Node{ID: name, Divides: !fixed, Capacity: model.Resources{CPUMHz: 8000, MemoryMiB: 8000}}
		add := func(uuid, parent, name string, attributes map[string]string, held bool) {
			n.GPUs = append(n.GPUs, model.GPU{UUID: uuid, Parent: parent, Vendor: "nvidia", Type: "gpu", Model: name, Attributes: attributes, Island: len(n.GPUs), NUMA: -1})
			if held {
				s.Allocs = append(s.Allocs, model.Alloc{ID: "on " + uuid, Node: n.ID, GPUs: []string{uuid}})
			}
		}
		for i, gpu := range fields[1:] {
			uuid := fmt.Sprintf("%s.%d", name, i)
			if gpu == "." || gpu == "#" {
				add(uuid, "", testGPU, nil, gpu == "#")
				continue
			}
			for k, profile := range strings.Split(gpu, "+") {
				profile, held := strings.CutSuffix(profile, "#")
				add(fmt.Sprintf("%s/%d", uuid, k), uuid, testGPU+mig.Mark+profile, map[string]string{"mig_profile": profile}, held)
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// askMIG adds queued jobs, one per line: the ID, "3x1g.10gb" for three members with
// an instance each or "2x4" for two with four whole GPUs each, and "any" for a
// device request that names no model but has a constraint.
func askMIG(t testing.TB, s *model.Snapshot, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		count, what, _ := strings.Cut(fields[1], "x")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		ask := model.DeviceAsk{Name: "nvidia/gpu/" + testGPU}
		if ask.Count, err = strconv.Atoi(what); err != nil {
			ask.Count, ask.Name = 1, ask.Name+mig.Mark+what
			if slices.Contains(fields[2:], "any") {
				ask.Name, ask.Constraints = "nvidia/gpu", []model.Constraint{{Left: "${device.attr.mig_profile}", Operand: "=", Right: what}}
			}
		}
		j := model.Job{ID: fields[0], Type: "batch", State: model.StateQueued, Gang: model.GangNone, Submitted: testNow.Add(time.Duration(len(s.Jobs)-100) * time.Minute),
			Groups: []model.TaskGroup{{Name: "g", Count: n, Devices: []model.DeviceAsk{ask}}}}
		if slices.Contains(fields[2:], "gang") {
			j.Gang = model.GangJob
		}
		s.Jobs = append(s.Jobs, j)
	}
}

func TestRepartition(t *testing.T) {
	tests := map[string]struct {
		cluster, jobs string
		set           func(*model.Snapshot)
		want          []string
		// wantSaid is in the reason of the first job.
		wantSaid string
	}{
		"an idle GPU is divided": {
			cluster: `n1 # .`, jobs: `a 3x1g.10gb`,
			want:     []string{"n1.1 from one to 7 × 1g.10gb for a"},
			wantSaid: "GPU n1.1 of n1 is divided for it",
		},
		"by a constraint":                                   {cluster: `n1 .`, jobs: `a 1x3g.40gb any`, want: []string{"n1.0 from one to 2 × 3g.40gb for a"}},
		"two GPUs where one is too few":                     {cluster: `n1 . .`, jobs: `a 3x3g.40gb`, want: []string{"n1.0 from one to 2 × 3g.40gb for a", "n1.1 from one to 2 × 3g.40gb for a"}},
		"a gang of instances":                               {cluster: `n1 . .`, jobs: `a 8x1g.10gb gang`, want: []string{"n1.0 from one to 7 × 1g.10gb for a", "n1.1 from one to 7 × 1g.10gb for a"}},
		"two shapes share a GPU":                            {cluster: `n1 .`, jobs: "a 1x3g.40gb\nb 1x2g.20gb", want: []string{"n1.0 from one to 3g.40gb, 2 × 2g.20gb for a"}},
		"one that is kept for a gang that comes after it":   {cluster: "n1 # .\nn2 # .", jobs: "a 1x1g.10gb\nb 2x2 gang", want: []string{"n1.1 from one to 7 × 1g.10gb for a"}},
		"none that is kept for a gang that comes before it": {cluster: "n1 # .\nn2 # .", jobs: "b 2x2 gang\na 1x1g.10gb"},
		"no GPU is idle":                                    {cluster: `n1 # #`, jobs: `a 1x1g.10gb`},
		"the node's plugin divides none": {
			cluster: `-n1 . .`, jobs: `a 1x1g.10gb`,
		},
		"a whole GPU is not divided for who takes one": {cluster: `n1 . .`, jobs: `a 3x1`},
		"as many as are lacking":                       {cluster: "n1 1g.10gb+1g.10gb# .\nn2 .", jobs: `a 2x1g.10gb gang`, want: []string{"n1.1 from one to 7 × 1g.10gb for a"}},
		"one of which it could use a part, where that is too little": {
			cluster: "n1 1g.10gb+1g.10gb+2g.20gb\nn2 #", jobs: "a 2x2g.20gb gang\nb 1x1", want: []string{"n1.0 from 2g.20gb, 2 × 1g.10gb to 3 × 2g.20gb for a"},
		},
		"with a part of one in use": {
			cluster: "n1 1g.10gb+1g.10gb+2g.20gb 1g.10gb+1g.10gb#+2g.20gb", jobs: "a 4x2g.20gb gang\nb 1x1", want: []string{"n1.0 from 2g.20gb, 2 × 1g.10gb to 3 × 2g.20gb for a"},
		},
		"beside those that are divided, for less is stranded": {
			cluster: "n1 . . . .\nn2 . 3g.40gb#+3g.40gb#", jobs: `a 1x3g.40gb`, want: []string{"n2.0 from one to 2 × 3g.40gb for a"},
		},
		"one that is divided as nobody wants it, first": {
			cluster: "n1 . .\nn2 1g.10gb+1g.10gb", jobs: `a 1x3g.40gb`, want: []string{"n2.0 from 2 × 1g.10gb to 2 × 3g.40gb for a"},
		},
		"not one of which an instance is held": {
			cluster: `n1 1g.10gb+1g.10gb#`, jobs: `a 1x3g.40gb`,
		},
		"one whose instances those wait for who come after it": {
			cluster: `n1 2g.20gb+2g.20gb+2g.20gb`, jobs: "a 1x3g.40gb\nb 4x2g.20gb gang", want: []string{"n1.0 from 3 × 2g.20gb to 2 × 3g.40gb for a"},
		},
		"a divided GPU is made whole": {
			cluster: `n1 1g.10gb+1g.10gb #`, jobs: `a 1x1`, want: []string{"n1.0 from 2 × 1g.10gb to one for a"},
			wantSaid: "GPU n1.0 of n1 is made whole for it",
		},
		"the fewest of them, where they are of use": {
			cluster: "n1 3g.40gb 3g.40gb # #\nn2 . 3g.40gb # #\nn3 # 3g.40gb", jobs: `a 1x2`, want: []string{"n2.1 from 3g.40gb to one for a"},
		},
		"none where that is not enough": {cluster: `n1 3g.40gb # #`, jobs: `a 1x2`},
		"not again so soon": {
			cluster: `n1 1g.10gb+1g.10gb`, jobs: `a 1x1`,
			set: func(s *model.Snapshot) {
				s.Nodes[0].Divisions = []model.Division{{GPU: "n1.0", State: model.DivisionDone, At: testNow.Add(-9 * time.Minute)}}
			},
		},
		"but after a while": {
			cluster: `n1 1g.10gb+1g.10gb`, jobs: `a 1x1`,
			set: func(s *model.Snapshot) {
				s.Nodes[0].Divisions = []model.Division{{GPU: "n1.0", State: model.DivisionDone, At: testNow.Add(-10 * time.Minute)}}
			},
			want: []string{"n1.0 from 2 × 1g.10gb to one for a"},
		},
		"not where the driver has refused it": {
			cluster: `n1 . .`, jobs: `a 1x1g.10gb`,
			set: func(s *model.Snapshot) {
				s.Nodes[0].Divisions = []model.Division{{GPU: "n1.0", State: model.DivisionRefused, At: testNow.Add(-20 * time.Minute)}}
			},
			want: []string{"n1.1 from one to 7 × 1g.10gb for a"},
		},
		"not what is being divided": {
			cluster: `n1 .`, jobs: `a 1x1g.10gb`,
			set: func(s *model.Snapshot) {
				s.Nodes[0].Divisions = []model.Division{{GPU: "n1.0", State: model.DivisionPending, At: testNow.Add(-time.Hour)}}
			},
		},
		"not where there is no memory left": {
			cluster: "n1 .\nn2 .", jobs: `a 1x1g.10gb`,
			set: func(s *model.Snapshot) {
				s.Jobs[0].Groups[0].Resources.MemoryMiB = 4000
				s.Allocs = []model.Alloc{{ID: "much", Node: "n1", Resources: model.Resources{MemoryMiB: 6000}}}
			},
			want: []string{"n2.0 from one to 7 × 1g.10gb for a"},
		},
		"not on a drained node": {
			cluster: "n1 .\nn2 .", jobs: `a 1x1g.10gb`, set: func(s *model.Snapshot) { s.Nodes[0].Unschedulable = "draining" },
			want: []string{"n2.0 from one to 7 × 1g.10gb for a"},
		},
		"not what a gang ahead keeps": {
			cluster: "n1 . #", jobs: "big 1x2\na 1x1g.10gb",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := drawMIG(t, tt.cluster)
			askMIG(t, s, tt.jobs)
			if tt.set != nil {
				tt.set(s)
			}
			plan, err := Decide(s, Policy{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range plan.Repartitions {
				t.Logf("%s: %s", p.GPU, p.Reason)
				got = append(got, fmt.Sprintf("%s from %s to %s for %s", p.GPU, mig.Tell(p.From), mig.Tell(p.To), p.For.ID))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("divisions (-want +got):\n%s", diff)
			}
			if d := plan.Decisions[0]; !strings.Contains(d.Reason, tt.wantSaid) {
				t.Errorf("%s is told %q, want %q", d.Job, d.Reason, tt.wantSaid)
			}
			checkPlan(t, s, plan)
			for _, fault := range divisionFaults(s, plan) {
				t.Error(fault)
			}
		})
	}
}

// divisionFaults checks divisions with code of its own.
func divisionFaults(s *model.Snapshot, plan *model.Plan) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	used := map[string]bool{}
	for _, a := range s.Allocs {
		for _, uuid := range a.GPUs {
			used[uuid] = true
		}
	}
	for _, d := range plan.Decisions {
		for _, m := range d.Members {
			for _, uuid := range m.GPUs {
				used[uuid] = true
			}
		}
	}
	seen := map[string]bool{}
	for _, p := range plan.Repartitions {
		node := s.Nodes[slices.IndexFunc(s.Nodes, func(n model.Node) bool { return n.ID == p.Node })]
		if seen[p.GPU] || !node.Divides || p.Reason == "" || !strings.Contains(p.Reason, p.For.ID) {
			fault("%s: twice %v, divides %v, %q", p.GPU, seen[p.GPU], node.Divides, p.Reason)
		}
		seen[p.GPU] = true
		var from []string
		for _, g := range node.GPUs {
			if g.UUID != p.GPU && g.Parent != p.GPU {
				continue
			}
			if used[g.UUID] {
				fault("%s is divided, and %s is in use", p.GPU, g.UUID)
			}
			if _, profile, divided := strings.Cut(g.Model, mig.Mark); divided {
				from = append(from, profile)
			}
		}
		geometry, _ := mig.Of(testGPU)
		if !slices.Equal(geometry.In(from), p.From) || slices.Equal(p.From, p.To) || !geometry.Fits(p.To) {
			fault("%s: %v (%v) becomes %v", p.GPU, p.From, from, p.To)
		}
	}
	return faults
}

// TestDivisionsAreSound: in clusters of all kinds nothing in use is divided, and
// once it has been, somebody who waited is placed; the same is found in any order.
func TestDivisionsAreSound(t *testing.T) {
	made := 0
	geometry, _ := mig.Of(testGPU)
	rapid.Check(t, func(t *rapid.T) {
		var cluster strings.Builder
		held := func(text string) string { return text + rapid.SampledFrom([]string{"", "#"}).Draw(t, "held") }
		for n := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			fmt.Fprintf(&cluster, "%sn%d", rapid.SampledFrom([]string{"", "", "-"}).Draw(t, "fixed"), n)
			for range rapid.IntRange(1, 4).Draw(t, "gpus") {
				gpu := rapid.SampledFrom([]string{".", "#", "3g.40gb+3g.40gb", "1g.10gb+1g.10gb+2g.20gb"}).Draw(t, "gpu")
				if strings.Contains(gpu, "+") {
					parts := strings.Split(gpu, "+")
					for i := range parts {
						parts[i] = held(parts[i])
					}
					gpu = strings.Join(parts, "+")
				}
				cluster.WriteString(" " + gpu)
			}
			cluster.WriteString("\n")
		}
		s := drawMIG(quiet{}, cluster.String())
		var jobs strings.Builder
		for i := range rapid.IntRange(1, 4).Draw(t, "jobs") {
			fmt.Fprintf(&jobs, "j%d %dx%s %s\n", i, rapid.IntRange(1, 4).Draw(t, "members"), rapid.SampledFrom([]string{"1", "2", "1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"}).Draw(t, "what"), rapid.SampledFrom([]string{"", "gang", "any"}).Draw(t, "how"))
		}
		askMIG(quiet{}, s, jobs.String())
		plan, err := Decide(s, Policy{Order: "besteffort"})
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range divisionFaults(s, plan) {
			t.Errorf("%s\n%s: %s", cluster.String(), jobs.String(), fault)
		}
		other := *s
		other.Nodes, other.Jobs, other.Allocs = rapid.Permutation(s.Nodes).Draw(t, "nodes"), rapid.Permutation(s.Jobs).Draw(t, "jobs"), rapid.Permutation(s.Allocs).Draw(t, "allocs")
		again, err := Decide(&other, Policy{Order: "besteffort"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plan, again); diff != "" {
			t.Errorf("plans (-as drawn +in another order):\n%s", diff)
		}
		if len(plan.Repartitions) == 0 {
			return
		}
		made++
		before, after := placedIn(plan), placedIn(divideAs(t, s, plan.Repartitions, geometry))
		if after <= before {
			t.Errorf("%s\n%s: %d devices are given away, and after %v %d", cluster.String(), jobs.String(), before, plan.Repartitions, after)
		}
	})
	if made == 0 {
		t.Error("nothing was ever divided")
	}
}

// divideAs decides on the cluster with its GPUs divided as a plan has it.
func divideAs(t *rapid.T, s *model.Snapshot, list []model.Repartition, _ mig.Geometry) *model.Plan {
	next := *s
	next.Nodes = slices.Clone(s.Nodes)
	for _, p := range list {
		n := &next.Nodes[slices.IndexFunc(next.Nodes, func(n model.Node) bool { return n.ID == p.Node })]
		n.GPUs = dividedAs(n.GPUs, p, 0)
	}
	plan, err := Decide(&next, Policy{Order: "besteffort"})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// dividedAs are a node's GPUs with one divided otherwise, for the nth time.
func dividedAs(gpus []model.GPU, p model.Repartition, n int) []model.GPU {
	gpus = slices.DeleteFunc(slices.Clone(gpus), func(g model.GPU) bool { return g.UUID == p.GPU || g.Parent == p.GPU })
	if len(p.To) == 0 {
		gpus = append(gpus, model.GPU{UUID: p.GPU, Vendor: "nvidia", Type: "gpu", Model: testGPU, Island: 99, NUMA: -1})
	}
	for k, profile := range p.To {
		gpus = append(gpus, model.GPU{UUID: fmt.Sprintf("%s/new%d.%d", p.GPU, n, k), Parent: p.GPU, Vendor: "nvidia", Type: "gpu", Model: testGPU + mig.Mark + profile,
			Attributes: map[string]string{"mig_profile": profile}, Island: 100 + k, NUMA: -1})
	}
	return gpus
}

// placedIn counts the devices that a plan gives away.
func placedIn(plan *model.Plan) int {
	n := 0
	for _, d := range plan.Decisions {
		for _, m := range d.Members {
			n += len(m.GPUs)
		}
	}
	return n
}

// quiet is a testing.TB for helpers that do not fail here.
type quiet struct{ testing.TB }

func (quiet) Helper() {}
