package devicegpu

import (
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
)

// unit is what Nomad hands out: a whole GPU, or an instance of a divided one.
type unit struct {
	gpu int
	// instance is the index of the MIG instance, -1 for the whole GPU.
	instance int
}

// units lists the inventory's units. A divided GPU is not one of them, only
// its instances are.
func units(inv nvml.Inventory) []unit {
	var out []unit
	for i, g := range inv.GPUs {
		if !g.Divided() {
			out = append(out, unit{i, -1})
			continue
		}
		for k := range g.Instances {
			out = append(out, unit{i, k})
		}
	}
	return out
}

func (u unit) whole() bool { return u.instance < 0 }

func (u unit) id(inv nvml.Inventory) string {
	if u.whole() {
		return inv.Matrix.GPUs[u.gpu].UUID
	}
	return inv.GPUs[u.gpu].Instances[u.instance].UUID
}

func (u unit) unhealthy(inv nvml.Inventory) string {
	if u.whole() {
		return inv.GPUs[u.gpu].Unhealthy
	}
	return inv.GPUs[u.gpu].Instances[u.instance].Unhealthy
}

// groupKey is the vendor and the name of the device group that a unit is in.
type groupKey struct{ vendor, name string }

// key names the group as nomad-device-nvidia does: by the driver's name for
// the GPU or the instance.
func (u unit) key(inv nvml.Inventory) groupKey {
	name := inv.Matrix.GPUs[u.gpu].Model
	if !u.whole() {
		name = inv.GPUs[u.gpu].Instances[u.instance].Model
	}
	key := groupKey{clean(inv.GPUs[u.gpu].Vendor), strings.TrimSpace(clean(name))}
	if key.vendor == "" {
		key.vendor = unknownVendor
	}
	if key.name == "" {
		key.name = unknownModel
	}
	return key
}

// clean makes a text fit for Nomad: what is not UTF-8 could not be sent, and
// would take every other device with it.
func clean(s string) string { return strings.ToValidUTF8(s, "?") }
