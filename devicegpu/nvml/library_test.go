//go:build cgo

package nvml

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// driver is a fake driver with n H100s that a test can break.
type driver struct {
	*server.Server
	devices []*server.Device
}

func newDriver(t *testing.T, n int) driver {
	t.Helper()
	s, err := server.New(server.WithGPUs(gpus.Multiple(n, gpus.H100_SXM5_80GB)...), server.WithDriverVersion("1.2"), server.WithCUDADriverVersion(12080))
	if err != nil {
		t.Fatal(err)
	}
	d := driver{Server: s}
	m := machines["dgxh100"]
	for i, dev := range s.Devices {
		dev := dev.(*server.Device)
		dev.UUID = stableUUID("test", "driver", i)
		m.fillDevice(dev, m.found(i, dev.UUID))
		d.devices = append(d.devices, dev)
	}
	return d
}

func (d driver) inventory(t *testing.T) Inventory {
	t.Helper()
	inv, err := newLibrary(d, fstest.MapFS{}).Inventory()
	if err != nil {
		t.Fatal(err)
	}
	if err := inv.Matrix.Validate(); err != nil {
		t.Fatal(err)
	}
	return inv
}

func TestNoLibraryIsNoError(t *testing.T) {
	d := newDriver(t, 2)
	ret := nvml.ERROR_LIBRARY_NOT_FOUND
	d.InitFunc = func() nvml.Return { return ret }
	lib := newLibrary(d, fstest.MapFS{})
	inv, err := lib.Inventory()
	if err != nil || len(inv.GPUs) != 0 || len(inv.Problems) != 1 || !strings.Contains(inv.Problems[0], "libnvidia-ml.so.1") {
		t.Errorf("inventory %+v, %v", inv, err)
	}
	if samples, err := lib.Samples(); err != nil || len(samples) > 0 {
		t.Errorf("samples %v, %v", samples, err)
	}
	ret = nvml.ERROR_DRIVER_NOT_LOADED
	if inv, err = lib.Inventory(); err != nil || !strings.Contains(inv.Problems[0], "driver is not loaded") {
		t.Errorf("inventory %+v, %v", inv, err)
	}
	// The driver is installed later.
	ret = nvml.SUCCESS
	if inv, err = lib.Inventory(); err != nil || len(inv.GPUs) != 2 || len(inv.Problems) != 0 {
		t.Errorf("inventory %+v, %v", inv, err)
	}
	if err := lib.Close(); err != nil {
		t.Error(err)
	}
}

func TestLibraryFaults(t *testing.T) {
	const lost = nvml.ERROR_GPU_IS_LOST
	tests := map[string]struct {
		breakIt   func(driver)
		gpus      int
		unhealthy map[int]string
		problem   string
	}{
		"nothing": {func(driver) {}, 3, nil, ""},
		"handle is lost": {func(d driver) {
			byIndex := d.DeviceGetHandleByIndexFunc
			d.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
				if i == 1 {
					return nil, lost
				}
				return byIndex(i)
			}
		}, 2, nil, "GPU 1: the GPU has fallen off the bus"},
		"lost half-way": {func(d driver) {
			d.devices[1].GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, lost }
		}, 3, map[int]string{1: "the GPU has fallen off the bus"}, ""},
		"no UUID": {func(d driver) {
			d.devices[2].GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
		}, 2, nil, "GPU 2: read UUID: NVML error 999"},
		"MIG": {func(d driver) { d.devices[0].MigMode = nvml.DEVICE_MIG_ENABLE }, 3, map[int]string{0: migUnhealthy}, ""},
		"no sensors, clocks, limits": {func(d driver) {
			d.devices[0].GetMaxClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 7, nvml.ERROR_NOT_SUPPORTED }
			d.devices[0].GetPowerManagementLimitFunc = func() (uint32, nvml.Return) { return 7, nvml.ERROR_NOT_SUPPORTED }
		}, 3, nil, ""},
		"bad bus ID": {func(d driver) {
			d.devices[0].GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.SUCCESS }
		}, 3, nil, ""},
		"some NVLinks down": {func(d driver) {
			d.devices[1].GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
				if link < 2 {
					return nvml.FEATURE_DISABLED, nvml.SUCCESS
				}
				return nvml.FEATURE_ENABLED, nvml.SUCCESS
			}
		}, 3, nil, "2 NVLinks are down"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 3)
			tt.breakIt(d)
			inv := d.inventory(t)
			if len(inv.GPUs) != tt.gpus {
				t.Errorf("%d GPUs, want %d", len(inv.GPUs), tt.gpus)
			}
			for i, g := range inv.GPUs {
				if g.Unhealthy != tt.unhealthy[i] {
					t.Errorf("GPU %d is unhealthy for %q, want %q", i, g.Unhealthy, tt.unhealthy[i])
				}
			}
			problems := strings.Join(inv.Problems, "\n")
			if tt.problem == "" && problems != "" || !strings.Contains(problems, tt.problem) {
				t.Errorf("problems %q, want %q", problems, tt.problem)
			}
		})
	}
}

func TestNotSupportedIsAbsent(t *testing.T) {
	d := newDriver(t, 1)
	d.devices[0].GetMaxClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 7, nvml.ERROR_NOT_SUPPORTED }
	d.devices[0].GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) { return 1, nvml.ERROR_UNKNOWN }
	g := d.inventory(t).GPUs[0]
	if g.CoresClockMHz != nil || g.MemoryClockMHz != nil || g.PersistenceOn != nil {
		t.Errorf("values that are not supported are there: %+v", g)
	}
	if g.MemoryMiB == nil || *g.MemoryMiB != 81920 {
		t.Errorf("memory is %v", g.MemoryMiB)
	}
}

func TestCountFails(t *testing.T) {
	d := newDriver(t, 1)
	d.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	if inv, err := newLibrary(d, fstest.MapFS{}).Inventory(); err == nil {
		t.Errorf("inventory %+v", inv)
	}
}

// TestBridgePairs: NVLinks that lead from GPU to GPU.
func TestBridgePairs(t *testing.T) {
	for name, knowsType := range map[string]bool{"new driver": true, "driver that cannot tell a link's type": false} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 4)
			peer := map[int]int{0: 1, 1: 0, 2: 3, 3: 2}
			for i, dev := range d.devices {
				pci, _ := d.devices[peer[i]].GetPciInfo()
				dev.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
					if link >= 4 {
						return 0, nvml.ERROR_INVALID_ARGUMENT
					}
					return nvml.FEATURE_ENABLED, nvml.SUCCESS
				}
				dev.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
					return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
				}
				dev.GetNvLinkRemotePciInfoFunc = func(int) (nvml.PciInfo, nvml.Return) { return pci, nvml.SUCCESS }
			}
			if !knowsType {
				d.LookupSymbolFunc = func(symbol string) error {
					if symbol == "nvmlDeviceGetNvLinkRemoteDeviceType" {
						return errNoLibrary
					}
					return nil
				}
			}
			m := d.inventory(t).Matrix
			if diff := cmp.Diff([][]int{{0, 1}, {2, 3}}, m.Islands()); diff != "" {
				t.Errorf("islands (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(topology.Link{Kind: topology.KindNVLink, Count: 4, GBs: 100}, m.Links[2][3]); diff != "" {
				t.Errorf("link (-want +got):\n%s", diff)
			}
			if m.NVSwitch {
				t.Errorf("bridges are taken for switches")
			}
		})
	}
}

func TestFabric(t *testing.T) {
	d := newDriver(t, 2)
	for _, dev := range d.devices {
		dev.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
			return nvml.GpuFabricInfo{ClusterUuid: [16]uint8{0xab, 15: 0x01}, CliqueId: 7, State: nvml.GPU_FABRIC_STATE_COMPLETED}, nvml.SUCCESS
		}
	}
	want := topology.Fabric{ClusterUUID: "ab000000-0000-0000-0000-000000000001", CliqueID: 7}
	if diff := cmp.Diff(want, d.inventory(t).Matrix.GPUs[1].Fabric); diff != "" {
		t.Errorf("fabric (-want +got):\n%s", diff)
	}
	d.devices[1].GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
		return nvml.GpuFabricInfo{ClusterUuid: [16]uint8{1}, State: nvml.GPU_FABRIC_STATE_IN_PROGRESS}, nvml.SUCCESS
	}
	if got := d.inventory(t).Matrix.GPUs[1].Fabric; got != (topology.Fabric{}) {
		t.Errorf("a fabric that is not ready is reported: %+v", got)
	}
}

func TestSamples(t *testing.T) {
	d := newDriver(t, 2)
	d.devices[1].GetPowerUsageFunc = func() (uint32, nvml.Return) { return 345678, nvml.SUCCESS }
	d.devices[1].GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{Gpu: 90, Memory: 30}, nvml.SUCCESS
	}
	samples, err := newLibrary(d, fstest.MapFS{}).Samples()
	if err != nil {
		t.Fatal(err)
	}
	want := Sample{
		UUID: d.devices[1].UUID, PowerW: ptr(uint64(345)), GPUUtilization: ptr(uint64(90)), MemoryUtilization: ptr(uint64(30)),
		MemoryUsedMiB: ptr(uint64(0)), BAR1UsedMiB: ptr(uint64(0)),
	}
	if diff := cmp.Diff(want, samples[1]); diff != "" {
		t.Errorf("sample (-want +got):\n%s", diff)
	}
}
