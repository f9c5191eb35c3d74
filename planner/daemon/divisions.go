package daemon

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
)

// divideWithin is within what time a node has divided a GPU, or has said why not.
// After that nobody waits for it: its plugin may be away.
const divideWithin = 2 * time.Minute

// divisions are how idle GPUs are to be divided, until their nodes have done it or
// have refused. They are not kept beyond a term: whoever leads next decides anew,
// and a GPU that was divided for nobody is idle, and divided again when somebody
// waits.
type divisions struct {
	mu    sync.Mutex
	wants map[string]division // by GPU
}

type division struct {
	node     string
	profiles []string
	at       time.Time
	// before is what its node said of it last, before it was asked.
	before model.Division
}

func (d *divisions) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.wants)
}

// want notes what was decided.
func (d *divisions) want(v *observe.View, list []model.Repartition, now time.Time) {
	if len(list) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wants == nil {
		d.wants = map[string]division{}
	}
	for _, p := range list {
		w := division{node: p.Node, profiles: p.To, at: now}
		at := slices.IndexFunc(v.Snapshot.Nodes, func(n model.Node) bool { return n.ID == p.Node })
		if at >= 0 {
			w.before = lastDivision(&v.Snapshot.Nodes[at], p.GPU)
		}
		d.wants[p.GPU] = w
	}
}

func lastDivision(n *model.Node, gpu string) model.Division {
	at := slices.IndexFunc(n.Divisions, func(o model.Division) bool { return o.GPU == gpu })
	if at < 0 {
		return model.Division{}
	}
	return n.Divisions[at]
}

// asked are the wants of these GPUs, for the plugin of their node.
func (d *divisions) asked(gpus []string) []httpapi.Division {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []httpapi.Division{}
	for _, gpu := range gpus {
		if w, wanted := d.wants[gpu]; wanted {
			out = append(out, httpapi.Division{GPU: gpu, Profiles: append([]string{}, w.profiles...)})
		}
	}
	return out
}

// mark returns a View in which the GPUs that are being divided are given to nobody.
// What is done, refused or out of time is asked for no longer.
func (d *divisions) mark(v *observe.View) *observe.View {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.wants) == 0 || v.Snapshot == nil {
		return v
	}
	byNode := map[string][]string{}
	for gpu, w := range d.wants {
		byNode[w.node] = append(byNode[w.node], gpu)
	}
	out, snap := *v, *v.Snapshot
	snap.Nodes = slices.Clone(snap.Nodes)
	out.Snapshot = &snap
	seen := map[string]bool{}
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		gpus := slices.Sorted(slices.Values(byNode[n.ID]))
		if len(gpus) == 0 {
			continue
		}
		n.GPUs, n.Divisions = slices.Clone(n.GPUs), slices.Clone(n.Divisions)
		for _, gpu := range gpus {
			w := d.wants[gpu]
			if last := lastDivision(n, gpu); isDivided(n, gpu, w.profiles) || !last.At.IsZero() && !last.At.Equal(w.before.At) || v.Taken.Sub(w.at) > divideWithin {
				continue
			}
			seen[gpu] = true
			markPending(n, gpu, w)
		}
	}
	maps.DeleteFunc(d.wants, func(gpu string, _ division) bool { return !seen[gpu] })
	return &out
}

// isDivided reports whether a GPU is divided so.
func isDivided(n *model.Node, gpu string, want []string) bool {
	var have []string
	whole := false
	for i := range n.GPUs {
		g := &n.GPUs[i]
		_, profile, divided := strings.Cut(g.Model, mig.Mark)
		switch {
		case g.UUID == gpu:
			whole = true
		case g.Parent == gpu && divided && g.Unhealthy == "":
			have = append(have, profile)
		}
	}
	return whole == (len(want) == 0) && slices.Equal(slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(want)))
}

// markPending keeps a GPU, and its instances, from everybody.
func markPending(n *model.Node, gpu string, w division) {
	for i := range n.GPUs {
		if g := &n.GPUs[i]; (g.UUID == gpu || g.Parent == gpu) && g.Unhealthy == "" {
			g.Unhealthy = "the GPU is being divided"
		}
	}
	n.Divisions = append(slices.DeleteFunc(n.Divisions, func(o model.Division) bool { return o.GPU == gpu }),
		model.Division{GPU: gpu, Profiles: w.profiles, At: w.at.UTC(), State: model.DivisionPending})
}
