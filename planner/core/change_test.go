package core

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// apply is what Apply must amount to: the snapshot with the change in it.
func (ch Change) apply(s *model.Snapshot) *model.Snapshot {
	out := *s
	if ch.Rest != nil {
		out = *ch.Rest
	}
	out.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n model.Node) bool {
		return slices.Contains(ch.DropNodes, n.ID) || slices.ContainsFunc(ch.PutNodes, func(o model.Node) bool { return o.ID == n.ID })
	})
	out.Nodes = append(out.Nodes, ch.PutNodes...)
	out.Jobs = slices.DeleteFunc(slices.Clone(s.Jobs), func(j model.Job) bool {
		return slices.Contains(ch.DropJobs, JobRef{j.Namespace, j.ID}) || slices.ContainsFunc(ch.PutJobs, func(o model.Job) bool { return o.ID == j.ID })
	})
	out.Jobs = append(out.Jobs, ch.PutJobs...)
	out.Allocs = slices.DeleteFunc(slices.Clone(s.Allocs), func(a model.Alloc) bool {
		return slices.Contains(ch.DropAllocs, a.ID) || slices.ContainsFunc(ch.PutAllocs, func(o model.Alloc) bool { return o.ID == a.ID })
	})
	out.Allocs = append(out.Allocs, ch.PutAllocs...)
	return &out
}

// anyChange draws a change of a snapshot: what was decided is carried out in
// part, nodes close, open, fall ill, come and go.
func anyChange(t *rapid.T, s *model.Snapshot, plan *model.Plan, round int) Change {
	var ch Change
	for _, d := range plan.Decisions {
		if d.Action != model.ActionAdmit || rapid.IntRange(0, 3).Draw(t, "ignored") == 0 {
			continue
		}
		at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == d.Job })
		j := s.Jobs[at]
		j.State = rapid.SampledFrom([]model.State{model.StateAdmitted, model.StateRunning}).Draw(t, "state")
		j.Members = append(slices.Clone(j.Members), d.Members...)
		ch.PutJobs = append(ch.PutJobs, j)
		for _, m := range d.Members {
			if rapid.Bool().Draw(t, "started") {
				ch.PutAllocs = append(ch.PutAllocs, model.Alloc{ID: fmt.Sprint(j.ID, m.Group, m.Index), Job: j.ID, Group: m.Group, Index: m.Index, Node: m.Node, GPUs: m.GPUs})
			}
		}
	}
	for _, j := range s.Jobs {
		if rapid.IntRange(0, 5).Draw(t, "ends") == 0 && !slices.ContainsFunc(ch.PutJobs, func(o model.Job) bool { return o.ID == j.ID }) {
			ch.DropJobs = append(ch.DropJobs, JobRef{j.Namespace, j.ID})
			for _, a := range s.Allocs {
				if a.Job == j.ID {
					ch.DropAllocs = append(ch.DropAllocs, a.ID)
				}
			}
		}
	}
	if rapid.Bool().Draw(t, "submits") {
		ch.PutJobs = append(ch.PutJobs, anyJob(t, 100+round, false))
	}
	for _, n := range s.Nodes {
		switch rapid.IntRange(0, 5).Draw(t, "node") {
		case 0:
			n.Unschedulable = rapid.SampledFrom([]string{"", "draining"}).Draw(t, "closed")
			ch.PutNodes = append(ch.PutNodes, n)
		case 1:
			n.GPUs = slices.Clone(n.GPUs)
			for i := range n.GPUs {
				n.GPUs[i].Unhealthy = rapid.SampledFrom([]string{"", "lost"}).Draw(t, "health")
			}
			ch.PutNodes = append(ch.PutNodes, n)
		case 2:
			n.Capacity.CPUMHz += 1000
			ch.PutNodes = append(ch.PutNodes, n)
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "grows") == 0 {
		ch.PutNodes = append(ch.PutNodes, model.Node{ID: fmt.Sprint("new", round), GPUs: []model.GPU{{UUID: fmt.Sprint("new", round), Type: "gpu", Vendor: "nvidia", Model: "A"}}})
	}
	return ch
}

// A prepared cluster that is kept up to date decides as a fresh one does.
func TestApplyIsPrepare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		p, err := Prepare(s, Policy{})
		if err != nil {
			t.Fatal(err)
		}
		for round := range 4 {
			plan := p.Decide(s.Now)
			if diff := cmp.Diff(mustDecide(t, s, Policy{}), plan); diff != "" {
				t.Fatalf("round %d: plans (-fresh +kept):\n%s", round, diff)
			}
			for _, fault := range planFaults(s, plan) {
				t.Errorf("round %d: %s", round, fault)
			}
			ch := anyChange(t, s, plan, round)
			if err := p.Apply(ch); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			s = ch.apply(s)
		}
	})
}

func TestApplyRefusesWhole(t *testing.T) {
	tests := map[string]Change{
		"alloc on an unknown node":  {PutAllocs: []model.Alloc{{ID: "new", Node: "nowhere"}}},
		"GPU held already":          {PutAllocs: []model.Alloc{{ID: "new", Node: "n1", GPUs: []string{"n1.0"}}}},
		"UUID of another node":      {PutNodes: []model.Node{{ID: "n9", GPUs: []model.GPU{{UUID: "n2.0"}}}}},
		"node taken from its alloc": {DropNodes: []string{"n1"}},
		"member on a dropped node":  {DropNodes: []string{"n2"}, PutJobs: []model.Job{{ID: "j", State: model.StateAdmitted, Groups: []model.TaskGroup{{Name: "g"}}, Members: []model.Member{{Group: "g", Node: "n2"}}}}},
	}
	for name, ch := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, `b1 r1 n1 a...
			              b1 r1 n2 ....`)
			submit(t, s, "M 1x4")
			p, err := Prepare(s, Policy{})
			if err != nil {
				t.Fatal(err)
			}
			before := p.Decide(s.Now)
			ch.PutJobs = append(ch.PutJobs, model.Job{ID: "extra", State: model.StateQueued, Groups: []model.TaskGroup{{Name: "g", Count: 1}}})
			if err := p.Apply(ch); !errors.Is(err, model.ErrSnapshot) {
				t.Fatalf("Apply: %v, want ErrSnapshot", err)
			}
			if diff := cmp.Diff(before, p.Decide(s.Now)); diff != "" {
				t.Errorf("plan after a refused change (-before +after):\n%s", diff)
			}
		})
	}
}
