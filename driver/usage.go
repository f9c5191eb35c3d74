package driver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/supervisor"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// Stats implements driver.Plugin. A task at the barrier uses nothing yet.
func (p *Plugin) Stats(ctx context.Context, id string, interval time.Duration, send func(driver.Usage) error) error {
	t, err := p.find(id)
	if err != nil {
		return err
	}
	p.mu.Lock()
	mhz := p.compute.coreMHz()
	p.mu.Unlock()
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		u, err := t.client.Usage(ctx)
		switch {
		case errors.Is(err, supervisor.ErrNotRunning):
			s, statusErr := t.client.Status(ctx)
			if statusErr != nil || s.Exit != nil {
				return nil
			}
			u = exec.Usage{Time: time.Now()}
		case errors.Is(err, supervisor.ErrDied):
			return nil
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("measure task: %w", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err := send(usageOf(id, u, mhz)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

func usageOf(id string, u exec.Usage, mhz float64) driver.Usage {
	out := driver.Usage{TaskID: id, Time: u.Time, Total: sampleOf(u.Total, mhz)}
	if len(u.Processes) > 0 {
		out.PerProcess = make(map[string]driver.ResourceUsage, len(u.Processes))
	}
	for pid, s := range u.Processes {
		out.PerProcess[strconv.Itoa(pid)] = sampleOf(s, mhz)
	}
	return out
}

func sampleOf(s exec.Sample, mhz float64) driver.ResourceUsage {
	out := driver.ResourceUsage{
		SystemPercent: s.CPUSystemPercent, UserPercent: s.CPUUserPercent, Percent: s.CPUPercent,
		ThrottledPeriods: s.ThrottledPeriods,
		RSS:              s.RSSBytes, Cache: s.CacheBytes, Swap: s.SwapBytes, Usage: s.UsageBytes, MaxUsage: s.MaxUsageBytes, KernelUsage: s.KernelBytes,
	}
	if s.CPUPercent != nil && mhz > 0 {
		out.TicksMHz = new(*s.CPUPercent / 100 * mhz)
	}
	if s.ThrottledTime != nil {
		out.ThrottledNanos = new(uint64(s.ThrottledTime.Nanoseconds()))
	}
	return out
}
