package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/host"
)

// firstFingerprint is how long a plugin may take to send its devices before
// the node starts without them. It is real time: the plugin is a process.
const firstFingerprint = 20 * time.Second

// plugin is a device plugin process and what it fingerprinted.
type plugin struct {
	name   string
	proc   *host.Plugin
	client *device.Client
	cancel context.CancelFunc

	mu     sync.Mutex
	groups []device.Group
}

// startPlugin launches a plugin and waits for its first fingerprint. changed
// is called after every later one.
func startPlugin(ctx, run context.Context, p devcluster.Plugin, changed func(), logf func(string, ...any)) (*plugin, error) {
	proc, err := host.Launch(ctx, host.Options{Path: p.Path, Config: p.Config})
	if err != nil {
		return nil, err
	}
	client, err := proc.Device()
	if err != nil {
		proc.Close()
		return nil, fmt.Errorf("plugin %s: %w", p.Name, err)
	}
	stream, cancel := context.WithCancel(run)
	out := &plugin{name: p.Name, proc: proc, client: client, cancel: cancel}
	first := make(chan struct{})
	var once sync.Once
	go func() {
		defer once.Do(func() { close(first) })
		err := client.Fingerprint(stream, func(groups []device.Group) error {
			out.mu.Lock()
			out.groups = groups
			out.mu.Unlock()
			seen := false
			once.Do(func() { close(first); seen = true })
			if !seen {
				changed()
			}
			return nil
		})
		if err == nil || stream.Err() != nil {
			return
		}
		// As in Nomad, a broken fingerprint stream takes all devices away.
		logf("plugin %s: fingerprint: %v", p.Name, err)
		out.mu.Lock()
		out.groups = nil
		out.mu.Unlock()
		changed()
	}()
	timer := time.NewTimer(firstFingerprint)
	defer timer.Stop()
	select {
	case <-first:
	case <-timer.C:
		logf("plugin %s: no fingerprint after %v", p.Name, firstFingerprint)
	case <-ctx.Done():
		out.close()
		return nil, fmt.Errorf("wait for the devices of plugin %s: %w", p.Name, ctx.Err())
	}
	return out, nil
}

func (p *plugin) close() {
	p.cancel()
	p.proc.Close()
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

// reserve asks the plugins for a task's devices and returns the environment
// that makes them visible. Mounts and device nodes concern drivers that
// isolate, and the stand-in has none.
func (c *Client) reserve(ctx context.Context, devices []*api.AllocatedDeviceResource) (map[string]string, error) {
	c.mu.Lock()
	plugins := c.plugins
	c.mu.Unlock()
	env := map[string]string{}
	for _, d := range devices {
		var owner *plugin
		for _, p := range plugins {
			if p.owns(d) {
				owner = p
			}
		}
		if owner == nil {
			return nil, fmt.Errorf("reserve devices: no plugin has %s/%s/%s", d.Vendor, d.Type, d.Name)
		}
		res, err := owner.client.Reserve(ctx, d.DeviceIDs)
		if err != nil {
			return nil, fmt.Errorf("reserve devices: %w", err)
		}
		for k, v := range res.Env {
			env[k] = v
		}
	}
	return env, nil
}
