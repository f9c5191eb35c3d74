//go:build cgo

package nvml

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// recently is over how much of the past the utilisation of processes is told.
const recently = 2 * time.Second

// notAvailable is NVML's value of what it does not know.
const notAvailable = ^uint64(0)

// Processes implements ProcessLister.
func (l *library) Processes(uuid string) ([]Process, bool, error) {
	if l.start() != nil {
		return nil, false, nil // no driver, no processes
	}
	l.use.RLock()
	defer l.use.RUnlock()
	dev, ret := l.lib.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return nil, false, fmt.Errorf("find GPU %s: %s", uuid, errorText(ret))
	}
	running, ret := dev.GetComputeRunningProcesses()
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_NOT_SUPPORTED:
		return nil, false, nil
	default:
		return nil, false, fmt.Errorf("list the processes of GPU %s: %s", uuid, errorText(ret))
	}
	busy, known := l.utilization(dev)
	out := make([]Process, 0, len(running))
	for _, r := range running {
		p := Process{PID: int(r.Pid)}
		if r.UsedGpuMemory != notAvailable {
			p.MemoryMiB = ptr(r.UsedGpuMemory / bytesPerMiB)
		}
		if known {
			p.Utilization = ptr(busy[r.Pid])
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return out, true, nil
}

// utilization is how busy processes kept a GPU lately, in percent; false if the
// driver does not tell. One that it does not name was idle.
func (l *library) utilization(dev nvml.Device) (map[uint32]uint64, bool) {
	if !l.simulated && !l.has("nvmlDeviceGetProcessUtilization") {
		return nil, false
	}
	samples, ret := dev.GetProcessUtilization(uint64(time.Now().Add(-recently).UnixMicro()))
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_NOT_FOUND: // nobody has computed since
	default:
		return nil, false
	}
	sums, counts := map[uint32]uint64{}, map[uint32]uint64{}
	for _, s := range samples {
		sums[s.Pid] += uint64(min(s.SmUtil, 100))
		counts[s.Pid]++
	}
	for pid, n := range counts {
		sums[pid] /= n
	}
	return sums, true
}
