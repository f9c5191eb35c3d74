package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// anyContest draws a cluster in which jobs of several priorities run and wait.
func anyContest(t *rapid.T) *model.Snapshot {
	s := anyCluster(t)
	for i := range s.Nodes {
		if rapid.IntRange(0, 3).Draw(t, "sound") < 3 {
			s.Nodes[i].Unschedulable = ""
			for g := range s.Nodes[i].GPUs {
				s.Nodes[i].GPUs[g].Unhealthy = ""
			}
		}
	}
	n := rapid.IntRange(1, 4).Draw(t, "running")
	for i := range n {
		j := model.Job{ID: fmt.Sprintf("r%d", i), Type: "batch", State: model.StateRunning, Priority: rapid.IntRange(0, 4).Draw(t, "priority") * 10}
		j.Gang = rapid.SampledFrom([]model.Gang{model.GangJob, model.GangJob, model.GangGroup, model.GangNone}).Draw(t, "gang")
		j.Preempt = rapid.SampledFrom([]string{"", "", model.PreemptAlways, model.PreemptNever}).Draw(t, "preempt")
		j.Saves = rapid.Bool().Draw(t, "saves")
		j.Started = testNow.Add(-time.Duration(rapid.IntRange(0, 9).Draw(t, "ran")) * time.Minute)
		j.Submitted = j.Started
		j.Groups = []model.TaskGroup{{Name: "g0"}, {Name: "g1"}}
		s.Jobs = append(s.Jobs, j)
	}
	next := map[string]int{}
	for i := range s.Nodes {
		for g := range s.Nodes[i].GPUs {
			uuid := s.Nodes[i].GPUs[g].UUID
			if rapid.IntRange(0, 2).Draw(t, "fill") > 0 && !slices.ContainsFunc(s.Allocs, func(a model.Alloc) bool { return slices.Contains(a.GPUs, uuid) }) {
				s.Allocs = append(s.Allocs, model.Alloc{ID: "f" + uuid, Node: s.Nodes[i].ID, GPUs: []string{uuid}})
			}
		}
	}
	for i := range s.Allocs {
		if at := rapid.IntRange(-1, n-1).Draw(t, "holder"); at >= 0 {
			a, group := &s.Allocs[i], rapid.IntRange(0, 1).Draw(t, "group")
			a.Job, a.Group = s.Jobs[at].ID, s.Jobs[at].Groups[group].Name
			a.Index = next[a.Job+a.Group]
			next[a.Job+a.Group]++
			s.Jobs[at].Groups[group].Count++
			s.Jobs[at].Members = append(s.Jobs[at].Members, model.Member{Group: a.Group, Index: a.Index, Rank: len(s.Jobs[at].Members), Node: a.Node, GPUs: a.GPUs})
		}
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "waiting") {
		j := anyJob(t, i, rapid.Bool().Draw(t, "plain"))
		j.Priority = rapid.IntRange(0, 6).Draw(t, "priority") * 10
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

func TestPreemptionHasAReasonAndABeneficiary(t *testing.T) {
	made, tries := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 3 {
			tries++
			if checkContest(t, anyContest(t)) {
				made++
			}
		}
	})
	t.Logf("somebody gave way in %d of %d clusters", made, tries)
	if made == 0 {
		t.Error("nobody ever gave way")
	}
}

// checkContest checks what is decided until those that give way have stopped. It
// is false if nobody does.
func checkContest(t *rapid.T, s *model.Snapshot) bool {
	policy := preempting
	policy.Preempt.SavedOnly = rapid.Bool().Draw(t, "saved only")
	plan, err := Decide(s, policy)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range preemptionFaults(s, plan, policy.Preempt.SavedOnly) {
		t.Error(fault)
	}
	if faults := planFaults(s, plan); len(faults) > 0 {
		t.Errorf("faults: %s", strings.Join(faults, "; "))
	}
	if len(plan.Preemptions) == 0 {
		return false
	}
	first := plan.Preemptions[0].For.ID
	calm, err := Decide(s, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if d := decisionOn(calm, first); d.Action == model.ActionAdmit && len(d.Members) == d.Detail.MembersWanted {
		t.Errorf("%s fits without %v", first, gaveWay(plan))
	}
	next := stopping(s, plan)
	again, err := Decide(next, policy)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Preemptions) > 0 {
		t.Errorf("after %v, while they stop, %v", gaveWay(plan), gaveWay(again))
	}
	if d := decisionOn(again, first); d.Detail.Code == codePreempting && len(d.Detail.Held) == 0 {
		t.Errorf("nothing is kept for %s while %v stop: %s", first, gaveWay(plan), d.Reason)
	}
	end, err := Decide(stopped(next), policy)
	if err != nil {
		t.Fatal(err)
	}
	if got := decisionOn(end, first); len(got.Members) == 0 {
		t.Errorf("after %v have stopped %s still waits: %s", gaveWay(plan), first, got.Reason)
	}
	return true
}

func decisionOn(plan *model.Plan, job string) model.Decision {
	for _, d := range plan.Decisions {
		if d.Job == job {
			return d
		}
	}
	return model.Decision{}
}

// preemptionFaults checks preemptions with code of its own.
func preemptionFaults(s *model.Snapshot, plan *model.Plan, savedOnly bool) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	jobs := map[string]*model.Job{}
	for i := range s.Jobs {
		jobs[s.Jobs[i].ID] = &s.Jobs[i]
	}
	gone := map[string]bool{}
	for _, p := range plan.Preemptions {
		victim, preemptor := jobs[p.Job], jobs[p.For.ID]
		d := decisionOn(plan, p.For.ID)
		switch {
		case victim == nil || preemptor == nil:
			fault("%s to %s: no such job", p.Job, p.For.ID)
			continue
		case p.Reason == "" || !strings.Contains(p.Reason, p.For.ID):
			fault("%s: reason %q", p.Job, p.Reason)
		case victim.Preempt == model.PreemptNever, preemptor.Priority < victim.Priority+10:
			fault("%s (%d, %s) gives way to %s (%d)", p.Job, victim.Priority, victim.Preempt, p.For.ID, preemptor.Priority)
		case savedOnly && !victim.Saves && victim.Preempt != model.PreemptAlways:
			fault("%s gives way to %s and loses all that it has done", p.Job, p.For.ID)
		case !slices.Contains(d.Detail.Victims, model.JobName{ID: p.Job}):
			fault("%s does not know of its victim %s: %+v", p.For.ID, p.Job, d)
		}
		for _, m := range p.Members {
			for _, a := range s.Allocs {
				alike := victim.Gang == model.GangJob || a.Group == m.Group && (victim.Gang == model.GangGroup || a.Index == m.Index)
				if a.Job == p.Job && alike && !slices.ContainsFunc(p.Members, func(o model.Member) bool { return o.Group == a.Group && o.Index == a.Index }) {
					fault("%s stops %s %d and not %s %d", p.Job, m.Group, m.Index, a.Group, a.Index)
				}
			}
			key := fmt.Sprint(p.Job, m.Group, m.Index)
			if gone[key] {
				fault("%s gives way twice", key)
			}
			gone[key] = true
		}
	}
	return faults
}

func TestPreemptionDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyContest(t)
		a, err := Decide(s, preempting)
		if err != nil {
			t.Fatal(err)
		}
		other := *s
		other.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
		other.Jobs = rapid.Permutation(s.Jobs).Draw(t, "jobs")
		other.Allocs = rapid.Permutation(s.Allocs).Draw(t, "allocs")
		b, err := Decide(&other, preempting)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("plans (-as drawn +in another order):\n%s", diff)
		}
	})
}
