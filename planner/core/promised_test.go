package core

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Who is first in line, and who gives way, while what others leave is for one group
// of a job that waits behind somebody else.
func TestWhoGoesFirstForWhatOthersLeave(t *testing.T) {
	tests := map[string]struct {
		set     func(*model.Snapshot)
		first   string
		gives   []string
		wantSay string
	}{
		"its other group displaces nobody": {first: "M",
			wantSay: "nobody gives way to it before its turn, since the job goes first only with what others leave to g0"},
		"a record that names no group is about all of them": {first: "M", gives: []string{"b to M"},
			set: func(s *model.Snapshot) { s.Jobs[0].Preempted[0].ByGroup = "" }},
		"with its place the group's promise ends": {first: "K",
			set: func(s *model.Snapshot) {
				*s = *stopped(s)
				m := &s.Jobs[3]
				m.State, m.Started = model.StateRunning, s.Now
				m.Members = []model.Member{{Group: "g0", Node: "n1", GPUs: []string{s.Nodes[0].GPUs[0].UUID, s.Nodes[0].GPUs[1].UUID}}}
				s.Allocs = append(s.Allocs, model.Alloc{ID: "m", Job: "M", Group: "g0", Node: "n1", GPUs: m.Members[0].GPUs})
			}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 aa\nb1 r1 n2 b##\n")
			describe(t, s, "a 50 1h\nb 50 1h\n")
			submit(t, s, "K 1x3 priority:80\nM 1x2+1x1 gang:group priority:80\n")
			plan, err := Decide(s, preempting)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a to M"}, gaveWay(plan)); diff != "" || plan.Preemptions[0].ForGroup != "g0" {
				t.Fatalf("who gives way, to group %q (-want +got):\n%s", plan.Preemptions[0].ForGroup, diff)
			}
			next := stopping(s, plan)
			if tt.set != nil {
				tt.set(next)
			}
			if plan, err = Decide(next, preempting); err != nil {
				t.Fatal(err)
			}
			if got := plan.Decisions[0].Job; got != tt.first {
				t.Errorf("%s goes first, want %s", got, tt.first)
			}
			if diff := cmp.Diff(tt.gives, gaveWay(plan), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("who gives way (-want +got):\n%s", diff)
			}
			if said := decisionOn(plan, "M").Reason; !strings.Contains(said, tt.wantSay) {
				t.Errorf("M is told %q, want %q", said, tt.wantSay)
			}
		})
	}
}
