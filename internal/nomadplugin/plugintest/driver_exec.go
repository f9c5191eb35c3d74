package plugintest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

var signals = map[string]syscall.Signal{"SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2, "SIGHUP": syscall.SIGHUP, "SIGTERM": syscall.SIGTERM}

// Signal implements driver.Plugin.
func (d *Driver) Signal(_ context.Context, id, name string) error {
	t, err := d.find(id)
	if err != nil {
		return err
	}
	s, ok := signals[name]
	if !ok {
		return fmt.Errorf("signal %q is not known", name)
	}
	return t.signal(s)
}

func (d *Driver) command(ctx context.Context, id string, command []string) (*exec.Cmd, error) {
	t, err := d.find(id)
	if err != nil {
		return nil, err
	}
	if len(command) == 0 {
		return nil, errors.New("no command")
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Dir = t.config.Environ(), t.config.TaskDir()
	return cmd, nil
}

// Exec implements driver.Plugin.
func (d *Driver) Exec(ctx context.Context, id string, command []string, timeout time.Duration) (driver.ExecResult, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	cmd, err := d.command(ctx, id, command)
	if err != nil {
		return driver.ExecResult{}, err
	}
	out, err := cmd.Output()
	return driver.ExecResult{Stdout: out, Exit: exitOf(err)}, nil
}

// ExecStream implements driver.Plugin.
func (d *Driver) ExecStream(ctx context.Context, id string, opts driver.ExecOptions) (driver.Exit, error) {
	cmd, err := d.command(ctx, id, opts.Command)
	if err != nil {
		return driver.Exit{}, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = opts.Stdin, opts.Stdout, opts.Stderr
	return exitOf(cmd.Run()), nil
}
