// Package client is the stand-in's Nomad client: it hosts real device plugin
// binaries, fingerprints the node, and runs what the server places on it as
// real processes.
package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
	"github.com/caravan-sched/caravan/internal/nomadplugin/host"
)

// Server is what a client needs of the server.
type Server interface {
	Connect(n *state.Node) error
	Disconnect(id string)
	NodeEvent(id, subsystem, message string, details map[string]string)
	UpdateAllocs(reports []*api.Allocation) error
	SignIdentity(a *api.Allocation, task string, wid *api.WorkloadIdentity) (token string, expires time.Time, err error)
	Store() *state.Store
}

// Config is one client.
type Config struct {
	Node devcluster.Node
	ID   string
	// Dir is the client's own folder.
	Dir string
	// Ordinal is the node's place in the cluster, from 0.
	Ordinal int
	// HTTPAddr is the agent's address, as shown by the API.
	HTTPAddr string
	Capacity Capacity
	Clock    clock.Clock
	Server   Server
	Log      func(string)
	// PluginEnv and TaskEnv are added to the environment of those processes,
	// as NAME=VALUE.
	PluginEnv, TaskEnv []string
	// Path are directories in which raw_exec finds commands, after those of this
	// process's PATH.
	Path []string
	// Region is the cluster's.
	Region string
}

// Capacity is what a node has to give.
type Capacity struct {
	CPUMHz, Cores, MemoryMiB, DiskMiB int
}

// Client is one node. Its tasks live on while it is stopped, as the processes
// of a killed agent do.
type Client struct {
	cfg     Config
	started time.Time // when the client was made, as the node's boot

	mu      sync.Mutex
	running bool
	cut     bool          // from the servers
	linked  chan struct{} // closed when a client that was cut off is joined
	contact time.Time     // the last with them, while running or not
	cancel  context.CancelFunc
	done    chan struct{}
	up      chan struct{} // closed while the client runs with its plugins
	plugins []*plugin
	drivers map[string]*driverHost // of the running client, by driver
	handles map[string]host.Handle // of drivers' processes, by plugin
	dynamic map[string]*string     // node meta set through the API
	runners map[string]*allocRunner
	dirty   map[string]*api.Allocation // reports not yet delivered
	flush   chan struct{}
	tasks   taskAPI
	silent  []string // the tasks that had sockets when the client was stopped
}

// New returns a client that is not started.
func New(cfg Config) *Client {
	return &Client{
		cfg: cfg, started: cfg.Clock.Now(), dynamic: map[string]*string{}, runners: map[string]*allocRunner{},
		dirty: map[string]*api.Allocation{}, flush: make(chan struct{}, 1),
		up: make(chan struct{}), linked: make(chan struct{}), drivers: map[string]*driverHost{}, handles: map[string]host.Handle{},
	}
}

// ID is the node's ID.
func (c *Client) ID() string { return c.cfg.ID }

// Name is the node's name.
func (c *Client) Name() string { return c.cfg.Node.Name }

// Start launches the plugins, waits for their first fingerprint, registers the
// node and begins to work.
func (c *Client) Start(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		return fmt.Errorf("start node %s: it is running", c.cfg.Node.Name)
	}
	run, cancel := context.WithCancel(context.Background())
	c.running, c.cancel, c.done = true, cancel, make(chan struct{})
	c.mu.Unlock()

	if err := c.startPlugins(ctx, run); err != nil {
		cancel()
		c.mu.Lock()
		c.running = false
		c.mu.Unlock()
		c.leavePlugins()
		return fmt.Errorf("start node %s: %w", c.cfg.Node.Name, err)
	}
	if !c.isCut() {
		if err := c.cfg.Server.Connect(c.fingerprint()); err != nil {
			return fmt.Errorf("register node %s: %w", c.cfg.Node.Name, err)
		}
	}
	c.stopOverdue()
	// What runs already is reported anew: the server may think it lost.
	c.mu.Lock()
	runners := slices.Collect(maps.Values(c.runners))
	for _, dir := range c.silent {
		if err := c.tasks.open(dir); err != nil {
			c.logf("%v", err)
		}
	}
	c.silent = nil
	close(c.up)
	c.mu.Unlock()
	for _, r := range runners {
		r.push()
	}
	go c.loop(run, c.done)
	return nil
}

// Kill ends the client as a crash would: the server hears nothing, device
// plugins go, drivers and tasks stay.
func (c *Client) Kill() error {
	if err := c.halt(); err != nil {
		return err
	}
	c.leavePlugins()
	c.cfg.Server.Disconnect(c.cfg.ID)
	return nil
}

// halt ends the client's own work.
func (c *Client) halt() error {
	c.mu.Lock()
	if !c.running {
		c.mu.Unlock()
		return fmt.Errorf("stop node %s: it is not running", c.cfg.Node.Name)
	}
	c.running = false
	c.up = make(chan struct{})
	c.lose()
	cancel, done := c.cancel, c.done
	c.silent = c.tasks.silence()
	c.mu.Unlock()
	cancel()
	<-done
	return nil
}

// Destroy ends the client and every task at once. When it returns nothing
// writes into the client's folder any more.
func (c *Client) Destroy() {
	c.mu.Lock()
	running := c.running
	c.mu.Unlock()
	// The client first: as long as it follows the server it starts tasks. A
	// stopped one's drivers are needed to end their tasks.
	var err error
	if running {
		err = c.halt()
	} else if len(c.handles) > 0 {
		err = c.startPlugins(context.Background(), context.Background())
	}
	if err != nil {
		c.logf("%v", err)
	}
	c.mu.Lock()
	runners := slices.Collect(maps.Values(c.runners))
	c.mu.Unlock()
	for _, r := range runners {
		r.destroy()
	}
	for _, r := range runners {
		<-r.done
	}
	c.endPlugins()
	c.cfg.Server.Disconnect(c.cfg.ID)
}

// loop follows the server's state until ctx ends.
func (c *Client) loop(ctx context.Context, done chan struct{}) {
	defer close(done)
	for {
		changed := c.cfg.Server.Store().Changed()
		if !c.isCut() {
			c.sync()
			c.deliver()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-c.flush:
		}
	}
}

// sync starts, updates and stops allocations as the server wants it.
func (c *Client) sync() {
	var want []*api.Allocation
	c.cfg.Server.Store().View(func(v *state.View) { want = v.AllocsOfNode(c.cfg.ID) })
	seen := map[string]bool{}
	for _, a := range want {
		seen[a.ID] = true
		c.mu.Lock()
		r := c.runners[a.ID]
		c.mu.Unlock()
		switch {
		case r == nil && a.DesiredStatus == api.AllocDesiredStatusRun && !a.ClientTerminalStatus():
			c.startAlloc(a)
		case r == nil && a.DesiredStatus != api.AllocDesiredStatusRun && !a.ClientTerminalStatus():
			// Told to stop before it began.
			c.report(&api.Allocation{ID: a.ID, ClientStatus: api.AllocClientStatusComplete})
		case r != nil && a.DesiredStatus != api.AllocDesiredStatusRun:
			r.stop(a.DesiredTransition.NoShutdownDelay != nil && *a.DesiredTransition.NoShutdownDelay)
		case r != nil:
			r.update(a)
		}
	}
	c.mu.Lock()
	var gone []*allocRunner
	for id, r := range c.runners {
		if !seen[id] {
			gone = append(gone, r)
			delete(c.runners, id)
		}
	}
	c.mu.Unlock()
	for _, r := range gone {
		r.stop(true)
	}
}

func (c *Client) startAlloc(a *api.Allocation) {
	r := newAllocRunner(c, a)
	c.mu.Lock()
	c.runners[a.ID] = r
	c.mu.Unlock()
	go r.run()
}

// report keeps a status for delivery; later ones replace earlier ones.
func (c *Client) report(a *api.Allocation) {
	a.NodeID = c.cfg.ID
	c.mu.Lock()
	c.dirty[a.ID] = a
	c.mu.Unlock()
	select {
	case c.flush <- struct{}{}:
	default:
	}
}

// deliver gives the server what it has not heard.
func (c *Client) deliver() {
	c.mu.Lock()
	reports := slices.Collect(maps.Values(c.dirty))
	clear(c.dirty)
	c.mu.Unlock()
	if len(reports) == 0 {
		return
	}
	slices.SortFunc(reports, func(a, b *api.Allocation) int { return compareIDs(a.ID, b.ID) })
	if err := c.cfg.Server.UpdateAllocs(reports); err != nil {
		c.logf("report allocations: %v", err)
	}
}

// refresh registers the node again after its fingerprint changed.
func (c *Client) refresh() {
	c.mu.Lock()
	up := c.up
	c.mu.Unlock()
	if closed(up) && !c.isCut() {
		if err := c.cfg.Server.Connect(c.fingerprint()); err != nil {
			c.logf("register node: %v", err)
		}
	}
}

// SetMeta changes the node's dynamic meta: a nil value removes a key. It
// returns the merged meta, the dynamic part and the configured part.
func (c *Client) SetMeta(change map[string]*string) (merged map[string]string, dynamic map[string]*string, static map[string]string) {
	c.mu.Lock()
	maps.Copy(c.dynamic, change)
	dynamic = maps.Clone(c.dynamic)
	c.mu.Unlock()
	if len(change) > 0 {
		c.refresh()
	}
	return c.meta(), dynamic, maps.Clone(c.cfg.Node.Meta)
}

func (c *Client) meta() map[string]string {
	out := maps.Clone(c.cfg.Node.Meta)
	if out == nil {
		out = map[string]string{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, v := range c.dynamic {
		if v == nil {
			delete(out, k)
		} else {
			out[k] = *v
		}
	}
	return out
}

func (c *Client) logf(format string, args ...any) {
	if c.cfg.Log != nil {
		c.cfg.Log(c.cfg.Node.Name + ": " + fmt.Sprintf(format, args...))
	}
}

func compareIDs(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
