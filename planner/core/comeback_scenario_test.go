package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// TestTwoFailuresInManyNodes: two nodes of 500 fail, in one restart and a minute
// apart. The 498 others keep their nodes, whoever waits, and the two get new ones
// in their own racks' block.
func TestTwoFailuresInManyNodes(t *testing.T) {
	var cluster strings.Builder
	var nodes []string
	for i := range 510 {
		state := ""
		if i == 77 || i == 301 {
			state = "!"
		}
		fmt.Fprintf(&cluster, "b%d r%02d n%03d %s........\n", i/256, i/16, i, state)
		if i < 500 {
			nodes = append(nodes, fmt.Sprintf("n%03d", i))
		}
	}
	s := draw(t, cluster.String())
	submit(t, s, "w 400x8 priority:90\na 500x8 prefer:block")
	j := &s.Jobs[1]
	j.Replace = &model.Replacement{At: s.Now}
	for i, id := range nodes {
		m := model.Member{Group: "g0", Index: i, Rank: i, Node: id}
		for g := range 8 {
			m.GPUs = append(m.GPUs, fmt.Sprintf("%s.%d", id, g))
		}
		j.Replace.Members = append(j.Replace.Members, m)
	}
	// The second has failed since the gang was stopped for the first.
	j.Replace.Failed = []model.FailedPlace{{Group: "g0", Index: 77, Node: "n077", Why: "is lost"}}
	plan := mustDecide(t, s, Policy{})
	checkPlan(t, s, plan)
	d := decisionOn(plan, "a")
	if d.Action != model.ActionAdmit || len(d.Members) != 500 {
		t.Fatalf("%s with %d members: %s", d.Action, len(d.Members), d.Reason)
	}
	moved := 0
	for _, m := range d.Members {
		if m.Node != nodes[m.Index] {
			moved++
		}
	}
	if moved != 2 || !strings.Contains(d.Reason, "node n077 is lost, so member 77 moves to n5") || !strings.Contains(d.Reason, "node n301 is draining, so member 301 moves to n5") ||
		!strings.Contains(d.Reason, "the other 498 keep their nodes") {
		t.Errorf("%d moved: %s", moved, d.Reason)
	}
	if w := decisionOn(plan, "w"); w.Action != model.ActionWait {
		t.Errorf("w: %s", w.Reason)
	}
}

// TestFailureBesidePreemption: while a gang waits for one that gives way to it,
// another one loses a node. Nothing is booked for both: not what the first is
// promised, not what the second comes back to.
func TestFailureBesidePreemption(t *testing.T) {
	s := draw(t, `b1 r1 n1 ..
	              b1 r1 n2 !..
	              b1 r1 n3 ..
	              b1 r2 n4 cc
	              b1 r2 n5 cc`)
	describe(t, s, "c 10 1h")
	struck(t, s, "a 2x2 n1,n2 failed:1 priority:50 stopping")
	submit(t, s, "M 2x2 priority:90")
	plan := mustDecide(t, s, preempting)
	checkPlan(t, s, plan)
	if got := gaveWay(plan); !slices.Equal(got, []string{"c to M"}) {
		t.Errorf("%v", got)
	}
	// c has stopped, and a as well.
	next := stopped(stopping(s, plan))
	plan = mustDecide(t, next, preempting)
	checkPlan(t, next, plan)
	a, m := nodesOf(decisionOn(plan, "a")), nodesOf(decisionOn(plan, "M"))
	if !slices.Equal(a, []string{"n1", "n3"}) || !slices.Equal(m, []string{"n4", "n5"}) {
		t.Errorf("a is on %v, M on %v: %s; %s", a, m, decisionOn(plan, "a").Reason, decisionOn(plan, "M").Reason)
	}
	if len(plan.Preemptions) > 0 {
		t.Errorf("%v", gaveWay(plan))
	}
}

// TestShrinkFollowsNomadsIndexes: Nomad stops the highest indexes, wherever they
// are. So they are what is given back, and nobody counts on another node.
func TestShrinkFollowsNomadsIndexes(t *testing.T) {
	s := draw(t, "b1 r1 n1 aa\nb1 r1 n2 aa\nb1 r1 n3 aa\n")
	stretch(t, s, "a 1 1 9 1h")
	// Nomad has placed them the other way round.
	for i := range s.Allocs {
		s.Allocs[i].Index = 2 - s.Allocs[i].Index
	}
	submit(t, s, "w 1x2")
	plan := mustDecide(t, s, Policy{})
	if len(plan.Preemptions) != 1 || plan.Preemptions[0].Members[0].Node != "n1" {
		t.Fatalf("%+v", plan.Preemptions)
	}
	if d := decisionOn(plan, "w"); !slices.Equal(d.Detail.Held, []string{"n1"}) {
		t.Errorf("w waits for %v: %s", d.Detail.Held, d.Reason)
	}
	// What works a lot is not looked at: a gang's members work together. But of two
	// gangs the one gives whose surplus is enough.
	s = draw(t, "b1 r1 n1 aa\nb1 r1 n2 aa\nb1 r2 n3 bb\nb1 r2 n4 bb\nb1 r2 n5 bb\n")
	stretch(t, s, "a 1 1 9 1h\nb 1 1 9 1h")
	submit(t, s, "w 2x2 require:rack")
	if got := gaveWay(mustDecide(t, s, Policy{})); !slices.Equal(got, []string{"b gives 2 to w"}) {
		t.Errorf("%v", got)
	}
}

// TestComebacksAreStaggered: when much fails at once, not all of it starts again
// at once; what starts later keeps its places.
func TestComebacksAreStaggered(t *testing.T) {
	s := draw(t, "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r1 n3 ..\nb1 r2 n4 !..\nb1 r2 n5 !..\nb1 r2 n6 !..\nb1 r3 n7 ..\nb1 r3 n8 ..\nb1 r3 n9 ..\n")
	struck(t, s, "a 2x2 n1,n4 failed:1\nb 2x2 n2,n5 failed:1\nc 2x2 n3,n6 failed:1")
	submit(t, s, "w 1x2 priority:90")
	policy := Policy{Preempt: preempt.Policy{MaxAtOnce: 2}}
	plan := mustDecide(t, s, policy)
	checkPlan(t, s, plan)
	if d := decisionOn(plan, "c"); d.Action != model.ActionWait || !strings.Contains(d.Reason, "at most 2 may at once") {
		t.Errorf("c: %s: %s", d.Action, d.Reason)
	}
	if d := decisionOn(plan, "w"); d.Action != model.ActionWait {
		t.Errorf("w is on %v", nodesOf(d))
	}
	next := stopping(s, plan)
	for i := range next.Jobs {
		if next.Jobs[i].State == model.StateAdmitted {
			next.Jobs[i].State, next.Jobs[i].Replace = model.StateRunning, nil
		}
	}
	if got := nodesOf(decisionOn(mustDecide(t, next, policy), "c")); len(got) != 2 || got[0] != "n3" {
		t.Errorf("then c is on %v", got)
	}
}

// TestStopsByGPUs: how much may be stopping at once is bounded by GPUs, too; one
// gang may in any case.
func TestStopsByGPUs(t *testing.T) {
	for most, want := range map[int]int{0: 3, 1: 1, 4: 2, 5: 2, 6: 3} {
		s := draw(t, "- - n1 aa\n- - n2 bb\n- - n3 cc\n")
		describe(t, s, "a 10 1h\nb 10 1h\nc 10 1h")
		submit(t, s, "M 3x2 priority:90")
		policy := preempting
		policy.Preempt.MaxGPUsAtOnce = most
		if got := gaveWay(mustDecide(t, s, policy)); len(got) != want {
			t.Errorf("with %d GPUs at once: %v, want %d", most, got, want)
		}
	}
}

// TestStopsByStorage: how much may be stopping at once is bounded for each storage by
// itself, by the sizes of checkpoints too, and so it is in a maintenance.
func TestStopsByStorage(t *testing.T) {
	limited := preempt.Policy{Enabled: true, MaxAtOnce: 1, Storages: []preempt.Storage{{Name: "fast", MaxAtOnce: 3, MaxGiBAtOnce: 100}}}
	tests := map[string]struct {
		storages string
		gib      int
		want     []string
		text     string
	}{
		"one that all share":                {storages: "---", want: []string{"a"}, text: "1 of 3 stop first, since at most 1 may at once;"},
		"one each":                          {storages: "xyz", want: []string{"a", "b", "c"}},
		"a named one without limits":        {storages: "xx-", want: []string{"a", "c"}, text: "since at most 1 may at once that save to storage x;"},
		"one that takes more":               {storages: "fff", want: []string{"a", "b", "c"}},
		"one that does not take so much":    {storages: "fff", gib: 50, want: []string{"a", "b"}, text: "since at most 3 may at once, with 100 GiB of checkpoints that save to storage fast;"},
		"more than it takes, by themselves": {storages: "fff", gib: 500, want: []string{"a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "- - n1 aa\n- - n2 bb\n- - n3 cc\n")
			describe(t, s, "a 10 1h\nb 10 1h\nc 10 1h")
			for i := range s.Jobs {
				s.Jobs[i].CheckpointGiB = tt.gib
				switch of := tt.storages[i : i+1]; of {
				case "-":
				case "f":
					s.Jobs[i].CheckpointStorage = "fast"
				default:
					s.Jobs[i].CheckpointStorage = of
				}
			}
			evicted := *s
			submit(t, s, "M 3x2 priority:90")
			plan := mustDecide(t, s, Policy{Preempt: limited})
			if got := gaveWay(plan); len(got) != len(tt.want) || !strings.Contains(decisionOn(plan, "M").Reason, tt.text) {
				t.Errorf("%v give way, want %v: %s", got, tt.want, decisionOn(plan, "M").Reason)
			}
			evicted.Reservations = []model.Reservation{maintenance(-time.Minute, time.Hour, 0, "n1", "n2", "n3")}
			evicted.Reservations[0].Evict = true
			if got := gaveWay(mustDecide(t, &evicted, Policy{Preempt: limited})); len(got) != len(tt.want) {
				t.Errorf("%v leave for a maintenance, want %v", got, tt.want)
			}
		})
	}
}
