package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestCanariesAreAJobOfTheirOwn to the core: queued until they have a place,
// and then holding it; the members they are beside do not take them for theirs.
func TestCanariesAreAJobOfTheirOwn(t *testing.T) {
	members := []model.Member{{Group: "workers", Index: 0, Node: "id-a", GPUs: []string{"a-0", "a-1"}}}
	canary := model.Member{Group: "workers", Index: 0, Node: "id-b", GPUs: []string{"b-0", "b-1"}, Slot: 9}
	job := func() *api.Job {
		j := gpuJob("serve", 1, 2)
		j.Type = ptr("service")
		j.TaskGroups[0].Constraints = []*api.Constraint{{Operand: "distinct_hosts", RTarget: "true"}, api.NewConstraint("${meta.caravan_gate}", "is_not_set", "")}
		beside := *j.TaskGroups[0]
		beside.Name, beside.Meta = ptr("workers-v9"), map[string]string{"caravan_group": "workers", "caravan_slot": "9"}
		j.TaskGroups = append(j.TaskGroups, &beside)
		return j
	}
	orig := gpuJob("serve", 1, 2)
	orig.Type = ptr("service")
	orig.TaskGroups[0].Constraints = []*api.Constraint{{Operand: "distinct_hosts", RTarget: "true"}}
	rec := func(change func(*record.Rollout)) *record.Record {
		r := queuedRecord(orig, record.PhaseRunning, members...)
		r.Rollout = r.NewRollout(1, time.Unix(700, 0).UTC())
		r.Rollout.Begin(map[string]int{"workers": 1})
		change(r.Rollout)
		return r
	}
	has := func(ro *record.Rollout) { ro.Canary.Members = []model.Member{canary} }
	tests := map[string]struct {
		record *record.Record
		allocs []*api.AllocationListStub
		want   model.State // "" is no job
		holder string
		states []AllocState
	}{
		"without a place": {rec(func(*record.Rollout) {}), nil, model.StateQueued, "", nil},
		"on its way":      {rec(has), nil, model.StateRunning, "", []AllocState{AllocNone}},
		"placed": {rec(has), []*api.AllocationListStub{alloc("x9", "serve", "workers-v9", "id-b", 0, "b-0", "b-1")},
			model.StateRunning, "serve (canaries)", []AllocState{AllocPlaced}},
		"elsewhere": {rec(has), []*api.AllocationListStub{alloc("x9", "serve", "workers-v9", "id-b", 0, "b-0")},
			model.StateRunning, "serve (canaries)", []AllocState{AllocMisplaced}},
		"promoted":                   {rec(func(ro *record.Rollout) { ro.Canary.Promoted = time.Unix(800, 0) }), nil, "", "", nil},
		"paused, nothing placed":     {rec(func(ro *record.Rollout) { ro.Paused = true }), nil, "", "", nil},
		"failed, and still in place": {rec(func(ro *record.Rollout) { has(ro); ro.Failed = "ill" }), nil, model.StateRunning, "", []AllocState{AllocNone}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.putNode(node("a", 2))
			f.putNode(node("b", 2))
			f.putJob(job())
			f.putRecord(test.record)
			f.putAlloc(alloc("x1", "serve", "workers", "id-a", 0, "a-0", "a-1"))
			for _, a := range test.allocs {
				a.CreateIndex = 50
				f.putAlloc(a)
			}
			v := refresh(t, f.observer(t, func(*config.Config) {}))
			m := v.Managed[0]
			if len(m.Members) != 1 || m.Members[0].Alloc == nil || m.Members[0].Alloc.ID != "x1" {
				t.Errorf("members %+v", m.Members)
			}
			var states []AllocState
			for _, s := range m.Canaries {
				states = append(states, s.State)
			}
			if diff := cmp.Diff(test.states, states); diff != "" {
				t.Errorf("canaries (-want +got):\n%s", diff)
			}
			var got model.Job
			for _, j := range v.Snapshot.Jobs {
				if _, ok := CanaryOf(j.ID); ok {
					got = j
				}
			}
			if got.State != test.want {
				t.Fatalf("the canaries are %q, want %q", got.State, test.want)
			}
			if test.want == "" {
				return
			}
			apart := got.Groups[0].Constraints[len(got.Groups[0].Constraints)-1]
			if got.Groups[0].Count != 1 || apart.Operand != "!=" || apart.Right != "id-a" || !got.Submitted.Equal(time.Unix(700, 0)) {
				t.Errorf("the canaries are %+v", got)
			}
			for _, a := range v.Snapshot.Allocs {
				if a.ID == "x9" && a.Job != test.holder {
					t.Errorf("x9 is of job %q, want %q", a.Job, test.holder)
				}
			}
			if err := v.Snapshot.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
	if job, ok := CanaryOf("serve"); ok || job != "serve" {
		t.Error("a job counts as canaries")
	}
}
