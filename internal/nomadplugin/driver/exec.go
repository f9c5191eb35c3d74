package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/driverpb"
)

type execServer = grpc.BidiStreamingServer[driverpb.ExecTaskStreamingRequest, driverpb.ExecTaskStreamingResponse]

// ExecTaskStreaming runs a command with the caller's terminal or pipes.
func (s *server) ExecTaskStreaming(stream execServer) error {
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("receive exec setup: %w", err)
	}
	setup := first.GetSetup()
	if setup == nil {
		return status.Error(codes.InvalidArgument, "the first message of an exec stream must be its setup")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	in, inWriter := io.Pipe()
	defer in.Close()
	resize := make(chan TerminalSize, 1)
	go func() {
		defer close(resize)
		// The driver learns of a broken or unreadable stream as its input's end.
		inWriter.CloseWithError(receiveInput(ctx, stream, inWriter, resize))
	}()

	out := &outputs{stream: stream}
	exit, err := s.impl.ExecStream(ctx, setup.GetTaskId(), ExecOptions{
		Command: setup.GetCommand(), TTY: setup.GetTty(), Stdin: in, Resize: resize,
		Stdout: writerFunc(func(p []byte) error {
			return out.send(&driverpb.ExecTaskStreamingResponse{Stdout: &driverpb.ExecTaskStreamingIOOperation{Data: p}})
		}),
		Stderr: writerFunc(func(p []byte) error {
			return out.send(&driverpb.ExecTaskStreamingResponse{Stderr: &driverpb.ExecTaskStreamingIOOperation{Data: p}})
		}),
	})
	if err != nil {
		return wireError(err)
	}
	closing := &driverpb.ExecTaskStreamingIOOperation{Close: true}
	return errors.Join(
		out.send(&driverpb.ExecTaskStreamingResponse{Stdout: closing}),
		out.send(&driverpb.ExecTaskStreamingResponse{Stderr: closing}),
		out.send(&driverpb.ExecTaskStreamingResponse{Exited: true, Result: exitToWire(exit)}),
	)
}

// receiveInput copies what the user types and the terminal's size. It returns
// nil at the end of the input and goes on only for sizes after that.
func receiveInput(ctx context.Context, stream execServer, in *io.PipeWriter, resize chan TerminalSize) error {
	for {
		msg, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case msg.GetStdin() != nil:
			if data := msg.GetStdin().GetData(); len(data) > 0 {
				if _, err := in.Write(data); err != nil {
					return err
				}
			}
			if msg.GetStdin().GetClose() {
				in.Close()
			}
		case msg.GetTtySize() != nil:
			size := TerminalSize{Width: int(msg.GetTtySize().GetWidth()), Height: int(msg.GetTtySize().GetHeight())}
			// Only the newest size counts; a driver that does not read sizes
			// must not hold up the input.
			select {
			case <-resize:
			default:
			}
			select {
			case resize <- size:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// outputs lets several writers share a stream, which allows one at a time.
type outputs struct {
	mu     sync.Mutex
	stream execServer
}

func (o *outputs) send(r *driverpb.ExecTaskStreamingResponse) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stream.Send(r)
}

type writerFunc func(p []byte) error

// Write implements io.Writer. The stream encodes p before it returns.
func (f writerFunc) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := f(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
