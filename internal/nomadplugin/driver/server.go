package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/stream"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/driverpb"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/structspb"
)

// defaultStatsInterval applies when Nomad asks for statistics without one.
const defaultStatsInterval = time.Second

// Serve runs the driver in a binary that Nomad started, until Nomad ends it.
// The log goes to Nomad: it must write JSON lines to stderr.
func Serve(p Plugin, log hclog.Logger) {
	base.Serve(Plugins(p, log), log)
}

// Plugins is the set that go-plugin serves for a task driver.
func Plugins(p Plugin, log hclog.Logger) map[string]goplugin.Plugin {
	return map[string]goplugin.Plugin{
		base.DispenseBase:   &base.GRPC{Type: base.TypeDriver, Impl: p},
		base.DispenseDriver: &GRPC{Impl: p, Log: log},
	}
}

// GRPC makes a task driver known to go-plugin, on the plugin's side and (with
// Impl nil) on the host's, where it dispenses a *Client.
type GRPC struct {
	goplugin.NetRPCUnsupportedPlugin
	Impl Plugin
	// Log is told what Nomad would take badly; nil drops it.
	Log hclog.Logger
}

// GRPCServer implements goplugin.GRPCPlugin.
func (g *GRPC) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	log := g.Log
	if log == nil {
		log = hclog.NewNullLogger()
	}
	driverpb.RegisterDriverServer(s, &server{impl: g.Impl, log: log})
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin.
func (g *GRPC) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return NewClient(conn), nil
}

// server answers for a driver.
type server struct {
	driverpb.UnimplementedDriverServer
	impl Plugin
	log  hclog.Logger
}

// wireError keeps, across processes, what callers decide by.
func wireError(err error) error {
	var recoverable *Recoverable
	switch {
	case err == nil:
		return nil
	case errors.As(err, &recoverable):
		s, detailErr := status.New(codes.FailedPrecondition, err.Error()).WithDetails(&structspb.RecoverableError{Recoverable: true})
		if detailErr != nil {
			return errors.Join(err, detailErr)
		}
		return s.Err()
	case errors.Is(err, ErrTaskNotFound):
		return status.Error(codes.NotFound, err.Error())
	default:
		return err
	}
}

func (s *server) Init(ctx context.Context, _ *driverpb.InitRequest) (*driverpb.InitResponse, error) {
	if i, ok := s.impl.(Initer); ok {
		if err := i.Init(ctx); err != nil {
			return nil, err
		}
	}
	return &driverpb.InitResponse{}, nil
}

func (s *server) Shutdown(ctx context.Context, _ *driverpb.ShutdownRequest) (*driverpb.ShutdownResponse, error) {
	if d, ok := s.impl.(Shutdowner); ok {
		if err := d.Shutdown(ctx); err != nil {
			return nil, err
		}
	}
	return &driverpb.ShutdownResponse{}, nil
}

func (s *server) TaskConfigSchema(context.Context, *driverpb.TaskConfigSchemaRequest) (*driverpb.TaskConfigSchemaResponse, error) {
	return &driverpb.TaskConfigSchemaResponse{Spec: s.impl.TaskConfigSchema()}, nil
}

func (s *server) Capabilities(context.Context, *driverpb.CapabilitiesRequest) (*driverpb.CapabilitiesResponse, error) {
	return &driverpb.CapabilitiesResponse{Capabilities: capabilitiesToWire(s.impl.Capabilities())}, nil
}

// Fingerprint never ends the stream while Nomad listens: a driver that is gone
// for Nomad fails its tasks.
func (s *server) Fingerprint(_ *driverpb.FingerprintRequest, out grpc.ServerStreamingServer[driverpb.FingerprintResponse]) error {
	ctx := out.Context()
	return stream.KeepOpen(ctx, s.log, func(ok func()) error {
		return s.impl.Fingerprint(ctx, func(f Fingerprint) error {
			for name, v := range f.Attributes {
				if err := v.Validate(); err != nil {
					s.log.Error("fingerprint not sent to Nomad", "attribute", name, "error", err)
					return fmt.Errorf("attribute %q: %w", name, err)
				}
			}
			ok()
			return out.Send(fingerprintToWire(f))
		})
	}, func(error) bool { return false })
}

func (s *server) RecoverTask(ctx context.Context, req *driverpb.RecoverTaskRequest) (*driverpb.RecoverTaskResponse, error) {
	if err := s.impl.Recover(ctx, handleFromWire(req.GetHandle())); err != nil {
		return nil, wireError(err)
	}
	return &driverpb.RecoverTaskResponse{}, nil
}

func (s *server) StartTask(ctx context.Context, req *driverpb.StartTaskRequest) (*driverpb.StartTaskResponse, error) {
	handle, network, err := s.impl.Start(ctx, taskFromWire(req.GetTask()))
	if err != nil {
		return nil, wireError(err)
	}
	return &driverpb.StartTaskResponse{Handle: handleToWire(handle), NetworkOverride: networkToWire(network)}, nil
}

func (s *server) WaitTask(ctx context.Context, req *driverpb.WaitTaskRequest) (*driverpb.WaitTaskResponse, error) {
	exit, err := s.impl.Wait(ctx, req.GetTaskId())
	if err != nil {
		return nil, wireError(err)
	}
	out := &driverpb.WaitTaskResponse{Result: exitToWire(exit)}
	if exit.Err != nil {
		out.Err = exit.Err.Error()
	}
	return out, nil
}

func (s *server) StopTask(ctx context.Context, req *driverpb.StopTaskRequest) (*driverpb.StopTaskResponse, error) {
	if err := s.impl.Stop(ctx, req.GetTaskId(), req.GetTimeout().AsDuration(), req.GetSignal()); err != nil {
		return nil, wireError(err)
	}
	return &driverpb.StopTaskResponse{}, nil
}

func (s *server) DestroyTask(ctx context.Context, req *driverpb.DestroyTaskRequest) (*driverpb.DestroyTaskResponse, error) {
	if err := s.impl.Destroy(ctx, req.GetTaskId(), req.GetForce()); err != nil {
		return nil, wireError(err)
	}
	return &driverpb.DestroyTaskResponse{}, nil
}

func (s *server) InspectTask(ctx context.Context, req *driverpb.InspectTaskRequest) (*driverpb.InspectTaskResponse, error) {
	st, err := s.impl.Inspect(ctx, req.GetTaskId())
	if err != nil {
		return nil, wireError(err)
	}
	return statusToWire(st), nil
}

func (s *server) TaskStats(req *driverpb.TaskStatsRequest, out grpc.ServerStreamingServer[driverpb.TaskStatsResponse]) error {
	ctx := out.Context()
	interval := req.GetCollectionInterval().AsDuration()
	if interval <= 0 {
		interval = defaultStatsInterval
	}
	err := s.impl.Stats(ctx, req.GetTaskId(), interval, func(u Usage) error {
		return out.Send(&driverpb.TaskStatsResponse{Stats: usageToWire(u)})
	})
	if ctx.Err() != nil {
		return nil
	}
	return wireError(err)
}

func (s *server) TaskEvents(_ *driverpb.TaskEventsRequest, out grpc.ServerStreamingServer[driverpb.DriverTaskEvent]) error {
	ctx := out.Context()
	err := s.impl.Events(ctx, func(e Event) error { return out.Send(eventToWire(e)) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *server) SignalTask(ctx context.Context, req *driverpb.SignalTaskRequest) (*driverpb.SignalTaskResponse, error) {
	if err := s.impl.Signal(ctx, req.GetTaskId(), req.GetSignal()); err != nil {
		return nil, wireError(err)
	}
	return &driverpb.SignalTaskResponse{}, nil
}

func (s *server) ExecTask(ctx context.Context, req *driverpb.ExecTaskRequest) (*driverpb.ExecTaskResponse, error) {
	r, err := s.impl.Exec(ctx, req.GetTaskId(), req.GetCommand(), req.GetTimeout().AsDuration())
	if err != nil {
		return nil, wireError(err)
	}
	return &driverpb.ExecTaskResponse{Stdout: r.Stdout, Stderr: r.Stderr, Result: exitToWire(r.Exit)}, nil
}

func (s *server) CreateNetwork(ctx context.Context, req *driverpb.CreateNetworkRequest) (*driverpb.CreateNetworkResponse, error) {
	m, ok := s.impl.(NetworkManager)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "the driver makes no networks")
	}
	network, created, err := m.CreateNetwork(ctx, req.GetAllocId(), req.GetHostname())
	if err != nil {
		return nil, wireError(err)
	}
	return &driverpb.CreateNetworkResponse{IsolationSpec: isolationToWire(network), Created: created}, nil
}

func (s *server) DestroyNetwork(ctx context.Context, req *driverpb.DestroyNetworkRequest) (*driverpb.DestroyNetworkResponse, error) {
	m, ok := s.impl.(NetworkManager)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "the driver makes no networks")
	}
	if err := m.DestroyNetwork(ctx, req.GetAllocId(), isolationFromWire(req.GetIsolationSpec())); err != nil {
		return nil, wireError(err)
	}
	return &driverpb.DestroyNetworkResponse{}, nil
}
