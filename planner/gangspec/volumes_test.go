package gangspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// TestVolumes: which nodes a group with volumes may be on.
func TestVolumes(t *testing.T) {
	nodes := []*model.Node{
		{ID: "none"},
		{ID: "both", Attributes: map[string]string{"volume.host.data": "read,write", "volume.hosts": "data"}},
		{ID: "read", Attributes: map[string]string{"volume.host.data": "read", "volume.hosts": "data"}},
		{ID: "dynamic", Attributes: map[string]string{"volume.host.data": "read,write,dynamic", "volume.hosts": "data", "volume.csi": "ebs"}},
		{ID: "own", Attributes: map[string]string{"volume.host.data[1]": "read,write,dynamic", "volume.hosts": "data[1],other"}},
	}
	host := func(change func(*api.VolumeRequest)) map[string]*api.VolumeRequest {
		v := &api.VolumeRequest{Name: "v", Type: "host", Source: "data"}
		change(v)
		return map[string]*api.VolumeRequest{"v": v}
	}
	tests := map[string]struct {
		volumes map[string]*api.VolumeRequest
		want    []string
	}{
		"no volume":        {nil, []string{"none", "both", "read", "dynamic", "own"}},
		"to write":         {host(func(*api.VolumeRequest) {}), []string{"both", "dynamic"}},
		"without a type":   {host(func(v *api.VolumeRequest) { v.Type = "" }), []string{"both", "dynamic"}},
		"to read":          {host(func(v *api.VolumeRequest) { v.ReadOnly = true }), []string{"both", "read", "dynamic"}},
		"sticky":           {host(func(v *api.VolumeRequest) { v.Sticky = true }), []string{"dynamic"}},
		"another":          {host(func(v *api.VolumeRequest) { v.Source = "scratch" }), nil},
		"each its own":     {host(func(v *api.VolumeRequest) { v.PerAlloc = true }), []string{"own"}},
		"a name with dots": {host(func(v *api.VolumeRequest) { v.PerAlloc, v.Source = true, "d.ta" }), nil},
		"CSI":              {map[string]*api.VolumeRequest{"v": {Type: "csi", Source: "vol-1"}}, []string{"dynamic"}},
		"two":              {map[string]*api.VolumeRequest{"a": {Type: "csi", Source: "vol-1"}, "b": {Type: "host", Source: "scratch"}}, nil},
		"nothing in it":    {map[string]*api.VolumeRequest{"a": nil}, []string{"none", "both", "read", "dynamic", "own"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := &api.Job{ID: ptr("j"), TaskGroups: []*api.TaskGroup{{Name: ptr("g"), Volumes: test.volumes}}}
			group := gangspec.ToModel(job, gangspec.Spec{}).Groups[0]
			verdicts := feasible.NewNodes(nodes).Verdicts(feasible.Filter{Group: group.Constraints})
			var got []string
			for i, n := range nodes {
				if verdicts.Eligible(i) {
					got = append(got, n.ID)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}
