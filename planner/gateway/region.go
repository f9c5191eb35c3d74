package gateway

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/hashicorp/nomad/api"
)

// ownRegion remembers the Nomad region that this Caravan plans for.
type ownRegion struct {
	mu   sync.Mutex
	name string
}

// region is the Nomad region that this Caravan plans for: the one that it was
// told, else that of the Nomad before which it stands.
func (g *Gateway) region() (string, error) {
	if g.cfg.Region != "" {
		return g.cfg.Region, nil
	}
	g.own.mu.Lock()
	defer g.own.mu.Unlock()
	if g.own.name != "" {
		return g.own.name, nil
	}
	all, err := g.cfg.Client.Regions().List()
	if err == nil && len(all) == 1 {
		g.own.name = all[0]
		return all[0], nil
	}
	// Only an agent itself tells which of several it is in, and only to those
	// who may read agents.
	name, err := g.cfg.Client.Agent().Region()
	if err != nil {
		return "", fmt.Errorf("ask Nomad's agent for its region: %w", err)
	}
	g.own.name = name
	return name, nil
}

// elsewhere says whether a request is for another Nomad region, where this
// Caravan has no say. Nomad forwards it there, and that region's own Caravan
// sees to it.
func (g *Gateway) elsewhere(r *http.Request, write api.WriteRequest) bool {
	return g.foreign(regionOf(r, write, &api.Job{}))
}

// foreign says whether a region that a request names, "" for none, is another
// than this Caravan's.
func (g *Gateway) foreign(region string) bool {
	if region == "" {
		return false
	}
	own, err := g.region()
	if err != nil {
		g.log.Warn("a request names a region, and Caravan does not know its own; set nomad.region in its configuration", "region", region, "error", err)
		return false
	}
	return own != "" && region != own
}
