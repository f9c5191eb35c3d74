package observe

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// volumes notes the node's host volumes and healthy CSI plugins among its
// attributes, as gangspec asks for them.
func (r *nodeReader) volumes(n *api.Node, out map[string]string) {
	var names, plugins []string
	for _, name := range slices.Sorted(maps.Keys(n.HostVolumes)) {
		v := n.HostVolumes[name]
		if v == nil || len(name) > maxAttribute/2 {
			continue
		}
		has := gangspec.VolumeRead
		if v.ID != "" {
			has += "," + gangspec.VolumeWrite + "," + gangspec.VolumeDynamic
		} else if !v.ReadOnly {
			has += "," + gangspec.VolumeWrite
		}
		out[r.word(gangspec.AttrHostVolume+name)] = r.word(has)
		names = append(names, name)
	}
	for _, name := range slices.Sorted(maps.Keys(n.CSINodePlugins)) {
		if p := n.CSINodePlugins[name]; p != nil && p.Healthy {
			plugins = append(plugins, name)
		}
	}
	if len(names) > 0 {
		out[gangspec.AttrHostVolumes] = r.word(strings.Join(names, ","))
	}
	if len(plugins) > 0 {
		out[gangspec.AttrCSI] = r.word(strings.Join(plugins, ","))
	}
}
