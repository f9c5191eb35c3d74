package client

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/host"
)

// firstFingerprint is how long a plugin may take to send its devices before
// the node starts without them. It is real time: the plugin is a process.
const firstFingerprint = 20 * time.Second

// plugin is a device plugin and what it fingerprinted.
type plugin struct {
	name    string
	launch  func(ctx context.Context) (*host.Plugin, error)
	changed func() // called after every fingerprint but the first
	logf    func(string, ...any)
	cancel  context.CancelFunc

	mu     sync.Mutex
	proc   *host.Plugin
	client *device.Client
	closed bool
	groups []device.Group
}

// startDevices follows a device plugin whose process runs, and waits for its
// first fingerprint.
func startDevices(ctx, run context.Context, out *plugin, proc *host.Plugin) error {
	client, err := out.adopt(proc)
	if err != nil {
		return err
	}
	stream, cancel := context.WithCancel(run)
	out.cancel = cancel
	first := make(chan struct{})
	go out.follow(stream, client, sync.OnceFunc(func() { close(first) }))
	timer := time.NewTimer(firstFingerprint)
	defer timer.Stop()
	select {
	case <-first:
	case <-timer.C:
		out.logf("plugin %s: no fingerprint after %v", out.name, firstFingerprint)
	case <-ctx.Done():
		out.close()
		return fmt.Errorf("wait for the devices of plugin %s: %w", out.name, ctx.Err())
	}
	return nil
}

// adopt takes the plugin's process.
func (p *plugin) adopt(proc *host.Plugin) (*device.Client, error) {
	client, err := proc.Device()
	if err != nil {
		proc.Close()
		return nil, fmt.Errorf("plugin %s: %w", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		proc.Close()
		return nil, fmt.Errorf("plugin %s: the node stops", p.name)
	}
	p.proc, p.client = proc, client
	return client, nil
}

// follow keeps what the plugin fingerprints. As in Nomad, a plugin that died is
// started again and keeps its devices meanwhile; one whose fingerprint stream
// breaks has none until the client is started again.
func (p *plugin) follow(ctx context.Context, client *device.Client, first func()) {
	defer first()
	began := false
	for {
		err := client.Fingerprint(ctx, func(groups []device.Group) error {
			p.mu.Lock()
			p.groups = groups
			p.mu.Unlock()
			if began {
				p.changed()
			}
			began = true
			first()
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		if p.exited() {
			p.logf("plugin %s exited, and is started again: %v", p.name, err)
			var proc *host.Plugin
			if proc, err = p.launch(ctx); err == nil {
				client, err = p.adopt(proc)
			}
			if err == nil {
				continue
			}
		}
		p.logf("plugin %s: fingerprint: %v", p.name, err)
		p.mu.Lock()
		p.groups = nil
		p.mu.Unlock()
		p.changed()
		return
	}
}

// exited says whether the plugin's process is gone. The stream may break a
// moment before the process is known to be.
func (p *plugin) exited() bool {
	p.mu.Lock()
	proc := p.proc
	p.mu.Unlock()
	for range 50 {
		if proc.Exited() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func (p *plugin) close() {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.proc.Close()
}

// reserve asks the plugin for devices.
func (p *plugin) reserve(ctx context.Context, ids []string) (device.Reservation, error) {
	p.mu.Lock()
	client := p.client
	p.mu.Unlock()
	return client.Reserve(ctx, ids)
}

// devices are the plugin's groups as the node shows them.
func (p *plugin) devices() []*api.NodeDeviceResource {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*api.NodeDeviceResource
	for _, g := range p.groups {
		d := &api.NodeDeviceResource{Vendor: g.Vendor, Type: g.Type, Name: g.Name, Attributes: map[string]*api.Attribute{}}
		for _, x := range g.Devices {
			n := &api.NodeDevice{ID: x.ID, Healthy: x.Healthy, HealthDescription: x.HealthDescription}
			if x.PCIBusID != "" {
				n.Locality = &api.NodeDeviceLocality{PciBusID: x.PCIBusID}
			}
			d.Instances = append(d.Instances, n)
		}
		for k, v := range g.Attributes {
			d.Attributes[k] = attribute(v)
		}
		out = append(out, d)
	}
	return out
}

func attribute(v attr.Value) *api.Attribute {
	a := &api.Attribute{Unit: v.Unit()}
	if n, ok := v.AsInt(); ok {
		a.IntVal = &n
	}
	if f, ok := v.AsFloat(); ok {
		a.FloatVal = &f
	}
	if s, ok := v.AsString(); ok {
		a.StringVal = &s
	}
	if b, ok := v.AsBool(); ok {
		a.BoolVal = &b
	}
	return a
}

// owns says whether the plugin fingerprinted a group.
func (p *plugin) owns(d *api.AllocatedDeviceResource) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.groups {
		if g.Vendor == d.Vendor && g.Type == d.Type && g.Name == d.Name {
			return true
		}
	}
	return false
}

// reserve asks the plugins for a task's devices and returns what makes them
// visible. raw_exec takes no notice of mounts and device nodes.
func (c *Client) reserve(ctx context.Context, devices []*api.AllocatedDeviceResource) (*device.Reservation, error) {
	c.mu.Lock()
	plugins := c.plugins
	c.mu.Unlock()
	out := &device.Reservation{Env: map[string]string{}}
	for _, d := range devices {
		var owner *plugin
		for _, p := range plugins {
			if p.owns(d) {
				owner = p
			}
		}
		id := d.Vendor + "/" + d.Type + "/" + d.Name
		if owner == nil {
			return nil, fmt.Errorf("failed to reserve device %s: unknown device", id)
		}
		res, err := owner.reserve(ctx, d.DeviceIDs)
		if err != nil {
			return nil, fmt.Errorf("failed to reserve device %s: %w", id, err)
		}
		maps.Copy(out.Env, res.Env)
		out.Mounts = append(out.Mounts, res.Mounts...)
		out.Devices = append(out.Devices, res.Devices...)
	}
	return out, nil
}
