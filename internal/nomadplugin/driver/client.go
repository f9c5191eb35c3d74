package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/stream"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/driverpb"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/structspb"
)

// Client is the host's side of a task driver. Its methods are those of Plugin.
type Client struct {
	rpc driverpb.DriverClient
}

// NewClient speaks to a driver over a connection.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{rpc: driverpb.NewDriverClient(conn)}
}

// ourError is the inverse of wireError.
func ourError(what string, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	for _, d := range s.Details() {
		if r, ok := d.(*structspb.RecoverableError); ok && r.GetRecoverable() {
			return fmt.Errorf("%s: %w", what, &Recoverable{Err: errors.New(s.Message())})
		}
	}
	if s.Code() == codes.NotFound {
		return fmt.Errorf("%s: %w", what, ErrTaskNotFound)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// as is ourError for a stream.
func as(what string) func(error) error {
	return func(err error) error { return ourError(what, err) }
}

// Init tells the driver that it is configured.
func (c *Client) Init(ctx context.Context) error {
	_, err := c.rpc.Init(ctx, &driverpb.InitRequest{})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	return ourError("init driver", err)
}

// Shutdown tells the driver that its process is about to be ended.
func (c *Client) Shutdown(ctx context.Context) error {
	_, err := c.rpc.Shutdown(ctx, &driverpb.ShutdownRequest{})
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	return ourError("shut down driver", err)
}

// TaskConfigSchema returns what a task's config block looks like.
func (c *Client) TaskConfigSchema(ctx context.Context) (*hclspec.Spec, error) {
	r, err := c.rpc.TaskConfigSchema(ctx, &driverpb.TaskConfigSchemaRequest{})
	return r.GetSpec(), ourError("get task config schema", err)
}

// Capabilities returns what the driver can do.
func (c *Client) Capabilities(ctx context.Context) (Capabilities, error) {
	r, err := c.rpc.Capabilities(ctx, &driverpb.CapabilitiesRequest{})
	return capabilitiesFromWire(r.GetCapabilities()), ourError("get driver capabilities", err)
}

// Fingerprint calls got with each fingerprint until ctx ends, the driver ends
// the stream, or got returns an error, which it returns.
func (c *Client) Fingerprint(ctx context.Context, got func(Fingerprint) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := c.rpc.Fingerprint(ctx, &driverpb.FingerprintRequest{})
	if err != nil {
		return ourError("fingerprint driver", err)
	}
	return stream.Receive(in, as("fingerprint driver"), func(r *driverpb.FingerprintResponse) error {
		if r.GetErr() != "" {
			return fmt.Errorf("fingerprint driver: %s", r.GetErr())
		}
		return got(fingerprintFromWire(r))
	})
}

// Start starts a task.
func (c *Client) Start(ctx context.Context, task TaskConfig) (Handle, *Network, error) {
	r, err := c.rpc.StartTask(ctx, &driverpb.StartTaskRequest{Task: taskToWire(task)})
	if err != nil {
		return Handle{}, nil, ourError("start task", err)
	}
	return handleFromWire(r.GetHandle()), networkFromWire(r.GetNetworkOverride()), nil
}

// Recover hands over a task that an earlier process started.
func (c *Client) Recover(ctx context.Context, h Handle) error {
	_, err := c.rpc.RecoverTask(ctx, &driverpb.RecoverTaskRequest{TaskId: h.Config.ID, Handle: handleToWire(h)})
	return ourError("recover task", err)
}

// Wait returns when the task has ended.
func (c *Client) Wait(ctx context.Context, id string) (Exit, error) {
	r, err := c.rpc.WaitTask(ctx, &driverpb.WaitTaskRequest{TaskId: id})
	if err != nil {
		return Exit{}, ourError("wait for task", err)
	}
	exit := exitFromWire(r.GetResult())
	if r.GetErr() != "" {
		exit.Err = errors.New(r.GetErr())
	}
	return exit, nil
}

// Stop signals the task and kills it after the timeout.
func (c *Client) Stop(ctx context.Context, id string, timeout time.Duration, signal string) error {
	_, err := c.rpc.StopTask(ctx, &driverpb.StopTaskRequest{TaskId: id, Timeout: durationpb.New(timeout), Signal: signal})
	return ourError("stop task", err)
}

// Destroy forgets the task.
func (c *Client) Destroy(ctx context.Context, id string, force bool) error {
	_, err := c.rpc.DestroyTask(ctx, &driverpb.DestroyTaskRequest{TaskId: id, Force: force})
	return ourError("destroy task", err)
}

// Inspect returns what the driver knows about the task.
func (c *Client) Inspect(ctx context.Context, id string) (Status, error) {
	r, err := c.rpc.InspectTask(ctx, &driverpb.InspectTaskRequest{TaskId: id})
	if err != nil {
		return Status{}, ourError("inspect task", err)
	}
	return statusFromWire(r), nil
}

// Stats calls got with each measurement until ctx or the task ends, or got
// returns an error, which it returns.
func (c *Client) Stats(ctx context.Context, id string, interval time.Duration, got func(Usage) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := c.rpc.TaskStats(ctx, &driverpb.TaskStatsRequest{TaskId: id, CollectionInterval: durationpb.New(interval)})
	if err != nil {
		return ourError("get task statistics", err)
	}
	return stream.Receive(in, as("get task statistics"), func(r *driverpb.TaskStatsResponse) error {
		return got(usageFromWire(r.GetStats()))
	})
}

// Events calls got with each event until ctx ends, the driver ends the stream,
// or got returns an error, which it returns.
func (c *Client) Events(ctx context.Context, got func(Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := c.rpc.TaskEvents(ctx, &driverpb.TaskEventsRequest{})
	if err != nil {
		return ourError("get task events", err)
	}
	return stream.Receive(in, as("get task events"), func(r *driverpb.DriverTaskEvent) error { return got(eventFromWire(r)) })
}

// Signal sends the task a signal.
func (c *Client) Signal(ctx context.Context, id, signal string) error {
	_, err := c.rpc.SignalTask(ctx, &driverpb.SignalTaskRequest{TaskId: id, Signal: signal})
	return ourError("signal task", err)
}

// Exec runs a command beside the task.
func (c *Client) Exec(ctx context.Context, id string, command []string, timeout time.Duration) (ExecResult, error) {
	r, err := c.rpc.ExecTask(ctx, &driverpb.ExecTaskRequest{TaskId: id, Command: command, Timeout: durationpb.New(timeout)})
	if err != nil {
		return ExecResult{}, ourError("exec in task", err)
	}
	return ExecResult{Stdout: r.GetStdout(), Stderr: r.GetStderr(), Exit: exitFromWire(r.GetResult())}, nil
}
