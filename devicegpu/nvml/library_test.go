//go:build cgo

package nvml

import (
	"encoding/binary"
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
	inv, err := newLibrary(d, fstest.MapFS{}, fstest.MapFS{}).Inventory()
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
	lib := newLibrary(d, fstest.MapFS{}, fstest.MapFS{})
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
	const lostText, resetText = "the GPU has fallen off the bus", "the GPU needs a reset"
	handle := func(d driver, i int, ret nvml.Return) {
		byIndex := d.DeviceGetHandleByIndexFunc
		d.DeviceGetHandleByIndexFunc = func(n int) (nvml.Device, nvml.Return) {
			if n == i {
				return nil, ret
			}
			return byIndex(n)
		}
	}
	links := func(d driver, i, down int) {
		d.devices[i].GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			switch {
			case link < down:
				return nvml.FEATURE_DISABLED, nvml.SUCCESS
			case link >= 18:
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
	}
	fabric := func(d driver, i int, info nvml.GpuFabricInfo) {
		d.devices[i].GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) { return info, nvml.SUCCESS }
	}
	tests := map[string]struct {
		breakIt func(driver)
		want    func(h *Health) // of GPU 1
		problem string
	}{
		"nothing": {func(driver) {}, func(*Health) {}, ""},
		"handle is lost": {func(d driver) { handle(d, 1, lost) }, func(h *Health) { *h = Health{Lost: lostText} },
			"GPU 1: the GPU has fallen off the bus"},
		"handle gives no answer": {func(d driver) { handle(d, 1, nvml.ERROR_UNKNOWN) }, func(h *Health) { *h = Health{Silent: "NVML error 999"} },
			"GPU 1: NVML error 999"},
		"no UUID": {func(d driver) {
			d.devices[1].GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
		}, func(h *Health) { *h = Health{Silent: "NVML error 999"} }, "GPU 1: NVML error 999"},
		"empty UUID": {func(d driver) {
			d.devices[1].GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.SUCCESS }
		}, func(h *Health) { *h = Health{Silent: "NVML error 999"} }, "GPU 1: NVML error 999"},
		"another one's UUID": {func(d driver) {
			d.devices[2].GetUUIDFunc = func() (string, nvml.Return) { return d.devices[1].UUID, nvml.SUCCESS }
		}, func(*Health) {}, "GPU 2 has the UUID"},
		"lost half-way": {func(d driver) {
			d.devices[1].GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, lost }
		}, func(h *Health) { h.Lost = lostText }, ""},
		"needs a reset": {func(d driver) {
			d.devices[1].GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_RESET_REQUIRED }
		}, func(h *Health) { h.Lost = resetText }, ""},
		"no name": {func(d driver) {
			d.devices[1].GetNameFunc = func() (string, nvml.Return) { return "", nvml.ERROR_TIMEOUT }
		}, func(h *Health) { h.Silent = "timed out" }, ""},
		"MIG pending": {func(d driver) {
			d.devices[1].GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 1, nvml.SUCCESS }
		}, func(h *Health) { h.MIGPending = ptr(true) }, ""},
		"an error of what it lacks": {func(d driver) {
			d.devices[1].GetMaxClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 7, nvml.ERROR_UNKNOWN }
			d.devices[1].GetPowerManagementLimitFunc = func() (uint32, nvml.Return) { return 7, nvml.ERROR_NOT_SUPPORTED }
		}, func(*Health) {}, ""},
		"bad bus ID": {func(d driver) {
			d.devices[1].GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return nvml.PciInfo{}, nvml.SUCCESS }
		}, func(*Health) {}, ""},
		"some NVLinks down": {func(d driver) { links(d, 1, 2) },
			func(h *Health) { h.LinksActive, h.LinksInactive, h.LinksToSwitches = 16, 2, 16 }, "2 NVLinks are down"},
		"uncorrectable errors": {func(d driver) {
			d.devices[1].GetTotalEccErrorsFunc = func(_ nvml.MemoryErrorType, c nvml.EccCounterType) (uint64, nvml.Return) {
				return 3 + uint64(c), nvml.SUCCESS
			}
		}, func(h *Health) { h.UncorrectedVolatile, h.UncorrectedAggregate = ptr(uint64(3)), ptr(uint64(4)) }, ""},
		"SRAM": {func(d driver) {
			d.devices[1].GetSramEccErrorStatusFunc = func() (nvml.EccSramErrorStatus, nvml.Return) {
				return nvml.EccSramErrorStatus{BThresholdExceeded: 1}, nvml.SUCCESS
			}
		}, func(h *Health) { h.SRAMThreshold = ptr(true) }, ""},
		"rows": {func(d driver) {
			d.devices[1].GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 1, 1, true, true, nvml.SUCCESS }
		}, func(h *Health) { h.RemapPending, h.RemapFailed = ptr(true), ptr(true) }, ""},
		"pages": {func(d driver) {
			d.devices[1].GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, nvml.SUCCESS }
		}, func(h *Health) { h.RetiredPending = ptr(true) }, ""},
		"fabric in progress": {func(d driver) { fabric(d, 1, nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_IN_PROGRESS}) },
			func(h *Health) { h.Fabric = FabricInProgress }, ""},
		"fabric not started": {func(d driver) { fabric(d, 1, nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_NOT_STARTED}) },
			func(h *Health) { h.Fabric = FabricNotStarted }, ""},
		"fabric failed": {func(d driver) {
			fabric(d, 1, nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED, Status: uint32(nvml.ERROR_UNKNOWN), ClusterUuid: [16]uint8{1}})
		}, func(h *Health) { h.Fabric, h.FabricError = FabricCompleted, "NVML error 999" }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 3)
			lib := newLibrary(d, fstest.MapFS{}, fstest.MapFS{})
			before, err := lib.Inventory()
			if err != nil {
				t.Fatal(err)
			}
			tt.breakIt(d)
			inv, err := lib.Inventory()
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range before.GPUs {
				at, ok := inv.Matrix.Index(before.Matrix.GPUs[i].UUID)
				if !ok {
					if !strings.Contains(tt.problem, "UUID") {
						t.Errorf("GPU %d is not listed", i)
					}
					continue
				}
				want := g.Health
				if i == 1 {
					tt.want(&want)
				}
				if diff := cmp.Diff(want, inv.GPUs[at].Health); diff != "" {
					t.Errorf("health of GPU %d (-want +got):\n%s", i, diff)
				}
			}
			if _, err := topology.Encode(inv.Matrix); err != nil {
				t.Error(err)
			}
			problems := strings.Join(inv.Problems, "\n")
			if tt.problem == "" && problems != "" || !strings.Contains(problems, tt.problem) {
				t.Errorf("problems %q, want %q", problems, tt.problem)
			}
		})
	}
}

// TestNeverNamed: a GPU that was lost before the first look has no name to be
// listed by.
func TestNeverNamed(t *testing.T) {
	d := newDriver(t, 2)
	d.devices[0].GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	inv := d.inventory(t)
	if len(inv.GPUs) != 1 || len(inv.Problems) != 1 || inv.Problems[0] != "GPU 0: the GPU has fallen off the bus" {
		t.Errorf("%d GPUs, problems %q", len(inv.GPUs), inv.Problems)
	}
}

// TestDriverComesBack: a library that failed is loaded anew, and the GPUs that
// were there are not taken for a machine without a driver.
func TestDriverComesBack(t *testing.T) {
	d := newDriver(t, 2)
	loads, ret := 0, nvml.SUCCESS
	d.InitFunc = func() nvml.Return { loads++; return ret }
	d.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	lib := newLibrary(d, fstest.MapFS{}, fstest.MapFS{})
	if _, err := lib.Inventory(); err != nil || loads != 1 {
		t.Fatalf("loaded %d times, %v", loads, err)
	}
	count := d.DeviceGetCountFunc
	d.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_DRIVER_NOT_LOADED }
	if _, err := lib.Inventory(); err == nil || !strings.Contains(err.Error(), "driver is not loaded") {
		t.Errorf("error %v", err)
	}
	ret = nvml.ERROR_LIBRARY_NOT_FOUND
	if inv, err := lib.Inventory(); err == nil {
		t.Errorf("a driver that is gone is taken for none: %+v", inv)
	}
	ret, d.DeviceGetCountFunc = nvml.SUCCESS, count
	if inv, err := lib.Inventory(); err != nil || len(inv.GPUs) != 2 || loads != 3 {
		t.Errorf("%d GPUs, loaded %d times, %v", len(inv.GPUs), loads, err)
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
	if inv, err := newLibrary(d, fstest.MapFS{}, fstest.MapFS{}).Inventory(); err == nil {
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
	dev := d.devices[1]
	dev.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 345678, nvml.SUCCESS }
	dev.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
		return nvml.Utilization{Gpu: 90, Memory: 30}, nvml.SUCCESS
	}
	dev.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(c), nvml.SUCCESS }
	dev.GetPcieThroughputFunc = func(c nvml.PcieUtilCounter) (uint32, nvml.Return) { return 500 + uint32(c), nvml.SUCCESS }
	dev.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) {
		return nvml.ClocksThrottleReasonGpuIdle | nvml.ClocksThrottleReasonSwPowerCap | nvml.ClocksThrottleReasonHwThermalSlowdown, nvml.SUCCESS
	}
	dev.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 1, 2, false, false, nvml.SUCCESS }
	dev.GetFieldValuesFunc = func(v []nvml.FieldValue) nvml.Return {
		if v[0].FieldId == nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX {
			v[0].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
			return nvml.SUCCESS
		}
		v[0].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
		binary.NativeEndian.PutUint64(v[0].Value[:], 1<<40)
		return nvml.SUCCESS
	}
	samples, err := newLibrary(d, fstest.MapFS{}, fstest.MapFS{}).Samples()
	if err != nil {
		t.Fatal(err)
	}
	want := []Sample{
		{
			UUID: d.devices[0].UUID, MemoryUsedMiB: ptr(uint64(0)), BAR1UsedMiB: ptr(uint64(0)), NVLinksActive: ptr(uint64(18)),
			UncorrectedVolatile: ptr(uint64(0)), UncorrectedAggregate: ptr(uint64(0)), RemappedRows: ptr(uint64(0)),
		},
		{
			UUID: dev.UUID, PowerW: ptr(uint64(345)), GPUUtilization: ptr(uint64(90)), MemoryUtilization: ptr(uint64(30)),
			MemoryUsedMiB: ptr(uint64(0)), BAR1UsedMiB: ptr(uint64(0)), NVLinksActive: ptr(uint64(18)),
			UncorrectedVolatile: ptr(uint64(0)), UncorrectedAggregate: ptr(uint64(0)), RemappedRows: ptr(uint64(3)),
			CoresClockMHz: ptr(uint64(1000)), MemoryClockMHz: ptr(uint64(1002)), PCIeSentKBs: ptr(uint64(500)), PCIeReceivedKBs: ptr(uint64(501)),
			NVLinkSentKiB: ptr(uint64(1 << 40)), Throttled: &[]string{"power cap", "hardware thermal"},
		},
	}
	if diff := cmp.Diff(want, samples); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

func TestSamplesOfInstances(t *testing.T) {
	d := newDriver(t, 1)
	d.divide(0, migDevice("MIG-a", "X MIG 3g.20gb", 1, 0, slices3of7), migDevice("MIG-b", "X MIG 3g.20gb", 2, 0, slices3of7))
	samples, err := newLibrary(d, fstest.MapFS{}, fstest.MapFS{}).Samples()
	if err != nil {
		t.Fatal(err)
	}
	want := []Sample{{UUID: "MIG-a", MemoryUsedMiB: ptr(uint64(7))}, {UUID: "MIG-b", MemoryUsedMiB: ptr(uint64(7))}}
	if diff := cmp.Diff(want, samples); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}
