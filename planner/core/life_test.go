package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// decision decides and returns the decision on one job.
func decision(t *testing.T, s *model.Snapshot, job string) model.Decision {
	t.Helper()
	plan := mustDecide(t, s, Policy{})
	checkPlan(t, s, plan)
	for _, d := range plan.Decisions {
		if d.Job == job {
			return d
		}
	}
	t.Fatalf("no decision on %s", job)
	return model.Decision{}
}

func nodesOf(d model.Decision) []string {
	var out []string
	for _, m := range d.Members {
		out = append(out, m.Node)
	}
	return out
}

// An admitted job holds its place before its allocations are there, and holds
// it once when they are.
func TestMembersHoldOnce(t *testing.T) {
	s := draw(t, "b1 r1 n1 ....")
	submit(t, s, `A 1x2
	              B 1x2`)
	s.Jobs[0].State = model.StateAdmitted
	s.Jobs[0].Groups[0].Resources = model.Resources{CPUMHz: 5000}
	s.Jobs[0].Members = []model.Member{{Group: "g0", Node: "n1", GPUs: []string{"n1.0", "n1.1"}}}
	s.Jobs[1].Groups[0].Resources = model.Resources{CPUMHz: 3000}
	if d := decision(t, s, "B"); d.Action != model.ActionAdmit || !slices.Equal(d.Members[0].GPUs, []string{"n1.2", "n1.3"}) {
		t.Errorf("beside an admitted job: %+v", d)
	}
	alloc := model.Alloc{ID: "x", Job: "A", Group: "g0-0", Node: "n1", GPUs: []string{"n1.0", "n1.1"}, Resources: model.Resources{CPUMHz: 5000}}
	s.Allocs = []model.Alloc{alloc}
	if d := decision(t, s, "B"); d.Action != model.ActionAdmit {
		t.Errorf("counted twice: %s", d.Reason)
	}
	s.Jobs[1].Groups[0].Resources.CPUMHz = 3001
	if d := decision(t, s, "B"); d.Action != model.ActionWait || d.Detail.Filtered["cpu"] != 1 {
		t.Errorf("not counted: %+v", d)
	}
}

// What is stopping, lost or fenced holds its GPUs.
func TestLeavingAllocsHold(t *testing.T) {
	for name, mark := range map[string]func(*model.Alloc){
		"stopping": func(a *model.Alloc) { a.Stopping = true },
		"lost":     func(a *model.Alloc) { a.Lost = true },
	} {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 aaaa")
			submit(t, s, "M 1x1")
			for i := range s.Allocs {
				mark(&s.Allocs[i])
			}
			if d := decision(t, s, "M"); d.Action != model.ActionWait || d.Detail.Code != "no_capacity" {
				t.Errorf("got %s %s", d.Action, d.Detail.Code)
			}
		})
	}
}

func TestHoldAndRetry(t *testing.T) {
	s := draw(t, "b1 r1 n1 ....")
	submit(t, s, `H 1x4
	              R 1x4
	              S 1x4
	              Z 0x4`)
	s.Jobs[0].Hold = "meta caravan_gang: \"all\": want job, group or none"
	s.Jobs[1].RetryAfter = testNow.Add(time.Minute)
	s.Jobs[2].RetryAfter = testNow
	for job, want := range map[string]string{"H": "hold", "R": "retry_later", "S": "placed", "Z": "invalid"} {
		if d := decision(t, s, job); d.Detail.Code != want {
			t.Errorf("%s: %s (%s), want %s", job, d.Detail.Code, d.Reason, want)
		}
	}
	s.Jobs[1].RetryFor = "the fence of node-7"
	if d, want := decision(t, s, "R"), "waits until "+testNow.Add(time.Minute).UTC().Format("15:04:05")+" for the fence of node-7"; d.Reason != want {
		t.Errorf("reason %q, want %q", d.Reason, want)
	}
}

// A group that lost a member gets it back where its topology wants it, beside
// the others; one of gang none anywhere; one of gang job not yet.
func TestMissingMembers(t *testing.T) {
	tests := map[string]struct {
		job       string
		nodes     []string
		wantRank  int
		wantCodes []string
	}{
		"group in its rack":      {"M 2x2 require:rack gang:group", []string{"n3"}, 1, []string{"placed"}},
		"group on its node":      {"M 2x2 require:node gang:group", []string{"n3"}, 1, []string{"placed"}},
		"group without room":     {"M 2x4 require:node gang:group", nil, 0, []string{"no_domain"}},
		"none anywhere":          {"M 2x4 gang:none", []string{"n1"}, 0, []string{"placed"}},
		"gang job is left as is": {"M 2x2 gang:job", nil, 0, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, `b1 r1 n1 ....
			              b1 r2 n3 ....
			              b1 r2 n4 aaa.`)
			submit(t, s, tt.job)
			j := &s.Jobs[len(s.Jobs)-1]
			j.State = model.StateRunning
			j.Members = []model.Member{{Group: "g0", Index: 1, Rank: 0, Node: "n3", GPUs: []string{"n3.0", "n3.1"}}}
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			var codes []string
			for _, d := range plan.Decisions {
				codes = append(codes, d.Detail.Code)
				if diff := cmp.Diff(tt.nodes, nodesOf(d)); diff != "" {
					t.Errorf("%s\nnodes (-want +got):\n%s", d.Reason, diff)
				}
				for _, m := range d.Members {
					if m.Index != 0 || m.Rank != tt.wantRank {
						t.Errorf("index %d rank %d, want 0 and %d", m.Index, m.Rank, tt.wantRank)
					}
				}
			}
			if diff := cmp.Diff(tt.wantCodes, codes); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDistinct(t *testing.T) {
	hosts := model.Constraint{Operand: "distinct_hosts"}
	racks := model.Constraint{Left: "${meta.rack}", Operand: "distinct_property", Right: "2"}
	tests := map[string]struct {
		jobs  string
		set   func(j *model.Job, s *model.Snapshot)
		nodes []string // nil: waits
	}{
		"members on hosts of their own": {"M 3x1", func(j *model.Job, _ *model.Snapshot) { j.Groups[0].Constraints = []model.Constraint{hosts} }, []string{"n1", "n2", "n3"}},
		"too few hosts":                 {"M 5x1", func(j *model.Job, _ *model.Snapshot) { j.Groups[0].Constraints = []model.Constraint{hosts} }, nil},
		"groups may share hosts":        {"M 4x1+4x1", func(j *model.Job, _ *model.Snapshot) { j.Groups[0].Constraints = []model.Constraint{hosts} }, []string{"n1", "n1", "n1", "n1", "n2", "n2", "n3", "n4"}},
		"unless the job forbids it":     {"M 2x1+2x1", func(j *model.Job, _ *model.Snapshot) { j.Constraints = []model.Constraint{hosts} }, []string{"n1", "n2", "n3", "n4"}},
		"beside its own allocation": {"M 1x1", func(j *model.Job, s *model.Snapshot) {
			j.Constraints = []model.Constraint{hosts}
			s.Allocs = append(s.Allocs, model.Alloc{ID: "old", Job: "M", Group: "g0", Node: "n1", Stopping: true})
		}, []string{"n2"}},
		"two in a rack":          {"M 4x1", func(j *model.Job, _ *model.Snapshot) { j.Constraints = []model.Constraint{racks} }, []string{"n1", "n1", "n3", "n3"}},
		"no more than the quota": {"M 5x1", func(j *model.Job, _ *model.Snapshot) { j.Constraints = []model.Constraint{racks} }, nil},
		"what is there counts": {"M 3x1", func(j *model.Job, s *model.Snapshot) {
			j.Constraints = []model.Constraint{racks}
			s.Allocs = append(s.Allocs, model.Alloc{ID: "old", Job: "M", Group: "g0", Node: "n4"})
		}, []string{"n1", "n1", "n3"}},
		"what stops does not": {"M 4x1", func(j *model.Job, s *model.Snapshot) {
			j.Constraints = []model.Constraint{racks}
			s.Allocs = append(s.Allocs, model.Alloc{ID: "old", Job: "M", Group: "g0", Node: "n4", Stopping: true})
		}, []string{"n1", "n1", "n3", "n3"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, `b1 r1 n1 ....
			              b1 r1 n2 ....
			              b1 r2 n3 ....
			              b1 r2 n4 ....`)
			for i := range s.Nodes {
				s.Nodes[i].Attributes = map[string]string{"meta.rack": s.Nodes[i].Levels["rack"]}
			}
			submit(t, s, tt.jobs)
			tt.set(&s.Jobs[0], s)
			d := decision(t, s, "M")
			got := nodesOf(d)
			slices.Sort(got)
			if diff := cmp.Diff(tt.nodes, got); diff != "" {
				t.Errorf("%s\nnodes (-want +got):\n%s", d.Reason, diff)
			}
		})
	}
}

// No gang waits for ever while small jobs come and go beside it.
func TestNoStarvation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		s := &model.Snapshot{Now: testNow, Levels: []string{"block", "rack"}}
		for i := range 6 {
			n := model.Node{ID: fmt.Sprint("n", i), Levels: map[string]string{"rack": fmt.Sprint("r", i/2)}}
			for g := range 4 {
				n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint(i, ".", g), Vendor: "nvidia", Type: "gpu", Island: g / 2})
			}
			s.Nodes = append(s.Nodes, n)
		}
		small := func(id int) model.Job {
			return model.Job{ID: fmt.Sprint("small", id), Type: "batch", State: model.StateQueued, Gang: model.GangNone, Submitted: testNow.Add(time.Duration(id) * time.Second),
				Groups: []model.TaskGroup{{Name: "g", Count: 1, Devices: []model.DeviceAsk{{Name: "gpu", Count: 1 + rng.IntN(3)}}}}}
		}
		ids, ends := 0, map[string]int{}
		waiting := -1
		for round := range 80 {
			for range rng.IntN(12) {
				s.Jobs = append(s.Jobs, small(ids))
				ids++
			}
			if round == 10 {
				count, level := 1+rng.IntN(2), []string{"rack", "node", ""}[rng.IntN(3)]
				j := small(ids)
				ids++
				j.ID, j.Gang, j.Groups[0].Count, j.Groups[0].Devices[0].Count = "big", model.GangJob, count, 4
				if level == "node" {
					j.Groups[0].Count = 1
				}
				g := &j.Groups[0]
				switch rng.IntN(7) {
				case 3: // beside a group that never fits
					j.Gang = model.GangGroup
					j.Groups = append([]model.TaskGroup{{Name: "never", Count: 1, Devices: []model.DeviceAsk{{Name: "gpu", Count: 99}}}}, j.Groups...)
				case 4:
					j.Gang = model.GangNone
					j.Groups = append([]model.TaskGroup{{Name: "never", Count: 1, Devices: []model.DeviceAsk{{Name: "gpu", Count: 99}}}}, j.Groups...)
				case 0: // groups that have to share nodes
					g.Devices[0].Count = 3
					j.Groups = append(j.Groups, model.TaskGroup{Name: "h", Count: g.Count, Devices: []model.DeviceAsk{{Name: "gpu", Count: 1}}})
				case 1:
					g.Devices[0].Count = 2
					g.Constraints = []model.Constraint{{Operand: "distinct_hosts"}}
				case 2:
					g.Devices[0].Count = 2
					j.Constraints = []model.Constraint{{Left: "${node.unique.id}", Operand: "distinct_property"}}
				}
				if level != "" {
					j.Topology = model.Topology{Mode: "require", Level: level}
				}
				s.Jobs = append(s.Jobs, j)
				waiting = round
			}
			plan := mustDecide(t, s, Policy{})
			for _, d := range plan.Decisions {
				if d.Action != model.ActionAdmit {
					continue
				}
				if d.Job == "big" {
					return
				}
				at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == d.Job })
				s.Jobs[at].State, s.Jobs[at].Members = model.StateRunning, d.Members
				ends[d.Job] = round + 1 + rng.IntN(6)
			}
			s.Jobs = slices.DeleteFunc(s.Jobs, func(j model.Job) bool { return ends[j.ID] != 0 && ends[j.ID] <= round })
		}
		t.Fatalf("the gang waits since round %d", waiting)
	})
}

// The published example gives the published plan, as `caravan decide --json`
// prints it.
func TestExample(t *testing.T) {
	file, err := os.Open("testdata/example.snapshot.json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s, err := model.DecodeSnapshot(file)
	if err != nil {
		t.Fatal(err)
	}
	plan := mustDecide(t, s, Policy{})
	checkPlan(t, s, plan)
	got, err := json.MarshalIndent(plan.Decisions, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/example.plan.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(got)); diff != "" {
		t.Errorf("plan (-published +got):\n%s", diff)
	}
}

func TestBadInput(t *testing.T) {
	if _, err := Decide(&model.Snapshot{Nodes: []model.Node{{}, {}}}, Policy{}); !errors.Is(err, model.ErrSnapshot) {
		t.Errorf("invalid snapshot: %v", err)
	}
	_, err := Decide(&model.Snapshot{}, Policy{Order: "lifo", MaxHolds: -1})
	if err == nil || !strings.Contains(err.Error(), "lifo") || !strings.Contains(err.Error(), "max_holds -1") {
		t.Errorf("invalid policy: %v", err)
	}
	if plan, err := Decide(&model.Snapshot{}, Policy{}); err != nil || len(plan.Decisions) != 0 {
		t.Errorf("empty snapshot: %+v, %v", plan, err)
	}
}

// Whatever is decoded either is refused or gets a legal plan.
func FuzzDecide(f *testing.F) {
	example, err := os.ReadFile("testdata/example.snapshot.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte(`{"now":"2026-01-02T03:04:05Z","nodes":[{"id":"n","gpus":[{"uuid":"a","type":"gpu"}]}],"jobs":[{"id":"j","state":"queued","groups":[{"name":"g","count":1,"devices":[{"name":"gpu","count":1}]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := model.DecodeSnapshot(bytes.NewReader(data))
		if err != nil {
			return
		}
		total := 0
		for i := range s.Jobs {
			for k := range s.Jobs[i].Groups {
				total += s.Jobs[i].Groups[k].Count
			}
		}
		if total > 1000 || len(s.Nodes) > 1000 {
			return // only slow
		}
		plan, err := Decide(s, Policy{})
		if err != nil {
			if !errors.Is(err, model.ErrSnapshot) {
				t.Fatalf("error is not ErrSnapshot: %v", err)
			}
			return
		}
		if len(s.Levels) == 0 {
			s.Levels = model.DefaultLevels
		}
		checkPlan(t, s, plan)
	})
}
