package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// anyStruck draws a cluster in which some gangs were stopped because of the nodes
// of some of their members; what they had is free again, or not yet.
func anyStruck(t *rapid.T) (*model.Snapshot, Policy) {
	s := anyElastic(t)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.State != model.StateRunning || rapid.IntRange(0, 2).Draw(t, "struck") == 0 {
			continue
		}
		j.Replace = &model.Replacement{At: testNow.Add(-time.Duration(rapid.IntRange(0, 12).Draw(t, "ago")) * time.Minute), Members: j.Members}
		for _, m := range j.Members {
			if rapid.IntRange(0, 2).Draw(t, "failed") == 0 {
				j.Replace.Failed = append(j.Replace.Failed, model.FailedPlace{Group: m.Group, Index: m.Index, Node: m.Node, Why: "failed"})
			}
		}
		j.Members, j.State = nil, model.StateQueued
		stopping := rapid.Bool().Draw(t, "stopping")
		s.Allocs = slices.DeleteFunc(s.Allocs, func(a model.Alloc) bool { return a.Job == j.ID && (!stopping || a.Index%2 == 0) })
		for k := range s.Allocs {
			if a := &s.Allocs[k]; a.Job == j.ID {
				a.Stopping, j.State = true, model.StateStopping
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "gave way, too") == 0 {
			j.Preempted = append(j.Preempted, model.Preempted{At: testNow, By: "w0"})
		}
	}
	for i := range s.Nodes {
		if rapid.IntRange(0, 5).Draw(t, "down") == 0 {
			s.Nodes[i].Unschedulable = "down"
		}
	}
	for i := range s.Jobs {
		if s.Jobs[i].State == model.StateQueued && s.Jobs[i].Replace == nil {
			s.Jobs[i].Priority = 10 * rapid.IntRange(0, 4).Draw(t, "priority")
		}
	}
	return s, Policy{
		Preempt: preempt.Policy{Enabled: rapid.Bool().Draw(t, "preempts")},
		Replace: queue.Replace{Spares: rapid.IntRange(0, 1).Draw(t, "spares"), SparesPer: rapid.SampledFrom([]string{"", "block"}).Draw(t, "per")},
	}
}

// A failed node and a preemption at once never book anything twice: what a gang is
// to come back to is nobody else's, and nobody gives way for what somebody gets.
func TestComebacksBookNothingTwice(t *testing.T) {
	back, kept := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 4 {
			s, policy := anyStruck(t)
			plan, err := Decide(s, policy)
			if err != nil {
				t.Fatal(err)
			}
			if faults := planFaults(s, plan); len(faults) > 0 {
				t.Errorf("faults: %s", strings.Join(faults, "; "))
			}
			checkGivenOnce(t, s, plan)
			for i := range s.Jobs {
				j := &s.Jobs[i]
				if j.Replace == nil {
					continue
				}
				if d := decisionOn(plan, j.ID); strings.Contains(d.Reason, "keep their nodes") {
					back++
				}
				if j.State != model.StateStopping || len(j.Preempted) > 0 || testNow.Sub(j.Replace.At) >= queue.DefaultKeepFor {
					continue
				}
				kept += checkSeatsKept(t, s, plan, j)
			}
		}
	})
	t.Logf("%d came back, %d places were kept", back, kept)
	if back == 0 || kept == 0 {
		t.Error("want some of each")
	}
}

// checkGivenOnce checks that no GPU is given to two, and that victims of one plan
// are not victims twice.
func checkGivenOnce(t *rapid.T, s *model.Snapshot, plan *model.Plan) {
	given, gone := map[string]string{}, map[string]string{}
	for _, d := range plan.Decisions {
		for _, m := range d.Members {
			for _, gpu := range m.GPUs {
				if given[gpu] != "" {
					t.Errorf("GPU %s is given to %s and %s", gpu, given[gpu], d.Job)
				}
				given[gpu] = d.Job
			}
		}
	}
	for _, r := range plan.Resizes {
		for _, m := range r.Members {
			for _, gpu := range m.GPUs {
				if given[gpu] != "" {
					t.Errorf("GPU %s is given to %s and %s", gpu, given[gpu], r.Job)
				}
				given[gpu] = r.Job
			}
		}
	}
	for _, p := range plan.Preemptions {
		for _, m := range p.Members {
			key := p.Job + m.Node
			if gone[key] != "" {
				t.Errorf("%s gives way on %s to %s and %s", p.Job, m.Node, gone[key], p.For.ID)
			}
			gone[key] = p.For.ID
		}
	}
}

// checkSeatsKept checks that what a gang that is still stopping is to come back to
// is given to nobody, and counts it.
func checkSeatsKept(t *rapid.T, s *model.Snapshot, plan *model.Plan, j *model.Job) (kept int) {
	sound := map[string]bool{}
	for _, n := range s.Nodes {
		sound[n.ID] = n.Unschedulable == ""
	}
	for _, m := range j.Replace.Members {
		failed := slices.ContainsFunc(j.Replace.Failed, func(f model.FailedPlace) bool { return f.Index == m.Index })
		if failed || !sound[m.Node] || m.Index >= j.Groups[0].Count {
			continue
		}
		kept++
		for _, d := range plan.Decisions {
			for _, o := range d.Members {
				if o.Node == m.Node && d.Job != j.ID {
					t.Errorf("%s gets %s, to which %s is to come back", d.Job, m.Node, j.ID)
				}
			}
		}
	}
	return kept
}
