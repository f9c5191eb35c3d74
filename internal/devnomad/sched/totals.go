package sched

import (
	"maps"
	"slices"

	"github.com/hashicorp/nomad/api"
)

// setTotals fills in the older fields that say what an allocation has: Nomad's
// own command line adds them up.
func setTotals(a *api.Allocation) {
	total := &api.Resources{CPU: new(0), Cores: new(0), MemoryMB: new(0), MemoryMaxMB: new(0), DiskMB: new(int(a.AllocatedResources.Shared.DiskMB)), IOPS: new(0)}
	total.Networks = a.AllocatedResources.Shared.Networks
	a.TaskResources = map[string]*api.Resources{}
	for _, name := range slices.Sorted(maps.Keys(a.AllocatedResources.Tasks)) {
		t := a.AllocatedResources.Tasks[name]
		of := &api.Resources{
			CPU: new(int(t.Cpu.CpuShares)), Cores: new(len(t.Cpu.ReservedCores)),
			MemoryMB: new(int(t.Memory.MemoryMB)), MemoryMaxMB: new(int(t.Memory.MemoryMaxMB)),
			DiskMB: new(0), IOPS: new(0), Networks: t.Networks,
		}
		a.TaskResources[name] = of
		*total.CPU += *of.CPU
		*total.Cores += *of.Cores
		*total.MemoryMB += *of.MemoryMB
		*total.MemoryMaxMB += *of.MemoryMaxMB
		for _, d := range t.Devices {
			if n := uint64(len(d.DeviceIDs)); n > 0 {
				total.Devices = append(total.Devices, &api.RequestedDevice{Name: d.Vendor + "/" + d.Type + "/" + d.Name, Count: &n})
			}
		}
	}
	a.Resources = total
}
