package client

import (
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// taskUsage is a driver's measurement as the API shows it.
func taskUsage(u driver.Usage) *api.TaskResourceUsage {
	out := &api.TaskResourceUsage{ResourceUsage: resourceUsage(u.Total), Timestamp: u.Time.UnixNano(), Pids: map[string]*api.ResourceUsage{}}
	for pid, r := range u.PerProcess {
		out.Pids[pid] = resourceUsage(r)
	}
	return out
}

func resourceUsage(u driver.ResourceUsage) *api.ResourceUsage {
	cpu, mem := &api.CpuStats{}, &api.MemoryStats{}
	share := func(name string, from *float64, to *float64) {
		if from != nil {
			*to = *from
			cpu.Measured = append(cpu.Measured, name)
		}
	}
	count := func(name string, from, to *uint64, measured *[]string) {
		if from != nil {
			*to = *from
			*measured = append(*measured, name)
		}
	}
	share("System Mode", u.SystemPercent, &cpu.SystemMode)
	share("User Mode", u.UserPercent, &cpu.UserMode)
	share("Percent", u.Percent, &cpu.Percent)
	if u.TicksMHz != nil {
		cpu.TotalTicks = *u.TicksMHz
	}
	count("Throttled Periods", u.ThrottledPeriods, &cpu.ThrottledPeriods, &cpu.Measured)
	count("Throttled Time", u.ThrottledNanos, &cpu.ThrottledTime, &cpu.Measured)
	count("RSS", u.RSS, &mem.RSS, &mem.Measured)
	count("Cache", u.Cache, &mem.Cache, &mem.Measured)
	count("Swap", u.Swap, &mem.Swap, &mem.Measured)
	count("Usage", u.Usage, &mem.Usage, &mem.Measured)
	count("Max Usage", u.MaxUsage, &mem.MaxUsage, &mem.Measured)
	count("Kernel Usage", u.KernelUsage, &mem.KernelUsage, &mem.Measured)
	count("Kernel Max Usage", u.KernelMaxUsage, &mem.KernelMaxUsage, &mem.Measured)
	return &api.ResourceUsage{MemoryStats: mem, CpuStats: cpu, DeviceStats: []*api.DeviceGroupStats{}}
}

// addUsage adds a task's usage to its allocation's.
func addUsage(sum, u *api.ResourceUsage) {
	sum.CpuStats.SystemMode += u.CpuStats.SystemMode
	sum.CpuStats.UserMode += u.CpuStats.UserMode
	sum.CpuStats.TotalTicks += u.CpuStats.TotalTicks
	sum.CpuStats.Percent += u.CpuStats.Percent
	sum.CpuStats.ThrottledPeriods += u.CpuStats.ThrottledPeriods
	sum.CpuStats.ThrottledTime += u.CpuStats.ThrottledTime
	sum.MemoryStats.RSS += u.MemoryStats.RSS
	sum.MemoryStats.Cache += u.MemoryStats.Cache
	sum.MemoryStats.Swap += u.MemoryStats.Swap
	sum.MemoryStats.Usage += u.MemoryStats.Usage
	sum.MemoryStats.MaxUsage += u.MemoryStats.MaxUsage
	sum.MemoryStats.KernelUsage += u.MemoryStats.KernelUsage
	sum.MemoryStats.KernelMaxUsage += u.MemoryStats.KernelMaxUsage
}
