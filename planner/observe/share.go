package observe

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// shares notes of a device group's time slices which GPU each is a part of, and by
// how many tasks that is shared. What is not known to be a whole GPU is given to
// nobody: a job that counts on a GPU of its own would find others there.
func (r *nodeReader) shares(d *api.NodeDeviceResource, e *nodeEntry, byID map[string]model.GPU) {
	known := map[string]topology.Share{}
	if raw := d.Attributes[topology.AttrShares]; raw != nil && raw.StringVal != nil {
		list, err := topology.DecodeShares(*raw.StringVal)
		if err != nil {
			e.warn("which GPUs its %s devices are slices of is not known, so none of them is given away: %v; check the device plugin's version with nomad-device-caravan check", d.ID(), err)
		}
		for _, s := range list {
			known[s.GPU] = s
		}
	}
	for _, instance := range d.Instances {
		if instance == nil {
			continue
		}
		parent, n, ok := topology.ParseSliceID(instance.ID)
		g, listed := byID[instance.ID]
		if !ok || !listed {
			continue
		}
		s := known[parent]
		if n >= s.Slices {
			if g.Unhealthy == "" {
				g.Unhealthy = "it is not known by how many its GPU is shared"
			}
			byID[instance.ID] = g
			continue
		}
		g.Parent, g.Slices, g.SharedMiB = parent, s.Slices, int(min(s.MemoryMiB, model.MaxQuantity))
		byID[instance.ID] = g
	}
}

// sharedNodes are those that list time slices.
func (st *state) sharedNodes() map[string]bool {
	var out map[string]bool
	for id, n := range st.nodes {
		if slices.ContainsFunc(n.model.GPUs, func(g model.GPU) bool { return g.Slices > 0 }) {
			if out == nil {
				out = map[string]bool{}
			}
			out[id] = true
		}
	}
	return out
}

// heldInParts makes a list of devices that an allocation holds fit what its node
// lists now. What is shared may have been whole when the allocation was given it, or
// shared by others, before the plugin was configured anew: a GPU is then held with
// all of its slices, and a slice with its GPU.
func heldInParts(ids []string, n *model.Node, shared bool) []string {
	out := ids
	for _, id := range ids {
		parent, _, slice := topology.ParseSliceID(id)
		if !shared && !slice || slices.ContainsFunc(n.GPUs, func(g model.GPU) bool { return g.UUID == id }) {
			continue
		}
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if (slice && g.UUID == parent || g.Slices > 0 && g.Parent == id) && !slices.Contains(out, g.UUID) {
				out = append(slices.Clip(out), g.UUID)
			}
		}
	}
	return out
}
