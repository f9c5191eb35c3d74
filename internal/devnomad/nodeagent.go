package devnomad

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/agent"
	"github.com/caravan-sched/caravan/internal/devnomad/client"
)

// nodeAgent is the API of a node's own agent.
type nodeAgent struct {
	address string
	handler http.Handler

	mu       sync.Mutex
	listener net.Listener
	server   *http.Server
}

// listenFor finds the address of a node's agent.
func (c *Cluster) listenFor(name string) (*nodeAgent, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(c.spec.Bind, "127.0.0.1"), "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the agent of node %s: %w", name, err)
	}
	a := &nodeAgent{address: l.Addr().String(), listener: l}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agents[name] = a
	return a, nil
}

// serveFor begins to answer.
func (c *Cluster) serveFor(a *nodeAgent, cl *client.Client) {
	a.handler = agent.ForClient(c.api, cl, a.address)
	cl.ServeTasks(agent.ForTask(c.api, a.handler))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server = c.serve(a.listener, a.handler)
}

// reopen answers again at the same address.
func (c *Cluster) reopen(name string) error {
	a := c.agent(name)
	l, err := net.Listen("tcp", a.address)
	if err != nil {
		return fmt.Errorf("listen for the agent of node %s: %w", name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener, a.server = l, c.serve(l, a.handler)
	return nil
}

func (a *nodeAgent) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server != nil {
		_ = a.server.Close()
	} else {
		_ = a.listener.Close()
	}
}

// AgentAddress implements devcluster.Cluster.
func (c *Cluster) AgentAddress(name string) string {
	if a := c.agent(name); a != nil {
		return "http://" + a.address
	}
	return ""
}

// Agent implements devcluster.Cluster.
func (c *Cluster) Agent(name string) (*api.Client, error) {
	address := c.AgentAddress(name)
	if address == "" {
		return nil, fmt.Errorf("connect to agent: no node %q", name)
	}
	cl, err := api.NewClient(&api.Config{Address: address, SecretID: c.token})
	if err != nil {
		return nil, fmt.Errorf("connect to agent of node %s: %w", name, err)
	}
	return cl, nil
}

// Cut implements devcluster.Cluster.
func (c *Cluster) Cut(name string) error {
	cl := c.client(name)
	if cl == nil {
		return fmt.Errorf("cut off node %s: there is none", name)
	}
	return cl.Cut()
}

// Heal implements devcluster.Cluster.
func (c *Cluster) Heal(name string) error {
	cl := c.client(name)
	if cl == nil {
		return fmt.Errorf("join node %s: there is none", name)
	}
	return cl.Heal()
}
