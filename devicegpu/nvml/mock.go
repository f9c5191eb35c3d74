//go:build cgo

package nvml

import (
	"fmt"
	"io/fs"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// openMock asks go-nvml's mock machine as if it were a driver, after filling
// in what the mocks lack: UUIDs that stay the same, and everything that the
// machine describes beyond their model, memory and versions.
func openMock(name string, m machine, seed string) (Source, error) {
	mocks := map[string]func() *server.Server{
		"dgxa100": dgxa100.New, "dgxh100": dgxh100.New, "dgxh200": dgxh200.New, "dgxb200": dgxb200.New,
	}
	s := mocks[name]()
	if len(s.Devices) != len(m.gpuBus) {
		return nil, fmt.Errorf("mock machine %s has %d GPUs, want %d", name, len(s.Devices), len(m.gpuBus))
	}
	for i, d := range s.Devices {
		dev := d.(*server.Device)
		dev.UUID = stableUUID(seed, name, i)
		m.fillDevice(dev, m.found(i, dev.UUID))
	}
	return &library{lib: s, simulated: true, host: func([]string) host { return m.host() }, proc: nothing{}}, nil
}

// nothing is a file system without files.
type nothing struct{}

// Open implements fs.FS.
func (nothing) Open(string) (fs.File, error) { return nil, fs.ErrNotExist }

// fillDevice answers the calls that a mock device does not know. It has no
// sensors: what the figures of an idle GPU would be is not made up.
func (m machine) fillDevice(dev *server.Device, f found) {
	pci := nvml.PciInfo{PciDeviceId: dev.Config.PciDeviceId}
	for i, c := range f.busID {
		pci.BusId[i] = int8(c)
	}
	dev.PciBusID = f.busID
	// One of the mocks puts "Mock" before the model's name.
	dev.GetNameFunc = func() (string, nvml.Return) { return m.model, nvml.SUCCESS }
	dev.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return pci, nvml.SUCCESS }
	dev.GetBAR1MemoryInfoFunc = func() (nvml.BAR1Memory, nvml.Return) {
		return nvml.BAR1Memory{Bar1Total: m.bar1MiB * bytesPerMiB}, nvml.SUCCESS
	}
	dev.GetPowerManagementLimitFunc = func() (uint32, nvml.Return) { return uint32(m.powerW * 1000), nvml.SUCCESS }
	dev.GetMaxClockInfoFunc = func(clock nvml.ClockType) (uint32, nvml.Return) {
		if clock == nvml.CLOCK_MEM {
			return uint32(m.memoryMHz), nvml.SUCCESS
		}
		return uint32(m.coresMHz), nvml.SUCCESS
	}
	dev.GetMaxPcieLinkGenerationFunc = func() (int, nvml.Return) { return int(m.pcieGeneration), nvml.SUCCESS }
	dev.GetMaxPcieLinkWidthFunc = func() (int, nvml.Return) { return pcieWidth, nvml.SUCCESS }
	dev.GetDisplayModeFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_DISABLED, nvml.SUCCESS }
	dev.GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, nvml.SUCCESS }
	dev.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link >= m.nvlinks {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	dev.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
		return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
	}
	dev.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
		return nvml.GpuFabricInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	fillSensors(dev)
	fillHealth(dev)
}

// fillHealth makes the GPU a healthy one.
func fillHealth(dev *server.Device) {
	dev.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 0, nvml.SUCCESS }
	dev.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	dev.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.SUCCESS }
	dev.GetSramEccErrorStatusFunc = func() (nvml.EccSramErrorStatus, nvml.Return) {
		return nvml.EccSramErrorStatus{}, nvml.SUCCESS
	}
}

func fillSensors(dev *server.Device) {
	const none = nvml.ERROR_NOT_SUPPORTED
	dev.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 0, none }
	dev.GetClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 0, none }
	dev.GetPcieThroughputFunc = func(nvml.PcieUtilCounter) (uint32, nvml.Return) { return 0, none }
	dev.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 0, none }
	dev.GetFieldValuesFunc = func([]nvml.FieldValue) nvml.Return { return none }
	dev.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, none }
	dev.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{}, none }
	dev.GetEncoderUtilizationFunc = func() (uint32, uint32, nvml.Return) { return 0, 0, none }
	dev.GetDecoderUtilizationFunc = func() (uint32, uint32, nvml.Return) { return 0, 0, none }
	dev.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, none }
	dev.GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) { return nil, none }
	dev.GetDetailedEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (nvml.EccErrorCounts, nvml.Return) {
		return nvml.EccErrorCounts{}, none
	}
}
