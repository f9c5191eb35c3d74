//go:build cgo

package nvml

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// migMark stands in the driver's name of an instance before its profile.
const migMark = " MIG "

// readMIG reads the GPU's MIG mode and its instances.
func (l *library) readMIG(q *query, f *found) {
	if !l.has("nvmlDeviceGetMigMode") || !l.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return
	}
	current, pending, ret := q.dev.GetMigMode()
	if value(q, current, ret) == nil {
		return
	}
	f.MIG = ptr(current == nvml.DEVICE_MIG_ENABLE)
	f.Health.MIGPending = ptr(current != pending)
	if !*f.MIG {
		return
	}
	count, ret := q.dev.GetMaxMigDeviceCount()
	if value(q, count, ret) == nil {
		f.Partial = true
		return
	}
	minors := l.migMinors()
	for i := range count {
		dev, ret := q.dev.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue // no instance in this place
		}
		if value(q, dev, ret) == nil {
			f.Partial = true
			continue
		}
		inst, ok := readInstance(&query{dev: dev}, f.model)
		if !ok {
			f.Partial = true
			continue
		}
		if f.Minor != nil {
			inst.Caps = capsOf(minors, *f.Minor, inst)
		}
		f.Instances = append(f.Instances, inst)
	}
}

// readInstance reads one instance; false if it cannot be named or placed.
func readInstance(q *query, parent string) (Instance, bool) {
	uuid, ret := q.dev.GetUUID()
	if ret != nvml.SUCCESS || uuid == "" {
		return Instance{}, false
	}
	gi, ret := q.dev.GetGpuInstanceId()
	if ret != nvml.SUCCESS {
		return Instance{}, false
	}
	ci, ret := q.dev.GetComputeInstanceId()
	if ret != nvml.SUCCESS {
		return Instance{}, false
	}
	inst := Instance{UUID: uuid, GPUInstance: gi, ComputeInstance: ci}
	if memory, ret := q.dev.GetMemoryInfo(); value(q, memory, ret) != nil {
		inst.MemoryMiB = ptr(memory.Total / bytesPerMiB)
	}
	profile := ""
	if a, ret := q.dev.GetAttributes(); value(q, a, ret) != nil {
		inst.Multiprocessors, inst.Slices = ptr(uint64(a.MultiprocessorCount)), ptr(uint64(a.GpuInstanceSliceCount))
		profile = profileName(a)
	}
	if name, ret := q.dev.GetName(); value(q, name, ret) != nil {
		if _, after, ok := strings.Cut(name, migMark); ok {
			inst.Model, inst.Profile = name, after
			return inst, true
		}
	}
	if profile == "" {
		return Instance{}, false
	}
	inst.Model, inst.Profile = parent+migMark+profile, profile
	return inst, true
}

// profileName names a profile as the driver does.
func profileName(a nvml.DeviceAttributes) string {
	name := fmt.Sprintf("%dg.%dgb", a.GpuInstanceSliceCount, (a.MemorySizeMB+1023)/1024)
	if a.ComputeInstanceSliceCount < a.GpuInstanceSliceCount {
		name = fmt.Sprintf("%dc.%s", a.ComputeInstanceSliceCount, name)
	}
	return name
}

// migMinors reads the numbers of the instances' device nodes.
func (l *library) migMinors() map[string]int {
	data, err := fs.ReadFile(l.proc, "driver/nvidia-caps/mig-minors")
	if err != nil {
		return nil // containers and simulated machines have none
	}
	return parseMIGMinors(string(data))
}
