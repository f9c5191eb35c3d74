// Package devicegpu is Caravan's Nomad device plugin: it shows a node's GPUs
// to Nomad, with their health and how they are joined, and tells tasks how to
// reach the ones they were given.
package devicegpu

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// Name is the plugin's name in the agent's configuration.
const Name = "nomad-device-caravan"

// Version is the plugin's. Of two binaries of one name, Nomad loads the newer.
const Version = "0.1.0"

// Plugin implements device.Plugin.
type Plugin struct {
	log hclog.Logger
	// open opens a source, and exists tells whether there is a device node;
	// tests put others in their place.
	open   func(nvml.Spec) (nvml.Source, error)
	exists func(path string) bool

	mu     sync.Mutex
	cfg    settings
	source nvml.Source
	// inventory is what was found last, with everything that was ever found;
	// scanned tells whether there was a look at all.
	inventory nvml.Inventory
	scanned   bool
	// complaints are the problems that were logged last.
	complaints []string
}

// New makes the plugin. It does nothing until it is configured.
func New(log hclog.Logger) *Plugin {
	return &Plugin{log: log, open: nvml.Open, exists: nodeExists}
}

// Info implements base.Plugin.
func (p *Plugin) Info() base.Info { return base.Info{Name: Name, Version: Version} }

// ConfigSchema implements base.Plugin.
func (p *Plugin) ConfigSchema() *hclspec.Spec { return configSchema() }

// SetConfig implements base.Plugin. Files of simulated GPUs are read here, so
// that the operator sees at once if one cannot be; the driver's library is
// loaded at the first fingerprint.
func (p *Plugin) SetConfig(_ context.Context, cfg base.Config) error {
	c := defaultConfig()
	if err := cfg.Decode(&c); err != nil {
		return err
	}
	s, err := c.validate()
	if err != nil {
		return fmt.Errorf("configure %s: %w", Name, err)
	}
	source, err := p.open(s.source)
	if err != nil {
		return fmt.Errorf("configure %s: %w", Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.source != nil {
		if err := p.source.Close(); err != nil {
			p.log.Warn("close the former GPU source", "error", err)
		}
	}
	p.cfg, p.source = s, source
	p.inventory, p.scanned = nvml.Inventory{}, false
	return nil
}

// Fingerprint implements device.Plugin. It sends what changed: GPUs, health or
// attributes. A source that fails changes nothing, since Nomad would take it
// as all GPUs gone.
func (p *Plugin) Fingerprint(ctx context.Context, send func([]device.Group) error) error {
	p.mu.Lock()
	cfg := p.cfg
	p.mu.Unlock()
	if !cfg.enabled {
		return device.ErrDisabled
	}
	ticker := time.NewTicker(cfg.period)
	defer ticker.Stop()
	var sent []device.Group
	first := true
	for {
		p.scan()
		now, err := p.groups()
		if err != nil {
			p.log.Error("describe GPUs", "error", err)
		}
		// Nomad waits for the first fingerprint, even if there is nothing.
		if first || err == nil && !reflect.DeepEqual(sent, now) {
			if err := send(now); err != nil {
				return fmt.Errorf("send fingerprint: %w", err)
			}
			sent, first = now, false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// scan looks at the GPUs anew.
func (p *Plugin) scan() {
	p.mu.Lock()
	source, cfg := p.source, p.cfg
	p.mu.Unlock()
	if source == nil {
		return
	}
	inv, err := source.Inventory()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.complain([]string{"find GPUs: " + err.Error()})
		return
	}
	inv = withLost(p.inventory, without(inv, cfg.ignored))
	p.inventory, p.scanned = inv, true
	complaints := slices.Clone(inv.Problems)
	for i, g := range inv.GPUs {
		if g.Unhealthy != "" {
			complaints = append(complaints, fmt.Sprintf("GPU %s is unhealthy: %s", inv.Matrix.GPUs[i].UUID, g.Unhealthy))
		}
	}
	p.complain(complaints)
}

// complain logs the problems that were not there at the last look.
func (p *Plugin) complain(now []string) {
	for _, c := range now {
		if !slices.Contains(p.complaints, c) {
			p.log.Warn(c)
		}
	}
	p.complaints = now
}

func (p *Plugin) groups() ([]device.Group, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	simulated := p.source != nil && p.source.Simulated()
	return Groups(p.inventory, simulated)
}

// The variables that tell CUDA and NVIDIA's container runtime about a task's
// GPUs.
const (
	envCUDADevices   = "CUDA_VISIBLE_DEVICES"
	envCUDAOrder     = "CUDA_DEVICE_ORDER"
	envNVIDIADevices = "NVIDIA_VISIBLE_DEVICES"
)

// Reserve implements device.Plugin. The GPUs come in topology order, so that
// ranks that count them up are neighbours.
func (p *Plugin) Reserve(_ context.Context, ids []string) (device.Reservation, error) {
	if len(ids) == 0 {
		return device.Reservation{}, nil
	}
	p.mu.Lock()
	enabled, scanned := p.cfg.enabled, p.scanned
	p.mu.Unlock()
	if !enabled {
		return device.Reservation{}, device.ErrDisabled
	}
	if !scanned {
		p.scan() // a task of before the agent's restart, ahead of the first fingerprint
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	gpus, err := lookUp(p.inventory, ids)
	if err != nil {
		return device.Reservation{}, fmt.Errorf("reserve GPUs: %w", err)
	}
	order := p.inventory.Matrix.Order(gpus)
	uuids := make([]string, 0, len(order))
	for _, i := range order {
		uuids = append(uuids, p.inventory.Matrix.GPUs[i].UUID)
	}
	list := strings.Join(uuids, ",")
	r := device.Reservation{Env: map[string]string{
		envCUDADevices: list, envNVIDIADevices: list, envCUDAOrder: "PCI_BUS_ID",
	}}
	if !p.source.Simulated() {
		r.Devices = deviceNodes(p.inventory, order, p.exists)
	}
	return r, nil
}

// lookUp finds the GPUs, or says everything that is wrong with the request.
func lookUp(inv nvml.Inventory, ids []string) ([]int, error) {
	var gpus []int
	var faults []string
	seen := map[string]int{}
	for _, id := range ids {
		seen[id]++
		if seen[id] > 1 {
			continue
		}
		i, ok := inv.Matrix.Index(id)
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("GPU %q is unknown", id))
		case inv.GPUs[i].Unhealthy != "":
			faults = append(faults, fmt.Sprintf("GPU %q cannot be used: %s", id, inv.GPUs[i].Unhealthy))
		default:
			gpus = append(gpus, i)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		if seen[id] > 1 {
			faults = append(faults, fmt.Sprintf("GPU %q is asked for %d times", id, seen[id]))
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(faults, "; "))
	}
	return gpus, nil
}
