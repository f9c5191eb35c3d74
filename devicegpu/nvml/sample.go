//go:build cgo

package nvml

import (
	"fmt"

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
	var samples []Sample
	for i := range count {
		dev, ret := l.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		if uuid, ret := dev.GetUUID(); ret == nvml.SUCCESS {
			samples = append(samples, sample(dev, uuid))
		}
	}
	return samples, nil
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
