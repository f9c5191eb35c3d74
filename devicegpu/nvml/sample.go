//go:build cgo

package nvml

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Samples reads the figures of every GPU that answers.
func (l *library) Samples() ([]Sample, error) {
	if l.start() != nil {
		return nil, nil // no driver, no GPUs
	}
	l.use.RLock()
	defer l.use.RUnlock()
	count, ret := l.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count GPUs: %s", errorText(ret))
	}
	// Some calls measure for 20 milliseconds each; so the GPUs are read side by
	// side.
	parts := make([][]Sample, count)
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() { parts[i] = l.sampleGPU(i) })
	}
	wg.Wait()
	return slices.Concat(parts...), nil
}

// sampleGPU reads a GPU, and its instances if it is divided.
func (l *library) sampleGPU(i int) []Sample {
	dev, ret := l.lib.DeviceGetHandleByIndex(i)
	if ret != nvml.SUCCESS {
		return nil
	}
	uuid, ret := dev.GetUUID()
	if ret != nvml.SUCCESS {
		return nil
	}
	f := found{}
	if l.readMIG(&query{dev: dev}, &f); !f.Divided() {
		s := sample(dev, uuid)
		l.sampleMore(&query{dev: dev}, &s)
		return []Sample{s}
	}
	var samples []Sample
	for j := range maxInstancesOfGPU {
		inst, ret := dev.GetMigDeviceHandleByIndex(j)
		if ret != nvml.SUCCESS {
			continue
		}
		if uuid, ret := inst.GetUUID(); ret == nvml.SUCCESS {
			samples = append(samples, sampleInstance(inst, uuid))
		}
	}
	return samples
}

// maxInstancesOfGPU is how many places for instances are tried: more than any
// GPU has.
const maxInstancesOfGPU = 16

// sampleInstance reads what a driver tells of a MIG instance; the rest belongs
// to the whole GPU.
func sampleInstance(dev nvml.Device, uuid string) Sample {
	q := &query{dev: dev}
	s := Sample{UUID: uuid}
	if memory, ret := dev.GetMemoryInfo(); value(q, memory, ret) != nil {
		s.MemoryUsedMiB = ptr(memory.Used / bytesPerMiB)
	}
	if ecc, ret := dev.GetDetailedEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC); value(q, ecc, ret) != nil {
		s.ECCMemory = ptr(ecc.DeviceMemory)
	}
	return s
}

// sampleMore reads what nomad-device-nvidia does not report.
func (l *library) sampleMore(q *query, s *Sample) {
	var h Health
	l.readHealth(q, &h)
	s.UncorrectedVolatile, s.UncorrectedAggregate = h.UncorrectedVolatile, h.UncorrectedAggregate
	if l.has("nvmlDeviceGetRemappedRows") {
		if corrected, uncorrected, _, _, ret := q.dev.GetRemappedRows(); value(q, corrected, ret) != nil {
			s.RemappedRows = ptr(uint64(corrected + uncorrected))
		}
	}
	cores, ret := q.dev.GetClockInfo(nvml.CLOCK_GRAPHICS)
	s.CoresClockMHz = number(q, cores, ret, 1)
	memory, ret := q.dev.GetClockInfo(nvml.CLOCK_MEM)
	s.MemoryClockMHz = number(q, memory, ret, 1)
	sent, ret := q.dev.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)
	s.PCIeSentKBs = number(q, sent, ret, 1)
	received, ret := q.dev.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
	s.PCIeReceivedKBs = number(q, received, ret, 1)
	if mask, ret := q.dev.GetCurrentClocksThrottleReasons(); value(q, mask, ret) != nil {
		s.Throttled = ptr(throttleWords(mask))
	}
	f := found{direct: map[string]int{}}
	l.readLinks(q, &f)
	if f.Health.LinksActive+f.Health.LinksInactive == 0 {
		return
	}
	s.NVLinksActive = ptr(uint64(f.Health.LinksActive))
	s.NVLinkSentKiB = fieldValue(q, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX)
	s.NVLinkReceivedKiB = fieldValue(q, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
}

// allLinks is the scope of a field that sums up all NVLinks.
const allLinks = 0xFFFFFFFF

// fieldValue reads a counter of all NVLinks.
func fieldValue(q *query, field uint32) *uint64 {
	values := []nvml.FieldValue{{FieldId: field, ScopeId: allLinks}}
	ret := q.dev.GetFieldValues(values)
	if value(q, values, ret) == nil || nvml.Return(values[0].NvmlReturn) != nvml.SUCCESS ||
		nvml.ValueType(values[0].ValueType) != nvml.VALUE_TYPE_UNSIGNED_LONG_LONG {
		return nil
	}
	return ptr(binary.NativeEndian.Uint64(values[0].Value[:]))
}

// throttleWords names what keeps the clocks down. That a GPU is idle, or runs
// at the clocks that its user set, is no throttling.
func throttleWords(mask uint64) []string {
	reasons := []struct {
		bit  uint64
		word string
	}{
		{nvml.ClocksThrottleReasonSwPowerCap, "power cap"},
		{nvml.ClocksThrottleReasonHwSlowdown, "hardware slowdown"},
		{nvml.ClocksThrottleReasonSyncBoost, "sync boost"},
		{nvml.ClocksThrottleReasonSwThermalSlowdown, "thermal"},
		{nvml.ClocksThrottleReasonHwThermalSlowdown, "hardware thermal"},
		{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
	}
	words := []string{}
	for _, r := range reasons {
		if mask&r.bit != 0 {
			words = append(words, r.word)
		}
	}
	return words
}

func sample(dev nvml.Device, uuid string) Sample {
	q := &query{dev: dev}
	s := Sample{UUID: uuid}
	power, ret := dev.GetPowerUsage()
	s.PowerW = number(q, power, ret, 1000)
	temperature, ret := dev.GetTemperature(nvml.TEMPERATURE_GPU)
	s.TemperatureC = number(q, temperature, ret, 1)
	if rates, ret := dev.GetUtilizationRates(); value(q, rates, ret) != nil {
		s.GPUUtilization, s.MemoryUtilization = ptr(uint64(rates.Gpu)), ptr(uint64(rates.Memory))
	}
	encoder, _, ret := dev.GetEncoderUtilization()
	s.EncoderUtilization = number(q, encoder, ret, 1)
	decoder, _, ret := dev.GetDecoderUtilization()
	s.DecoderUtilization = number(q, decoder, ret, 1)
	if memory, ret := dev.GetMemoryInfo(); value(q, memory, ret) != nil {
		s.MemoryUsedMiB = ptr(memory.Used / bytesPerMiB)
	}
	if bar1, ret := dev.GetBAR1MemoryInfo(); value(q, bar1, ret) != nil {
		s.BAR1UsedMiB = ptr(bar1.Bar1Used / bytesPerMiB)
	}
	if ecc, ret := dev.GetDetailedEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC); value(q, ecc, ret) != nil {
		s.ECCL1Cache, s.ECCL2Cache, s.ECCMemory = ptr(ecc.L1Cache), ptr(ecc.L2Cache), ptr(ecc.DeviceMemory)
	}
	return s
}
