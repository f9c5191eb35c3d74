package client

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Cut separates the client from the servers: it hears and tells nothing, its
// tasks and its own API live on.
func (c *Client) Cut() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return fmt.Errorf("cut off node %s: it is", c.cfg.Node.Name)
	}
	c.lose()
	c.cut, c.linked = true, make(chan struct{})
	c.cfg.Server.Disconnect(c.cfg.ID)
	for _, r := range c.runners {
		r.stopWhenAlone()
	}
	return nil
}

// lose notes the end of the contact with the servers. The caller holds the
// lock.
func (c *Client) lose() {
	if !c.cut {
		c.contact = c.cfg.Clock.Now()
	}
}

// Heal joins the client to the servers again. A client that does not run
// registers when it starts.
func (c *Client) Heal() error {
	c.mu.Lock()
	if !c.cut {
		c.mu.Unlock()
		return fmt.Errorf("join node %s: it is not cut off", c.cfg.Node.Name)
	}
	c.cut = false
	close(c.linked)
	up := c.up
	var runners []*allocRunner
	for _, r := range c.runners {
		runners = append(runners, r)
	}
	c.mu.Unlock()
	if !closed(up) {
		return nil
	}
	if err := c.cfg.Server.Connect(c.fingerprint()); err != nil {
		return fmt.Errorf("register node %s: %w", c.cfg.Node.Name, err)
	}
	for _, r := range runners {
		r.push()
	}
	return nil
}

// Alone says whether the client reaches no server.
func (c *Client) Alone() bool { return c.isCut() }

func (c *Client) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// aloneFor is how long a client that reaches no server lets an allocation run;
// false is for ever.
func aloneFor(g *api.TaskGroup) (time.Duration, bool) {
	if g.Disconnect != nil && g.Disconnect.StopOnClientAfter != nil {
		return *g.Disconnect.StopOnClientAfter, true
	}
	if g.StopAfterClientDisconnect != nil {
		return *g.StopAfterClientDisconnect, true
	}
	return 0, false
}

// stopWhenAlone stops the allocation when its time without servers is over.
// The caller holds the client's lock.
func (r *allocRunner) stopWhenAlone() {
	d, ok := aloneFor(r.group)
	if !ok {
		return
	}
	since := r.c.contact
	r.c.cfg.Clock.AfterFunc(d, func() {
		r.c.mu.Lock()
		still := r.c.running && r.c.cut && r.c.contact.Equal(since)
		r.c.mu.Unlock()
		if still {
			r.stop(false)
		}
	})
}

// stopOverdue stops, when the client starts, what may not have run that long
// without servers.
func (c *Client) stopOverdue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cfg.Clock.Now()
	for _, r := range c.runners {
		if d, ok := aloneFor(r.group); ok && now.Sub(c.contact) > d {
			go r.stop(false)
		}
	}
}

// AwaitLink waits until the client reaches the servers, or that it does not has
// been known for so long, or ctx ends.
func (c *Client) AwaitLink(ctx context.Context, known time.Duration) {
	c.mu.Lock()
	linked, left := c.linked, known-c.cfg.Clock.Now().Sub(c.contact)
	c.mu.Unlock()
	over := make(chan struct{})
	cancel := c.cfg.Clock.AfterFunc(max(0, left), func() { close(over) })
	defer cancel()
	select {
	case <-linked:
	case <-over:
	case <-ctx.Done():
	}
}

// Datacenter is the node's.
func (c *Client) Datacenter() string { return c.fingerprint().Datacenter }

// AgentStats is what the client's own agent tells of it.
func (c *Client) AgentStats(servers []string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := time.Duration(0)
	if c.cut {
		since = c.cfg.Clock.Now().Sub(c.contact)
	}
	return map[string]string{
		"node_id": c.cfg.ID, "known_servers": strings.Join(servers, ","), "num_allocations": fmt.Sprint(len(c.runners)),
		"last_heartbeat": since.String(), "heartbeat_ttl": heartbeatTTL.String(),
	}
}

// heartbeatTTL is Nomad's least.
const heartbeatTTL = 10 * time.Second
