package nomadproc

import (
	"context"
	"fmt"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// Region implements devcluster.Member.
func (c *Cluster) Region() string { return c.region }

// Federate implements devcluster.Member. It returns when each of the two answers
// for the other.
func (c *Cluster) Federate(ctx context.Context, other devcluster.Member) error {
	o, ok := other.(*Cluster)
	if !ok || o.region == c.region {
		return fmt.Errorf("join regions: %s cannot be joined with %s; want two clusters of Nomad processes of different regions", c.region, other.Region())
	}
	if _, err := c.client.Agent().Join(o.serf); err != nil {
		return fmt.Errorf("join regions %s and %s: %w", c.region, o.region, err)
	}
	return c.meets(ctx, o)
}

// meets waits until both know each other's leader.
func (c *Cluster) meets(ctx context.Context, o *Cluster) error {
	return c.await(ctx, fmt.Sprintf("the regions %s and %s to meet", c.region, o.region), func() error {
		if leader, err := c.client.Status().RegionLeader(o.region); err != nil || leader == "" {
			return fmt.Errorf("%s does not see who leads %s: %w", c.region, o.region, err)
		}
		if leader, err := o.client.Status().RegionLeader(c.region); err != nil || leader == "" {
			return fmt.Errorf("%s does not see who leads %s: %w", o.region, c.region, err)
		}
		return nil
	})
}

// Isolate implements devcluster.Member: the server is killed.
func (c *Cluster) Isolate() error { return c.server.kill() }

// Rejoin implements devcluster.Member. The server meets the others again by
// itself; it returns when it leads.
func (c *Cluster) Rejoin(ctx context.Context) error {
	if err := c.server.start(); err != nil {
		return err
	}
	return c.waitServer(ctx, false)
}
