package driver

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/driver/container"
	"github.com/caravan-sched/caravan/driver/supervisor"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

const (
	// lookEvery is how often the host is looked at again: a container runtime
	// may be installed, or its daemon may die.
	lookEvery = 30 * time.Second
	// lookFor bounds a look.
	lookFor = 20 * time.Second
	// fresh is how old an answer of the runtimes a task may start by.
	fresh = lookEvery
)

// prefix is that of the driver's attributes.
const prefix = "driver." + Name

// Fingerprint implements driver.Plugin.
func (p *Plugin) Fingerprint(ctx context.Context, send func(driver.Fingerprint) error) error {
	if dir, err := stateDir(p.config(), p.log); err != nil {
		p.log.Error("no task can be started", "error", err)
	} else if err := supervisor.Sweep(dir); err != nil {
		p.log.Warn("something is left of tasks that are gone", "error", err)
	}
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	var sent *driver.Fingerprint
	for {
		if now := p.fingerprint(ctx); sent == nil || !reflect.DeepEqual(*sent, now) {
			if err := send(now); err != nil {
				return err
			}
			sent = &now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

func (p *Plugin) fingerprint(ctx context.Context) driver.Fingerprint {
	cfg := p.config()
	if !cfg.Enabled {
		return driver.Fingerprint{Health: driver.Undetected, Description: "disabled in the plugin's configuration"}
	}
	host, err := p.probe()
	if err != nil {
		return driver.Fingerprint{Health: driver.Unhealthy, Description: fmt.Sprintf("the host cannot be examined: %v", err)}
	}
	cgroups, freezer, devices := host.Cgroups, host.Freezer, host.Devices
	if !cfg.Cgroups {
		cgroups, freezer, devices = "none", "signal", ""
	}
	out := driver.Fingerprint{Health: driver.Healthy, Description: "ready", Attributes: map[string]attr.Value{
		prefix:                attr.Bool(true),
		prefix + ".version":   attr.String(Version),
		prefix + ".cgroups":   attr.String(cgroups),
		prefix + ".freezer":   attr.String(freezer),
		prefix + ".isolation": attr.String(strings.Join(host.Namespaces, ",")),
	}}
	if devices != "" {
		out.Attributes[prefix+".devices"] = attr.String(devices)
	}
	runtimes, _ := p.lookForRuntimes(ctx, 0)
	maps.Copy(out.Attributes, runtimeAttributes(runtimes))
	return out
}

func runtimeAttributes(runtimes []container.Runtime) map[string]attr.Value {
	out := map[string]attr.Value{}
	for _, r := range runtimes {
		key := prefix + ".runtime." + string(r.Name)
		out[key] = attr.String(r.Version)
		if r.NVIDIA != "" {
			out[key+".nvidia"] = attr.String(r.NVIDIA)
		}
	}
	return out
}

// lookForRuntimes returns the container runtimes, and why others are missing,
// as of at most maxAge ago.
func (p *Plugin) lookForRuntimes(ctx context.Context, maxAge time.Duration) ([]container.Runtime, error) {
	p.mu.Lock()
	known, runtimes, faults, allowed := !p.asked.IsZero() && time.Since(p.asked) < maxAge, p.runtimes, p.runtimeFaults, p.cfg.Runtimes
	p.mu.Unlock()
	if known {
		return runtimes, faults
	}
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	runtimes, faults = container.Find(ctx, p.host, allowed)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runtimes, p.runtimeFaults, p.asked = runtimes, faults, time.Now()
	return runtimes, faults
}

// compute is what the node's cores can do.
type compute struct {
	// MHz is the sum over the cores, 0 if the client does not tell.
	MHz float64
	// Cores are those that can be used.
	Cores int
}

func computeOf(c *base.DriverConfig) compute {
	var out compute
	if c == nil || c.Topology == nil {
		return out
	}
	for _, core := range c.Topology.Cores {
		if core.Disabled {
			continue
		}
		out.Cores++
		switch {
		case core.BaseMHz > 0:
			out.MHz += float64(core.BaseMHz)
		case core.MaxMHz > 0:
			out.MHz += float64(core.MaxMHz)
		default:
			out.MHz += float64(core.GuessedMHz)
		}
	}
	if c.Topology.OverrideComputeMHz > 0 && out.Cores > 0 {
		out.MHz = float64(c.Topology.OverrideComputeMHz)
	}
	return out
}

// coreMHz is the mean speed of a core, 0 if it is not known.
func (c compute) coreMHz() float64 {
	if c.Cores == 0 {
		return 0
	}
	return c.MHz / float64(c.Cores)
}

// The kernel's bounds of cpu.shares (kernel/sched/sched.h).
const leastShares, mostShares = 2, 1 << 18

// shares is the weight of a task to which Nomad gives so many MHz, 0 for none.
// Large nodes have more MHz than there are shares: there, all tasks' are scaled
// down alike, as Nomad's own drivers do.
func (c compute) shares(mhz int64) int64 {
	if mhz <= 0 {
		return 0
	}
	if c.MHz > mostShares {
		mhz = int64(float64(mhz) / c.MHz * mostShares)
	}
	return min(max(mhz, leastShares), mostShares)
}
