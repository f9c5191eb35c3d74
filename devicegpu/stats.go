package devicegpu

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// Stats implements device.Plugin.
func (p *Plugin) Stats(ctx context.Context, interval time.Duration, send func([]device.GroupStats) error) error {
	p.mu.Lock()
	enabled := p.cfg.enabled
	p.mu.Unlock()
	if !enabled {
		return device.ErrDisabled
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var before figures
	for {
		var err error
		if before, err = p.sendStats(before, send); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// figures are the samples of one moment.
type figures struct {
	at      time.Time
	samples []nvml.Sample
}

// of returns the figures of one unit.
func (f figures) of(uuid string) nvml.Sample {
	for _, s := range f.samples {
		if s.UUID == uuid {
			return s
		}
	}
	return nvml.Sample{}
}

// sendStats sends the figures of the GPUs that Nomad knows. A source that
// fails leaves a gap, not an error: Nomad would end the stream.
func (p *Plugin) sendStats(before figures, send func([]device.GroupStats) error) (figures, error) {
	p.mu.Lock()
	source, inv := p.source, p.inventory
	p.mu.Unlock()
	samples, err := source.Samples()
	if err != nil {
		p.log.Debug("read GPU statistics", "error", err)
		return before, nil
	}
	now := figures{time.Now(), samples}
	if err := send(groupStats(inv, before, now, p.sliceUses(source, inv))); err != nil {
		return now, fmt.Errorf("send statistics: %w", err)
	}
	return now, nil
}

func groupStats(inv nvml.Inventory, before, now figures, uses map[string]sliceUse) []device.GroupStats {
	byID := map[string][]unit{}
	for _, u := range units(inv) {
		byID[u.driverID(inv)] = append(byID[u.driverID(inv)], u)
	}
	var out []device.GroupStats
	index := map[groupKey]int{}
	for _, s := range now.samples {
		for _, u := range byID[s.UUID] {
			key := u.key(inv)
			if _, ok := index[key]; !ok {
				index[key] = len(out)
				out = append(out, device.GroupStats{Vendor: key.vendor, Type: deviceType, Name: key.name, Instances: map[string]device.Stats{}})
			}
			g := inv.GPUs[u.gpu]
			if u.instance >= 0 {
				g = nvml.GPU{MemoryMiB: g.Instances[u.instance].MemoryMiB}
			}
			s.SliceMemoryMiB, s.SliceUtilization = uses[u.id(inv)].memoryMiB, uses[u.id(inv)].busy
			out[index[key]].Instances[u.id(inv)] = stats(g, before.of(s.UUID), s, now.at, now.at.Sub(before.at))
		}
	}
	return out
}

// stats names the figures as nomad-device-nvidia does, as far as it has them.
// Those that are not reported are absent. Before are the figures of the moment
// that is some time past.
func stats(g nvml.GPU, before, s nvml.Sample, at time.Time, past time.Duration) device.Stats {
	out := device.Stats{Values: map[string]attr.Stat{}, Time: at}
	var part *uint64 // of the memory, of a slice
	add := func(name, unit, description string, value, of *uint64) {
		if value == nil {
			return
		}
		stat := attr.Stat{Int: signed(value), IntOf: signed(of), Unit: unit, Description: description}
		out.Values[name] = stat
		// The first one is the summary; memory, if there is a figure for it.
		if out.Summary.Int == nil || name == "Memory state" {
			out.Summary = stat
		}
	}
	add("Memory state", "MiB", "Memory used / memory of the GPU", s.MemoryUsedMiB, g.MemoryMiB)
	add("GPU utilization", "%", "Time in the last sample period in which a kernel ran", s.GPUUtilization, nil)
	add("Memory utilization", "%", "Time in the last sample period in which memory was read or written", s.MemoryUtilization, nil)
	if g.Sharing != nil {
		part = &g.Sharing.MemoryMiB
	}
	add("Slice memory", "MiB", "Memory used by the slice's own processes / its part of the GPU's", s.SliceMemoryMiB, part)
	add("Slice utilization", "%", "Time in which kernels of the slice's own processes ran, lately", s.SliceUtilization, nil)
	add("Encoder utilization", "%", "Time in the last sample period in which the encoder was in use", s.EncoderUtilization, nil)
	add("Decoder utilization", "%", "Time in the last sample period in which the decoder was in use", s.DecoderUtilization, nil)
	add("Power usage", "W", "Power drawn by the GPU and its board / limit in force", s.PowerW, g.PowerLimitW)
	add("Temperature", "C", "Temperature of the GPU", s.TemperatureC, nil)
	add("BAR1 buffer state", "MiB", "BAR1 memory used / BAR1 memory of the GPU", s.BAR1UsedMiB, g.BAR1MiB)
	add("ECC L1 errors", "#", "Corrected errors in the L1 cache since the driver was loaded", s.ECCL1Cache, nil)
	add("ECC L2 errors", "#", "Corrected errors in the L2 cache since the driver was loaded", s.ECCL2Cache, nil)
	add("ECC memory errors", "#", "Corrected errors in memory since the driver was loaded", s.ECCMemory, nil)
	add("ECC uncorrectable errors", "#", "Uncorrectable errors since the driver was loaded", s.UncorrectedVolatile, nil)
	add("ECC uncorrectable errors, lifetime", "#", "Uncorrectable errors in the GPU's life", s.UncorrectedAggregate, nil)
	add("Memory rows replaced", "#", "Rows of memory that were replaced for good", s.RemappedRows, nil)
	add("Cores clock", "MHz", "Clock of the cores / highest", s.CoresClockMHz, g.CoresClockMHz)
	add("Memory clock", "MHz", "Clock of the memory / highest", s.MemoryClockMHz, g.MemoryClockMHz)
	add("PCIe sent", "kB/s", "Sent by the GPU over PCIe", s.PCIeSentKBs, nil)
	add("PCIe received", "kB/s", "Received by the GPU over PCIe", s.PCIeReceivedKBs, nil)
	add("NVLink sent", "MiB/s", "Sent by the GPU over its NVLinks, since the last statistics", rate(before.NVLinkSentKiB, s.NVLinkSentKiB, past), nil)
	add("NVLink received", "MiB/s", "Received by the GPU over its NVLinks, since the last statistics", rate(before.NVLinkReceivedKiB, s.NVLinkReceivedKiB, past), nil)
	add("NVLinks active", "#", "NVLinks that are up", s.NVLinksActive, nil)
	if s.Throttled != nil {
		text := strings.Join(*s.Throttled, ", ")
		if text == "" {
			text = "no"
		}
		out.Values["Throttled"] = attr.Stat{Text: &text, Description: "What keeps the clocks down"}
	}
	return out
}

// rate is what a counter of KiB has grown by in MiB/s; nil if it was reset.
func rate(before, now *uint64, past time.Duration) *uint64 {
	if before == nil || now == nil || *now < *before || past <= 0 {
		return nil
	}
	mib := uint64(float64(*now-*before) / 1024 / past.Seconds())
	return &mib
}

func signed(v *uint64) *int64 {
	if v == nil {
		return nil
	}
	n := int64(min(*v, 1<<63-1))
	return &n
}
