// Package stream holds what the streams of Nomad's plugin services share.
package stream

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// KeepOpen calls run again and again until ctx ends or run returns an error
// that final accepts, which it then returns. Nomad takes the end of some
// streams for the end of the plugin, so a run that fails is logged and tried
// again after a pause, which grows until ok is called.
func KeepOpen(ctx context.Context, log hclog.Logger, run func(ok func()) error, final func(error) bool) error {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = time.Second, time.Minute
	for {
		err := run(pause.Reset)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && final(err):
			return err
		}
		wait := pause.NextBackOff()
		log.Error("fingerprinting ended; starting again", "error", err, "wait", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Receive calls got with each message until the stream ends, which is no
// error, or fails, when it returns wrap's error, or got returns an error.
func Receive[T any](s grpc.ServerStreamingClient[T], wrap func(error) error, got func(*T) error) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return wrap(err)
		}
		if err := got(r); err != nil {
			return err
		}
	}
}

// TimeToWire sends the zero time as year 1, which every reader takes.
func TimeToWire(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }

// TimeFromWire is the inverse of TimeToWire; a time not sent is zero too.
func TimeFromWire(w *timestamppb.Timestamp) time.Time {
	if w == nil || w.AsTime().IsZero() {
		return time.Time{}
	}
	return w.AsTime()
}
