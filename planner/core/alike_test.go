package core

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// alikeCase is a cluster that is looked at, changes, and is looked at again. A plan tells
// of nobody who waits as one alike before him: want are those of whom it does.
type alikeCase struct {
	cluster, running, struck, jobs string
	policy                         Policy
	set                            func(s *model.Snapshot)
	next                           []func(s *model.Snapshot, p *Policy)
	want                           []string
}

// Where nothing else is said a has two of three GPUs for 50 minutes more, which all others
// need for three hours. The first of them is looked at, and what the second is told holds
// for all the rest.
func TestWhoAsksForTheSameByHand(t *testing.T) {
	comes := func(text string) func(s *model.Snapshot, p *Policy) {
		return func(s *model.Snapshot, _ *Policy) { submit(t, s, text) }
	}
	later := func(minutes time.Duration) func(s *model.Snapshot, p *Policy) {
		return func(s *model.Snapshot, _ *Policy) { s.Now = s.Now.Add(minutes * time.Minute) }
	}
	// So many have ended that their order is kept, and none that waits is short beside them.
	ended := func(s *model.Snapshot) { s.History.Demands = slices.Repeat([]float64{60}, 12) }
	lasting := Policy{Order: queue.OrderCaravan}
	turns := lasting
	turns.Preempt = preempt.Policy{Enabled: true}
	stops := func(s *model.Snapshot, id string) {
		j := jobOf(s, id)
		j.State = model.StateStopping
		for i, m := range j.Members {
			s.Allocs = append(s.Allocs, model.Alloc{ID: fmt.Sprint(id, ".", i), Job: id, Group: m.Group, Index: m.Index, Node: m.Node, GPUs: m.GPUs, Stopping: true})
		}
	}
	const (
		one = "b1 r1 n1 a\nb1 r1 n2 ."
		// The second of three nodes is free, and the others in 20 and in 50 minutes.
		three, between = "b1 r1 n1 a\nb1 r1 n2 .\nb1 r1 n3 b", "a 50 40m runs:1h\nb 50 10m runs:1h"
		// Each of three nodes is free some time.
		each, hourly = "b1 r1 n1 aa\nb1 r1 n2 bb\nb1 r1 n3 c.", "a 50 0s runs:1h\nb 50 0s runs:2h\nc 50 0s runs:3h"
	)
	alike := []string{"H ?; C ?; D ?; E ?", "H ?; C ?; N ?"}
	tests := map[string]alikeCase{
		"they are alike":           {want: alike},
		"in an order that is kept": {policy: lasting, set: ended, want: alike},
		"another order comes": {
			policy: lasting, set: ended, next: []func(*model.Snapshot, *Policy){func(_ *model.Snapshot, p *Policy) { *p = easy }, comes("N 1x3 runs:3h")},
			want: []string{"H ?; C ?; D ?; E ?", "H ?; C ?; D ?; E ?", "H ?; C ?; N ?"},
		},
		// H starts at 50, which D outlives until a has outlived what was expected of it.
		"one may end in time": {
			cluster: one, jobs: "H 2x1 runs:3h\nC 1x1 runs:3h\nD 1x1 runs:1h\nE 1x1 runs:3h", next: []func(*model.Snapshot, *Policy){later(10), later(40)},
			want: []string{"H ?; C ?; D ?; E ?", "", "H ?; C ?; D now, before H; E ?"},
		},
		"none may": {
			cluster: one, jobs: "H 2x1 runs:3h\nC 1x1 runs:3h\nD 1x1 runs:1h\nE 1x1 runs:3h",
			want: []string{"H ?; C ?; D ?; E ?", "H ?; C ?; N ?"},
		},
		"just in time": {
			cluster: one, jobs: "H 2x1 runs:3h\nC 1x1 runs:3h\nD 1x1 runs:80m", next: []func(*model.Snapshot, *Policy){later(50)},
			want: []string{"H ?; C ?; D ?", "H ?; C ?; D now, before H"},
		},
		// H starts at 50 on all of them, and K at 20 on the first two.
		"a shorter one did not": {
			cluster: three, running: between, policy: conservative,
			jobs: "H 3x1 runs:3h\nK 2x1 runs:10m\nC 1x1 runs:30m\nD 1x1 runs:40m\nE 1x1 runs:30m\nF 1x1 runs:25m\nG 1x1 runs:20m",
			want: []string{"H ?; K ?; C ?; D ?; E ?; F ?; G now, before K", "H ?; K ?; C ?; F ?; G now, before K; N ?"},
		},
		// D did not end in time before K in the first look. In the last a has outlived what was
		// expected of it, so that K starts at 30 on the other two.
		"a shorter one did not before": {
			cluster: three, running: between, policy: conservative, next: []func(*model.Snapshot, *Policy){later(20)},
			jobs: "H 3x1 runs:3h\nK 2x1 runs:10m\nC 1x1 runs:3h\nD 1x1 runs:30m",
			want: []string{"H ?; K ?; C ?; D ?", "H ?; K ?; C ?; D now, before K"},
		},
		// H does not know when it starts, so it keeps both nodes from now on.
		"nobody knows when": {
			cluster: one, running: "a 50 30m", jobs: "H 2x1\nC 1x1 runs:1h\nD 1x1 runs:1h",
			want: []string{"H ?; C ?; D ?", "H ?; C ?; N ?"},
		},
		// D starts on the last node in three hours, which is for X if it ends before.
		"who is not looked at keeps his nodes": {
			cluster: each, running: hourly, policy: conservative, jobs: "H 1x2 runs:5h\nC 1x2 runs:5h\nD 1x2 runs:5h\nX 1x1 runs:4h\nY 1x1 runs:3h",
			want: []string{"H ?; C ?; D ?; X ?; Y now, before D", "H ?; C ?; X ?; Y now, before D; N ?"},
		},
		"how long they run is another time": {
			cluster: one, jobs: "H 2x1 runs:3h\nC 1x1 runs:3h\nD 1x1", next: []func(*model.Snapshot, *Policy){func(_ *model.Snapshot, p *Policy) { p.Backfill.DefaultDuration = 30 * time.Minute }},
			want: []string{"H ?; C ?; D ?", "H ?; C ?; D now, before H"},
		},
		// One of D's two would fit if H did not keep its nodes, which is found out then.
		"its members start by themselves": {
			cluster: one, jobs: "H 2x1 runs:3h\nC 2x1 runs:3h\nD 2x1 runs:3h gang:none\nE 2x1 runs:3h",
			want: []string{"H ?; C ?; D ?; E ?", "H ?; C ?; D ?; E ?; N ?"},
		},
		// Where jobs give way nobody who has not his turn is looked at for whom there is no room.
		"nobody alike was told so": {
			cluster: "b1 r1 n1 aa", jobs: "K 1x2 runs:3h\nC 1x1 runs:3h", policy: turns, set: ended,
			want: []string{"K ?; C ?", "N ?"},
		},
		"b leaves too little": {
			cluster: "b1 r1 n1 ab", running: "a 50 30m runs:80m\nb 50 30m runs:80m", jobs: "K 1x2 runs:3h\nC 1x1 runs:3h", policy: turns,
			set:  func(s *model.Snapshot) { ended(s); stops(s, "b") },
			want: []string{"C ?; K ?", "C ?; N ?"},
		},
		// H has its turn, though its GPUs are on two nodes: it reserves the first of them.
		"who has his turn": {
			cluster: "b1 r1 n1 a.\nb1 r1 n2 b.", running: "a 50 30m runs:80m\nb 50 30m runs:90m", jobs: "H 1x2 runs:3h priority:50",
			policy: turns, next: []func(*model.Snapshot, *Policy){comes("M 1x1 runs:3h\nN 1x1 runs:3h")},
			set: func(s *model.Snapshot) {
				ended(s)
				jobOf(s, "H").Submitted = s.Now.Add(-20 * time.Hour)
			},
			want: []string{"H ?", "H ?; M now; N ?"},
		},
		// R is the first in the order, but comes back before all others have their turns.
		"one before them comes back": {
			cluster: one + "\nb1 r1 n3 .", policy: lasting, set: ended, struck: "R 1x1 n3 priority:60 runs:9h",
			jobs: "H 2x1 runs:3h priority:50\nC 1x1 runs:3h priority:40\nD 1x1 runs:40m priority:30",
			want: []string{"R now; H ?; C ?; D now, before H", "R now; H ?; C ?; D now, before H; N ?"},
		},
	}
	// Of these each is looked at.
	for name, set := range map[string]func(d *model.Job){
		"is held":                    func(d *model.Job) { d.Hold = "wait for me" },
		"was to be tried again":      func(d *model.Job) { d.RetryAfter = testNow.Add(-time.Minute) },
		"has a deadline":             func(d *model.Job) { d.Deadline = testNow.Add(100 * time.Hour) },
		"is one gang for each group": func(d *model.Job) { d.Gang = model.GangGroup },
		"has another group":          func(d *model.Job) { d.Groups = append(d.Groups, model.TaskGroup{Name: "other", Count: 1}) },
		"names models":               func(d *model.Job) { d.Models = []model.ModelSpeed{{Name: "H100", Speed: 1}} },
		"names regions":              func(d *model.Job) { d.Regions = []string{"eu"} },
		"may share":                  func(d *model.Job) { d.Groups[0].Devices[0].Shared = model.SharedAllow },
		"is in slices":               func(d *model.Job) { d.Groups[0].Slice = model.Slice{Size: 2, Level: "rack"} },
	} {
		tests["who "+name] = alikeCase{
			cluster: one, jobs: "H 2x1 runs:3h\nC 2x1 runs:3h\nD 2x1 runs:3h\nE 2x1 runs:3h",
			set: func(s *model.Snapshot) {
				for _, id := range []string{"C", "D", "E"} {
					set(jobOf(s, id))
				}
			},
			want: []string{alike[0], "H ?; C ?; D ?; E ?; N ?"},
		}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, cmp.Or(tt.cluster, "b1 r1 n1 aa\nb1 r1 n2 ."))
			describe(t, s, cmp.Or(tt.running, "a 50 30m runs:80m"))
			takePlaces(s)
			struck(t, s, tt.struck)
			submit(t, s, cmp.Or(tt.jobs, "H 1x2 runs:3h\nC 1x2 runs:3h\nD 1x2 runs:3h\nE 1x2 runs:3h"))
			if tt.set != nil {
				tt.set(s)
			}
			if tt.policy.Order == "" && tt.policy.Backfill.Mode == "" {
				tt.policy = easy
			}
			if tt.next == nil {
				tt.next = append(tt.next, comes("N 1x3 runs:3h"))
			}
			if diff := gocmp.Diff(tt.want, tt.look(t, s)); diff != "" {
				t.Errorf("starts (-want +got):\n%s", diff)
			}
		})
	}
}

// When answers are forgotten everybody is looked at again, though there is no room for him.
func TestWhoseAnswersAreForgottenIsLookedAt(t *testing.T) {
	s := draw(t, "b1 r1 n1 aa")
	describe(t, s, "a 50 30m runs:80m")
	takePlaces(s)
	submit(t, s, "K 1x2 runs:3h\nC 1x1 runs:3h")
	s.History.Demands = slices.Repeat([]float64{60}, 12)
	policy := Policy{Order: queue.OrderCaravan, Preempt: preempt.Policy{Enabled: true}}
	p, err := Prepare(s, policy)
	if err != nil {
		t.Fatal(err)
	}
	p.Terse()
	var told []string
	for _, forget := range []bool{false, false, true} {
		if p.still.known = false; forget {
			p.forgetAnswers()
		}
		told = append(told, starts(s, p.Decide(s.Now)))
	}
	if diff := gocmp.Diff([]string{"K ?; C ?", "", "K ?; C ?"}, told); diff != "" {
		t.Errorf("starts (-want +got):\n%s", diff)
	}
}

// look looks at the cluster before and after each change, and tells what each plan says. Who
// starts is the same as where everything is looked at anew, and so is how many are ahead of
// those who are told.
func (tt *alikeCase) look(t *testing.T, s *model.Snapshot) (told []string) {
	policy := tt.policy
	p, err := Prepare(copyOf(s), policy)
	if err != nil {
		t.Fatal(err)
	}
	p.Terse()
	for i := 0; ; i++ {
		got, want := p.Decide(s.Now), mustDecide(t, s, policy)
		if diff := gocmp.Diff(startsOf(want), startsOf(got)); diff != "" {
			t.Errorf("look %d: others start (-whole +terse):\n%s", i, diff)
		}
		for _, d := range got.Decisions {
			at := slices.IndexFunc(want.Decisions, func(w model.Decision) bool { return w.Job == d.Job })
			if all := want.Decisions[at].Detail.Ahead; d.Detail.Ahead != all {
				t.Errorf("look %d: %d are ahead of %s, want %d", i, d.Detail.Ahead, d.Job, all)
			}
		}
		for k := range got.Decisions {
			got.Decisions[k].Detail.Start = time.Time{}
		}
		if kept := policy.Order == queue.OrderCaravan; kept != (p.lasting != nil) {
			t.Errorf("look %d: the order is kept: %t, want %t", i, p.lasting != nil, kept)
		}
		told = append(told, starts(s, got))
		if i == len(tt.next) {
			return told
		}
		was, before := copyOf(s), policy
		tt.next[i](s, &policy)
		ch, ok := p.difference(was, s)
		if !ok {
			t.Fatal("the snapshots cannot be compared")
		}
		if !reflect.DeepEqual(before, policy) {
			ch.Policy = &policy
		}
		if err := p.Apply(ch); err != nil {
			t.Fatal(err)
		}
	}
}

// In a strict queue H waits for room. In a terse plan X, which would fit, is not looked at
// unless there is more to it, and left out if there is nothing odd about anybody. Its code, how
// many are ahead of it, and how many members and GPUs it wants are what they are in others.
func TestWhoWaitsBehindInAStrictQueue(t *testing.T) {
	kernel := []model.Constraint{{Left: "${attr.kernel.name}", Operand: "=", Right: "linux"}}
	inPlace := []model.Member{{Group: "g0", Node: "n2", GPUs: []string{"n2.0"}}}
	tests := map[string]struct {
		set  func(x *model.Job)
		want string
	}{
		"nothing else":            {func(x *model.Job) {}, "left out"},
		"it has a deadline":       {func(x *model.Job) { x.Deadline = testNow.Add(time.Hour) }, "left out"},
		"it is for certain nodes": {func(x *model.Job) { x.Constraints = kernel }, "behind 1 (2x2)"},
		"a group of it is":        {func(x *model.Job) { x.Groups[0].Constraints = kernel }, "behind 1 (2x2)"},
		"it is for certain GPUs":  {func(x *model.Job) { x.Groups[0].Devices[0].Constraints = kernel }, "behind 1 (2x2)"},
		"it is elastic":           {func(x *model.Job) { x.Groups[0].Min, x.Groups[0].Max = 1, 2 }, "behind 1 (2x2)"},
		"two groups": {
			func(x *model.Job) {
				x.Groups = append(x.Groups, model.TaskGroup{Name: "g1", Count: 3, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 2}}})
			}, "left out",
		},
		"two groups, one for certain nodes": {
			func(x *model.Job) {
				x.Groups = append(x.Groups, model.TaskGroup{Name: "g1", Count: 3, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 2}}, Constraints: kernel})
			}, "behind 1 (5x8)",
		},
		"it is held":              {func(x *model.Job) { x.Hold = "wait for me" }, "hold 1 (2x2), looked at"},
		"it is tried again later": {func(x *model.Job) { x.RetryAfter = testNow.Add(time.Minute) }, "retry_later 1 (2x2), looked at"},
		"it asks for nothing":     {func(x *model.Job) { x.Groups[0].Count = 0 }, "invalid 1 (0x0), looked at"},
		"a constraint is wrong": {
			func(x *model.Job) {
				x.Constraints = []model.Constraint{{Left: "${attr.kernel.name}", Operand: "regexp", Right: "("}}
			}, "invalid 1 (2x2), looked at",
		},
		"one of its members is there": {
			func(x *model.Job) { x.Gang, x.Members = model.GangNone, inPlace }, "behind 1 (1x1), looked at",
		},
		"it runs, and would grow": {
			func(x *model.Job) {
				x.State, x.Members, x.Groups[0].Min, x.Groups[0].Max = model.StateRunning, inPlace, 1, 2
			}, "behind 1 (1x1), looked at",
		},
		"a place is kept for it": {
			func(x *model.Job) {
				x.Groups[0].Count = 1
				x.Moving = []model.Moving{{At: testNow, Until: testNow.Add(time.Minute), For: "other", Members: inPlace}}
			}, "placed 1 (1x1), looked at",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 a\nb1 r1 n2 .\nb1 r1 n3 .")
			submit(t, s, "H 3x1\nX 2x1\nY 1x1")
			tt.set(jobOf(s, "X"))
			policy := Policy{Strict: true}
			p, err := Prepare(s, policy)
			if err != nil {
				t.Fatal(err)
			}
			p.Terse()
			plan := p.Decide(s.Now)
			if diff := gocmp.Diff(decidedOnly(mustDecide(t, s, policy), policy), decidedOnly(plan, policy)); diff != "" {
				t.Errorf("a terse plan is another one (-whole +terse):\n%s", diff)
			}
			whole, told := mustDecide(t, s, policy), "left out"
			for i := range plan.Decisions {
				x := &plan.Decisions[i].Detail
				if w := &whole.Decisions[i].Detail; x.Code != w.Code || x.Ahead != w.Ahead || x.MembersWanted != w.MembersWanted || x.WantedGPUs != w.WantedGPUs {
					t.Errorf("decision %d is %+v, want %+v", i, x, w)
				}
				if plan.Decisions[i].Job != "X" {
					continue
				}
				told = fmt.Sprintf("%s %d (%dx%d)", x.Code, x.Ahead, x.MembersWanted, x.WantedGPUs)
				if plan.Decisions[i].Reason != "" {
					told += ", looked at"
				}
			}
			if told != tt.want {
				t.Errorf("X is told %s, want %s", told, tt.want)
			}
		})
	}
}
