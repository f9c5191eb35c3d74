// Package devnomad is an in-process stand-in for a Nomad cluster, for
// development and tests on machines without Nomad. It serves the part of
// Nomad's HTTP API that Caravan uses, schedules by Nomad's rules, hosts real
// device plugin binaries and runs tasks as real processes. docs/devnomad.md
// says what it does not do. It is never a product.
package devnomad

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devcluster/reaper"
	"github.com/caravan-sched/caravan/internal/devnomad/agent"
	"github.com/caravan-sched/caravan/internal/devnomad/client"
	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/devnomad/server"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// Options are what a devcluster.Spec does not say.
type Options struct {
	// Clock is the cluster's time; nil is the machine's.
	Clock clock.Clock
	// LostAfter is how long a node may be silent before it is lost; 0 is
	// Nomad's, about 27 seconds.
	LostAfter time.Duration
	// Seed makes the scheduler's random choices repeatable; 0 is random.
	Seed uint64
	// Capacity is what each node has; zero values are DefaultCapacity's.
	Capacity client.Capacity
}

// DefaultCapacity is what a node has to give: a DGX H100's, so that job files
// written for real GPU nodes fit. Tasks are not limited to what they asked for.
var DefaultCapacity = client.Capacity{CPUMHz: 224_000, Cores: 112, MemoryMiB: 2 << 20, DiskMiB: 1 << 20}

const defaultLostAfter = 27 * time.Second

// Cluster is a running stand-in. It implements devcluster.Cluster.
type Cluster struct {
	spec     devcluster.Spec
	opts     Options
	dir      string
	ownsDir  bool
	reaper   *reaper.Reaper
	server   *server.Server
	http     *http.Server
	address  string
	token    string
	run      context.Context
	cancel   context.CancelFunc
	api      *agent.Agent
	finished sync.WaitGroup
	stopped  sync.Once
	// joins makes those that join later come one by one.
	joins sync.Mutex

	mu      sync.Mutex
	clients []*client.Client
	agents  map[string]*nodeAgent // by node name
	byID    map[string]*client.Client
	fail    func(*http.Request) (int, string)
	// others are the regions that it is joined with; isolated: it reaches none of
	// them, and nobody reaches its servers.
	others   map[string]*Cluster
	isolated bool
}

var _ devcluster.Member = (*Cluster)(nil)

// Start starts a cluster. It returns when every node has registered with the
// devices of its plugins.
func Start(ctx context.Context, spec devcluster.Spec) (*Cluster, error) {
	return StartWith(ctx, spec, Options{})
}

// StartWith is Start with options.
func StartWith(ctx context.Context, spec devcluster.Spec, opts Options) (*Cluster, error) {
	c := &Cluster{spec: spec, dir: spec.DataDir, byID: map[string]*client.Client{}, others: map[string]*Cluster{}, agents: map[string]*nodeAgent{}}
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "caravan-devnomad-")
		if err != nil {
			return nil, fmt.Errorf("start development cluster: %w", err)
		}
		c.dir, c.ownsDir = dir, true
	}
	if err := c.startReaper(); err != nil {
		return nil, err
	}
	if opts.Clock == nil {
		opts.Clock = clock.Real{}
	}
	c.server = server.New(server.Config{
		Clock: opts.Clock, LostAfter: cmp.Or(opts.LostAfter, defaultLostAfter), Seed: opts.Seed, Log: spec.Log, Region: c.Region(),
	})
	if spec.ACL {
		c.token = uuid.NewString()
	}
	run, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	if err := c.listen(run); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	c.finished.Go(func() { c.server.Run(run) })
	if err := c.startNodes(ctx, opts); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// startReaper starts what cleans up should this process be killed.
func (c *Cluster) startReaper() error {
	var temporary []string
	if c.ownsDir {
		temporary = append(temporary, c.dir)
	}
	var err error
	if c.reaper, err = reaper.Start(c.dir, temporary...); err != nil && c.ownsDir {
		return errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

// pluginEnv lets the reaper find the plugins, and their sockets go with a
// folder of ours. One that somebody else has chosen may have a path too long
// for sockets.
func (c *Cluster) pluginEnv() []string {
	env := []string{c.reaper.Mark()}
	if c.ownsDir {
		env = append(env, goplugin.EnvUnixSocketDir+"="+c.dir)
	}
	return env
}

// listen serves the API on a free port.
func (c *Cluster) listen(run context.Context) error {
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(c.spec.Bind, "127.0.0.1"), "0"))
	if err != nil {
		return fmt.Errorf("listen for the API: %w", err)
	}
	c.address = l.Addr().String()
	handler := agent.New(agent.Config{
		Server: c.server, Client: c.clientByID,
		Address: c.address, Fail: c.answer, Token: c.token,
		Region: c.Region(), Regions: c.regions, Forward: c.forward,
	})
	c.run, c.api = run, handler
	c.http = c.serve(l, c.joining(handler))
	return nil
}

func (c *Cluster) serve(l net.Listener, h http.Handler) *http.Server {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return c.run },
	}
	c.finished.Go(func() { _ = s.Serve(l) })
	return s
}

func (c *Cluster) startNodes(ctx context.Context, opts Options) error {
	capacity := client.Capacity{
		CPUMHz: cmp.Or(opts.Capacity.CPUMHz, DefaultCapacity.CPUMHz), Cores: cmp.Or(opts.Capacity.Cores, DefaultCapacity.Cores),
		MemoryMiB: cmp.Or(opts.Capacity.MemoryMiB, DefaultCapacity.MemoryMiB), DiskMiB: cmp.Or(opts.Capacity.DiskMiB, DefaultCapacity.DiskMiB),
	}
	c.opts = opts
	c.opts.Capacity = capacity
	all := make([]*client.Client, len(c.spec.Nodes))
	for i, n := range c.spec.Nodes {
		var err error
		if all[i], err = c.addNode(i, n); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, cl := range all {
		wg.Go(func() { errs[i] = cl.Start(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// addNode makes a node that is not started.
func (c *Cluster) addNode(ordinal int, n devcluster.Node) (*client.Client, error) {
	if c.client(n.Name) != nil {
		return nil, fmt.Errorf("start node %d: the name %q is taken", ordinal, n.Name)
	}
	dir := filepath.Join(c.dir, n.Name)
	id, err := nodeID(dir)
	if err != nil {
		return nil, err
	}
	local, err := c.listenFor(n.Name)
	if err != nil {
		return nil, err
	}
	n.Plugins = slices.Clone(n.Plugins)
	for i := range n.Plugins {
		n.Plugins[i].Config = strings.ReplaceAll(n.Plugins[i].Config, devcluster.ServerHost, cmp.Or(c.spec.Bind, "127.0.0.1"))
	}
	cl := client.New(client.Config{
		Node: n, ID: id, Dir: dir, Ordinal: ordinal, HTTPAddr: local.address, Capacity: c.opts.Capacity,
		Clock: c.opts.Clock, Server: c.server, Log: c.spec.Log,
		Region:    c.Region(),
		PluginEnv: c.pluginEnv(), TaskEnv: []string{c.reaper.Mark(), "PATH=" + c.spec.PathVariable(os.Getenv("PATH"))}, Path: c.spec.Path,
	})
	c.mu.Lock()
	c.clients = append(c.clients, cl)
	c.byID[id] = cl
	c.mu.Unlock()
	c.serveFor(local, cl)
	return cl, nil
}

// all are the nodes that are there now.
func (c *Cluster) all() []*client.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.clients)
}

func (c *Cluster) agent(name string) *nodeAgent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.agents[name]
}

// nodeID is the node's, kept in its folder as Nomad does.
func nodeID(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make node directory: %w", err)
	}
	path := filepath.Join(dir, "client-id")
	if raw, err := os.ReadFile(path); err == nil {
		if id, err := uuid.ParseBytes(raw); err == nil {
			return id.String(), nil
		}
	}
	id := uuid.NewString()
	if err := os.WriteFile(path, []byte(id), 0o644); err != nil {
		return "", fmt.Errorf("keep node ID: %w", err)
	}
	return id, nil
}

// Backend implements devcluster.Cluster.
func (c *Cluster) Backend() string { return devcluster.BackendDevNomad }

// Version implements devcluster.Cluster.
func (c *Cluster) Version() string { return client.NomadVersion }

// Address implements devcluster.Cluster.
func (c *Cluster) Address() string { return "http://" + c.address }

// Token implements devcluster.Cluster.
func (c *Cluster) Token() string { return c.token }

// Client implements devcluster.Cluster.
func (c *Cluster) Client() *api.Client {
	cl, err := api.NewClient(&api.Config{Address: c.Address(), SecretID: c.token})
	if err != nil {
		// The address is our own: it cannot be malformed.
		panic(fmt.Sprintf("client of development cluster: %v", err))
	}
	return cl
}

// WaitReady implements devcluster.Cluster.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for {
		changed := c.server.Store().Changed()
		missing := ""
		c.server.Store().View(func(v *state.View) {
			for _, cl := range c.all() {
				if n := v.Node(cl.ID()); n == nil || n.Status != api.NodeStatusReady {
					missing = cl.Name()
				}
			}
		})
		if missing == "" {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for node %s: %w", missing, ctx.Err())
		}
	}
}

func (c *Cluster) client(name string) *client.Client {
	for _, cl := range c.all() {
		if cl.Name() == name {
			return cl
		}
	}
	return nil
}

func (c *Cluster) clientByID(id string) *client.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

// StopNode implements devcluster.Cluster. The node's tasks live on, as they do
// when an agent is killed.
func (c *Cluster) StopNode(name string) error {
	cl := c.client(name)
	if cl == nil {
		return fmt.Errorf("stop node %s: there is none", name)
	}
	if err := cl.Kill(); err != nil {
		return err
	}
	c.agent(name).close()
	return nil
}

// StartNode implements devcluster.Cluster.
func (c *Cluster) StartNode(name string) error {
	cl := c.client(name)
	if cl == nil {
		return fmt.Errorf("start node %s: there is none", name)
	}
	if err := cl.Start(context.Background()); err != nil {
		return err
	}
	return c.reopen(name)
}

// Fail lets f answer requests instead of the API: a status other than 0 is
// sent with the body as it is. Nil ends it.
func (c *Cluster) Fail(f func(*http.Request) (status int, body string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = f
}

func (c *Cluster) answer(r *http.Request) (int, string) {
	c.mu.Lock()
	f, isolated := c.fail, c.isolated
	c.mu.Unlock()
	if isolated {
		return http.StatusBadGateway, "the servers are cut off"
	}
	if f == nil {
		return 0, ""
	}
	return f(r)
}

// Stop implements devcluster.Cluster. It may be called more than once.
func (c *Cluster) Stop() error {
	var errs []error
	c.stopped.Do(func() {
		for _, cl := range c.all() {
			cl.Destroy()
		}
		c.cancel()
		if c.http != nil {
			_ = c.http.Close()
		}
		c.mu.Lock()
		agents := slices.Collect(maps.Values(c.agents))
		c.mu.Unlock()
		for _, a := range agents {
			a.close()
		}
		c.finished.Wait()
		if c.ownsDir {
			if err := os.RemoveAll(c.dir); err != nil {
				errs = append(errs, fmt.Errorf("remove data of development cluster: %w", err))
			}
		}
		if err := c.reaper.Dismiss(); err != nil {
			errs = append(errs, err)
		}
	})
	return errors.Join(errs...)
}
