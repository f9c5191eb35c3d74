package base

import (
	"context"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/basepb"
)

// Serve runs a plugin in a binary that Nomad started, until Nomad ends it.
// Started by hand, it says so and exits with status 1.
func Serve(set map[string]goplugin.Plugin, log hclog.Logger) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: Handshake,
		Plugins:         set,
		GRPCServer:      goplugin.DefaultGRPCServer,
		Logger:          log,
	})
}

// Logger is a logger whose lines Nomad takes over into its own log, each at
// its level.
func Logger() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, JSONFormat: true})
}

// GRPC makes a plugin's base service known to go-plugin, on the plugin's side
// and (with Impl nil) on the host's, where it dispenses a *Client.
type GRPC struct {
	goplugin.NetRPCUnsupportedPlugin
	Impl Plugin
	Type Type
}

// GRPCServer implements goplugin.GRPCPlugin.
func (g *GRPC) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	basepb.RegisterBasePluginServer(s, &server{impl: g.Impl, typ: g.Type})
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin.
func (g *GRPC) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return NewClient(conn), nil
}

// server answers for a plugin.
type server struct {
	basepb.UnimplementedBasePluginServer
	impl Plugin
	typ  Type
}

func (s *server) PluginInfo(context.Context, *basepb.PluginInfoRequest) (*basepb.PluginInfoResponse, error) {
	info := s.impl.Info()
	return &basepb.PluginInfoResponse{
		Type:              typeToWire(s.typ),
		PluginApiVersions: []string{APIVersion},
		PluginVersion:     info.Version,
		Name:              info.Name,
	}, nil
}

func (s *server) ConfigSchema(context.Context, *basepb.ConfigSchemaRequest) (*basepb.ConfigSchemaResponse, error) {
	return &basepb.ConfigSchemaResponse{Spec: s.impl.ConfigSchema()}, nil
}

func (s *server) SetConfig(ctx context.Context, req *basepb.SetConfigRequest) (*basepb.SetConfigResponse, error) {
	cfg := Config{APIVersion: req.GetPluginApiVersion(), Raw: req.GetMsgpackConfig()}
	if s.typ == TypeDriver {
		cfg.Driver = driverConfigFromWire(req.GetNomadConfig().GetDriver())
	}
	if err := s.impl.SetConfig(ctx, cfg); err != nil {
		return nil, err
	}
	return &basepb.SetConfigResponse{}, nil
}

func typeToWire(t Type) basepb.PluginType {
	switch t {
	case TypeDevice:
		return basepb.PluginType_DEVICE
	case TypeDriver:
		return basepb.PluginType_DRIVER
	default:
		return basepb.PluginType_UNKNOWN
	}
}

func driverConfigFromWire(w *basepb.NomadDriverConfig) *DriverConfig {
	if w == nil {
		return nil
	}
	return &DriverConfig{
		MinPort:  w.GetClientMinPort(),
		MaxPort:  w.GetClientMaxPort(),
		Topology: topologyFromWire(w.GetTopology()),
	}
}

func topologyFromWire(w *basepb.ClientTopology) *CPUTopology {
	if w == nil {
		return nil
	}
	t := &CPUTopology{
		NUMANodes:          w.GetNodeIds(),
		OverrideComputeMHz: w.GetOverrideTotalCompute(),
		ReservedComputeMHz: w.GetOverrideWitholdCompute(),
	}
	values, n := w.GetDistances().GetValues(), int(w.GetDistances().GetDimension())
	// A matrix that is not square is not to be trusted.
	if n > 0 && len(values)%n == 0 && len(values)/n == n {
		for row := range n {
			t.Distances = append(t.Distances, values[row*n:(row+1)*n])
		}
	}
	for _, c := range w.GetCores() {
		t.Cores = append(t.Cores, Core{
			ID: c.GetCoreId(), NUMANode: c.GetNodeId(), Socket: c.GetSocketId(),
			Efficiency: c.GetCoreGrade() == basepb.CoreGrade_Efficiency, Disabled: c.GetDisable(),
			BaseMHz: c.GetBaseSpeed(), MaxMHz: c.GetMaxSpeed(), GuessedMHz: c.GetGuessSpeed(),
		})
	}
	return t
}

func driverConfigToWire(c *DriverConfig) *basepb.NomadConfig {
	if c == nil {
		return nil
	}
	return &basepb.NomadConfig{Driver: &basepb.NomadDriverConfig{
		ClientMinPort: c.MinPort,
		ClientMaxPort: c.MaxPort,
		Topology:      topologyToWire(c.Topology),
	}}
}

func topologyToWire(t *CPUTopology) *basepb.ClientTopology {
	if t == nil {
		return nil
	}
	w := &basepb.ClientTopology{
		NodeIds:                t.NUMANodes,
		Distances:              &basepb.ClientTopologySLIT{Dimension: uint32(len(t.Distances))},
		OverrideTotalCompute:   t.OverrideComputeMHz,
		OverrideWitholdCompute: t.ReservedComputeMHz,
	}
	for _, row := range t.Distances {
		w.Distances.Values = append(w.Distances.Values, row...)
	}
	for _, c := range t.Cores {
		core := &basepb.ClientTopologyCore{
			CoreId: c.ID, NodeId: c.NUMANode, SocketId: c.Socket, Disable: c.Disabled,
			BaseSpeed: c.BaseMHz, MaxSpeed: c.MaxMHz, GuessSpeed: c.GuessedMHz,
		}
		if c.Efficiency {
			core.CoreGrade = basepb.CoreGrade_Efficiency
		}
		w.Cores = append(w.Cores, core)
	}
	return w
}
