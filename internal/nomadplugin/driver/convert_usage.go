package driver

import (
	"github.com/caravan-sched/caravan/internal/nomadplugin/stream"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/driverpb"
)

func usageToWire(u Usage) *driverpb.TaskStats {
	w := &driverpb.TaskStats{
		Id: u.TaskID, Timestamp: stream.TimeToWire(u.Time), AggResourceUsage: resourceUsageToWire(u.Total),
		ResourceUsageByPid: make(map[string]*driverpb.TaskResourceUsage, len(u.PerProcess)),
	}
	for pid, r := range u.PerProcess {
		w.ResourceUsageByPid[pid] = resourceUsageToWire(r)
	}
	return w
}

func usageFromWire(w *driverpb.TaskStats) Usage {
	u := Usage{TaskID: w.GetId(), Time: stream.TimeFromWire(w.GetTimestamp()), Total: resourceUsageFromWire(w.GetAggResourceUsage())}
	if len(w.GetResourceUsageByPid()) > 0 {
		u.PerProcess = make(map[string]ResourceUsage, len(w.GetResourceUsageByPid()))
	}
	for pid, r := range w.GetResourceUsageByPid() {
		u.PerProcess[pid] = resourceUsageFromWire(r)
	}
	return u
}

// field pairs what we hold with its place on the wire and the mark that says
// whether it was measured.
type field[V, F any] struct {
	ours *(*V)
	wire *V
	mark F
}

func cpuFields(r *ResourceUsage, w *driverpb.CPUUsage) (floats []field[float64, driverpb.CPUUsage_Fields], ints []field[uint64, driverpb.CPUUsage_Fields]) {
	return []field[float64, driverpb.CPUUsage_Fields]{
			{&r.SystemPercent, &w.SystemMode, driverpb.CPUUsage_SYSTEM_MODE},
			{&r.UserPercent, &w.UserMode, driverpb.CPUUsage_USER_MODE},
			{&r.TicksMHz, &w.TotalTicks, driverpb.CPUUsage_TOTAL_TICKS},
			{&r.Percent, &w.Percent, driverpb.CPUUsage_PERCENT},
		}, []field[uint64, driverpb.CPUUsage_Fields]{
			{&r.ThrottledPeriods, &w.ThrottledPeriods, driverpb.CPUUsage_THROTTLED_PERIODS},
			{&r.ThrottledNanos, &w.ThrottledTime, driverpb.CPUUsage_THROTTLED_TIME},
		}
}

func memoryFields(r *ResourceUsage, w *driverpb.MemoryUsage) []field[uint64, driverpb.MemoryUsage_Fields] {
	return []field[uint64, driverpb.MemoryUsage_Fields]{
		{&r.RSS, &w.Rss, driverpb.MemoryUsage_RSS},
		{&r.Cache, &w.Cache, driverpb.MemoryUsage_CACHE},
		{&r.Swap, &w.Swap, driverpb.MemoryUsage_SWAP},
		{&r.Usage, &w.Usage, driverpb.MemoryUsage_USAGE},
		{&r.MaxUsage, &w.MaxUsage, driverpb.MemoryUsage_MAX_USAGE},
		{&r.KernelUsage, &w.KernelUsage, driverpb.MemoryUsage_KERNEL_USAGE},
		{&r.KernelMaxUsage, &w.KernelMaxUsage, driverpb.MemoryUsage_KERNEL_MAX_USAGE},
	}
}

func resourceUsageToWire(r ResourceUsage) *driverpb.TaskResourceUsage {
	w := &driverpb.TaskResourceUsage{Cpu: &driverpb.CPUUsage{}, Memory: &driverpb.MemoryUsage{}}
	floats, ints := cpuFields(&r, w.Cpu)
	w.Cpu.MeasuredFields = append(write(floats), write(ints)...)
	w.Memory.MeasuredFields = write(memoryFields(&r, w.Memory))
	return w
}

func resourceUsageFromWire(w *driverpb.TaskResourceUsage) ResourceUsage {
	var r ResourceUsage
	cpu, memory := w.GetCpu(), w.GetMemory()
	if cpu != nil {
		floats, ints := cpuFields(&r, cpu)
		read(floats, cpu.GetMeasuredFields())
		read(ints, cpu.GetMeasuredFields())
	}
	if memory != nil {
		read(memoryFields(&r, memory), memory.GetMeasuredFields())
	}
	return r
}

// write puts what was measured on the wire and returns the marks.
func write[V, F any](fields []field[V, F]) []F {
	var marks []F
	for _, f := range fields {
		if *f.ours != nil {
			*f.wire = **f.ours
			marks = append(marks, f.mark)
		}
	}
	return marks
}

func read[V any, F comparable](fields []field[V, F], marks []F) {
	measured := make(map[F]bool, len(marks))
	for _, m := range marks {
		measured[m] = true
	}
	for _, f := range fields {
		if measured[f.mark] {
			v := *f.wire
			*f.ours = &v
		}
	}
}
