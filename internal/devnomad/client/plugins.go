package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/host"
)

// errDestroyed says that the cluster ends.
var errDestroyed = errors.New("the cluster ends")

// Ports for drivers' own processes; Nomad's defaults.
const (
	driverMinPort = 14000
	driverMaxPort = 14512
)

// startPlugins launches the node's plugins, or attaches to those that an
// earlier run left behind, and waits for their first fingerprints.
func (c *Client) startPlugins(ctx, run context.Context) error {
	for _, p := range c.cfg.Node.Plugins {
		launch := func(ctx context.Context) (*host.Plugin, error) {
			return host.Launch(ctx, host.Options{Path: p.Path, Name: p.Name, Config: p.Config, Env: c.cfg.PluginEnv, Driver: c.driverConfig()})
		}
		proc, err := c.attach(ctx, p)
		if err != nil || proc == nil {
			proc, err = launch(ctx)
		}
		if err != nil {
			return err
		}
		if proc.Type == base.TypeDevice {
			out := &plugin{name: p.Name, launch: launch, changed: c.refresh, logf: c.logf}
			if err := startDevices(ctx, run, out, proc); err != nil {
				return err
			}
			c.mu.Lock()
			c.plugins = append(c.plugins, out)
			c.mu.Unlock()
			continue
		}
		if err := c.startDriver(ctx, p, proc, launch); err != nil {
			return err
		}
	}
	return nil
}

// attach connects to the process that an earlier run of the client left; nil
// is none.
func (c *Client) attach(ctx context.Context, p devcluster.Plugin) (*host.Plugin, error) {
	c.mu.Lock()
	handle, ok := c.handles[p.Name]
	delete(c.handles, p.Name)
	c.mu.Unlock()
	if !ok {
		return nil, nil
	}
	proc, err := host.Attach(ctx, handle, nil)
	if err != nil {
		c.logf("%v", err)
	}
	return proc, err
}

func (c *Client) startDriver(ctx context.Context, p devcluster.Plugin, proc *host.Plugin, launch func(context.Context) (*host.Plugin, error)) error {
	d := &driverHost{launch: launch, event: c.driverEvent, logf: c.logf, clock: c.cfg.Clock, plugin: p.Name}
	d.changed = func(health string) {
		if health != "" {
			c.cfg.Server.NodeEvent(c.cfg.ID, "Driver", health, map[string]string{"driver": d.name})
		}
		c.refresh()
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if err := startDriver(ctx, d, proc); err != nil {
		d.cancel()
		d.loops.Wait()
		proc.Close()
		return fmt.Errorf("driver plugin %s: %w", p.Name, err)
	}
	c.mu.Lock()
	c.drivers[d.name] = d
	c.mu.Unlock()
	return nil
}

// driverConfig is what the client tells its drivers of itself. The processors
// are the machine's: those that a test makes up cannot be used.
func (c *Client) driverConfig() *base.DriverConfig {
	topology := &base.CPUTopology{NUMANodes: []uint32{0}, Distances: [][]uint32{{10}}}
	for i := range runtime.NumCPU() {
		topology.Cores = append(topology.Cores, base.Core{ID: uint32(i), GuessedMHz: 2000})
	}
	return &base.DriverConfig{MinPort: driverMinPort, MaxPort: driverMaxPort, Topology: topology}
}

// leavePlugins ends the device plugins and leaves the drivers behind.
func (c *Client) leavePlugins() {
	plugins, drivers := c.takePlugins()
	for _, p := range plugins {
		p.close()
	}
	for _, d := range drivers {
		if handle, ok := d.detach(); ok {
			c.mu.Lock()
			c.handles[d.plugin] = handle
			c.mu.Unlock()
		}
	}
}

// endPlugins ends all of them.
func (c *Client) endPlugins() {
	plugins, drivers := c.takePlugins()
	for _, p := range plugins {
		p.close()
	}
	for _, d := range drivers {
		d.close()
	}
}

func (c *Client) takePlugins() ([]*plugin, map[string]*driverHost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	plugins, drivers := c.plugins, c.drivers
	c.plugins, c.drivers = nil, map[string]*driverHost{}
	return plugins, drivers
}

// instance returns a driver's process, waiting for the client to run.
func (c *Client) instance(name string, now <-chan struct{}) (*driverInstance, error) {
	for {
		c.mu.Lock()
		d, up := c.drivers[name], c.up
		c.mu.Unlock()
		if d != nil {
			i, err := d.get()
			if !errors.Is(err, errDetached) {
				return i, err
			}
		} else if closed(up) {
			return nil, fmt.Errorf("failed to load driver: unknown driver %q", name)
		}
		if !c.awaitUp(now) {
			return nil, errDestroyed
		}
	}
}

// awaitUp waits until the client runs, or now closes; then it returns false.
func (c *Client) awaitUp(now <-chan struct{}) bool {
	c.mu.Lock()
	up := c.up
	c.mu.Unlock()
	select {
	case <-up:
		return true
	default:
	}
	select {
	case <-up:
		return true
	case <-now:
		return false
	}
}

// driverEvent adds what a driver says to the events of the task.
func (c *Client) driverEvent(e driver.Event) {
	r, err := c.runner(e.AllocID)
	if err != nil || r.tasks[e.TaskName] == nil {
		c.logf("driver event for task %s of allocation %s, which is not here: %s", e.TaskName, e.AllocID, e.Message)
		return
	}
	r.set(e.TaskName, nil, messageEvent(e))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
