package devnomad

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// Region implements devcluster.Member.
func (c *Cluster) Region() string { return cmp.Or(c.spec.Region, api.GlobalRegion) }

// Federate implements devcluster.Member.
func (c *Cluster) Federate(_ context.Context, other devcluster.Member) error {
	o, ok := other.(*Cluster)
	if !ok || o.Region() == c.Region() {
		return fmt.Errorf("join regions: %s cannot be joined with %s; want two stand-ins of different regions", c.Region(), other.Region())
	}
	c.know(o)
	o.know(c)
	return nil
}

func (c *Cluster) know(o *Cluster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.others[o.Region()] = o
}

// Isolate implements devcluster.Member.
func (c *Cluster) Isolate() error {
	c.isolate(true)
	return nil
}

// Rejoin implements devcluster.Member.
func (c *Cluster) Rejoin(context.Context) error {
	c.isolate(false)
	return nil
}

func (c *Cluster) isolate(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isolated = on
}

// regions are those that the servers know, as Nomad lists them: also while there
// is no way to them.
func (c *Cluster) regions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append(slices.Collect(maps.Keys(c.others)), c.Region())
	slices.Sort(all)
	return all
}

// forward is the API of another region's servers.
func (c *Cluster) forward(region string) (http.Handler, bool) {
	c.mu.Lock()
	o := c.others[region]
	c.mu.Unlock()
	if o == nil {
		return nil, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.api, !o.isolated
}
