package device

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/caravan-sched/caravan/internal/nomadplugin/stream"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/devicepb"
)

// Client is the host's side of a device plugin.
type Client struct {
	rpc devicepb.DevicePluginClient
}

// NewClient speaks to a plugin over a connection.
func NewClient(conn grpc.ClientConnInterface) *Client {
	return &Client{rpc: devicepb.NewDevicePluginClient(conn)}
}

// Fingerprint calls got with each fingerprint until ctx ends, the plugin ends
// the stream, or got returns an error, which it returns. An invalid
// fingerprint is an error, as it is for Nomad.
func (c *Client) Fingerprint(ctx context.Context, got func([]Group) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := c.rpc.Fingerprint(ctx, &devicepb.FingerprintRequest{})
	if err != nil {
		return fmt.Errorf("fingerprint devices: %w", err)
	}
	return stream.Receive(in, as("fingerprint devices"), func(r *devicepb.FingerprintResponse) error {
		groups := groupsFromWire(r)
		if err := Validate(groups); err != nil {
			return fmt.Errorf("fingerprint devices: %w", err)
		}
		return got(groups)
	})
}

// Reserve asks how a task gets at the devices.
func (c *Client) Reserve(ctx context.Context, ids []string) (Reservation, error) {
	r, err := c.rpc.Reserve(ctx, &devicepb.ReserveRequest{DeviceIds: ids})
	if err != nil {
		return Reservation{}, fmt.Errorf("reserve devices: %w", err)
	}
	return reservationFromWire(r.GetContainerRes()), nil
}

// Stats calls got with each set of statistics until ctx ends, the plugin ends
// the stream, or got returns an error, which it returns.
func (c *Client) Stats(ctx context.Context, interval time.Duration, got func([]GroupStats) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, err := c.rpc.Stats(ctx, &devicepb.StatsRequest{CollectionInterval: durationpb.New(interval)})
	if err != nil {
		return fmt.Errorf("get device statistics: %w", err)
	}
	return stream.Receive(in, as("get device statistics"), func(r *devicepb.StatsResponse) error {
		return got(statsFromWire(r))
	})
}

func as(what string) func(error) error {
	return func(err error) error { return fmt.Errorf("%s: %w", what, err) }
}
