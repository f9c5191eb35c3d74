package host

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
)

// Handle is how another host finds a running plugin process.
type Handle struct{ config goplugin.ReattachConfig }

// Handle returns what Attach needs.
func (p *Plugin) Handle() Handle { return Handle{*p.process.ReattachConfig()} }

// PID is the plugin's process.
func (h Handle) PID() int { return h.config.Pid }

// Attach connects to a plugin that another host launched and detached from. It
// keeps the configuration that it has, as it does when a Nomad client comes
// back to its drivers.
func Attach(ctx context.Context, h Handle, log hclog.Logger) (*Plugin, error) {
	if log == nil {
		log = hclog.NewNullLogger()
	}
	config := clientConfig(log)
	config.Reattach = &h.config
	p := &Plugin{process: goplugin.NewClient(config)}
	if _, err := p.connect(ctx); err != nil {
		return nil, fmt.Errorf("attach to plugin process %d: %w", h.PID(), err)
	}
	return p, nil
}

// Detach closes the connection and leaves the process alone, as a host does
// that is killed. Nothing but Handle works afterwards.
func (p *Plugin) Detach() error {
	rpc, ok := p.rpc.(*goplugin.GRPCClient)
	if !ok {
		return nil // it never connected
	}
	if err := rpc.Conn.Close(); err != nil {
		return fmt.Errorf("detach from plugin %q: %w", p.Info.Name, err)
	}
	return nil
}
