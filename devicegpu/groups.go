package devicegpu

import (
	"slices"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// deviceType is Nomad's name for GPUs.
const deviceType = "gpu"

// The parts of a group's name where a source does not tell them.
const (
	unknownModel  = "GPU"
	unknownVendor = "unknown"
)

// Groups makes Nomad's device groups of an inventory: one per vendor and model
// of whole GPUs, one per vendor, model and profile of MIG instances, and one per
// vendor, model and number of slices of shared GPUs, in the order of their first
// member.
func Groups(inv nvml.Inventory, simulated bool) ([]device.Group, error) {
	all := units(inv)
	if len(all) == 0 {
		return nil, nil
	}
	encoded, err := topology.Encode(inv.Matrix)
	if err != nil {
		return nil, err
	}
	var keys []groupKey
	members := map[groupKey][]unit{}
	seen := map[string]bool{}
	for _, u := range all {
		if seen[u.id(inv)] {
			continue // no driver should do that; Nomad would drop every device
		}
		seen[u.id(inv)] = true
		key := u.key(inv)
		if members[key] == nil {
			keys = append(keys, key)
		}
		members[key] = append(members[key], u)
	}
	out := make([]device.Group, 0, len(keys))
	for _, key := range keys {
		group, err := makeGroup(inv, key, members[key])
		if err != nil {
			return nil, err
		}
		group.Attributes[topology.AttrTopology] = attr.String(encoded)
		if simulated {
			group.Attributes["simulated"] = attr.Bool(true)
		}
		out = append(out, group)
	}
	return out, nil
}

func makeGroup(inv nvml.Inventory, key groupKey, of []unit) (device.Group, error) {
	g := device.Group{Vendor: key.vendor, Type: deviceType, Name: key.name}
	var gpus []int // each once
	for _, u := range of {
		reason := u.unhealthy(inv)
		g.Devices = append(g.Devices, device.Device{
			ID: u.id(inv), Healthy: reason == "", HealthDescription: clean(reason), PCIBusID: inv.Matrix.GPUs[u.gpu].BusID,
		})
		if !slices.Contains(gpus, u.gpu) {
			gpus = append(gpus, u.gpu)
		}
	}
	a := attributes{}
	a.addModel(inv, gpus)
	var err error
	switch {
	case of[0].whole():
		a.addLinks(inv, gpus)
	case of[0].shared():
		err = a.addShares(inv, of)
	default:
		err = a.addInstances(inv, of)
	}
	if err != nil {
		return g, err
	}
	a.addPlace(inv.Matrix, gpus)
	g.Attributes = a
	return g, nil
}
