package daemon

import (
	"context"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
)

// waiterIn waits for decisions on jobs of one region of a federation; "" is the
// only region that there is.
type waiterIn struct {
	d      *Daemon
	region string
}

// WaitDecision implements gateway.Waiter.
func (w waiterIn) WaitDecision(ctx context.Context, namespace, job, specHash string) (httpapi.Explain, error) {
	if v := w.d.view.Load(); v != nil && w.region != "" {
		if _, twin := v.Job(namespace, observe.InRegion(job, w.region)); twin {
			job = observe.InRegion(job, w.region)
		}
	}
	return w.d.WaitDecision(ctx, namespace, job, specHash)
}

// locator tells the gateway of a federation where things are, as last seen.
type locator struct{ d *Daemon }

// Job implements gateway.Locator.
func (l locator) Job(region, namespace, id string) string {
	v := l.d.view.Load()
	if v == nil {
		return ""
	}
	if m, ok := v.Job(namespace, id); ok && m.Record != nil && m.Record.Home == region {
		return m.Region
	}
	return ""
}

// Alloc implements gateway.Locator.
func (l locator) Alloc(prefix string) string {
	v := l.d.view.Load()
	if v == nil || prefix == "" {
		return ""
	}
	found := ""
	for i := range v.Managed {
		m := &v.Managed[i]
		for _, a := range m.Allocs {
			if !strings.HasPrefix(a.ID, prefix) {
				continue
			}
			if found != "" && found != m.Region {
				return ""
			}
			found = m.Region
		}
	}
	return found
}

// Node implements gateway.Locator.
func (l locator) Node(prefix string) string {
	v := l.d.view.Load()
	if v == nil || prefix == "" {
		return ""
	}
	at, _ := slices.BinarySearchFunc(v.Nodes, prefix, func(n observe.NodeRef, id string) int { return strings.Compare(n.ID, id) })
	if at == len(v.Nodes) || !strings.HasPrefix(v.Nodes[at].ID, prefix) || at+1 < len(v.Nodes) && strings.HasPrefix(v.Nodes[at+1].ID, prefix) {
		return ""
	}
	return v.Nodes[at].Region
}
