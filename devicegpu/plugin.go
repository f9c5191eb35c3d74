// Package devicegpu is Caravan's Nomad device plugin: it shows a node's GPUs
// to Nomad, with their health and how they are joined, and tells tasks how to
// reach the ones they were given.
package devicegpu

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/devicegpu/health"
	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
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
	// dir is the folder of the binary, where other plugins may be.
	dir string

	mu     sync.Mutex
	cfg    settings
	source nvml.Source
	// inventory is what was found last, with everything that was ever found;
	// scanned tells whether there was a look at all.
	inventory nvml.Inventory
	scanned   bool
	// tracker remembers what was wrong with the GPUs.
	tracker *health.Tracker
	// complaints are the problems that were logged last.
	complaints []string

	// now is the clock; reserved is when each GPU was last given to a task,
	// dividing are those that are divided just now, and divisions what became of
	// the last division of each. inUse is for how long each is left alone that was
	// in use.
	now       func() time.Time
	reserved  map[string]time.Time
	dividing  map[string]bool
	divisions map[string]topology.Division
	inUse     map[string]time.Duration
	// shared are the GPUs that are offered in slices.
	shared map[string]shared
	// environ reads a process's environment.
	environ func(pid int) ([]byte, error)
}

// Option changes how the plugin works.
type Option func(*Plugin)

// WithSource puts another finder of GPUs in the place of nvml.Open.
func WithSource(open func(nvml.Spec) (nvml.Source, error)) Option {
	return func(p *Plugin) { p.open = open }
}

// New makes the plugin. It does nothing until it is configured.
func New(log hclog.Logger, options ...Option) *Plugin {
	p := &Plugin{log: log, open: nvml.Open, exists: nodeExists, dir: ownDir(), now: time.Now,
		reserved: map[string]time.Time{}, dividing: map[string]bool{}, divisions: map[string]topology.Division{}, inUse: map[string]time.Duration{}, shared: map[string]shared{}, environ: readEnviron}
	for _, o := range options {
		o(p)
	}
	return p
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
	p.cfg, p.source = s, nvml.Guard(source, patience)
	p.tracker = health.New(s.ignoredXIDs, s.ignoredFaults)
	p.inventory, p.scanned = nvml.Inventory{}, false
	clear(p.shared)
	return nil
}

// patience is how long the driver may take to answer. It can take seconds for
// each GPU that has just fallen off the bus.
const patience = time.Minute

// Fingerprint implements device.Plugin. It sends what changed: GPUs, health or
// attributes. A driver that does not answer changes nothing at first; when it
// stays away, the GPUs are unhealthy, and still listed.
func (p *Plugin) Fingerprint(ctx context.Context, send func([]device.Group) error) error {
	p.mu.Lock()
	cfg := p.cfg
	p.mu.Unlock()
	if !cfg.enabled {
		return device.ErrDisabled
	}
	ticker := time.NewTicker(cfg.period)
	defer ticker.Stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	faults := make(chan struct{}, 1)
	go p.listen(ctx, cfg.period, faults)
	if cfg.divides {
		go p.obey(ctx, cfg, faults)
	}
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
		case <-faults:
		}
	}
}

// listen takes in the driver's events until ctx ends, and has the GPUs looked
// at anew after each. Without events the readings alone are judged.
func (p *Plugin) listen(ctx context.Context, period time.Duration, faults chan<- struct{}) {
	p.mu.Lock()
	source, tracker := p.source, p.tracker
	p.mu.Unlock()
	for ctx.Err() == nil {
		err := source.Events(ctx, func(e nvml.Event) {
			p.mu.Lock()
			fault := tracker.Event(e)
			p.mu.Unlock()
			if fault {
				p.log.Error("the driver reports a fault", "gpu", e.UUID, "xid", e.XID)
			} else if e.XID != 0 {
				p.log.Info("the driver reports an error that is not the GPU's", "gpu", e.UUID, "xid", e.XID)
			}
			select {
			case faults <- struct{}{}:
			default: // a look is due anyway
			}
		})
		if err != nil {
			p.log.Debug("no GPU events for now", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(period):
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
		p.tracker.Fail(driverUnhealthy)
		p.inventory = judge(p.inventory, p.inventory, p.tracker)
		p.complain([]string{"find GPUs: " + err.Error()})
		return
	}
	inv = without(inv, cfg.ignored)
	p.tracker.Look(inv)
	p.inventory, p.scanned = share(settle(p.inventory, inv, p.tracker), cfg.sharing, p.shared), true
	inv = p.inventory
	complaints := slices.Clone(inv.Problems)
	complaints = append(complaints, Neighbours(p.dir)...)
	for _, u := range units(inv) {
		if reason := u.unhealthy(inv); reason != "" {
			complaints = append(complaints, fmt.Sprintf("GPU %s is unhealthy: %s", u.id(inv), reason))
		}
	}
	p.complain(complaints)
}

// driverUnhealthy is why all GPUs are unhealthy when the driver is away.
const driverUnhealthy = "the NVIDIA driver does not answer"

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
	groups, err := Groups(p.inventory, simulated)
	if err == nil && p.cfg.divides {
		err = p.addDivisions(groups)
	}
	return groups, err
}
