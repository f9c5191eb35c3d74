package nomadproc

import (
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"
)

// AgentAddress implements devcluster.Cluster.
func (c *Cluster) AgentAddress(name string) string {
	n, err := c.find(name)
	if err != nil {
		return ""
	}
	return n.address
}

// Agent implements devcluster.Cluster.
func (c *Cluster) Agent(name string) (*api.Client, error) {
	n, err := c.find(name)
	if err != nil {
		return nil, fmt.Errorf("connect to agent: %w", err)
	}
	return n.client, nil
}

// Cut implements devcluster.Cluster: the cable is pulled. Connections are not
// closed, they go silent.
func (c *Cluster) Cut(name string) error { return c.setCut(name, true) }

// Heal implements devcluster.Cluster.
func (c *Cluster) Heal(name string) error { return c.setCut(name, false) }

func (c *Cluster) setCut(name string, cut bool) error {
	n, err := c.find(name)
	switch {
	case err != nil:
		return fmt.Errorf("change network: %w", err)
	case n.space == nil:
		return fmt.Errorf("change network of node %q: it has none of its own, as Spec.Networks would give it", name)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	state := "up"
	if cut {
		state = "down"
	}
	if err := ip(context.Background(), "link", "set", n.space.link, state); err != nil {
		return fmt.Errorf("change network of node %q: %w", name, err)
	}
	n.cut = cut
	return nil
}

func (n *node) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}
