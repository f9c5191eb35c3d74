package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// reserving keeps GPUs for jobs of the class "interactive".
func reserving(gpus int, change func(*Policy)) Policy {
	p := Policy{Interactive: queue.Interactive{Classes: []string{"interactive"}, Reserve: gpus}}
	if change != nil {
		change(&p)
	}
	return p
}

// lend lets others use it who can be preempted.
func lend(p *Policy) { p.Preempt, p.Interactive.Lend = preempt.Policy{Enabled: true}, true }

// TestReserve: what is kept for interactive jobs is theirs alone, on nodes that are in
// pieces already, or lent to who gives it back. Jobs whose names begin with I are
// interactive.
func TestReserve(t *testing.T) {
	tests := map[string]struct {
		cluster, running, jobs string
		policy                 Policy
		want                   string
		gave                   []string
		use                    string
	}{
		"others do not get it": {
			cluster: "b r n1 ....\nb r n2 ##..", jobs: "a 1x4\nb 1x2\nc 1x1", policy: reserving(2, nil),
			want: "b r n1 aaaa\nb r n2 ##..", use: "interactive jobs use 0 of them, 2 are free for them",
		},
		"an interactive job does": {
			cluster: "b r n1 ....\nb r n2 ##..", jobs: "a 1x4\nb 1x2\nI 1x1", policy: reserving(2, nil),
			want: "b r n1 aaaa\nb r n2 ##I.",
		},
		"it counts for what is kept": {
			cluster: "b r n1 I...\nb r n2 ####", running: "I 0 1h", jobs: "a 1x2\nb 1x1", policy: reserving(2, nil),
			want: "b r n1 I.aa", use: "interactive jobs use 1 of them, 1 are free for them",
		},
		"more than is kept is like any other": {
			cluster: "b r n1 I...\nb r n2 ####", running: "I 0 1h", jobs: "a 1x1\nIa 1x1\nIb 1x1", policy: reserving(1, nil),
			want: "b r n1 IIIa", // interactive ones go first
		},
		"a part of all": {
			cluster: "b r n1 ....\nb r n2 ....", jobs: "a 1x4\nb 1x2\nc 1x1", policy: reserving(0, func(p *Policy) { p.Interactive.ReserveShare = 0.2 }),
			want: "b r n1 ..bb\nb r n2 aaaa",
		},
		"on a full cluster what becomes free": {
			cluster: "b r n1 aaaa\nb r n2 bbbb", running: "a 50 1h runs:2h\nb 50 1h runs:2h", jobs: "c 1x1 runs:1h", policy: reserving(2, nil),
			want: "b r n1 aaaa\nb r n2 bbbb", use: "interactive jobs use 0 of them, 0 are free for them, 2 more as soon as others have ended",
		},
		"not more GPUs than interactive jobs may have": {
			cluster: "b r n1 ....", jobs: "I 1x2\na 1x1", policy: reserving(3, nil), want: "b r n1 ...a",
		},
		"lent to who can be preempted": {
			cluster: "b r n1 ....", jobs: "a 1x4", policy: reserving(2, lend), want: "b r n1 aaaa",
		},
		"and given back, whatever the priorities and how long he runs": {
			cluster: "b r n1 aabb", running: "a 90 5m\nb 90 1m", jobs: "I 1x1 priority:10", policy: reserving(2, func(p *Policy) { lend(p); p.Preempt.MinRunTime = time.Hour }),
			want: "b r n1 aabb", gave: []string{"b to I"},
		},
		"but no more than is kept": {
			cluster: "b r n1 IaaI", running: "I 10 1h gang:none\na 90 1m", jobs: "Ia 1x1 priority:10", policy: reserving(2, lend),
			want: "b r n1 IaaI", gave: []string{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			for i := range s.Jobs {
				if strings.HasPrefix(s.Jobs[i].ID, "I") {
					s.Jobs[i].PriorityClass = "interactive"
				}
				s.Jobs[i].Type = "batch"
			}
			plan := mustDecide(t, s, tt.policy)
			checkPlan(t, s, plan)
			if got := redraw(s, plan); !strings.HasPrefix(got, trimLines(tt.want)) {
				t.Errorf("got\n%swant\n%s", got, trimLines(tt.want))
			}
			if diff := cmp.Diff(append([]string{}, tt.gave...), append([]string{}, gaveWay(plan)...)); diff != "" {
				t.Errorf("who gives way (-want +got):\n%s", diff)
			}
			if n := len(plan.Reservations); n != 1 || !strings.Contains(plan.Reservations[0].Reason, tt.use) {
				t.Errorf("reservations %+v, want %q", plan.Reservations, tt.use)
			}
		})
	}
}

// However busy a cluster is: while fewer interactive jobs run than GPUs are kept for,
// and those were free once, the next one is placed in the decision that sees it, and
// nobody is displaced for it.
func TestReserveIsThere(tt *testing.T) {
	starts := 0
	rapid.Check(tt, func(t *rapid.T) {
		var cluster strings.Builder
		nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
		for i := range nodes {
			cluster.WriteString("b r n" + string(rune('0'+i)) + " ....\n")
		}
		s := draw(tt, cluster.String())
		reserve := rapid.IntRange(1, 4).Draw(t, "reserve")
		policy := reserving(reserve, func(p *Policy) {
			p.Preempt.Enabled = true
			p.Order = rapid.SampledFrom([]string{queue.OrderCaravan, queue.OrderFIFO, queue.OrderLAS}).Draw(t, "order")
		})
		add := func(id string, gpus int, interactive bool) {
			j := model.Job{ID: id, Type: "batch", State: model.StateQueued, Gang: model.GangJob, Priority: 50, Submitted: s.Now}
			j.Groups = []model.TaskGroup{{Name: "g0", Count: 1, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: gpus}}}}
			if j.Duration = time.Duration(rapid.IntRange(0, 3).Draw(t, "hours")) * time.Hour; interactive {
				j.PriorityClass = "interactive"
			}
			s.Jobs = append(s.Jobs, j)
		}
		running := 0
		for step := range rapid.IntRange(2, 8).Draw(t, "steps") {
			s.Now = s.Now.Add(time.Minute)
			for k := range rapid.IntRange(0, 4).Draw(t, "jobs") {
				add("j"+string(rune('a'+step))+string(rune('0'+k)), rapid.IntRange(1, 4).Draw(t, "gpus"), false)
			}
			interactive := ""
			if running < reserve && rapid.Bool().Draw(t, "interactive") {
				interactive = "I" + string(rune('a'+step))
				add(interactive, 1, true)
				running++
			}
			plan, err := Decide(s, policy)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range plan.Decisions {
				if d.Job == interactive {
					if starts++; d.Action != model.ActionAdmit {
						t.Fatalf("%s waits: %s", interactive, d.Reason)
					}
				}
				if d.Action == model.ActionAdmit {
					at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == d.Job })
					s.Jobs[at].State, s.Jobs[at].Members, s.Jobs[at].Started = model.StateRunning, d.Members, s.Now
				}
			}
			for _, p := range plan.Preemptions {
				if strings.HasPrefix(p.For.ID, "I") {
					t.Fatalf("%v", gaveWay(plan))
				}
			}
		}
	})
	if starts == 0 {
		tt.Error("no interactive job started")
	}
}
