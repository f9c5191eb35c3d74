package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// mostOutput bounds what is kept of each output of a command that is not
// streamed, in bytes.
const mostOutput = 1 << 20

// Exec implements driver.Plugin: script checks and templates' change scripts.
func (p *Plugin) Exec(ctx context.Context, id string, command []string, timeout time.Duration) (driver.ExecResult, error) {
	t, err := p.find(id)
	if err != nil {
		return driver.ExecResult{}, err
	}
	if len(command) == 0 {
		return driver.ExecResult{}, errors.New("exec in task: there is no command")
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	out, errOut := limited{room: mostOutput}, limited{room: mostOutput}
	exit, err := t.client.Exec(ctx, exec.ExecSpec{Command: command, Stdout: &out, Stderr: &errOut}, nil)
	if err != nil {
		return driver.ExecResult{}, fmt.Errorf("exec in task: %w", err)
	}
	return driver.ExecResult{Stdout: out.Bytes(), Stderr: errOut.Bytes(), Exit: commandExit(exit)}, nil
}

// ExecStream implements driver.Plugin.
func (p *Plugin) ExecStream(ctx context.Context, id string, opts driver.ExecOptions) (driver.Exit, error) {
	t, err := p.find(id)
	if err != nil {
		return driver.Exit{}, err
	}
	if len(opts.Command) == 0 {
		return driver.Exit{}, errors.New("exec in task: there is no command")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	spec := exec.ExecSpec{Command: opts.Command, TTY: opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr}
	exit, err := t.client.Exec(ctx, spec, sizes(ctx, opts.Resize))
	if err != nil {
		return driver.Exit{}, fmt.Errorf("exec in task: %w", err)
	}
	return commandExit(exit), nil
}

func commandExit(e exec.Exit) driver.Exit {
	return driver.Exit{Code: e.Code, Signal: e.Signal, OOMKilled: e.OOM}
}

// sizes translates a terminal's sizes.
func sizes(ctx context.Context, in <-chan driver.TerminalSize) <-chan exec.Size {
	if in == nil {
		return nil
	}
	out := make(chan exec.Size)
	go func() {
		defer close(out)
		for s := range in {
			size := exec.Size{Rows: clamp(s.Height), Columns: clamp(s.Width)}
			select {
			case out <- size:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func clamp(n int) uint16 { return uint16(min(max(n, 0), 1<<16-1)) }

// limited keeps the beginning of what is written, and drops the rest.
type limited struct {
	bytes.Buffer
	room int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	keep := min(len(p), l.room-l.Len())
	l.Buffer.Write(p[:keep])
	return len(p), nil
}
