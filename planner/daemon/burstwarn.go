package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/httpapi"
)

// warnings name pools that are not configured any more and have open purchases:
// nobody is told of those, so that their nodes stay, and cost.
func (b *bursts) warnings() (out []httpapi.Warning) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.book == nil {
		return nil
	}
	known := map[string]bool{}
	for i := range b.pools.Pools {
		known[b.pools.Pools[i].Name] = true
	}
	open, nodes := map[string][]string{}, map[string]int{}
	for i := range b.book.Purchases {
		e := &b.book.Purchases[i]
		if !known[e.Pool] && len(e.Gone) < e.Nodes {
			open[e.Pool] = append(open[e.Pool], e.ID)
			nodes[e.Pool] += e.Nodes - len(e.Gone)
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(open)) {
		out = append(out, httpapi.Warning{Subject: "pool " + pool, Text: fmt.Sprintf(
			"it is not in the pools file, and has open purchases (%s) with up to %d nodes, which may cost on and which nobody gives back: put it back into the file until they are gone, or empty the map of its Terraform directory by hand",
			strings.Join(open[pool], ", "), nodes[pool])})
	}
	return out
}
