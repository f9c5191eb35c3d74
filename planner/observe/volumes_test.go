package observe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// TestVolumesOfNodes are among their attributes in the model.
func TestVolumesOfNodes(t *testing.T) {
	f := newFake(t)
	n := node("n1", 1)
	n.HostVolumes = map[string]*api.HostVolumeInfo{
		"data": {Path: "/data"}, "sets": {Path: "/sets", ReadOnly: true}, "dyn[0]": {Path: "/dyn", ReadOnly: true, ID: "v-1"}, "broken": nil,
	}
	n.CSINodePlugins = map[string]*api.CSIInfo{"ebs": {Healthy: true}, "efs": {Healthy: true}, "nfs": {}, "none": nil}
	f.putNode(n)
	f.putNode(node("n2", 1))
	v := refresh(t, f.observer(t))
	got := map[string]map[string]string{}
	for _, n := range v.Snapshot.Nodes {
		got[n.Name] = map[string]string{}
		for key, value := range n.Attributes {
			if strings.HasPrefix(key, "volume.") {
				got[n.Name][key] = value
			}
		}
	}
	want := map[string]map[string]string{"n1": {
		"volume.host.data": "read,write", "volume.host.sets": "read", "volume.host.dyn[0]": "read,write,dynamic",
		"volume.hosts": "data,dyn[0],sets", "volume.csi": "ebs,efs",
	}, "n2": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
}

// TestVolumeDecides: a job with a host volume is decided for the node that has
// it, though it comes last; one that no node has waits with a reason that names
// it.
func TestVolumeDecides(t *testing.T) {
	f := newFake(t)
	for _, name := range []string{"a", "b", "c"} {
		n := node(name, 1)
		if name == "c" {
			n.HostVolumes = map[string]*api.HostVolumeInfo{"data": {Path: "/data"}}
		}
		f.putNode(n)
	}
	for id, source := range map[string]string{"placed": "data", "waits": "elsewhere"} {
		j := gpuJob(id, 1, 1)
		j.TaskGroups[0].Volumes = map[string]*api.VolumeRequest{"v": {Type: "host", Source: source}}
		f.putJob(j)
	}
	plan, err := core.Decide(refresh(t, f.observer(t)).Snapshot, core.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range plan.Decisions {
		switch {
		case d.Job == "placed" && (d.Action != model.ActionAdmit || d.Members[0].Node != "id-c"):
			t.Errorf("%s: %s %v %q, want it on the node with the volume", d.Job, d.Action, d.Members, d.Reason)
		case d.Job == "waits" && (d.Action != model.ActionWait || !strings.Contains(d.Reason, "volume.host.elsewhere")):
			t.Errorf("%s: %s %q, want it to wait for the volume", d.Job, d.Action, d.Reason)
		}
	}
	if len(plan.Decisions) != 2 {
		t.Errorf("%d decisions, want two", len(plan.Decisions))
	}
}
