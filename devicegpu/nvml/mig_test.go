//go:build cgo

package nvml

import (
	"testing"
	"testing/fstest"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"
)

// migDevice is an instance as NVML shows it.
func migDevice(uuid, name string, gi, ci int, a nvml.DeviceAttributes) *mock.Device {
	return &mock.Device{
		GetUUIDFunc:              func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc:              func() (string, nvml.Return) { return name, nvml.SUCCESS },
		GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return gi, nvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, nvml.Return) { return ci, nvml.SUCCESS },
		GetAttributesFunc:        func() (nvml.DeviceAttributes, nvml.Return) { return a, nvml.SUCCESS },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
			return nvml.Memory{Total: a.MemorySizeMB << 20, Used: 7 << 20}, nvml.SUCCESS
		},
		GetDetailedEccErrorsFunc: func(nvml.MemoryErrorType, nvml.EccCounterType) (nvml.EccErrorCounts, nvml.Return) {
			return nvml.EccErrorCounts{}, nvml.ERROR_NOT_SUPPORTED
		},
	}
}

// divide puts a GPU of the fake driver into MIG mode.
func (d driver) divide(i int, instances ...*mock.Device) {
	dev := d.devices[i]
	dev.MigMode = nvml.DEVICE_MIG_ENABLE
	dev.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	dev.GetMigDeviceHandleByIndexFunc = func(n int) (nvml.Device, nvml.Return) {
		// The places of instances have gaps.
		if n%2 == 1 || n/2 >= len(instances) {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return instances[n/2], nvml.SUCCESS
	}
}

var slices3of7 = nvml.DeviceAttributes{MultiprocessorCount: 42, GpuInstanceSliceCount: 3, ComputeInstanceSliceCount: 3, MemorySizeMB: 19968}

func TestMIGInstances(t *testing.T) {
	half := slices3of7
	half.ComputeInstanceSliceCount = 1
	d := newDriver(t, 2)
	d.divide(1,
		migDevice("MIG-a", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", 1, 0, slices3of7),
		migDevice("MIG-b", "a name of old", 2, 1, half),
	)
	proc := fstest.MapFS{"driver/nvidia-caps/mig-minors": {Data: []byte("config 1\ngpu1/gi1/access 30\ngpu1/gi1/ci0/access 31\ngpu0/gi2/access 40\nnonsense\n")}}
	inv, err := newLibrary(d, fstest.MapFS{}, proc).Inventory()
	if err != nil {
		t.Fatal(err)
	}
	if inv.GPUs[0].Divided() || !inv.GPUs[1].Divided() || inv.GPUs[1].Partial {
		t.Errorf("GPU 0 divided: %v, GPU 1: %v, in part: %v", inv.GPUs[0].Divided(), inv.GPUs[1].Divided(), inv.GPUs[1].Partial)
	}
	want := []Instance{
		{UUID: "MIG-a", Model: "NVIDIA A100-SXM4-40GB MIG 3g.20gb", Profile: "3g.20gb", GPUInstance: 1, MemoryMiB: ptr(uint64(19968)), Multiprocessors: ptr(uint64(42)), Slices: ptr(uint64(3)), Caps: []int{30, 31}},
		{UUID: "MIG-b", Model: "NVIDIA H100 80GB HBM3 MIG 1c.3g.20gb", Profile: "1c.3g.20gb", GPUInstance: 2, ComputeInstance: 1, MemoryMiB: ptr(uint64(19968)), Multiprocessors: ptr(uint64(42)), Slices: ptr(uint64(3))},
	}
	if diff := cmp.Diff(want, inv.GPUs[1].Instances); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
}

// TestMIGFaults: an instance that cannot be read hides neither its siblings nor
// that there is one more.
func TestMIGFaults(t *testing.T) {
	tests := map[string]struct {
		breakIt     func(driver, *mock.Device)
		unknownMode bool
		instances   int
	}{
		"no mode": {func(d driver, _ *mock.Device) {
			d.devices[0].GetMigModeFunc = func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_UNKNOWN }
		}, true, 0},
		"no count": {func(d driver, _ *mock.Device) {
			d.devices[0].GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
		}, false, 0},
		"no handle": {func(d driver, _ *mock.Device) {
			byIndex := d.devices[0].GetMigDeviceHandleByIndexFunc
			d.devices[0].GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
				if i == 0 {
					return nil, nvml.ERROR_UNKNOWN
				}
				return byIndex(i)
			}
		}, false, 1},
		"no UUID": {func(_ driver, m *mock.Device) {
			m.GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
		}, false, 1},
		"no place": {func(_ driver, m *mock.Device) {
			m.GetGpuInstanceIdFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
		}, false, 1},
		"no half place": {func(_ driver, m *mock.Device) {
			m.GetComputeInstanceIdFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
		}, false, 1},
		"no profile": {func(_ driver, m *mock.Device) {
			m.GetNameFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
			m.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
				return nvml.DeviceAttributes{}, nvml.ERROR_UNKNOWN
			}
		}, false, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 1)
			first := migDevice("MIG-a", "X MIG 1g.5gb", 1, 0, slices3of7)
			d.divide(0, first, migDevice("MIG-b", "X MIG 1g.5gb", 2, 0, slices3of7))
			tt.breakIt(d, first)
			g := d.inventory(t).GPUs[0]
			if (g.MIG == nil) != tt.unknownMode || len(g.Instances) != tt.instances || !tt.unknownMode && !g.Partial {
				t.Errorf("MIG %v, instances %+v, in part: %v", g.MIG, g.Instances, g.Partial)
			}
		})
	}
}

func FuzzMIGMinors(f *testing.F) {
	f.Add("config 1\nmonitor 2\ngpu0/gi1/access 3\ngpu0/gi1/ci0/access 4\n")
	f.Add("gpu0/gi1/access -1\n x \n\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, n := range parseMIGMinors(text) {
			if n < 0 {
				t.Fatalf("%q is %d", name, n)
			}
		}
	})
}
