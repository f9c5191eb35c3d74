package nomadproc

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// Host ports of the tasks of clients that join later: below those of the clients
// that are there from the start, and each of perJoined, chosen by process ID.
const (
	firstJoinedPort = 12_000
	perJoined       = 250
	joinedRanges    = (firstDynamicPort - firstJoinedPort) / perJoined
)

// Joining implements devcluster.Cluster.
func (c *Cluster) Joining() devcluster.Joining {
	return devcluster.Joining{
		Backend: c.Backend(), Address: c.address, Token: c.token, Bind: c.bind, Binary: c.server.bin, Server: c.rpc, Region: c.region,
		ACL: c.token != "", Path: c.path,
	}
}

// ExecClient turns this process into a client's agent that joins a cluster. What it
// keeps is below dir. It returns only if that fails.
func ExecClient(j devcluster.Joining, dir string) error {
	if err := validate(devcluster.Spec{Nodes: []devcluster.Node{j.Node}}); err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	if j.Binary == "" || j.Server == "" {
		return errors.New("join cluster: want Nomad's program and its servers' address")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	bind := cmp.Or(j.Bind, defaultBind)
	all, err := freePorts(bind, 1)
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	first := firstJoinedPort + os.Getpid()%joinedRanges*perJoined
	pluginDir := filepath.Join(dir, "plugins")
	config := clientConfig(j.Node, j.Region, filepath.Join(dir, "data"), pluginDir, bind, all[0], j.ACL, j.Server, [2]int{first, first + perJoined - 1})
	configs, err := writeConfig(dir, config, pluginConfig(j.Node.Plugins, bind))
	if err != nil {
		return err
	}
	if err := linkPlugins(pluginDir, j.Node.Plugins); err != nil {
		return err
	}
	tmp, err := socketDir(dir)
	if err != nil {
		return fmt.Errorf("join cluster: %w", err)
	}
	args := []string{j.Binary, "agent"}
	for _, c := range configs {
		args = append(args, "-config", c)
	}
	env := []string{"TMPDIR=" + tmp, "PATH=" + cmp.Or(j.Path, os.Getenv("PATH"))}
	for _, kv := range os.Environ() {
		// Not what would configure an agent, but the mark by which it is found.
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "NOMAD_") && name != "TMPDIR" && name != "PATH" {
			env = append(env, kv)
		}
	}
	return fmt.Errorf("start %s: %w", j.Binary, syscall.Exec(j.Binary, args, env))
}

// longestSocketDir leaves room for the names of sockets: a path to one has no more
// than 107 bytes on Linux.
const longestSocketDir = 80

// socketDir is where a client and its plugins put their sockets: below dir, so that
// they go with it, since nobody is left to remove anything once this process is the
// client. Only if that path is too long it is elsewhere, and stays.
func socketDir(dir string) (string, error) {
	tmp := filepath.Join(dir, "t")
	if len(tmp) > longestSocketDir {
		return os.MkdirTemp("", "caravan-client-")
	}
	return tmp, os.MkdirAll(tmp, 0o700)
}
