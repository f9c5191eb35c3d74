package devicegpu

import (
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// unit is what Nomad hands out: a whole GPU, an instance of a divided one, or a
// time slice of a shared one.
type unit struct {
	gpu int
	// instance is the index of the MIG instance, -1 for none.
	instance int
	// slice is the number of the time slice, -1 for none.
	slice int
}

// units lists the inventory's units. A divided GPU is not one of them, only
// its instances are, and of a shared one its slices.
func units(inv nvml.Inventory) []unit {
	var out []unit
	for i, g := range inv.GPUs {
		switch {
		case g.Divided():
			for k := range g.Instances {
				out = append(out, unit{i, k, -1})
			}
		case g.Sharing != nil:
			for k := range g.Sharing.Slices {
				out = append(out, unit{i, -1, k})
			}
		default:
			out = append(out, unit{i, -1, -1})
		}
	}
	return out
}

func (u unit) whole() bool { return u.instance < 0 && u.slice < 0 }

func (u unit) shared() bool { return u.slice >= 0 }

// id is the device's ID in Nomad.
func (u unit) id(inv nvml.Inventory) string {
	if u.shared() {
		return topology.SliceID(inv.Matrix.GPUs[u.gpu].UUID, u.slice)
	}
	return u.driverID(inv)
}

// driverID is the driver's UUID of what the task is to see.
func (u unit) driverID(inv nvml.Inventory) string {
	if u.instance < 0 {
		return inv.Matrix.GPUs[u.gpu].UUID
	}
	return inv.GPUs[u.gpu].Instances[u.instance].UUID
}

func (u unit) unhealthy(inv nvml.Inventory) string {
	if u.instance < 0 {
		return inv.GPUs[u.gpu].Unhealthy
	}
	return inv.GPUs[u.gpu].Instances[u.instance].Unhealthy
}

// groupKey is the vendor and the name of the device group that a unit is in.
type groupKey struct{ vendor, name string }

// key names the group as nomad-device-nvidia does: by the driver's name for
// the GPU or the instance; that of slices tells the share, too.
func (u unit) key(inv nvml.Inventory) groupKey {
	name := inv.Matrix.GPUs[u.gpu].Model
	switch {
	case u.instance >= 0:
		name = inv.GPUs[u.gpu].Instances[u.instance].Model
	case u.shared():
		if strings.TrimSpace(clean(name)) == "" {
			name = unknownModel
		}
		name = sharedName(strings.TrimSpace(name), inv.GPUs[u.gpu].Sharing.Slices)
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
