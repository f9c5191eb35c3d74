package core

import (
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// m runs on two bought nodes, at 8 an hour each, for three hours more; the cluster
// has become free.
func TestComesHome(t *testing.T) {
	tests := map[string]struct {
		set  func(*model.Snapshot, *Policy)
		want bool
	}{
		"when that pays":           {func(*model.Snapshot, *Policy) {}, true},
		"not when it is to stay":   {func(_ *model.Snapshot, p *Policy) { p.Burst.StayAway = true }, false},
		"not who is not to move":   {func(s *model.Snapshot, _ *Policy) { s.Jobs[0].Move = model.MoveNever }, false},
		"not who runs there only":  {func(s *model.Snapshot, _ *Policy) { s.Jobs[0].Burst = model.BurstOnly }, false},
		"not what is through soon": {func(s *model.Snapshot, _ *Policy) { s.Jobs[0].Duration = 65 * time.Minute }, false},
		"not what would lose an hour for an hour and a half": {func(s *model.Snapshot, _ *Policy) {
			s.Jobs[0].Members[0].SinceCheckpoint, s.Jobs[0].Members[1].SinceCheckpoint, s.Jobs[0].Duration = nil, nil, 150*time.Minute
		}, false},
		"not when it was just moved": {func(s *model.Snapshot, _ *Policy) {
			s.Jobs[0].Preempted = []model.Preempted{{At: testNow.Add(-10 * time.Minute), By: "x", Moved: true}}
		}, false},
		"not past its deadline": {func(s *model.Snapshot, _ *Policy) { s.Jobs[0].Deadline = testNow.Add(3 * time.Hour) }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 ....\nb1 r1 n2 ....\nb1 r1 n3 !....")
			submit(t, s, "m 2x4 runs:4h")
			s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 4)}}
			p := model.Purchase{ID: "eu-1", Pool: "eu", For: model.JobName{ID: "m"}, Market: model.MarketOnDemand, Nodes: 2, Names: []string{"eu-1-0", "eu-1-1"}, Price: 8, Cost: 66,
				Ordered: testNow.Add(-66 * time.Minute), Billed: testNow.Add(-66 * time.Minute), Started: testNow.Add(-time.Hour), State: model.PurchasePresent}
			arrive(s, &p, p.Names...)
			s.Burst.Bought = []model.Purchase{p}
			j := &s.Jobs[0]
			j.State, j.Started, j.Burst = model.StateRunning, testNow.Add(-time.Hour), model.BurstAllow
			since := int64(60)
			for i, name := range p.Names {
				j.Members = append(j.Members, model.Member{Group: "g0", Index: i, Rank: i, Node: "id-" + name, SinceCheckpoint: &since,
					GPUs: []string{"id-" + name + ".0", "id-" + name + ".1", "id-" + name + ".2", "id-" + name + ".3"}})
			}
			policy := Policy{}
			test.set(s, &policy)
			out := plan(t, s, policy)
			got := len(out.Preemptions) == 1
			if got != test.want {
				t.Fatalf("comes home: %v, want %v: %+v", got, test.want, out.Preemptions)
			}
			if !got {
				return
			}
			move := out.Preemptions[0]
			if move.Action != model.ActionMove || len(move.To) != 2 || !strings.HasPrefix(move.To[0].Node, "n") ||
				!strings.Contains(move.Reason, "its bought ones would cost 47.") {
				t.Errorf("move = %+v", move)
			}
		})
	}
}
