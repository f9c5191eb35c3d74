package nomadproc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devcluster/reaper"
)

// Cluster is a running cluster. It implements devcluster.Cluster.
type Cluster struct {
	// bind and rpc are where its servers are reached, path is its agents' PATH.
	bind, rpc, path string
	version         string
	// region is its Nomad region, serf where its server meets those of others.
	region, serf string
	address      string
	token        string
	client       *api.Client
	server       *agent
	nodes        []*node
	network      *network // nil if all share the machine's
	reaper       *reaper.Reaper

	stop    sync.Once
	stopErr error
}

// node is one client agent.
type node struct {
	spec    devcluster.Node
	agent   *agent
	address string
	client  *api.Client
	// space is the node's network, nil if it is the machine's.
	space *space
	mu    sync.Mutex
	cut   bool
}

var _ devcluster.Member = (*Cluster)(nil)

// Start starts a cluster of the nomad binary's version and returns when its
// server leads and answers; see WaitReady for the nodes. The context covers the
// start only. Nothing is left behind when it fails, or when this process is
// killed later.
func Start(ctx context.Context, bin string, spec devcluster.Spec) (*Cluster, error) {
	version, err := binaryVersion(ctx, bin)
	if err != nil {
		return nil, err
	}
	if err := validate(spec); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	dir, temporary := spec.DataDir, spec.DataDir == ""
	if temporary {
		if dir, err = os.MkdirTemp("", "caravan-nomad-"); err != nil {
			return nil, fmt.Errorf("create data directory: %w", err)
		}
	} else if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("find data directory: %w", err)
	}
	// Where the agents and their plugins put their sockets; below the data
	// directory their paths could become too long.
	tmp, err := os.MkdirTemp("", "caravan-nomad-tmp-")
	if err != nil {
		return nil, fmt.Errorf("create directory for sockets: %w", err)
	}
	remove := []string{tmp}
	if temporary {
		remove = append(remove, dir)
	}
	c := &Cluster{version: version, region: cmp.Or(spec.Region, api.GlobalRegion)}
	prefix := ""
	if spec.Networks {
		if c.network, err = newNetwork(); err != nil {
			return nil, errors.Join(fmt.Errorf("start cluster: %w", err), os.RemoveAll(tmp))
		}
		prefix = c.network.prefix
	}
	if c.reaper, err = reaper.StartWithNetwork(prefix, dir, remove...); err != nil {
		return nil, errors.Join(err, os.RemoveAll(tmp))
	}
	if err := c.start(ctx, bin, dir, []string{c.reaper.Mark(), "TMPDIR=" + tmp, "PATH=" + spec.PathVariable(os.Getenv("PATH"))}, spec); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, bin, dir string, env []string, spec devcluster.Spec) error {
	bind := cmp.Or(spec.Bind, defaultBind)
	if c.network != nil {
		if err := c.network.build(ctx, len(spec.Nodes)); err != nil {
			return fmt.Errorf("start cluster: %w", err)
		}
		bind = c.network.address(0)
	}
	all, err := freePorts(bind, 1+len(spec.Nodes))
	if err != nil {
		return err
	}
	serverDir := filepath.Join(dir, "server")
	configs, err := writeConfig(serverDir, serverConfig("server", c.region, filepath.Join(serverDir, "data"), bind, all[0], spec.ACL), "")
	if err != nil {
		return err
	}
	c.server = &agent{name: "server", bin: bin, configs: configs, env: env, log: spec.Log}
	c.address = all[0].url(bind)
	c.bind, c.rpc, c.path = bind, net.JoinHostPort(bind, fmt.Sprint(all[0].RPC)), spec.PathVariable(os.Getenv("PATH"))
	c.serf = net.JoinHostPort(bind, fmt.Sprint(all[0].Serf))
	for i := range spec.Nodes {
		member, err := c.member(i, dir, all[i+1], spec)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, member)
	}
	if err := c.server.start(); err != nil {
		return err
	}
	// Clients come second: one that finds the server not ready to sign its
	// identity tries again only after a while.
	if err := c.waitServer(ctx, spec.ACL); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := n.agent.start(); err != nil {
			return err
		}
	}
	return nil
}

// member is node i, with its files written. Its agent is started as the server is.
func (c *Cluster) member(i int, dir string, own ports, spec devcluster.Spec) (*node, error) {
	n := spec.Nodes[i]
	nodeDir := filepath.Join(dir, "node-"+n.Name)
	pluginDir := filepath.Join(nodeDir, "plugins")
	perNode := (lastDynamicPort - firstDynamicPort + 1) / len(spec.Nodes)
	first := firstDynamicPort + i*perNode
	host, out := c.bind, &node{spec: n}
	var prefix []string
	if c.network != nil {
		host, out.space = c.network.address(i+1), c.network.spaces[i]
		prefix = out.space.command()
	}
	config := clientConfig(n, c.region, filepath.Join(nodeDir, "data"), pluginDir, host, own, spec.ACL, c.rpc, [2]int{first, first + perNode - 1})
	configs, err := writeConfig(nodeDir, config, pluginConfig(n.Plugins, c.bind))
	if err != nil {
		return nil, err
	}
	if err := linkPlugins(pluginDir, n.Plugins); err != nil {
		return nil, err
	}
	out.address = own.url(host)
	out.agent = &agent{name: n.Name, bin: c.server.bin, configs: configs, prefix: prefix, env: c.server.env, log: spec.Log}
	return out, nil
}

func (c *Cluster) agents() []*agent {
	all := []*agent{c.server}
	for _, n := range c.nodes {
		all = append(all, n.agent)
	}
	return all
}

// validate says what is wrong with a cluster's description.
func validate(spec devcluster.Spec) error {
	var errs []error
	seen := map[string]bool{"server": true}
	for i, n := range spec.Nodes {
		switch {
		case n.Name == "" || strings.ContainsAny(n.Name, "/\\ "):
			errs = append(errs, fmt.Errorf("node %d: name %q must be set and have no blanks and slashes", i, n.Name))
		case seen[n.Name]:
			errs = append(errs, fmt.Errorf("node %d: name %q is taken", i, n.Name))
		}
		seen[n.Name] = true
		for _, p := range n.Plugins {
			if p.Name == "" || p.Name != filepath.Base(p.Name) || p.Path == "" {
				errs = append(errs, fmt.Errorf("node %q: plugin %q (%s): a base name and a path must be set", n.Name, p.Name, p.Path))
			}
		}
	}
	return errors.Join(errs...)
}

// binaryVersion asks the binary, which also shows that it runs.
func binaryVersion(ctx context.Context, bin string) (string, error) {
	cmd := exec.CommandContext(ctx, bin, "version")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s version: %w", bin, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	version, ok := strings.CutPrefix(strings.TrimSpace(line), "Nomad v")
	if !ok {
		return "", fmt.Errorf("run %s version: it says %q, want \"Nomad v…\"", bin, line)
	}
	return version, nil
}

// Backend implements devcluster.Cluster.
func (c *Cluster) Backend() string { return devcluster.BackendNomad }

// Version implements devcluster.Cluster.
func (c *Cluster) Version() string { return c.version }

// Address implements devcluster.Cluster.
func (c *Cluster) Address() string { return c.address }

// Token implements devcluster.Cluster.
func (c *Cluster) Token() string { return c.token }

// Client implements devcluster.Cluster.
func (c *Cluster) Client() *api.Client { return c.client }

func (c *Cluster) find(name string) (*node, error) {
	var names []string
	for _, n := range c.nodes {
		if n.spec.Name == name {
			return n, nil
		}
		names = append(names, n.spec.Name)
	}
	return nil, fmt.Errorf("no node %q; there are %s", name, strings.Join(names, ", "))
}

// StopNode implements devcluster.Cluster. The node's tasks run on.
func (c *Cluster) StopNode(name string) error {
	n, err := c.find(name)
	if err != nil {
		return fmt.Errorf("stop node: %w", err)
	}
	return n.agent.kill()
}

// StartNode implements devcluster.Cluster.
func (c *Cluster) StartNode(name string) error {
	n, err := c.find(name)
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	return n.agent.start()
}

// Stop implements devcluster.Cluster. It may be called again.
func (c *Cluster) Stop() error {
	c.stop.Do(func() { c.stopErr = c.reaper.Run() })
	return c.stopErr
}
