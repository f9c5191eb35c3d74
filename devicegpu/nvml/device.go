//go:build cgo

package nvml

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// query asks one device, and remembers the worst that it answered.
type query struct {
	dev nvml.Device
	// failure is the error that says something about the GPU itself.
	failure nvml.Return
}

// value returns what a call of NVML returned, nil where it failed.
func value[T any](q *query, v T, ret nvml.Return) *T {
	switch ret {
	case nvml.SUCCESS:
		return &v
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		q.failure = ret
	}
	return nil
}

// vital is value for what every GPU can tell. Other calls fail with all kinds
// of errors on boards that merely lack what is asked for.
func vital[T any](q *query, v T, ret nvml.Return) *T {
	if ret != nvml.SUCCESS && ret != nvml.ERROR_NOT_SUPPORTED && q.failure == nvml.SUCCESS {
		q.failure = ret
	}
	return value(q, v, ret)
}

// set notes an error that came in place of the GPU's data.
func (h *Health) set(ret nvml.Return) {
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		h.Lost = errorText(ret)
	default:
		h.Silent = errorText(ret)
	}
}

// number is value for whole numbers of any type, divided down to a unit.
func number[T ~int | ~uint32 | ~uint64](q *query, v T, ret nvml.Return, unit uint64) *uint64 {
	p := value(q, v, ret)
	if p == nil {
		return nil
	}
	return ptr(uint64(*p) / unit)
}

const bytesPerMiB = 1 << 20

// find asks for everything about GPU i. An error means that the GPU cannot
// even be named.
func (l *library) find(i int) (found, nvml.Return) {
	dev, ret := l.lib.DeviceGetHandleByIndex(i)
	if ret != nvml.SUCCESS {
		return found{}, ret
	}
	uuid, ret := dev.GetUUID()
	if ret == nvml.SUCCESS && uuid == "" {
		ret = nvml.ERROR_UNKNOWN
	}
	if ret != nvml.SUCCESS {
		return found{}, ret
	}
	q := &query{dev: dev}
	f := found{uuid: uuid, GPU: GPU{Vendor: "nvidia"}, direct: map[string]int{}}
	pci, ret := dev.GetPciInfo()
	if vital(q, pci, ret) != nil {
		// An address that cannot be read leaves the GPU without its place in
		// the PCIe tree, and usable.
		f.busID, _ = topology.NormalizeBusID(busIDText(pci.BusId))
	}
	if name, ret := dev.GetName(); vital(q, name, ret) != nil {
		f.model = name
	}
	minor, ret := dev.GetMinorNumber()
	f.Minor = value(q, minor, ret)
	f.read(q)
	l.readLinks(q, &f)
	l.readFabric(q, &f)
	l.readMIG(q, &f)
	l.readHealth(q, &f.Health)
	f.Health.set(q.failure)
	return f, nvml.SUCCESS
}

// readHealth reads what tells a GPU's health, as far as the driver knows the
// functions.
func (l *library) readHealth(q *query, h *Health) {
	errors, ret := q.dev.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	h.UncorrectedVolatile = value(q, errors, ret)
	errors, ret = q.dev.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC)
	h.UncorrectedAggregate = value(q, errors, ret)
	pages, ret := q.dev.GetRetiredPagesPendingStatus()
	if value(q, pages, ret) != nil {
		h.RetiredPending = ptr(pages == nvml.FEATURE_ENABLED)
	}
	if l.has("nvmlDeviceGetRemappedRows") {
		_, _, pending, failed, ret := q.dev.GetRemappedRows()
		h.RemapPending, h.RemapFailed = value(q, pending, ret), value(q, failed, ret)
	}
	if l.has("nvmlDeviceGetSramEccErrorStatus") {
		if s, ret := q.dev.GetSramEccErrorStatus(); value(q, s, ret) != nil {
			h.SRAMThreshold = ptr(s.BThresholdExceeded != 0)
		}
	}
}

// read fills in what attributes are made of.
func (f *found) read(q *query) {
	if memory, ret := q.dev.GetMemoryInfo(); vital(q, memory, ret) != nil {
		f.MemoryMiB = ptr(memory.Total / bytesPerMiB)
	}
	if bar1, ret := q.dev.GetBAR1MemoryInfo(); value(q, bar1, ret) != nil {
		f.BAR1MiB = ptr(bar1.Bar1Total / bytesPerMiB)
	}
	mw, ret := q.dev.GetPowerManagementLimit()
	f.PowerLimitW = number(q, mw, ret, 1000)
	cores, ret := q.dev.GetMaxClockInfo(nvml.CLOCK_GRAPHICS)
	f.CoresClockMHz = number(q, cores, ret, 1)
	memory, ret := q.dev.GetMaxClockInfo(nvml.CLOCK_MEM)
	f.MemoryClockMHz = number(q, memory, ret, 1)
	generation, ret := q.dev.GetMaxPcieLinkGeneration()
	f.PCIeGeneration = number(q, generation, ret, 1)
	width, ret := q.dev.GetMaxPcieLinkWidth()
	f.PCIeWidth = number(q, width, ret, 1)
	if mode, ret := q.dev.GetDisplayMode(); value(q, mode, ret) != nil {
		f.DisplayOn = ptr(mode == nvml.FEATURE_ENABLED)
	}
	if mode, ret := q.dev.GetPersistenceMode(); value(q, mode, ret) != nil {
		f.PersistenceOn = ptr(mode == nvml.FEATURE_ENABLED)
	}
	if major, minor, ret := q.dev.GetCudaComputeCapability(); value(q, major, ret) != nil {
		f.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
	}
}

// readLinks counts the GPU's NVLinks by what is at their other end.
func (l *library) readLinks(q *query, f *found) {
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := q.dev.GetNvLinkState(link)
		switch {
		case ret == nvml.ERROR_NOT_SUPPORTED && link == 0:
			return // a GPU without NVLink
		case value(q, state, ret) == nil:
			continue // a number without a link
		case state != nvml.FEATURE_ENABLED:
			f.Health.LinksInactive++
			continue
		}
		f.Health.LinksActive++
		switch l.remoteType(q, link) {
		case nvml.NVLINK_DEVICE_TYPE_SWITCH:
			f.switched++
			f.Health.LinksToSwitches++
		case nvml.NVLINK_DEVICE_TYPE_GPU:
			remote, ret := q.dev.GetNvLinkRemotePciInfo(link)
			if value(q, remote, ret) == nil {
				continue
			}
			if busID, err := topology.NormalizeBusID(busIDText(remote.BusId)); err == nil {
				f.direct[busID]++
			}
		}
	}
}

// remoteType says what a link leads to. Drivers before 470 cannot tell; there,
// what has the address of a bridge is a switch.
func (l *library) remoteType(q *query, link int) nvml.IntNvLinkDeviceType {
	if l.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
		if kind, ret := q.dev.GetNvLinkRemoteDeviceType(link); value(q, kind, ret) != nil {
			return kind
		}
	}
	remote, ret := q.dev.GetNvLinkRemotePciInfo(link)
	if value(q, remote, ret) == nil {
		return nvml.NVLINK_DEVICE_TYPE_UNKNOWN
	}
	if _, ret := l.lib.DeviceGetHandleByPciBusId(busIDText(remote.BusId)); ret == nvml.SUCCESS {
		return nvml.NVLINK_DEVICE_TYPE_GPU
	}
	return nvml.NVLINK_DEVICE_TYPE_SWITCH
}

// readFabric reads the NVLink domain beyond the node. The cluster's UUID is
// zero on machines whose NVSwitches stay within the node.
func (l *library) readFabric(q *query, f *found) {
	if !l.has("nvmlDeviceGetGpuFabricInfo") {
		return
	}
	info, ret := q.dev.GetGpuFabricInfo()
	if value(q, info, ret) == nil {
		return
	}
	switch info.State {
	case nvml.GPU_FABRIC_STATE_NOT_STARTED:
		f.Health.Fabric = FabricNotStarted
	case nvml.GPU_FABRIC_STATE_IN_PROGRESS:
		f.Health.Fabric = FabricInProgress
	case nvml.GPU_FABRIC_STATE_COMPLETED:
		f.Health.Fabric = FabricCompleted
		if status := nvml.Return(info.Status); status != nvml.SUCCESS {
			f.Health.FabricError = errorText(status)
			return
		}
	}
	if info.State != nvml.GPU_FABRIC_STATE_COMPLETED || info.ClusterUuid == [16]uint8{} {
		return
	}
	u := info.ClusterUuid
	f.fabric = topology.Fabric{
		ClusterUUID: fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]),
		CliqueID:    info.CliqueId,
	}
}

// busIDText reads NVML's fixed array of characters, which ends at a zero.
func busIDText(id [32]int8) string {
	var b strings.Builder
	for _, c := range id {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}
