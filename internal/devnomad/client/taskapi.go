package client

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// taskAPI is the agent's API on a socket in each task's secrets directory
// (Nomad's Task API). The sockets are the agent's: they are silent while the
// client is stopped.
type taskAPI struct {
	mu      sync.Mutex
	handler http.Handler
	// servers are those of the tasks' directories; nil while the client is
	// stopped.
	servers map[string]*http.Server
}

// ServeTasks gives the handler of the tasks' sockets. It is called before Start.
func (c *Client) ServeTasks(h http.Handler) { c.tasks.handler = h }

// open serves a task. A task without a socket runs without it, as with Nomad.
func (a *taskAPI) open(dir string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.handler == nil {
		return nil
	}
	// The path may be too long for a socket's address.
	d, err := os.Open(filepath.Join(dir, "secrets"))
	if err != nil {
		return fmt.Errorf("serve task: %w", err)
	}
	defer d.Close()
	path := fmt.Sprintf("/proc/self/fd/%d/api.sock", d.Fd())
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("serve task: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("serve task: %w", err)
	}
	l.SetUnlinkOnClose(false) // the path is that of an open directory
	if err := os.Chmod(filepath.Join(dir, "secrets", "api.sock"), 0o666); err != nil {
		return fmt.Errorf("serve task: %w", err)
	}
	s := &http.Server{Handler: a.handler}
	if a.servers == nil {
		a.servers = map[string]*http.Server{}
	}
	a.servers[dir] = s
	go func() { _ = s.Serve(l) }() // until it is closed
	return nil
}

// close ends a task's socket.
func (a *taskAPI) close(dir string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.servers[dir]; s != nil {
		_ = s.Close()
		delete(a.servers, dir)
		_ = os.Remove(filepath.Join(dir, "secrets", "api.sock"))
	}
}

// silence ends all sockets, and returns the directories for wake.
func (a *taskAPI) silence() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	dirs := slices.Sorted(maps.Keys(a.servers))
	for _, s := range a.servers {
		_ = s.Close()
	}
	a.servers = nil
	return dirs
}
