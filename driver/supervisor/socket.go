package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// The path of a unix socket has at most 107 bytes, and a state directory may
// lie deeper. So the socket is reached through the directory's descriptor.

func socketPath(dir *os.File) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), fileSocket)
}

func dialSocket(ctx context.Context, dir string) (net.Conn, error) {
	return dialUnix(ctx, filepath.Join(dir, fileSocket))
}

// dialUnix connects to a socket however long its path is.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("open the socket's directory: %w", err)
	}
	defer func() { _ = d.Close() }()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), filepath.Base(path)))
}

// listenSocket replaces what an earlier supervisor left.
func listenSocket(dir string) (net.Listener, error) {
	if err := os.Remove(filepath.Join(dir, fileSocket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	defer func() { _ = d.Close() }()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketPath(d), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on control socket: %w", err)
	}
	// The path is valid only while d is open; the directory goes with the socket.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(filepath.Join(dir, fileSocket), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect control socket: %w", err), l.Close())
	}
	return l, nil
}
