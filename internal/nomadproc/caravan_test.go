package nomadproc_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// TestNomadLoadsCaravansDevicePlugin builds the device plugin and has real
// clients load it with a simulated machine and with a recorded one.
func TestNomadLoadsCaravansDevicePlugin(t *testing.T) {
	binary(t)
	const name = "nomad-device-caravan"
	path := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", path, "../../devicegpu/cmd/"+name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	c := start(t, devcluster.Spec{Nodes: []devcluster.Node{
		{Name: "h100", Plugins: []devcluster.Plugin{{Name: name, Path: path, Config: `source = "mock:dgxh100"`}}},
		{Name: "again", Plugins: []devcluster.Plugin{{Name: name, Path: path, Config: `
			source    = "mock:dgxh100"
			mock_seed = 2`}}},
	}})
	all := nodes(t, c)
	seen := map[string]string{}
	for _, n := range []string{"h100", "again"} {
		if len(all[n].NodeResources.Devices) != 1 {
			t.Fatalf("node %s has device groups %+v, want one", n, all[n].NodeResources.Devices)
		}
		group := all[n].NodeResources.Devices[0]
		if group.Vendor != "nvidia" || group.Type != "gpu" || len(group.Instances) != 8 {
			t.Errorf("node %s has %s/%s/%s with %d devices, want 8 of nvidia/gpu", n, group.Vendor, group.Type, group.Name, len(group.Instances))
		}
		for _, d := range group.Instances {
			if !d.Healthy {
				t.Errorf("node %s: device %s is not healthy: %s", n, d.ID, d.HealthDescription)
			}
			if other, dup := seen[d.ID]; dup {
				t.Errorf("device %s is on %s and on %s", d.ID, other, n)
			}
			seen[d.ID] = n
		}
		if size := group.Attributes["nvlink_island_size"]; size == nil || size.String() != "8" {
			t.Errorf("node %s has nvlink_island_size %v, want 8", n, size)
		}
		if group.Attributes["unique.caravan_topology"] == nil {
			t.Errorf("node %s has no topology", n)
		}
	}
	if a, b := computedClass(t, c, all["h100"]), computedClass(t, c, all["again"]); a != b {
		t.Errorf("like nodes have classes %s and %s; something that differs between them is not named unique", a, b)
	}
}
