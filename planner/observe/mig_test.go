package observe

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// mixed draws a node with a whole GPU and one that is divided into two.
func mixed(t *testing.T) *api.Node {
	t.Helper()
	m := topology.Empty(2, 0)
	for i, id := range []string{"GPU-a", "GPU-b"} {
		m.GPUs[i].UUID, m.GPUs[i].BusID, m.GPUs[i].NUMA = id, []string{"0000:01:00.0", "0000:02:00.0"}[i], []int{i}
	}
	matrix, err := topology.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	instances, err := topology.EncodeInstances([]topology.Instance{
		{UUID: "MIG-0", Parent: "GPU-b", Index: 1, Profile: "3g.40gb", GPUInstance: 1},
		{UUID: "MIG-1", Parent: "GPU-b", Index: 1, Profile: "3g.40gb", GPUInstance: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := node("n1", 0)
	n.NodeResources.Devices = []*api.NodeDeviceResource{
		{Vendor: "nvidia", Type: "gpu", Name: "H100", Instances: []*api.NodeDevice{{ID: "GPU-a", Healthy: true}},
			Attributes: map[string]*api.Attribute{topology.AttrTopology: {StringVal: &matrix}, "nvlink_island_size": {IntVal: ptr(int64(1))}}},
		{Vendor: "nvidia", Type: "gpu", Name: "H100 MIG 3g.40gb", Instances: []*api.NodeDevice{{ID: "MIG-0", Healthy: true}, {ID: "MIG-1", Healthy: true}},
			Attributes: map[string]*api.Attribute{topology.AttrTopology: {StringVal: &matrix}, topology.AttrInstances: {StringVal: &instances}, "mig_profile": {StringVal: ptr("3g.40gb")}}},
	}
	return n
}

// summary is what the tests look at of a node's GPUs.
func summary(n model.Node) map[string][]string {
	out := map[string][]string{}
	for _, g := range n.GPUs {
		out[g.UUID] = []string{g.Model, g.Parent, string(rune('0' + g.NUMA)), g.Unhealthy}
	}
	return out
}

// TestMIGInstances know the GPU that they are a part of.
func TestMIGInstances(t *testing.T) {
	const both = "the GPU is listed whole and in parts"
	whole := []string{"H100", "", "0", ""}
	part := []string{"H100 MIG 3g.40gb", "GPU-b", "1", ""}
	tests := map[string]struct {
		change  func(n *api.Node)
		want    map[string][]string
		warning string
	}{
		"a mixed node": {func(*api.Node) {}, map[string][]string{"GPU-a": whole, "MIG-0": part, "MIG-1": part}, ""},
		"the divided GPU is listed whole, too": {func(n *api.Node) {
			n.NodeResources.Devices[0].Instances = append(n.NodeResources.Devices[0].Instances, &api.NodeDevice{ID: "GPU-b", Healthy: true})
		}, map[string][]string{"GPU-a": whole, "GPU-b": {"H100", "", "1", both}, "MIG-0": {"H100 MIG 3g.40gb", "GPU-b", "1", both}, "MIG-1": {"H100 MIG 3g.40gb", "GPU-b", "1", both}}, "listed whole"},
		"the attribute cannot be read": {func(n *api.Node) {
			n.NodeResources.Devices[1].Attributes[topology.AttrInstances].StringVal = ptr("cm1.AAAA")
		}, map[string][]string{"GPU-a": whole, "MIG-0": {"H100 MIG 3g.40gb", "", "/", ""}, "MIG-1": {"H100 MIG 3g.40gb", "", "/", ""}}, "not known"},
		"the attribute is a number": {func(n *api.Node) {
			n.NodeResources.Devices[1].Attributes[topology.AttrInstances] = &api.Attribute{IntVal: ptr(int64(3))}
		}, map[string][]string{"GPU-a": whole, "MIG-0": {"H100 MIG 3g.40gb", "", "/", ""}, "MIG-1": {"H100 MIG 3g.40gb", "", "/", ""}}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			n := mixed(t)
			test.change(n)
			f.putNode(n)
			v, err := f.observer(t).Refresh(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, summary(v.Snapshot.Nodes[0])); diff != "" {
				t.Errorf("GPUs: model, parent, NUMA node, fault (-want +got):\n%s", diff)
			}
			warned := false
			for _, w := range v.Warnings {
				warned = warned || strings.Contains(w.Text, test.warning)
			}
			if test.warning != "" && !warned {
				t.Errorf("warnings %v, want one with %q", v.Warnings, test.warning)
			}
			for _, g := range v.Snapshot.Nodes[0].GPUs {
				if _, kept := g.Attributes[topology.AttrInstances]; kept {
					t.Errorf("%s keeps the data for programs", g.UUID)
				}
			}
		})
	}
}

// TestMIGRequests: which devices a request is for, as Nomad has it.
func TestMIGRequests(t *testing.T) {
	f := newFake(t)
	f.putNode(mixed(t))
	v, err := f.observer(t).Refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		ask  model.DeviceAsk
		want []string
	}{
		"any":         {model.DeviceAsk{Name: "nvidia/gpu"}, []string{"GPU-a", "MIG-0", "MIG-1"}},
		"the model":   {model.DeviceAsk{Name: "nvidia/gpu/H100"}, []string{"GPU-a"}},
		"the profile": {model.DeviceAsk{Name: "nvidia/gpu/H100 MIG 3g.40gb"}, []string{"MIG-0", "MIG-1"}},
		"whole ones": {model.DeviceAsk{Name: "nvidia/gpu", Constraints: []model.Constraint{
			{Left: "${device.attr.mig_profile}", Operand: "is_not_set"}}}, []string{"GPU-a"}},
		"instances": {model.DeviceAsk{Name: "nvidia/gpu", Constraints: []model.Constraint{
			{Left: "${device.attr.mig_profile}", Operand: "is_set"}}}, []string{"MIG-0", "MIG-1"}},
		"of a profile": {model.DeviceAsk{Name: "nvidia/gpu", Constraints: []model.Constraint{
			{Left: "${device.attr.mig_profile}", Operand: "=", Right: "3g.40gb"}}}, []string{"MIG-0", "MIG-1"}},
		"with NVLink, however little": {model.DeviceAsk{Name: "nvidia/gpu", Constraints: []model.Constraint{
			{Left: "${device.attr.nvlink_island_size}", Operand: ">=", Right: "1"}}}, []string{"GPU-a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, g := range v.Snapshot.Nodes[0].GPUs {
				if feasible.NewNodes(nil).Checker().MatchesDevice(test.ask, &feasible.DeviceGroup{Vendor: g.Vendor, Type: g.Type, Model: g.Model, Attributes: g.Attributes, IDs: []string{g.UUID}}) {
					got = append(got, g.UUID)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDivisions: what became of divided GPUs, as the plugin tells it on each group.
func TestDivisions(t *testing.T) {
	at := time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC)
	text, err := topology.EncodeDivisions([]topology.Division{
		{GPU: "GPU-b", Profiles: []string{"3g.40gb", "3g.40gb"}, At: at}, {GPU: "GPU-a", Profiles: []string{"7g.80gb"}, At: at, Refused: "it is in use", Again: at.Add(time.Minute)},
		{GPU: "GPU-c", At: at, Refused: "no", Again: at.Add(-time.Minute)},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := mixed(t)
	for _, d := range n.NodeResources.Devices {
		d.Attributes[topology.AttrDivisions] = &api.Attribute{StringVal: &text}
	}
	look := func(n *api.Node) (model.Node, []Warning) {
		t.Helper()
		f := newFake(t)
		f.putNode(n)
		v, err := f.observer(t).Refresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v.Snapshot.Nodes[0], v.Warnings
	}
	got, _ := look(n)
	want := []model.Division{
		{GPU: "GPU-b", Profiles: []string{"3g.40gb", "3g.40gb"}, At: at, State: model.DivisionDone},
		{GPU: "GPU-a", Profiles: []string{"7g.80gb"}, At: at, State: model.DivisionRefused, Why: "it is in use", Again: at.Add(time.Minute)},
		{GPU: "GPU-c", At: at, State: model.DivisionRefused, Why: "no"},
	}
	if d := cmp.Diff(want, got.Divisions); d != "" || !got.Divides {
		t.Errorf("divides %v (-want +got):\n%s", got.Divides, d)
	}
	for _, g := range got.GPUs {
		if _, kept := g.Attributes[topology.AttrDivisions]; kept {
			t.Errorf("%s keeps the data for programs", g.UUID)
		}
	}
	n = mixed(t)
	n.NodeResources.Devices[0].Attributes[topology.AttrDivisions] = &api.Attribute{StringVal: ptr("cd1.broken")}
	got, warnings := look(n)
	if got.Divides || !slices.ContainsFunc(warnings, func(w Warning) bool { return strings.Contains(w.Text, "is not known, so that none is divided") }) {
		t.Errorf("divides %v, warnings %v", got.Divides, warnings)
	}
}
