// Package host starts plugin binaries as a Nomad client does and speaks to
// them. The development cluster and the tests use it.
package host

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// ErrNotDevice and ErrNotDriver say that a plugin is of the other type.
var (
	ErrNotDevice = errors.New("not a device plugin")
	ErrNotDriver = errors.New("not a task driver")
)

// Options say how to start a plugin.
type Options struct {
	// Path is the binary, Args its arguments. Name is what the process sees as
	// its own name; "" is Path.
	Path string
	Name string
	Args []string
	// Config is the HCL body of the plugin's configuration, checked against
	// the plugin's schema; "" is an empty body, so that defaults apply.
	Config string
	// Driver is sent to task drivers only.
	Driver *base.DriverConfig
	// Env is added to the plugin's environment, as NAME=VALUE.
	Env []string
	// Log receives the plugin's log; nil drops it.
	Log hclog.Logger
}

// Plugin is a running plugin process, configured and ready.
type Plugin struct {
	Info base.Info
	Type base.Type

	process *goplugin.Client
	rpc     goplugin.ClientProtocol
}

// Launch starts a plugin, checks that it is one that Nomad would load, and
// gives it its configuration. Close ends it; the context covers the launch.
func Launch(ctx context.Context, opts Options) (*Plugin, error) {
	log := opts.Log
	if log == nil {
		log = hclog.NewNullLogger()
	}
	config := clientConfig(log)
	config.Cmd = exec.Command(opts.Path, opts.Args...)
	if opts.Name != "" {
		config.Cmd.Args[0] = opts.Name
	}
	config.Cmd.Env = slices.Clone(opts.Env) // the library adds ours
	process := goplugin.NewClient(config)
	p := &Plugin{process: process}
	if err := p.configure(ctx, opts); err != nil {
		process.Kill()
		return nil, fmt.Errorf("launch plugin %s: %w", opts.Path, err)
	}
	return p, nil
}

func clientConfig(log hclog.Logger) *goplugin.ClientConfig {
	set := device.Plugins(nil, nil)
	set[base.DispenseDriver] = &driver.GRPC{}
	return &goplugin.ClientConfig{
		HandshakeConfig:  base.Handshake,
		Plugins:          set,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Logger:           log,
	}
}

// connect opens the connection and asks who the plugin is.
func (p *Plugin) connect(ctx context.Context) (*base.Client, error) {
	rpc, err := p.process.Client()
	if err != nil {
		return nil, err
	}
	p.rpc = rpc
	raw, err := rpc.Dispense(base.DispenseBase)
	if err != nil {
		return nil, fmt.Errorf("dispense base service: %w", err)
	}
	client := raw.(*base.Client)
	p.Info, p.Type, err = client.Info(ctx)
	return client, err
}

func (p *Plugin) configure(ctx context.Context, opts Options) error {
	client, err := p.connect(ctx)
	if err != nil {
		return err
	}
	schema, err := client.ConfigSchema(ctx)
	if err != nil {
		return err
	}
	if schema == nil {
		if opts.Config != "" {
			return fmt.Errorf("plugin %q takes no configuration", p.Info.Name)
		}
		return nil
	}
	config, err := hclspec.Encode(schema, []byte(opts.Config), p.Info.Name)
	if err != nil {
		return err
	}
	return client.SetConfig(ctx, base.Config{APIVersion: base.APIVersion, Raw: config, Driver: opts.Driver})
}

// Device returns the plugin's device service.
func (p *Plugin) Device() (*device.Client, error) {
	if p.Type != base.TypeDevice {
		return nil, fmt.Errorf("use plugin %q: %w", p.Info.Name, ErrNotDevice)
	}
	raw, err := p.rpc.Dispense(base.DispenseDevice)
	if err != nil {
		return nil, fmt.Errorf("dispense device service: %w", err)
	}
	return raw.(*device.Client), nil
}

// Driver returns the plugin's task driver service.
func (p *Plugin) Driver() (*driver.Client, error) {
	if p.Type != base.TypeDriver {
		return nil, fmt.Errorf("use plugin %q: %w", p.Info.Name, ErrNotDriver)
	}
	raw, err := p.rpc.Dispense(base.DispenseDriver)
	if err != nil {
		return nil, fmt.Errorf("dispense driver service: %w", err)
	}
	return raw.(*driver.Client), nil
}

// Exited says whether the process has ended.
func (p *Plugin) Exited() bool { return p.process.Exited() }

// Close ends the process.
func (p *Plugin) Close() { p.process.Kill() }
