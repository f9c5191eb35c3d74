package httpapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
)

// Slices of shared GPUs are counted apart from GPUs.
func TestTreeOfSharedGPUs(t *testing.T) {
	slice := func(id, unhealthy string) model.GPU {
		return model.GPU{UUID: id, Vendor: "nvidia", Type: "gpu", Model: "H100 SHARED 1of2", Parent: id[:1], Slices: 2, Unhealthy: unhealthy}
	}
	whole := model.GPU{UUID: "W", Vendor: "nvidia", Type: "gpu", Model: "H100"}
	v := &observe.View{Devices: []string{"nvidia/gpu"}, Snapshot: &model.Snapshot{
		Nodes: []model.Node{
			{ID: "n1", GPUs: []model.GPU{whole, slice("A::0", ""), slice("A::1", ""), slice("B::0", "lost"), slice("B::1", "lost")}},
			{ID: "n2", Unschedulable: "draining", GPUs: []model.GPU{slice("C::0", ""), slice("C::1", "")}},
		},
		Allocs: []model.Alloc{{ID: "a", Node: "n1", GPUs: []string{"A::1"}}},
	}}
	got := Tree(v).Root
	want := Domain{Level: "cluster", Name: "cluster", Nodes: 2, GPUs: 1, FreeGPUs: 1, SharedGPUs: 3, Slices: 6, FreeSlices: 1, Children: []Domain{
		{Level: "node", Name: "n1", ID: "n1", Nodes: 1, GPUs: 1, FreeGPUs: 1, SharedGPUs: 2, Slices: 4, FreeSlices: 1, Model: "H100"},
		{Level: "node", Name: "n2", ID: "n2", Nodes: 1, SharedGPUs: 1, Slices: 2, Unschedulable: "draining"},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
