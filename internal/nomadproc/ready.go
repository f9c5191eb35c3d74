package nomadproc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-cleanhttp"
	"github.com/hashicorp/nomad/api"
)

// pollInterval is how often a condition is looked at.
const pollInterval = 100 * time.Millisecond

// await looks until the condition holds. It gives up when the context ends or
// an agent ended by itself, and then says what was still missing.
func (c *Cluster) await(ctx context.Context, what string, condition func() error) error {
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	for {
		for _, a := range c.agents() {
			if _, err := a.running(); err != nil {
				return fmt.Errorf("wait for %s: %w", what, err)
			}
		}
		missing := condition()
		if missing == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: %w", what, ctx.Err(), missing)
		case <-ticks.C:
		}
	}
}

// waitServer waits until the server leads and can register clients, and with
// ACLs makes the management token.
func (c *Cluster) waitServer(ctx context.Context, acl bool) error {
	client, err := c.connect(c.address, nil)
	if err != nil {
		return err
	}
	err = c.await(ctx, "the server", func() error {
		leader, err := client.Status().Leader()
		if err == nil && leader == "" {
			err = errors.New("it has no leader")
		}
		return err
	})
	if err != nil {
		return err
	}
	if acl {
		// The leader is elected a little before it can do this.
		err := c.await(ctx, "the management token", func() error {
			token, _, err := client.ACLTokens().Bootstrap(nil)
			if err == nil {
				c.token = token.SecretID
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if c.client, err = c.connect(c.address, nil); err != nil {
		return err
	}
	err = c.await(ctx, "the server's keyring", func() error {
		keys, _, err := c.client.Keyring().List(nil)
		if err == nil && len(keys) == 0 {
			err = errors.New("it has no key")
		}
		return err
	})
	if err != nil {
		return err
	}
	// One client each, because every client keeps its connections, and an
	// agent allows only so many from one address.
	for _, n := range c.nodes {
		if n.client, err = c.connect(n.address, n.space); err != nil {
			return err
		}
	}
	return nil
}

// connect makes a client; one of a node with a network of its own speaks from
// there, so that it works when the node is cut off.
func (c *Cluster) connect(address string, from *space) (*api.Client, error) {
	config := &api.Config{Address: address, SecretID: c.token}
	if from != nil {
		transport := cleanhttp.DefaultPooledTransport()
		transport.DialContext = from.dial
		config.HttpClient = &http.Client{Transport: transport}
	}
	client, err := api.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return client, nil
}

// WaitReady implements devcluster.Cluster. Nodes that were stopped or cut off
// are not waited for.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for _, n := range c.nodes {
		running, err := n.agent.running()
		if err != nil {
			return fmt.Errorf("wait for node %q: %w", n.spec.Name, err)
		}
		if !running || n.isCut() {
			continue
		}
		if err := c.await(ctx, fmt.Sprintf("node %q", n.spec.Name), func() error { return c.nodeReady(n) }); err != nil {
			return err
		}
	}
	return nil
}

// nodeReady says what a node still lacks. Its agent answers once it has
// fingerprinted drivers and devices, and has a heartbeat once it has told the
// server so; the server alone may speak of an agent that was killed.
func (c *Cluster) nodeReady(n *node) error {
	self, err := n.client.Agent().Self()
	if err != nil {
		return err
	}
	stats := self.Stats["client"]
	if ttl, err := time.ParseDuration(stats["heartbeat_ttl"]); err != nil || ttl == 0 {
		return errors.New("it is not registered")
	}
	info, _, err := c.client.Nodes().Info(stats["node_id"], nil)
	if err != nil {
		return err
	}
	switch driver := info.Drivers["raw_exec"]; {
	case info.Status != api.NodeStatusReady:
		return fmt.Errorf("it is %s", info.Status)
	case info.SchedulingEligibility != api.NodeSchedulingEligible:
		return fmt.Errorf("it is %s", info.SchedulingEligibility)
	case driver == nil || !driver.Healthy:
		return errors.New("its raw_exec driver is not healthy")
	}
	return nil
}
