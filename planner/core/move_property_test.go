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
)

// TestMovesAreSound checks moves in clusters of all kinds: each that is moved may
// be, is worth its cost, has a place that nobody else has, and gets it.
func TestMovesAreSound(t *testing.T) {
	made, tries := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 8 { // in one of fifty or so somebody is moved
			tries++
			s := anyContest(t)
			for i := range s.Jobs {
				if s.Jobs[i].State == model.StateQueued {
					s.Jobs[i].Priority = 50
					s.Jobs[i].Submitted = testNow.Add(-48 * time.Hour)
				}
			}
			if movesFaults(t, s) {
				made++
			}
		}
	})
	t.Logf("somebody was moved in %d of %d clusters", made, tries)
	if made == 0 && !testing.Short() { // a short test draws few
		t.Error("nobody was ever moved")
	}
}

func movesFaults(t *rapid.T, s *model.Snapshot) bool {
	policy := moving
	policy.Defrag.MinRunTime = time.Minute
	plan, err := Decide(s, policy)
	if err != nil {
		t.Fatal(err)
	}
	checkFaults := func(s *model.Snapshot, plan *model.Plan) {
		if faults := planFaults(s, plan); len(faults) > 0 {
			t.Errorf("faults: %s", strings.Join(faults, "; "))
		}
	}
	checkFaults(s, plan)
	var cost, benefit = map[string]int64{}, map[string]int64{}
	to := map[string]string{}
	for _, d := range plan.Decisions {
		for _, m := range d.Members {
			for _, gpu := range m.GPUs {
				to[gpu] = d.Job
			}
		}
	}
	for _, p := range plan.Preemptions {
		at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == p.Job })
		if why := policy.Defrag.WithDefaults().Exempt(&model.Job{Priority: 50}, &s.Jobs[at], s.Now); p.Action != model.ActionMove || why != "" {
			t.Errorf("%s is moved (%s): %s", p.Job, p.Action, why)
		}
		cost[p.For.ID] += p.Cost.Total()
		benefit[p.For.ID] = p.Benefit
		if len(p.To) != len(p.Members) {
			t.Errorf("%s: %d members move to %d places", p.Job, len(p.Members), len(p.To))
		}
		for _, m := range p.To {
			for _, gpu := range m.GPUs {
				if to[gpu] != "" {
					t.Errorf("%s is for %s and for %s", gpu, to[gpu], p.Job)
				}
				to[gpu] = p.Job
			}
		}
	}
	for job := range cost {
		if float64(benefit[job]) < preempt.DefaultMinBenefitRatio*float64(cost[job]) {
			t.Errorf("moves for %s save %d and lose %d", job, benefit[job], cost[job])
		}
	}
	if len(cost) == 0 {
		return false
	}
	next := stopping(s, plan)
	again, err := Decide(next, policy)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Preemptions) > 0 {
		t.Errorf("after %v, while they stop, %v", gaveWay(plan), gaveWay(again))
	}
	checkFaults(next, again)
	end := stopped(next)
	last, err := Decide(end, policy)
	if err != nil {
		t.Fatal(err)
	}
	checkFaults(end, last)
	for job := range cost {
		if d := decisionOn(last, job); len(d.Members) == 0 {
			t.Errorf("after %v %s still waits: %s", gaveWay(plan), job, d.Reason)
		}
	}
	for _, p := range plan.Preemptions {
		d := decisionOn(last, p.Job)
		for _, m := range p.To {
			if !slices.ContainsFunc(d.Members, func(o model.Member) bool { return cmp.Equal(m, o) }) {
				t.Errorf("%s is to start at %+v, and starts at %+v: %s", p.Job, m, d.Members, d.Reason)
			}
		}
	}
	return true
}

func TestMovesDoNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyContest(t)
		other := *s
		other.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
		other.Jobs = rapid.Permutation(s.Jobs).Draw(t, "jobs")
		other.Allocs = rapid.Permutation(s.Allocs).Draw(t, "allocs")
		a, err := Survey(s, preempting)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Survey(&other, preempting)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("moves (-as drawn +in another order):\n%s", diff)
		}
	})
}
