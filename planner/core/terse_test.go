package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// decidedOnly is a plan without what it only says of those who wait.
func decidedOnly(plan *model.Plan, policy Policy) *model.Plan {
	out := *plan
	out.Decisions, out.Reservations = nil, nil
	for _, d := range plan.Decisions {
		if policy.Strict && d.Detail.Code == codeBehind {
			continue // who is behind may be left out
		}
		d.Detail.Filtered, d.Detail.FreeGPUs, d.Detail.MembersFit, d.Detail.Level, d.Detail.Domain, d.Detail.Basis = nil, 0, 0, "", "", ""
		d.Reason = ""
		if policy.Backfills() || policy.Strict {
			d.Detail.Start, d.Detail.Held = time.Time{}, nil
		}
		out.Decisions = append(out.Decisions, d)
	}
	for _, r := range plan.Reservations {
		r.Reason = ""
		out.Reservations = append(out.Reservations, r)
	}
	return &out
}

// A terse plan decides the same, whatever is in the snapshot and whatever policy
// it is made by, though it says less; and so does one that looks at who could give
// way though nobody may.
func TestTersePlansDecideTheSame(t *testing.T) {
	shorter := 0
	rapid.Check(t, func(t *rapid.T) {
		s, policy := anyOwners(t)
		if rapid.Bool().Draw(t, "no reservations") {
			s.Reservations = nil
		}
		policy.Forecasts = rapid.IntRange(0, 2).Draw(t, "forecasts")
		policy.Defrag.Enabled = rapid.Bool().Draw(t, "defrag")
		for i := range s.Jobs {
			s.Jobs[i].Priority = 10 * rapid.IntRange(0, 3).Draw(t, "priority")
			if rapid.IntRange(0, 4).Draw(t, "due") == 0 {
				s.Jobs[i].Deadline = testNow.Add(time.Duration(rapid.IntRange(1, 9).Draw(t, "by")) * time.Hour)
			}
		}
		want := mustDecide(t, s, policy)
		p, err := Prepare(s, policy)
		if err != nil {
			t.Fatal(err)
		}
		p.Terse()
		got := p.Decide(s.Now)
		if diff := cmp.Diff(decidedOnly(want, policy), decidedOnly(got, policy)); diff != "" {
			t.Fatalf("a terse plan is another one (-whole +terse):\n%s", diff)
		}
		for _, d := range want.Decisions {
			shorter += len(d.Reason)
		}
		for _, d := range got.Decisions {
			shorter -= len(d.Reason)
		}
		p.terse = false
		c := newCycle(p, s.Now)
		c.vain.known = true // everybody is looked at
		anew := c.decide()
		c.revert()
		if diff := cmp.Diff(want, anew); diff != "" {
			t.Fatalf("looking at who could give way changes the plan (-want +got):\n%s", diff)
		}
	})
	if shorter == 0 {
		t.Error("terse plans say as much as others")
	}
}
