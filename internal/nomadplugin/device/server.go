package device

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/stream"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/devicepb"
)

// defaultStatsInterval applies when Nomad asks for statistics without one.
const defaultStatsInterval = time.Second

// Serve runs the plugin in a binary that Nomad started, until Nomad ends it.
// Started by hand, it says so and exits with status 1. The log goes to Nomad:
// it must write JSON lines to stderr, see base.Logger.
func Serve(p Plugin, log hclog.Logger) {
	base.Serve(Plugins(p, log), log)
}

// Plugins is the set that go-plugin serves for a device plugin and, with a nil
// plugin, dispenses on the host's side.
func Plugins(p Plugin, log hclog.Logger) map[string]goplugin.Plugin {
	set := map[string]goplugin.Plugin{
		base.DispenseBase:   &base.GRPC{Type: base.TypeDevice},
		base.DispenseDevice: &GRPC{Impl: p, Log: log},
	}
	if p != nil {
		set[base.DispenseBase] = &base.GRPC{Type: base.TypeDevice, Impl: p}
	}
	return set
}

// GRPC makes a device plugin known to go-plugin, on the plugin's side and
// (with Impl nil) on the host's, where it dispenses a *Client.
type GRPC struct {
	goplugin.NetRPCUnsupportedPlugin
	Impl Plugin
	// Log is told what must not reach Nomad; nil drops it.
	Log hclog.Logger
}

// GRPCServer implements goplugin.GRPCPlugin.
func (g *GRPC) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	log := g.Log
	if log == nil {
		log = hclog.NewNullLogger()
	}
	devicepb.RegisterDevicePluginServer(s, &server{impl: g.Impl, log: log})
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin.
func (g *GRPC) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return NewClient(conn), nil
}

// server answers for a plugin.
type server struct {
	devicepb.UnimplementedDevicePluginServer
	impl Plugin
	log  hclog.Logger
}

// Fingerprint never ends the stream while Nomad listens, and never lets
// anything invalid through: either would cost the node all its devices until
// the agent restarts. What Nomad was told last stays in force meanwhile.
func (s *server) Fingerprint(_ *devicepb.FingerprintRequest, out grpc.ServerStreamingServer[devicepb.FingerprintResponse]) error {
	ctx := out.Context()
	err := stream.KeepOpen(ctx, s.log, func(ok func()) error {
		return s.impl.Fingerprint(ctx, func(groups []Group) error {
			if err := Validate(groups); err != nil {
				s.log.Error("fingerprint not sent to Nomad, because it would drop every device", "error", err)
				return err
			}
			ok()
			return out.Send(groupsToWire(groups))
		})
	}, func(err error) bool { return errors.Is(err, ErrDisabled) })
	if err != nil {
		return status.Error(codes.FailedPrecondition, ErrDisabled.Error())
	}
	return nil
}

func (s *server) Reserve(ctx context.Context, req *devicepb.ReserveRequest) (*devicepb.ReserveResponse, error) {
	r, err := s.impl.Reserve(ctx, req.GetDeviceIds())
	if err != nil {
		return nil, err
	}
	return &devicepb.ReserveResponse{ContainerRes: reservationToWire(r)}, nil
}

// Stats ends with an error rather than without one: Nomad asks again after an
// error, and never again after an orderly end.
func (s *server) Stats(req *devicepb.StatsRequest, out grpc.ServerStreamingServer[devicepb.StatsResponse]) error {
	ctx := out.Context()
	interval := req.GetCollectionInterval().AsDuration()
	if interval <= 0 {
		interval = defaultStatsInterval
	}
	err := s.impl.Stats(ctx, interval, func(groups []GroupStats) error {
		return out.Send(statsToWire(groups))
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		return status.Error(codes.Unknown, "statistics ended")
	default:
		return err
	}
}
