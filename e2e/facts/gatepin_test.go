package facts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// TestFact1Gate: a gated job gets nothing and says why. It costs nothing when
// a node comes and goes, and one evaluation when a new computed class appears.
func TestFact1Gate(t *testing.T) {
	for _, typ := range []string{api.JobTypeBatch, api.JobTypeService} {
		t.Run(typ, func(t *testing.T) {
			each(t, func(t *testing.T, e *env) {
				j := e.newJob(typ, alike, 2, 1, sleeper)
				eval := e.register(gate(j))
				m := eval.FailedTGAllocs["g"]
				if m == nil || m.ConstraintFiltered[gateReason] != 3 && m.ConstraintFiltered[gateReason] != 1 {
					t.Fatalf("evaluation failed with %+v; want the gate as the reason", m)
				}
				if got := e.allocs(*j.ID); len(got) != 0 {
					t.Errorf("a gated job has %d allocations", len(got))
				}
				e.status(*j.ID, "pending")
				b := e.blocked(*j.ID)
				if len(b) != 1 {
					t.Fatalf("%d blocked evaluations, want 1", len(b))
				}
				n := e.nodes(alike)[0]
				for range 2 {
					e.eligible(n.ID, false)
					e.eligible(n.ID, true)
				}
				if after := e.blocked(*j.ID); len(after) != 1 || after[0].ModifyIndex != b[0].ModifyIndex {
					t.Errorf("a flapping node made the gated job's evaluation run")
				}
			})
		})
	}
}

func (e *env) eligible(node string, on bool) {
	e.t.Helper()
	if _, err := e.api.Nodes().ToggleEligibility(node, on, nil); err != nil {
		e.t.Fatal(err)
	}
}

// TestFact1NewClass: a node of a class that was never seen makes gated jobs run
// again: one whose gate it opens is placed, and another leaves no trace.
func TestFact1NewClass(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := e.newJob(api.JobTypeBatch, distinct, 1, 1, sleeper)
		e.register(gate(j))
		b := e.blocked(*j.ID)
		if len(b) != 1 {
			t.Fatalf("%d blocked evaluations, want 1", len(b))
		}
		opens := clone(j)
		opens.ID, opens.Name = ptr(*j.ID+"-opens"), ptr(*j.ID+"-opens")
		opens.Constraints = []*api.Constraint{{LTarget: "${meta.facts_class}", Operand: "=", RTarget: "open"}}
		t.Cleanup(func() { e.purge(*opens.ID) })
		e.register(opens)
		n := e.nodes(distinct)[0]
		set := func(v *string) {
			if _, err := e.api.Nodes().Meta().Apply(&api.NodeMetaApplyRequest{NodeID: n.ID, Meta: map[string]*string{"facts_class": v}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		set(ptr("open"))
		t.Cleanup(func() { set(nil) })
		if got := e.running(*opens.ID, 1); got[0].NodeID != n.ID {
			t.Errorf("placed on %s, want %s", got[0].NodeID, n.ID)
		}
		if after := e.blocked(*j.ID); len(after) != 1 || after[0].ID != b[0].ID || after[0].ModifyIndex != b[0].ModifyIndex {
			t.Errorf("the gated job's evaluation is now %+v, want it as it was", after)
		}
	})
}

// partNode is a job of one group for each of k members, two GPUs each, spread
// over the nodes, with its exact GPUs in the device block.
func partNode(e *env, dc string, nodes []*api.Node, k int) (*api.Job, map[string][]string) {
	j := e.newJob(api.JobTypeBatch, dc, 1, 2, sleeper)
	j.TaskGroups = nil
	want := map[string][]string{}
	next := map[string]int{}
	for i := range k {
		n := nodes[i%len(nodes)]
		at := next[n.ID]
		next[n.ID] += 2
		name := fmt.Sprintf("g-%d", i)
		g := group(name, 1, 2, sleeper)
		uuids := gpus(n)[at : at+2]
		pinGPUs(g, uuids...)
		g.Constraints = []*api.Constraint{pinTo(n)}
		want[name] = uuids
		j.TaskGroups = append(j.TaskGroups, g)
	}
	return j, want
}

// TestFact2PinInGroup: with the node constraint in every group, exactly those
// GPUs of exactly those nodes.
func TestFact2PinInGroup(t *testing.T) {
	eachClass(t, func(t *testing.T, e *env, dc string) {
		j, want := partNode(e, dc, e.nodes(dc), 4)
		for range 12 {
			if failed := e.dryRun(j).FailedTGAllocs; len(failed) > 0 {
				t.Fatalf("dry-run of a pinned job failed: %v", reasons(failed))
			}
		}
		e.register(j)
		for _, a := range e.running(*j.ID, 4) {
			if diff := cmp.Diff(want[a.TaskGroup], e.held(a.ID)); diff != "" {
				t.Errorf("group %s has other GPUs than it was pinned to (-want +got):\n%s", a.TaskGroup, diff)
			}
		}
	})
}

// TestFact2PinOnJob: device checks are cached by computed class, so that a
// node constraint that stands on the job alone fails at random among nodes of
// one class; among nodes of different classes it works.
func TestFact2PinOnJob(t *testing.T) {
	eachClass(t, func(t *testing.T, e *env, dc string) {
		nodes := e.nodes(dc)
		j, _ := partNode(e, dc, nodes, 8)
		j.Constraints = []*api.Constraint{pinTo(nodes...)}
		for _, g := range j.TaskGroups {
			g.Constraints = nil
		}
		failed := 0
		for range 12 {
			if len(e.dryRun(j).FailedTGAllocs) > 0 {
				failed++
			}
		}
		if dc == alike && failed == 0 {
			t.Errorf("none of 12 dry-runs failed; want most of them to, by the cache of classes")
		}
		if dc == distinct && failed != 0 {
			t.Errorf("%d of 12 dry-runs failed among nodes of different classes", failed)
		}
	})
}

// TestFact2DeviceIDs: the IDs in a device block do not make the class escape. A job
// for GPUs that one of several nodes of one class has is refused whenever another
// of them is looked at first, unless its group has a constraint on what is unique,
// be it one that all nodes fulfil.
func TestFact2DeviceIDs(t *testing.T) {
	tests := map[string]struct {
		constraint *api.Constraint // of the group
		fails      bool            // whether some dry-runs are to fail among alike nodes
	}{
		"alone":         {fails: true},
		"of no unique":  {api.NewConstraint("${node.datacenter}", api.ConstraintAttributeIsSet, ""), true},
		"with a unique": {api.NewConstraint("${node.unique.id}", api.ConstraintAttributeIsSet, ""), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			eachClass(t, func(t *testing.T, e *env, dc string) {
				j := e.newJob(api.JobTypeBatch, dc, 1, 2, sleeper)
				pinGPUs(j.TaskGroups[0], gpus(e.nodes(dc)[0])[2:4]...)
				if tt.constraint != nil {
					j.TaskGroups[0].Constrain(tt.constraint)
				}
				failed := 0
				for range 24 {
					if len(e.dryRun(j).FailedTGAllocs) > 0 {
						failed++
					}
				}
				if want := tt.fails && dc == alike; (failed > 0) != want {
					t.Errorf("%d of 24 dry-runs failed; want any to be %t", failed, want)
				}
			})
		})
	}
}

// dryRun plans a job.
func (e *env) dryRun(j *api.Job) *api.JobPlanResponse {
	e.t.Helper()
	resp, _, err := e.api.Jobs().Plan(clone(j), true, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp
}

func reasons(failed map[string]*api.AllocationMetric) string {
	var b strings.Builder
	for g, m := range failed {
		fmt.Fprintf(&b, "%s: filtered %v, exhausted %v; ", g, m.ConstraintFiltered, m.DimensionExhausted)
	}
	return b.String()
}

// TestFact3Union: members of one group on one node share the union of the
// UUIDs in any order; groups of their own get their own.
func TestFact3Union(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		n := e.nodes(alike)[0]
		j := e.newJob(api.JobTypeBatch, alike, 2, 2, sleeper)
		g := j.TaskGroups[0]
		g.Constraints = []*api.Constraint{pinTo(n)}
		want := gpus(n)[2:6]
		pinGPUs(g, want...)
		e.register(j)
		var got []string
		for _, a := range e.running(*j.ID, 2) {
			h := e.held(a.ID)
			if len(h) != 2 {
				t.Errorf("a member has %d GPUs, want 2", len(h))
			}
			got = append(got, h...)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the members together have other GPUs (-want +got):\n%s", diff)
		}
	})
}

// TestFact3WholeNode: members that take whole nodes need no UUIDs.
func TestFact3WholeNode(t *testing.T) {
	eachClass(t, func(t *testing.T, e *env, dc string) {
		nodes := e.nodes(dc)[:2]
		j := e.newJob(api.JobTypeBatch, dc, 2, 8, sleeper)
		j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes...), {Operand: api.ConstraintDistinctHosts, RTarget: "true"}}
		e.register(j)
		got := map[string][]string{}
		for _, a := range e.running(*j.ID, 2) {
			got[a.NodeID] = e.held(a.ID)
		}
		want := map[string][]string{nodes[0].ID: gpus(nodes[0]), nodes[1].ID: gpus(nodes[1])}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("placement (-want +got):\n%s", diff)
		}
	})
}

// TestDryRunChangesNothing: a plan says what would be, with the reasons, and
// leaves no trace.
func TestDryRunChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := e.newJob(api.JobTypeBatch, alike, 2, 4, sleeper)
		resp := e.dryRun(j)
		if u := resp.Annotations.DesiredTGUpdates["g"]; u == nil || u.Place != 2 || len(resp.FailedTGAllocs) != 0 {
			t.Errorf("plan says %+v, failed %v; want 2 placed", u, resp.FailedTGAllocs)
		}
		if resp.JobModifyIndex != 0 || resp.Diff == nil || resp.Diff.Type != "Added" {
			t.Errorf("plan of a new job has index %d and diff %+v", resp.JobModifyIndex, resp.Diff)
		}
		big := clone(j)
		big.TaskGroups[0].Count = ptr(7)
		failed := e.dryRun(big).FailedTGAllocs["g"]
		if failed == nil || failed.DimensionExhausted["devices: no devices match request"] == 0 {
			t.Errorf("a plan for more GPUs than there are failed with %+v; want exhausted devices", failed)
		}
		if _, _, err := e.api.Jobs().Info(*j.ID, nil); err == nil {
			t.Error("a plan made a job")
		}
		e.register(j)
		e.running(*j.ID, 2)
		after := e.dryRun(j)
		if u := after.Annotations.DesiredTGUpdates["g"]; u.Ignore != 2 || u.Place != 0 {
			t.Errorf("plan of an unchanged job says %+v, want 2 ignored", u)
		}
		if want := *e.info(*j.ID).JobModifyIndex; after.JobModifyIndex != want {
			t.Errorf("plan has index %d, want the job's %d", after.JobModifyIndex, want)
		}
	})
}
