package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Command is the subcommand by which a binary becomes a supervisor; its only
// argument is the state directory, and what it has to do is Run.
const Command = "supervise"

// ready is what a supervisor says on its third descriptor when it can be
// attached to; anything else is its error.
const ready = "ready\n"

// launchIn is how long a supervisor may take to be ready.
const launchIn = 15 * time.Second

// Launch starts a supervisor: "BINARY supervise DIR", in a session of its own.
// The directory is made; the supervisor is ready when Launch returns, and the
// user's code is not waited for. The error wraps ErrExists where the directory
// has a supervisor that lives, and is a *StartError where the Start is at fault.
func Launch(ctx context.Context, binary, dir string, start Start) (*Client, error) {
	if err := start.Validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	if ok, err := alive(dir); err != nil {
		return nil, fmt.Errorf("launch supervisor: %w", err)
	} else if ok {
		return nil, fmt.Errorf("launch supervisor in %s: %w", dir, ErrExists)
	}
	if start.Run == "" {
		start.Run = strings.ToLower(rand.Text())
	}
	if start.Workload.ID == "" {
		start.Workload.ID = start.Run
	}
	if err := clearState(dir); err != nil {
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	if err := writeJSON(filepath.Join(dir, fileStart), start); err != nil {
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	if err := spawn(ctx, binary, dir); err != nil {
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	return Attach(dir)
}

// clearState removes what an earlier run left, but for the lock.
func clearState(dir string) error {
	for _, name := range []string{fileInfo, fileExit, fileEvents, fileSocket} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove old state: %w", err)
		}
	}
	return nil
}

func spawn(ctx context.Context, binary, dir string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer func() { _ = r.Close() }()
	output, err := os.OpenFile(filepath.Join(dir, fileOutput), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return errors.Join(fmt.Errorf("open output: %w", err), w.Close())
	}
	cmd := osexec.Command(binary, Command, dir)
	cmd.Dir = "/"
	// The first of the extra files is descriptor 3.
	cmd.Env = append(environment(os.Environ()), envReady+"=3")
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	err = errors.Join(err, w.Close(), output.Close())
	if err != nil {
		return fmt.Errorf("start %s: %w", binary, err)
	}
	// Only so that no zombie is left while this process lives.
	go func() { _ = cmd.Wait() }()
	if err := handshake(ctx, r); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	return nil
}

func handshake(ctx context.Context, r *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, launchIn)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })()
	said, err := io.ReadAll(io.LimitReader(r, 64<<10))
	switch {
	case string(said) == ready:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("wait for supervisor to be ready: %w", ctx.Err())
	case len(said) > 0:
		return errors.New(strings.TrimSpace(string(said)))
	}
	return fmt.Errorf("supervisor ended before it was ready: %w", errors.Join(err, io.ErrUnexpectedEOF))
}

// environment keeps what a supervisor and the container runtimes' commands need.
// The plugin's own may hold tokens, and outlives its use.
func environment(all []string) []string {
	keep := []string{"PATH", "HOME", "TMPDIR", "LANG", "XDG_RUNTIME_DIR", "GOCOVERDIR", "GORACE", "GOTRACEBACK", "NVIDIA_DRIVER_ROOT"}
	prefixes := []string{"DOCKER_", "CONTAINER", "APPTAINER_", "LC_"}
	var out []string
	for _, pair := range all {
		key, _, _ := strings.Cut(pair, "=")
		if slices.Contains(keep, key) || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
			out = append(out, pair)
		}
	}
	return out
}
