package observe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// sharedNode draws a node with a whole GPU and one that two tasks share.
func sharedNode(t *testing.T) *api.Node {
	t.Helper()
	m := topology.Empty(2, 0)
	for i, id := range []string{"GPU-a", "GPU-b"} {
		m.GPUs[i].UUID, m.GPUs[i].NUMA = id, []int{i}
	}
	matrix, err := topology.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	text, err := topology.EncodeShares([]topology.Share{{GPU: "GPU-b", Index: 1, Slices: 2, MemoryMiB: 81559}})
	if err != nil {
		t.Fatal(err)
	}
	n := node("n1", 0)
	n.NodeResources.Devices = []*api.NodeDeviceResource{
		{Vendor: "nvidia", Type: "gpu", Name: "H100", Instances: []*api.NodeDevice{{ID: "GPU-a", Healthy: true}},
			Attributes: map[string]*api.Attribute{topology.AttrTopology: {StringVal: &matrix}}},
		{Vendor: "nvidia", Type: "gpu", Name: "H100 SHARED 1of2", Instances: []*api.NodeDevice{{ID: "GPU-b::0", Healthy: true}, {ID: "GPU-b::1", Healthy: true}},
			Attributes: map[string]*api.Attribute{topology.AttrTopology: {StringVal: &matrix}, topology.AttrShares: {StringVal: &text}, "shared_slices": {IntVal: ptr(int64(2))}}},
	}
	return n
}

// TestSharedGPUs: slices know the GPU that they are a part of.
func TestSharedGPUs(t *testing.T) {
	type gpu struct {
		Model, Parent  string
		Slices, Memory int
		NUMA           int
		Unhealthy      string
	}
	const both, unknown = "the GPU is listed whole and in parts", "it is not known by how many its GPU is shared"
	whole, part := gpu{Model: "H100"}, gpu{"H100 SHARED 1of2", "GPU-b", 2, 81559, 1, ""}
	lost := gpu{Model: "H100 SHARED 1of2", NUMA: -1, Unhealthy: unknown}
	tests := map[string]struct {
		change  func(n *api.Node)
		want    map[string]gpu
		warning string
	}{
		"both": {func(*api.Node) {}, map[string]gpu{"GPU-a": whole, "GPU-b::0": part, "GPU-b::1": part}, ""},
		"whole, too": {func(n *api.Node) {
			n.NodeResources.Devices[0].Instances = append(n.NodeResources.Devices[0].Instances, &api.NodeDevice{ID: "GPU-b", Healthy: true})
		}, map[string]gpu{"GPU-a": whole, "GPU-b": {"H100", "", 0, 0, 1, both}, "GPU-b::0": {part.Model, "GPU-b", 2, 81559, 1, both}, "GPU-b::1": {part.Model, "GPU-b", 2, 81559, 1, both}}, "listed whole"},
		"cannot be read": {func(n *api.Node) {
			n.NodeResources.Devices[1].Attributes[topology.AttrShares].StringVal = ptr("cs1.AAAA")
		}, map[string]gpu{"GPU-a": whole, "GPU-b::0": lost, "GPU-b::1": lost}, "is not known, so none of them is given away"},
		"missing": {func(n *api.Node) {
			delete(n.NodeResources.Devices[1].Attributes, topology.AttrShares)
		}, map[string]gpu{"GPU-a": whole, "GPU-b::0": lost, "GPU-b::1": lost}, ""},
		"one slice too many": {func(n *api.Node) {
			n.NodeResources.Devices[1].Instances = append(n.NodeResources.Devices[1].Instances, &api.NodeDevice{ID: "GPU-b::2", Healthy: true})
		}, map[string]gpu{"GPU-a": whole, "GPU-b::0": part, "GPU-b::1": part, "GPU-b::2": lost}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, n := newFake(t), sharedNode(t)
			tt.change(n)
			f.putNode(n)
			v, err := f.observer(t).Refresh(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]gpu{}
			for _, g := range v.Snapshot.Nodes[0].GPUs {
				got[g.UUID] = gpu{g.Model, g.Parent, g.Slices, g.SharedMiB, g.NUMA, g.Unhealthy}
				if _, kept := g.Attributes[topology.AttrShares]; kept {
					t.Errorf("%s keeps the data for programs", g.UUID)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			warned := false
			for _, w := range v.Warnings {
				warned = warned || strings.Contains(w.Text, tt.warning)
			}
			if tt.warning != "" && !warned {
				t.Errorf("warnings %v, want one with %q", v.Warnings, tt.warning)
			}
			if err := v.Snapshot.Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What was whole when it was given away is not given away in slices, and the other
// way round.
func TestHeldInParts(t *testing.T) {
	now := &model.Node{GPUs: []model.GPU{{UUID: "GPU-a"}, {UUID: "GPU-b::0", Parent: "GPU-b", Slices: 2}, {UUID: "GPU-b::1", Parent: "GPU-b", Slices: 2}}}
	for name, tt := range map[string]struct{ held, want []string }{
		"as it is":       {[]string{"GPU-a", "GPU-b::1"}, []string{"GPU-a", "GPU-b::1"}},
		"was whole":      {[]string{"GPU-b"}, []string{"GPU-b", "GPU-b::0", "GPU-b::1"}},
		"was shared":     {[]string{"GPU-a::3"}, []string{"GPU-a::3", "GPU-a"}},
		"not there":      {[]string{"GPU-c", "GPU-c::0"}, []string{"GPU-c", "GPU-c::0"}},
		"shared by more": {[]string{"GPU-b::3"}, []string{"GPU-b::3"}},
	} {
		if d := cmp.Diff(tt.want, heldInParts(tt.held, now, true)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if d := cmp.Diff([]string{"GPU-b"}, heldInParts([]string{"GPU-b"}, now, false)); d != "" {
		t.Errorf("where nothing is shared (-want +got):\n%s", d)
	}
}
