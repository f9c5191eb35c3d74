package devnomad_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad"
)

// TestNodeStatus: what `nomad node status` shows of a node with a job is there.
func TestNodeStatus(t *testing.T) {
	c := start(t, devnomad.Options{}, 2, "a")
	j := job("busy", api.JobTypeBatch, 1, "sleep 600")
	j.TaskGroups[0].EphemeralDisk = &api.EphemeralDisk{SizeMB: ptr(70)}
	j.TaskGroups[0].Tasks[0].Resources = &api.Resources{CPU: ptr(300), MemoryMB: ptr(50), Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(2))}}}
	register(t, c, j)
	a := reach(t, c, "busy", api.AllocClientStatusRunning, 1)[0]
	allocs, _, err := c.Client().Nodes().Allocations(a.NodeID, nil)
	if err != nil || len(allocs) != 1 {
		t.Fatalf("allocations of the node: %v, %v", allocs, err)
	}
	total := allocs[0].Resources
	if total == nil || total.CPU == nil || total.MemoryMB == nil || total.DiskMB == nil {
		t.Fatalf("the allocation's resources are %+v", total)
	}
	if diff := cmp.Diff([]int{300, 50, 70}, []int{*total.CPU, *total.MemoryMB, *total.DiskMB}); diff != "" {
		t.Errorf("CPU, memory and disk (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]*api.RequestedDevice{{Name: "nvidia/gpu/Test GPU", Count: ptr(uint64(2))}}, total.Devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	stats, err := c.Client().Nodes().Stats(a.NodeID, nil)
	if err != nil {
		t.Fatal(err)
	}
	node, _, err := c.Client().Nodes().Info(a.NodeID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(node.NodeResources.Memory.MemoryMB) << 20; stats.Memory == nil || stats.Memory.Total != want {
		t.Errorf("memory is %+v, want %d bytes in all", stats.Memory, want)
	}
	if len(stats.CPU) != int(node.NodeResources.Cpu.TotalCpuCores) || len(stats.DiskStats) != 1 || stats.DiskStats[0].Size == 0 {
		t.Errorf("%d cores and the disks %+v", len(stats.CPU), stats.DiskStats)
	}
	if len(stats.DeviceStats) != 1 || len(stats.DeviceStats[0].InstanceStats) != 2 {
		t.Fatalf("devices are %+v", stats.DeviceStats)
	}
	if s := stats.DeviceStats[0].InstanceStats["a-0"]; s == nil || s.Summary.String() != "0 ticks" || s.Stats.Attributes["ticks"] == nil {
		t.Errorf("the first device's statistics are %+v", s)
	}
	if _, err := c.Client().Nodes().Stats("00000000-0000-4000-8000-000000000000", nil); err == nil {
		t.Error("there are statistics of a node that there is not")
	}
}
