package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// What those who wait keep may be found out late: who is placed, and where, is the
// same. A cluster is played in time by plans that say when everybody starts.
func TestWhoKeepsLateKeepsTheSame(t *testing.T) {
	postponed, caughtUp, passed := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{Order: rapid.SampledFrom(queue.Orders()).Draw(t, "order"), Forecasts: rapid.IntRange(1, 2).Draw(t, "forecasts")}
		policy.Backfill.Mode = rapid.SampledFrom([]string{queue.BackfillEasy, queue.BackfillConservative, queue.BackfillConservative}).Draw(t, "mode")
		policy.Backfill.Depth = rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "depth")
		policy.Backfill.MaxWait = rapid.SampledFrom([]time.Duration{0, time.Hour, 300 * time.Hour}).Draw(t, "patience")
		policy.Strict = rapid.IntRange(0, 9).Draw(t, "strict") == 0
		p := anyTheatre(t, policy, rapid.Bool().Draw(t, "wrong"))
		more := anyTheatre(t, policy, false)
		for _, j := range more.s.Jobs {
			j.ID, j.Gang = "k"+j.ID, rapid.SampledFrom([]model.Gang{model.GangJob, model.GangJob, model.GangNone}).Draw(t, "gang")
			p.really[j.ID] = j.Duration
			if rapid.IntRange(0, 5).Draw(t, "silent") == 0 {
				j.Duration = 0
			}
			p.s.Jobs = append(p.s.Jobs, j)
		}
		p.decided = func(plan *model.Plan) {
			terse, err := Prepare(p.s, policy)
			if err != nil {
				t.Fatal(err)
			}
			terse.Terse()
			c := newCycle(terse, p.s.Now)
			got := c.decide()
			postponed, caughtUp = postponed+len(c.postponed), caughtUp+c.late
			c.revert()
			if diff := cmp.Diff(decidedOnly(plan, policy), decidedOnly(got, policy)); diff != "" {
				t.Fatalf("at %s another plan (-whole +terse):\n%s", p.s.Now, diff)
			}
			for i, d := range got.Decisions {
				if d.Action == model.ActionAdmit && i > 0 && got.Decisions[i-1].Action == model.ActionWait && c.late > 0 {
					passed++
				}
			}
		}
		p.play(t)
	})
	t.Logf("%d were never asked what they keep, %d late; %d were placed behind those", postponed, caughtUp, passed)
	if postponed == 0 || caughtUp == 0 || passed == 0 {
		t.Error("want some of each")
	}
}
