package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// TestGrow: an elastic gang that runs gets the members that it lacks near the
// others, or runs on as it is.
func TestGrow(t *testing.T) {
	on := func(node string, index int) model.Member {
		m := model.Member{Group: "g0", Index: index, Rank: index, Node: node}
		for i := range 4 {
			m.GPUs = append(m.GPUs, node+"."+string(rune('0'+i)))
		}
		return m
	}
	two := "b1 r1 n0 ....\nb1 r1 n1 ....\nb1 r2 n2 ....\nb2 r3 n3 ....\nb2 r3 n4 ....\n"
	tests := map[string]struct {
		cluster, job string
		// others are submitted after it.
		others  string
		members []model.Member
		lately  bool
		want    []string // the nodes of the new members
		ranks   []int
		code    string
		text    string
		// held are the nodes kept for others.
		later []string
	}{
		"in the same rack":                           {cluster: two, job: "r 2x4", members: []model.Member{on("n0", 0)}, want: []string{"n1"}, ranks: []int{1}, code: "placed", text: "grows from 1 to 2 members: placed 1 member with 4 GPUs in island b1/r1/n1/0"},
		"else in the same block":                     {cluster: two, job: "r 3x4", members: []model.Member{on("n0", 0)}, want: []string{"n1", "n2"}, ranks: []int{1, 2}, code: "placed"},
		"else anywhere":                              {cluster: two, job: "r 5x4", members: []model.Member{on("n4", 0)}, want: []string{"n0", "n1", "n2", "n3"}, ranks: []int{1, 2, 3, 4}, code: "placed"},
		"not into a fuller domain elsewhere":         {cluster: strings.Replace(two, "b2 r3 n4 ....", "b2 r3 n4 ###.", 1), job: "r 2x4", members: []model.Member{on("n2", 0)}, want: []string{"n0"}, ranks: []int{1}, code: "placed"},
		"the index and the rank that are free":       {cluster: two, job: "r 3x4", members: []model.Member{on("n1", 0), on("n2", 2)}, want: []string{"n0"}, ranks: []int{1}, code: "placed"},
		"not beyond its count, whatever the indexes": {cluster: two, job: "r 2x4", members: []model.Member{on("n0", 1), on("n1", 4)}},
		"as far as there is room": {cluster: two, job: "r 5x4 require:block", members: []model.Member{on("n0", 0)}, want: []string{"n1", "n2"}, ranks: []int{1, 2}, code: "placed",
			text: "grows to 3 of its 5 members for now, since all 5 do not fit; the others follow when there is room: placed 2 of 4 members"},
		"all or nothing soon after the last time": {cluster: two, job: "r 5x4 require:block", members: []model.Member{on("n0", 0)}, lately: true, code: "too_large",
			text: "runs with 1 of 5 members; to grow: needs 4 members with 4 GPUs each (16 GPUs) in one block, where its other members are"},
		"where the others are, if that is required": {cluster: two, job: "r 2x4 require:rack", members: []model.Member{on("n2", 0)}, code: "no_domain", text: "in one rack, where its other members are"},
		"not a part of a larger node":               {cluster: "b1 r1 n0 ....\nb1 r1 n1 ........\n", job: "r 2x4", members: []model.Member{on("n0", 0)}, code: "no_capacity"},
		"it keeps no nodes and lets others pass":    {cluster: "b1 r1 n0 ....\nb1 r1 n1 ###.\n", job: "r 2x4", others: "s 1x1", members: []model.Member{on("n0", 0)}, code: "no_capacity", later: []string{"n1"}},
		"not once a member has ended":               {cluster: two, job: "r 3x4", members: []model.Member{on("n0", 0), func() model.Member { m := on("n1", 1); m.Ended = true; return m }()}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.job+"\n"+tt.others)
			j := &s.Jobs[0]
			j.State, j.Members, j.Groups[0].Min, j.Groups[0].Max = model.StateRunning, tt.members, 1, 9
			if tt.lately {
				j.Started, j.Resized = testNow.Add(-time.Hour), []time.Time{testNow.Add(-time.Minute)}
			}
			plan := mustDecide(t, s, Policy{Strict: true})
			checkPlan(t, s, plan)
			var d model.Decision
			var later []string
			for _, other := range plan.Decisions {
				if other.Job == "r" {
					d = other
				} else {
					later = append(later, nodesOf(other)...)
				}
			}
			var ranks []int
			for _, m := range d.Members {
				ranks = append(ranks, m.Rank)
			}
			got := nodesOf(d)
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, got); diff != "" || d.Detail.Code != tt.code || !strings.Contains(d.Reason, tt.text) {
				t.Errorf("%s: %s\nnodes (-want +got):\n%s", d.Detail.Code, d.Reason, diff)
			}
			if diff := cmp.Diff(tt.ranks, ranks); diff != "" {
				t.Errorf("ranks (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.later, later); diff != "" {
				t.Errorf("nodes of others (-want +got):\n%s", diff)
			}
		})
	}
}
