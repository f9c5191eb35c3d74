package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// struck makes jobs that were stopped because of the nodes of some members: "JOB
// ASK NODES [option]…" a line, with a member on each of the nodes, and options:
// failed:INDEX, ago:D, stopping (the nodes that it had are still held), and those
// of submit.
func struck(t testing.TB, s *model.Snapshot, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var options, failed []string
		ago, stopping := time.Minute, false
		for _, option := range fields[3:] {
			switch key, value, _ := strings.Cut(option, ":"); key {
			case "failed":
				failed = append(failed, value)
			case "ago":
				ago = mustDuration(t, value)
			case "stopping":
				stopping = true
			default:
				options = append(options, option)
			}
		}
		submit(t, s, strings.Join(append(fields[:2:2], options...), " "))
		j := &s.Jobs[len(s.Jobs)-1]
		j.Replace = &model.Replacement{At: s.Now.Add(-ago)}
		for i, id := range strings.Split(fields[2], ",") {
			m := model.Member{Group: "g0", Index: i, Rank: i, Node: id}
			n := s.Nodes[slices.IndexFunc(s.Nodes, func(n model.Node) bool { return n.ID == id })]
			for _, g := range n.GPUs[:j.Groups[0].Devices[0].Count] {
				m.GPUs = append(m.GPUs, g.UUID)
			}
			j.Replace.Members = append(j.Replace.Members, m)
			if slices.Contains(failed, string(rune('0'+i))) {
				j.Replace.Failed = append(j.Replace.Failed, model.FailedPlace{Group: "g0", Index: i, Node: id, Why: "has failed"})
			} else if stopping {
				j.State = model.StateStopping
				s.Allocs = append(s.Allocs, model.Alloc{ID: j.ID + id, Job: j.ID, Group: "g0", Index: i, Node: id, GPUs: m.GPUs, Stopping: true})
			}
		}
	}
}

// A gang that some nodes have failed keeps the places of its other members, and
// gets new ones for the rest, near them.
func TestComesBackToItsPlaces(t *testing.T) {
	const two = "b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r1 n3 ..\nb1 r1 n4 ..\nb1 r2 n5 ..\nb2 r3 n6 ..\n"
	tests := map[string]struct {
		cluster, struck, waiting, running string
		policy                            Policy
		// want are the nodes that jobs get, in the order of their members' indexes.
		want   map[string]string
		gives  []string
		reason string
	}{
		"the failed one moves, near the others": {cluster: two, struck: "a 3x2 n1,n2,n3 failed:1", want: map[string]string{"a": "n1 n4 n3"},
			reason: "node n2 has failed, so member 1 moves to n4 in rack b1/r1; the other 2 keep their nodes; placed 3 members"},
		"whoever is ahead of it":                           {cluster: two, struck: "a 3x2 n1,n2,n3 failed:1", waiting: "w 3x2 priority:90", want: map[string]string{"a": "n1 n4 n3"}},
		"two failures are one restart":                     {cluster: strings.Replace(two, "n4 ..", "n4 !..", 1), struck: "a 4x2 n1,n2,n3,n4 failed:1 failed:3", want: map[string]string{"a": "n1 n5 n3 n6"}},
		"one that has failed since then":                   {cluster: strings.Replace(two, "n3 ..", "n3 x.", 1), struck: "a 3x2 n1,n2,n3 failed:1", want: map[string]string{"a": "n1 n4 n5"}},
		"parts of nodes, too":                              {cluster: "- - n1 ....\n- - n2 ....\n- - n3 ....\n", struck: "a 2x2 n1,n2 failed:1", waiting: "w 1x4\nv 1x2", want: map[string]string{"a": "n1 n1", "w": "n2", "v": "n3"}},
		"while they stop, nobody gets their places":        {cluster: two, struck: "a 3x2 n1,n2,n3 failed:1 stopping", waiting: "w 2x2\nv 1x2", want: map[string]string{"w": "n5 n6"}},
		"what it is to have next is kept as well":          {cluster: "b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r1 n3 ..\nb1 r1 n4 ..\n", struck: "a 3x2 n1,n2,n3 failed:1 stopping", waiting: "w 1x2", want: map[string]string{}},
		"elsewhere whole, if it does not fit where it was": {cluster: "b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r2 n3 ..\nb1 r2 n4 ..\n", struck: "a 2x2 n1,n2 failed:1 require:rack", want: map[string]string{"a": "n3 n4"}},
		"not after a while":                                {cluster: two, struck: "a 3x2 n1,n2,n3 failed:1 ago:11m", waiting: "w 3x2 priority:90", want: map[string]string{"w": "n1 n3 n4"}},
		"not what is in use":                               {cluster: strings.Replace(two, "n3 ..", "n3 #.", 1), struck: "a 3x2 n1,n2,n3 failed:1", want: map[string]string{"a": "n1 n4 n5"}},
		"meanwhile the others' places are kept": {cluster: "b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r1 n3 ..\nb1 r1 n4 cc\n", struck: "a 3x2 n1,n2,n3 failed:1", waiting: "w 1x2 priority:90", want: map[string]string{},
			reason: "1 member lost its place; the places of the other 2 are kept until 03:13:05; needs 1 member with 2 GPUs"},
		"the cheapest victim in the same rack": {cluster: "b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r1 n3 cc\nb1 r1 n4 dd\nb1 r2 n5 ee\n", struck: "a 2x2 n1,n2 failed:1 priority:50", running: "c 10 40m\nd 10 20m\ne 10 9m",
			policy: Policy{Preempt: preempt.Policy{Enabled: true}}, want: map[string]string{}, gives: []string{"d to a"}, reason: "1 member lost its place"},
		"a spare in the same block": {cluster: "b1 r1 n1 ..\nb1 r1 n2 !..\nb1 r2 n3 ..\nb2 r3 n4 ..\nb2 r3 n5 ..\n", struck: "a 2x2 n1,n2 failed:1", waiting: "w 1x2\nv 1x2",
			policy: Policy{Replace: queue.Replace{SparesPer: "block", Spares: 1}}, want: map[string]string{"a": "n1 n3", "w": "n4"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			struck(t, s, tt.struck)
			submit(t, s, tt.waiting)
			plan := mustDecide(t, s, tt.policy)
			checkPlan(t, s, plan)
			got := map[string]string{}
			for _, d := range plan.Decisions {
				members := slices.SortedFunc(slices.Values(d.Members), func(a, b model.Member) int { return a.Index - b.Index })
				var nodes []string
				for _, m := range members {
					nodes = append(nodes, m.Node)
				}
				if len(nodes) > 0 {
					got[d.Job] = strings.Join(nodes, " ")
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("placed (-want +got):\n%s\n%+v", diff, plan.Decisions)
			}
			if diff := cmp.Diff(append([]string{}, tt.gives...), gaveWay(plan)); diff != "" {
				t.Errorf("gives way (-want +got):\n%s", diff)
			}
			if d := decisionOn(plan, "a"); !strings.Contains(d.Reason, tt.reason) {
				t.Errorf("reason: %s", d.Reason)
			}
		})
	}
}
