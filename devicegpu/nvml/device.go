//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// migUnhealthy is why a GPU that is divided cannot be handed out whole.
const migUnhealthy = "MIG is enabled: the GPU is divided and its instances are not offered"

// query asks one device, and remembers whether it turned out to be lost.
type query struct {
	dev  nvml.Device
	lost bool
}

// value returns what a call of NVML returned, nil where it failed.
func value[T any](q *query, v T, ret nvml.Return) *T {
	if ret == nvml.ERROR_GPU_IS_LOST {
		q.lost = true
	}
	if ret != nvml.SUCCESS {
		return nil
	}
	return &v
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

// find asks for everything about GPU i. Its error means that the GPU cannot
// even be named.
func (l *library) find(i int) (found, error) {
	dev, ret := l.lib.DeviceGetHandleByIndex(i)
	if ret != nvml.SUCCESS {
		return found{}, errors.New(errorText(ret))
	}
	uuid, ret := dev.GetUUID()
	if ret != nvml.SUCCESS || uuid == "" {
		return found{}, fmt.Errorf("read UUID: %s", errorText(ret))
	}
	q := &query{dev: dev}
	f := found{uuid: uuid, GPU: GPU{Vendor: "nvidia"}, direct: map[string]int{}}
	if pci, ret := dev.GetPciInfo(); ret == nvml.SUCCESS {
		// An address that cannot be read leaves the GPU without its place in
		// the PCIe tree, and usable.
		f.busID, _ = topology.NormalizeBusID(busIDText(pci.BusId))
	}
	if name, ret := dev.GetName(); value(q, name, ret) != nil {
		f.model = name
	}
	minor, ret := dev.GetMinorNumber()
	f.Minor = value(q, minor, ret)
	f.read(q)
	l.readLinks(q, &f)
	l.readFabric(q, &f)
	switch {
	case q.lost:
		f.Unhealthy = errorText(nvml.ERROR_GPU_IS_LOST)
	case l.has("nvmlDeviceGetMigMode"):
		if mode, _, ret := dev.GetMigMode(); ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE {
			f.Unhealthy = migUnhealthy
		}
	}
	return f, nil
}

// read fills in what attributes are made of.
func (f *found) read(q *query) {
	if memory, ret := q.dev.GetMemoryInfo(); value(q, memory, ret) != nil {
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
			f.inactive++
			continue
		}
		switch l.remoteType(q, link) {
		case nvml.NVLINK_DEVICE_TYPE_SWITCH:
			f.switched++
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
	if value(q, info, ret) == nil || info.State != nvml.GPU_FABRIC_STATE_COMPLETED || info.ClusterUuid == [16]uint8{} {
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
