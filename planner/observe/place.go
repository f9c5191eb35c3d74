package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// place finds the node's domains: the operator's topology file first, then the
// node's meta, and for the NVLink domain at last what the GPUs themselves say.
func (r *nodeReader) place(n *api.Node, e *nodeEntry, matrix topology.Matrix, known bool) {
	levels := map[string]string{}
	place, listed := r.listed(n)
	if listed {
		maps.Copy(levels, place.Levels)
	}
	for _, l := range r.levels {
		value := strings.TrimSpace(n.Meta[l.Meta])
		switch {
		case !listed && strings.Contains(value, "/"):
			e.warn("meta %s is %q: a domain's name must not hold a slash; it is ignored", l.Meta, value)
		case !listed && value != "":
			levels[l.Name] = r.word(value)
		case listed && value != "" && levels[l.Name] != value:
			e.warn("meta %s is %q, but the topology file says %q in line %d; the file counts", l.Meta, value, levels[l.Name], place.Line)
		}
		// A constraint on meta finds the node only if the meta says the same.
		if value != "" && levels[l.Name] == n.Meta[l.Meta] {
			if e.ref.Meta == nil {
				e.ref.Meta = map[string]string{}
			}
			e.ref.Meta[l.Meta] = levels[l.Name]
		}
	}
	if fabric, ok := commonFabric(matrix); known && ok && levels[model.LevelDomain] == "" && r.hasLevel(model.LevelDomain) {
		levels[model.LevelDomain] = r.word(fabric)
	}
	if r.region != "" {
		levels[model.LevelRegion] = r.region
	}
	if len(levels) > 0 {
		e.model.Levels = levels
	}
}

func (r *nodeReader) listed(n *api.Node) (config.Place, bool) {
	if r.topology == nil {
		return config.Place{}, false
	}
	if p, ok := r.topology.Places[n.ID]; ok {
		return p, true
	}
	p, ok := r.topology.Places[n.Name]
	return p, ok
}

func (r *nodeReader) hasLevel(name string) bool {
	return slices.ContainsFunc(r.levels, func(l config.Level) bool { return l.Name == name })
}

// commonFabric names the NVLink domain that all of a node's GPUs are in.
func commonFabric(m topology.Matrix) (string, bool) {
	if len(m.GPUs) == 0 || m.GPUs[0].Fabric == (topology.Fabric{}) {
		return "", false
	}
	first := m.GPUs[0].Fabric
	for _, g := range m.GPUs[1:] {
		if g.Fabric != first {
			return "", false
		}
	}
	return fmt.Sprintf("%s.%d", first.ClusterUUID, first.CliqueID), true
}
