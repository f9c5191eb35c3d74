package base

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/basepb"
)

// Client is the host's side of a plugin's base service.
type Client struct {
	rpc basepb.BasePluginClient
}

// NewClient speaks to a plugin over a connection.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{rpc: basepb.NewBasePluginClient(conn)}
}

// Info returns who the plugin is and what, and whether it speaks APIVersion.
func (c *Client) Info(ctx context.Context) (Info, Type, error) {
	r, err := c.rpc.PluginInfo(ctx, &basepb.PluginInfoRequest{})
	if err != nil {
		return Info{}, "", fmt.Errorf("get plugin info: %w", err)
	}
	info := Info{Name: r.GetName(), Version: r.GetPluginVersion()}
	if !slices.Contains(r.GetPluginApiVersions(), APIVersion) {
		return info, "", fmt.Errorf("get plugin info of %q: it speaks API versions %q, want %q",
			info.Name, r.GetPluginApiVersions(), APIVersion)
	}
	switch r.GetType() {
	case basepb.PluginType_DEVICE:
		return info, TypeDevice, nil
	case basepb.PluginType_DRIVER:
		return info, TypeDriver, nil
	default:
		return info, "", fmt.Errorf("get plugin info of %q: unknown plugin type %v", info.Name, r.GetType())
	}
}

// ConfigSchema returns what the plugin's configuration looks like; nil means
// that it takes none.
func (c *Client) ConfigSchema(ctx context.Context) (*hclspec.Spec, error) {
	r, err := c.rpc.ConfigSchema(ctx, &basepb.ConfigSchemaRequest{})
	if err != nil {
		return nil, fmt.Errorf("get plugin config schema: %w", err)
	}
	return r.GetSpec(), nil
}

// SetConfig gives the plugin its configuration. See hclspec.Encode for Raw.
func (c *Client) SetConfig(ctx context.Context, cfg Config) error {
	version := cfg.APIVersion
	if version == "" {
		version = APIVersion
	}
	_, err := c.rpc.SetConfig(ctx, &basepb.SetConfigRequest{
		MsgpackConfig:    cfg.Raw,
		NomadConfig:      driverConfigToWire(cfg.Driver),
		PluginApiVersion: version,
	})
	if err != nil {
		return fmt.Errorf("set plugin config: %w", err)
	}
	return nil
}
