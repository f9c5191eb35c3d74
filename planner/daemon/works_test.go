package daemon

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
)

func TestWithWork(t *testing.T) {
	states := []observe.MemberState{
		{Member: model.Member{Group: "w"}, Alloc: &api.AllocationListStub{ID: "a"}},
		{Member: model.Member{Group: "w", Index: 1}},
		{Member: model.Member{Group: "w", Index: 2}, Alloc: &api.AllocationListStub{ID: "c"}},
	}
	var members []model.Member
	for _, s := range states {
		members = append(members, s.Member)
	}
	v := &observe.View{
		Managed: []observe.Managed{{Namespace: "ml", ID: "released"}, {Namespace: "ml", ID: "train", Members: states}},
		Snapshot: &model.Snapshot{Jobs: []model.Job{
			{Namespace: "ml", ID: "train", Members: members},
			{Namespace: "ml", ID: "train (canaries)"}, {Namespace: "other", ID: "train", Members: members[:1]},
		}},
	}
	if withWork(v, nil) != v {
		t.Error("a view without work is another one")
	}
	got := withWork(v, map[string]barrier.Work{"a": {SinceCheckpoint: new(int64(40)), CheckpointStep: new(int64(3)), Step: new(int64(5))}, "gone": {Step: new(int64(1))}})
	want := []model.Member{{Group: "w", SinceCheckpoint: new(int64(40)), CheckpointStep: new(int64(3)), Step: new(int64(5))}, {Group: "w", Index: 1}, {Group: "w", Index: 2}}
	if diff := cmp.Diff(want, got.Snapshot.Jobs[0].Members); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(members[:1], got.Snapshot.Jobs[2].Members); diff != "" {
		t.Errorf("another namespace's (-want +got):\n%s", diff)
	}
	if v.Snapshot.Jobs[0].Members[0].Step != nil {
		t.Error("the view was changed that others read")
	}
}
