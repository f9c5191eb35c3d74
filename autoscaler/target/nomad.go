package target

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// Nomad is what the target asks and orders of a cluster.
type Nomad interface {
	// Leader fails where the cluster has no leader.
	Leader(ctx context.Context) error
	// Nodes are the nodes with a pool's name in their meta, and the allocations on
	// each that have not ended, but for those of system jobs.
	Nodes(ctx context.Context, pool string) ([]*api.Node, map[string][]*api.Allocation, error)
	// Drain drains a node, Undrain ends that and lets it have work again.
	Drain(ctx context.Context, id string, deadline time.Duration, ignoreSystem bool) error
	Undrain(ctx context.Context, id string) error
	// Purge lets Nomad forget a node.
	Purge(ctx context.Context, id string) error
}

// cluster is Nomad by its API.
type cluster struct{ api *api.Client }

// Leader implements Nomad.
func (c cluster) Leader(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ask Nomad for its leader: %w", err)
	}
	leader, err := c.api.Status().Leader()
	if err != nil {
		return fmt.Errorf("ask Nomad for its leader: %w", err)
	}
	if leader == "" {
		return fmt.Errorf("ask Nomad for its leader: it has none")
	}
	return nil
}

// Nodes implements Nomad.
func (c cluster) Nodes(ctx context.Context, name string) ([]*api.Node, map[string][]*api.Allocation, error) {
	q := (&api.QueryOptions{Filter: "Meta." + burstapi.MetaPool + " == " + strconv.Quote(name)}).WithContext(ctx)
	list, _, err := c.api.Nodes().List(q)
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes of pool %s: %w", name, err)
	}
	var nodes []*api.Node
	allocs := map[string][]*api.Allocation{}
	for _, stub := range list {
		n, _, err := c.api.Nodes().Info(stub.ID, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return nil, nil, fmt.Errorf("read node %s: %w", stub.ID, err)
		}
		nodes = append(nodes, n)
		all, _, err := c.api.Nodes().Allocations(stub.ID, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return nil, nil, fmt.Errorf("list allocations of node %s: %w", stub.ID, err)
		}
		for _, a := range all {
			if !a.ClientTerminalStatus() && (a.Job == nil || a.Job.Type == nil || *a.Job.Type != api.JobTypeSystem && *a.Job.Type != api.JobTypeSysbatch) {
				allocs[n.ID] = append(allocs[n.ID], a)
			}
		}
	}
	return nodes, allocs, nil
}

// Drain implements Nomad.
func (c cluster) Drain(ctx context.Context, id string, deadline time.Duration, ignoreSystem bool) error {
	opts := &api.DrainOptions{DrainSpec: &api.DrainSpec{Deadline: deadline, IgnoreSystemJobs: ignoreSystem}, Meta: map[string]string{drainedKey: drainedBy}}
	if _, err := c.api.Nodes().UpdateDrainOpts(id, opts, (&api.WriteOptions{}).WithContext(ctx)); err != nil {
		return fmt.Errorf("drain node %s: %w", id, err)
	}
	return nil
}

// Undrain implements Nomad.
func (c cluster) Undrain(ctx context.Context, id string) error {
	opts := &api.DrainOptions{MarkEligible: true, Meta: map[string]string{}}
	w := (&api.WriteOptions{}).WithContext(ctx)
	if _, err := c.api.Nodes().UpdateDrainOpts(id, opts, w); err != nil {
		return fmt.Errorf("end drain of node %s: %w", id, err)
	}
	// A drain that has ended leaves the node ineligible.
	if _, err := c.api.Nodes().ToggleEligibility(id, true, w); err != nil {
		return fmt.Errorf("make node %s eligible: %w", id, err)
	}
	return nil
}

// Purge implements Nomad.
func (c cluster) Purge(ctx context.Context, id string) error {
	if _, _, err := c.api.Nodes().Purge(id, (&api.QueryOptions{}).WithContext(ctx)); err != nil {
		return fmt.Errorf("purge node %s: %w", id, err)
	}
	return nil
}

// machines are what Nomad knows of a pool, by key.
func machines(ctx context.Context, n Nomad, p *pool.Pool) (map[string]machine, error) {
	nodes, allocs, err := n.Nodes(ctx, p.Name)
	if err != nil {
		return nil, err
	}
	out := map[string]machine{}
	for key, same := range byKey(p.Name, nodes) {
		out[key] = machineOf(p, same, allocs)
	}
	return out, nil
}
