package driver

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/driverpb"
)

type execClient = grpc.BidiStreamingClient[driverpb.ExecTaskStreamingRequest, driverpb.ExecTaskStreamingResponse]

// ExecStream runs a command with a terminal or pipes. Stdin and Resize may be
// nil. A read from Stdin that is under way when the command ends is left behind.
func (c *Client) ExecStream(ctx context.Context, id string, opts ExecOptions) (Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.ExecTaskStreaming(ctx)
	if err != nil {
		return Exit{}, ourError("exec in task", err)
	}
	setup := &driverpb.ExecTaskStreamingRequest_Setup{TaskId: id, Command: opts.Command, Tty: opts.TTY}
	if err := stream.Send(&driverpb.ExecTaskStreamingRequest{Setup: setup}); err != nil && !errors.Is(err, io.EOF) {
		return Exit{}, ourError("exec in task", err)
	}
	go sendInput(ctx, stream, opts)
	for {
		r, err := stream.Recv()
		if err != nil {
			return Exit{}, ourError("exec in task", err)
		}
		if r.GetExited() {
			return exitFromWire(r.GetResult()), nil
		}
		if err := errors.Join(
			output(opts.Stdout, r.GetStdout().GetData()),
			output(opts.Stderr, r.GetStderr().GetData()),
		); err != nil {
			return Exit{}, fmt.Errorf("exec in task: write output: %w", err)
		}
	}
}

func output(w io.Writer, data []byte) error {
	if w == nil || len(data) == 0 {
		return nil
	}
	_, err := w.Write(data)
	return err
}

// sendInput is the only sender on the stream. Errors show at the receiver.
func sendInput(ctx context.Context, stream execClient, opts ExecOptions) {
	input := make(chan []byte)
	go func() {
		defer close(input)
		for opts.Stdin != nil {
			buf := make([]byte, 4096)
			n, err := opts.Stdin.Read(buf)
			if n > 0 {
				select {
				case input <- buf[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	resize := opts.Resize
	for input != nil || resize != nil {
		msg := &driverpb.ExecTaskStreamingRequest{}
		select {
		case <-ctx.Done():
			return
		case data, ok := <-input:
			msg.Stdin = &driverpb.ExecTaskStreamingIOOperation{Data: data, Close: !ok}
			if !ok {
				input = nil
			}
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			msg.TtySize = &driverpb.ExecTaskStreamingRequest_TerminalSize{Width: int32(size.Width), Height: int32(size.Height)}
		}
		if stream.Send(msg) != nil {
			return
		}
	}
}
