package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

var moving = Policy{Defrag: preempt.Defrag{Enabled: true}}

func TestMove(t *testing.T) {
	tests := map[string]struct {
		cluster, running, jobs string
		set                    func(*model.Snapshot)
		policy                 func(*Policy)
		// want are the moves, wantEnd what it is like when they are through.
		want    []string
		wantEnd string
		// wantWhy is what Survey says of the first job that waits.
		wantWhy string
		// wantCost and wantBenefit are of the first that waits, in GPU-seconds.
		wantCost, wantBenefit int64
	}{
		// 8 GPUs are free, but on two nodes. Each half could go to the other: a
		// has lost less. It has 4 GPUs for 20 minutes since its start (4800), and
		// 60 s to start again (240). M has waited for 100 minutes: 8 × 6000.
		"two halves become a whole": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....`,
			running: `a 50 20m again:1x4
			          b 50 9h  again:1x4`,
			jobs: `M 1x8 priority:50`,
			want: []string{"a to M, moves to island b1/r1/n2/1"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r1 n2 bbbb|aaaa`,
			wantWhy:  "starts in node b1/r1/n1 after 1 move",
			wantCost: 4800 + 240 + 40, wantBenefit: 8 * 98 * 60,
		},
		"the same without leave": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....`,
			running: `a 50 20m again:1x4
			          b 50 9h  again:1x4`,
			jobs:   `M 1x8 priority:50`,
			policy: func(p *Policy) { p.Defrag.Enabled = false },
			want:   []string{},
			wantEnd: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....`,
			wantWhy:  "starts in node b1/r1/n1 after 1 move",
			wantCost: 4800 + 240 + 40, wantBenefit: 8 * 98 * 60,
		},
		// a ends in 2 minutes anyway: 8 × 120 is less than twice 5040.
		"the wait is short": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....`,
			running: `a 50 20m again:1x4
			          b 50 9h  again:1x4`,
			jobs: `M 1x8 priority:50`,
			set:  func(s *model.Snapshot) { s.Jobs[0].Duration = 22 * time.Minute },
			want: []string{},
			wantEnd: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....`,
			wantWhy:  "is not worth it: it would wait 2m0s longer otherwise, which is 16 GPU-minutes (until a (est. 22m, by its author) has ended); the moves lose 84 GPU-minutes, and are to save 2 times that",
			wantCost: 4800 + 240 + 40, wantBenefit: 8 * 120,
		},
		"nobody is moved for what is not there": {
			cluster: `b1 r1 n1 aaaa|a...
			          b1 r1 n2 bbbb|....`,
			running: `a 50 20m again:1x5
			          b 50 9h  again:1x4`,
			jobs: `M 1x8 priority:50`,
			want: []string{},
			wantEnd: `b1 r1 n1 aaaa|a...
			          b1 r1 n2 bbbb|....`,
			wantWhy:     "only 7 of the 8 GPUs that it needs are free: no move makes more of them",
			wantBenefit: 8 * 98 * 60,
		},
		// a has lost less, but n2 has no island for it; b's members go anywhere.
		"one with nowhere to go is left": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 b.b.|b.b.`,
			running: `a 50 20m again:1x4
			          b 50 30m again:4x1`,
			jobs: `M 1x8 priority:50`,
			set: func(s *model.Snapshot) {
				s.Jobs[0].Topology = model.Topology{Mode: "require", Level: "island"}
			},
			want: []string{"b to M, moves to island b1/r1/n1/1"},
			wantEnd: `b1 r1 n1 aaaa|bbbb
			          b1 r1 n2 MMMM|MMMM`,
			wantWhy:  "starts in node b1/r1/n2 after 1 move",
			wantCost: 4 * (30*60 + 60), wantBenefit: 8 * 98 * 60,
		},
		"a gang across racks comes together": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 ....|....
			          b1 r2 n3 bbbb|bbbb
			          b1 r2 n4 ....|....`,
			running: `a 50 30m again:1x8
			          b 50 20m again:1x8`,
			jobs: `M 2x8 priority:50 require:rack`,
			want: []string{"b to M, moves to node b1/r1/n2"},
			wantEnd: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 bbbb|bbbb
			          b1 r2 n3 MMMM|MMMM
			          b1 r2 n4 MMMM|MMMM`,
			wantWhy:  "starts in rack b1/r2 after 1 move",
			wantCost: 8*(20*60+60) + 80, wantBenefit: 16 * 98 * 60,
		},
		"never, a higher priority, and a short run are exempt": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....
			          b1 r1 n3 cccc|....`,
			running: `a 50 20m again:1x4 never
			          b 90 20m again:1x4
			          c 50 5m  again:1x4`,
			jobs: `M 1x8 priority:50`,
			want: []string{},
			wantEnd: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....
			          b1 r1 n3 cccc|....`,
			wantWhy:     "no gangs that may be moved are in its way; of 3 gangs that run 3 may not be, one because it has run for 5m0s only; 10m0s are granted",
			wantBenefit: 8 * 97 * 60,
		},
		"one that was moved just now stays": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....`,
			running: `a 50 20m again:1x4
			          b 50 30m again:1x4`,
			set: func(s *model.Snapshot) {
				s.Jobs[0].Preempted = []model.Preempted{{At: testNow.Add(-20 * time.Minute), By: "other", Moved: true}}
			},
			jobs: `M 1x8 priority:50`,
			want: []string{"b to M, moves to island b1/r1/n1/1"},
			wantEnd: `b1 r1 n1 aaaa|bbbb
			          b1 r1 n2 MMMM|MMMM`,
			wantWhy:  "starts in node b1/r1/n2 after 1 move",
			wantCost: 4*(30*60+60) + 40, wantBenefit: 8 * 98 * 60,
		},
		"no more than the limit within an hour": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....`,
			running: `a 50 20m again:1x4
			          b 50 30m again:1x4`,
			set: func(s *model.Snapshot) {
				s.Jobs[0].Preempted = []model.Preempted{{At: testNow.Add(-20 * time.Minute), By: "other", Moved: true}}
			},
			policy: func(p *Policy) { p.Defrag.MaxPerHour = 1 },
			jobs:   `M 1x8 priority:50`,
			want:   []string{},
			wantEnd: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....`,
			wantWhy:     "as many gangs as max_per_hour allows, 1, were moved within the last hour",
			wantBenefit: 8 * 98 * 60,
		},
		// a is moved for 5080 GPU-seconds; b would give way for more, c for less.
		"moved rather than made to wait": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 bbbb|....`,
			running: `a 50 20m again:1x4
			          b 10 9h  again:1x8`,
			jobs:   `M 1x8 priority:50`,
			policy: func(p *Policy) { p.Preempt.Enabled = true },
			want:   []string{"a to M, moves to island b1/r1/n2/1"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r1 n2 bbbb|aaaa`,
			wantWhy:  "starts in node b1/r1/n1 after 1 move",
			wantCost: 4800 + 240 + 40, wantBenefit: 8 * 98 * 60,
		},
		"unless others give way for less": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 cccc|....`,
			running: `a 50 20m again:1x4
			          c 10 11m again:1x8`,
			jobs:   `M 1x8 priority:50`,
			policy: func(p *Policy) { p.Preempt.Enabled = true },
			want:   []string{"c to M"},
			wantEnd: `b1 r1 n1 aaaa|....
			          b1 r1 n2 MMMM|MMMM`,
			wantWhy:  "others give way instead, which loses 48 GPU-minutes, and not 84 GPU-minutes",
			wantCost: 4800 + 240 + 40, wantBenefit: 8 * 98 * 60,
		},
		"a job in parts: each member by itself": {
			cluster: `b1 r1 n1 a...|....
			          b1 r1 n2 aaaa|aaa.`,
			running: `a 50 20m gang:none`,
			set:     func(s *model.Snapshot) { sweep(s, 0) },
			jobs:    `M 1x8 priority:50`,
			want:    []string{"a to M, moves to node b1/r1/n2"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r1 n2 aaaa|aaaa`,
			wantWhy:  "starts in node b1/r1/n1 after 1 move",
			wantCost: 20*60 + 60, wantBenefit: 8 * 99 * 60,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			if tt.set != nil {
				tt.set(s)
			}
			policy := moving
			if tt.policy != nil {
				tt.policy(&policy)
			}
			plan, err := Decide(s, policy)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range plan.Decisions {
				t.Logf("%s: %s", d.Job, d.Reason)
			}
			if diff := cmp.Diff(tt.want, gaveWay(plan)); diff != "" {
				t.Errorf("who is moved (-want +got):\n%s", diff)
			}
			considered, err := Survey(s, policy)
			if err != nil || len(considered) == 0 {
				t.Fatalf("considered %+v: %v", considered, err)
			}
			k := considered[0]
			t.Log(k.Why)
			if !strings.HasPrefix(k.Why, tt.wantWhy) || k.Cost.Total() != tt.wantCost || k.Benefit != tt.wantBenefit {
				t.Errorf("cost %d, benefit %d: %s; want %d, %d: %s", k.Cost.Total(), k.Benefit, k.Why, tt.wantCost, tt.wantBenefit, tt.wantWhy)
			}
			end := stopping(s, plan)
			again, err := Decide(end, policy)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range again.Decisions {
				t.Logf("meanwhile %s: %s", d.Job, d.Reason)
			}
			if len(again.Preemptions) > 0 {
				t.Errorf("meanwhile more are moved: %v", gaveWay(again))
			}
			end = stopped(end)
			if again, err = Decide(end, policy); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(trimLines(tt.wantEnd), redraw(end, again)); diff != "" {
				t.Errorf("in the end (-want +got):\n%s", diff)
			}
			checkPlan(t, end, again)
		})
	}
}

// sweep makes a job one of members that start by themselves, with a GPU each.
func sweep(s *model.Snapshot, job int) {
	j := &s.Jobs[job]
	for i := range s.Allocs {
		if a := &s.Allocs[i]; a.Job == j.ID {
			a.Group, a.Index = "g0", len(j.Members)
			j.Members = append(j.Members, model.Member{Group: "g0", Index: a.Index, Node: a.Node, GPUs: a.GPUs})
		}
	}
	j.Groups = []model.TaskGroup{{Name: "g0", Count: len(j.Members), Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 1}}}}
}

// TestMoveKeepsItsPlace: who is on the way finds its place free, whoever asks for
// it meanwhile; until it is too late, or the place is gone.
func TestMoveKeepsItsPlace(t *testing.T) {
	tests := map[string]struct {
		set func(*model.Snapshot)
		// wantEnd is what is decided when a has stopped; N comes in between.
		wantEnd, wantSaid string
	}{
		"kept": {
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r1 n2 bbbb|aaaa`,
			wantSaid: "moves to node b1/r1/n2, so that job M has room; starts there as soon as it has stopped where it was",
		},
		"too late": {
			set: func(s *model.Snapshot) { s.Now = s.Now.Add(time.Hour) },
			wantEnd: `b1 r1 n1 NNNN|NNNN
			          b1 r1 n2 bbbb|....`, // kept for M
		},
		"its GPUs have failed": {
			set: func(s *model.Snapshot) { s.Nodes[1].GPUs[5].Unhealthy = "fell off the bus" },
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r1 n2 bbbb|.x..`,
		},
		"the node is drained": {
			set: func(s *model.Snapshot) { s.Nodes[1].Unschedulable = "draining" },
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r1 n2 !bbbb|....`,
		},
		"the one that it made room for is gone": {
			set: func(s *model.Snapshot) {
				s.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), func(j model.Job) bool { return j.ID == "M" })
			},
			wantEnd: `b1 r1 n1 NNNN|....
			          b1 r1 n2 bbbb|aaaa`,
			wantSaid: "moves to node b1/r1/n2",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, `b1 r1 n1 aaaa|....
			              b1 r1 n2 bbbb|....`)
			describe(t, s, `a 50 20m again:1x4
			                b 50 9h  again:1x4`)
			submit(t, s, `M 1x8 priority:50`)
			plan, err := Decide(s, moving)
			if err != nil {
				t.Fatal(err)
			}
			next := stopping(s, plan)
			submit(t, next, `N 1x4 priority:99`)
			next.Nodes = slices.Clone(next.Nodes)
			next.Nodes[1].GPUs = slices.Clone(next.Nodes[1].GPUs)
			if tt.set != nil {
				tt.set(next)
			}
			if name == "too late" {
				next.Jobs[len(next.Jobs)-1].Groups[0].Devices[0].Count = 8
				next.Jobs[0].Priority = 10
			}
			meanwhile, err := Decide(next, moving)
			if err != nil {
				t.Fatal(err)
			}
			checkPlan(t, next, meanwhile)
			end := stopped(next)
			last, err := Decide(end, moving)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range last.Decisions {
				t.Logf("%s: %s", d.Job, d.Reason)
			}
			if diff := cmp.Diff(trimLines(tt.wantEnd), redraw(end, last)); diff != "" {
				t.Errorf("in the end (-want +got):\n%s", diff)
			}
			checkPlan(t, end, last)
			// While it stops, a job that is queued in parts says where it goes.
			next.Jobs = slices.Clone(next.Jobs)
			next.Jobs[0].State = model.StateQueued
			if meanwhile, err = Decide(next, moving); err != nil {
				t.Fatal(err)
			}
			if d := decisionOn(meanwhile, "a"); !strings.Contains(d.Reason, tt.wantSaid) || tt.wantSaid != "" && d.Detail.Code != codeMoving {
				t.Errorf("a is told %q (%s), want %q", d.Reason, d.Detail.Code, tt.wantSaid)
			}
		})
	}
}
