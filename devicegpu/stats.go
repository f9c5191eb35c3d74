package devicegpu

import (
	"context"
	"fmt"
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
	for {
		if err := p.sendStats(send); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// sendStats sends the figures of the GPUs that Nomad knows. A source that
// fails leaves a gap, not an error: Nomad would end the stream.
func (p *Plugin) sendStats(send func([]device.GroupStats) error) error {
	p.mu.Lock()
	source, inv := p.source, p.inventory
	p.mu.Unlock()
	samples, err := source.Samples()
	if err != nil {
		p.log.Debug("read GPU statistics", "error", err)
		return nil
	}
	if err := send(groupStats(inv, samples, time.Now())); err != nil {
		return fmt.Errorf("send statistics: %w", err)
	}
	return nil
}

func groupStats(inv nvml.Inventory, samples []nvml.Sample, at time.Time) []device.GroupStats {
	byID := map[string]unit{}
	for _, u := range units(inv) {
		byID[u.id(inv)] = u
	}
	var out []device.GroupStats
	index := map[groupKey]int{}
	for _, s := range samples {
		u, ok := byID[s.UUID]
		if !ok {
			continue
		}
		key := u.key(inv)
		if _, ok := index[key]; !ok {
			index[key] = len(out)
			out = append(out, device.GroupStats{Vendor: key.vendor, Type: deviceType, Name: key.name, Instances: map[string]device.Stats{}})
		}
		g := inv.GPUs[u.gpu]
		if !u.whole() {
			g = nvml.GPU{MemoryMiB: g.Instances[u.instance].MemoryMiB}
		}
		out[index[key]].Instances[s.UUID] = stats(g, s, at)
	}
	return out
}

// stats names the figures as nomad-device-nvidia does. Those that are not
// reported are absent.
func stats(g nvml.GPU, s nvml.Sample, at time.Time) device.Stats {
	out := device.Stats{Values: map[string]attr.Stat{}, Time: at}
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
	add("Encoder utilization", "%", "Time in the last sample period in which the encoder was in use", s.EncoderUtilization, nil)
	add("Decoder utilization", "%", "Time in the last sample period in which the decoder was in use", s.DecoderUtilization, nil)
	add("Power usage", "W", "Power drawn by the GPU and its board / limit in force", s.PowerW, g.PowerLimitW)
	add("Temperature", "C", "Temperature of the GPU", s.TemperatureC, nil)
	add("BAR1 buffer state", "MiB", "BAR1 memory used / BAR1 memory of the GPU", s.BAR1UsedMiB, g.BAR1MiB)
	add("ECC L1 errors", "#", "Corrected errors in the L1 cache since the driver was loaded", s.ECCL1Cache, nil)
	add("ECC L2 errors", "#", "Corrected errors in the L2 cache since the driver was loaded", s.ECCL2Cache, nil)
	add("ECC memory errors", "#", "Corrected errors in memory since the driver was loaded", s.ECCMemory, nil)
	return out
}

func signed(v *uint64) *int64 {
	if v == nil {
		return nil
	}
	n := int64(min(*v, 1<<63-1))
	return &n
}
