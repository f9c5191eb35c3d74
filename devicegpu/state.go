package devicegpu

import (
	"slices"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// lostUnhealthy is why a GPU is unhealthy that was found before and is not now.
const lostUnhealthy = "the GPU was there before and is not found any more"

// without returns the inventory without the GPUs to be ignored.
func without(inv nvml.Inventory, ignored map[string]bool) nvml.Inventory {
	var keep []int
	for i, g := range inv.Matrix.GPUs {
		if !ignored[g.UUID] {
			keep = append(keep, i)
		}
	}
	return pick(inv, keep)
}

func pick(inv nvml.Inventory, keep []int) nvml.Inventory {
	out := inv
	out.Matrix = inv.Matrix.Subset(keep)
	out.GPUs = make([]nvml.GPU, 0, len(keep))
	for _, i := range keep {
		out.GPUs = append(out.GPUs, inv.GPUs[i])
	}
	return out
}

// withLost returns the inventory with every GPU of the one before it that is
// missing, as unhealthy: Nomad would forget who holds a GPU that is no longer
// listed, and offer nothing in its place. If nothing else changed, the links
// of the lost GPUs stay as they were, and with them the node's attributes.
func withLost(before, now nvml.Inventory) nvml.Inventory {
	var lost []int
	for i, g := range before.Matrix.GPUs {
		if _, ok := now.Matrix.Index(g.UUID); !ok {
			lost = append(lost, i)
		}
	}
	if len(lost) == 0 {
		return now
	}
	out := now
	n := len(now.Matrix.GPUs)
	m := topology.Empty(n+len(lost), len(now.Matrix.NICs))
	copy(m.NICs, now.Matrix.NICs)
	copy(m.GPUs, now.Matrix.GPUs)
	m.NVSwitch = now.Matrix.NVSwitch || before.Matrix.NVSwitch
	for i := range n {
		copy(m.Links[i], now.Matrix.Links[i])
		if now.Matrix.NICPaths != nil {
			copy(m.NICPaths[i], now.Matrix.NICPaths[i])
		}
	}
	out.GPUs = slices.Clone(now.GPUs)
	sameNICs := slices.EqualFunc(before.Matrix.NICs, now.Matrix.NICs, func(a, b topology.NIC) bool { return a.BusID == b.BusID && a.Name == b.Name })
	for k, i := range lost {
		at := n + k
		g := before.GPUs[i]
		if g.Unhealthy == "" {
			g.Unhealthy = lostUnhealthy
		}
		out.GPUs = append(out.GPUs, g)
		m.GPUs[at] = before.Matrix.GPUs[i]
		for j := range at {
			if old, ok := before.Matrix.Index(m.GPUs[j].UUID); ok {
				m.SetLink(at, j, before.Matrix.Links[i][old])
			}
		}
		if sameNICs && m.NICPaths != nil {
			copy(m.NICPaths[at], before.Matrix.NICPaths[i])
		}
	}
	out.Matrix = m
	return inOrderOf(before, out)
}

// inOrderOf puts the GPUs that were known before first, in the order they had,
// so that a GPU that comes and goes does not change the others' indexes.
func inOrderOf(before, inv nvml.Inventory) nvml.Inventory {
	var order []int
	for _, g := range before.Matrix.GPUs {
		if i, ok := inv.Matrix.Index(g.UUID); ok {
			order = append(order, i)
		}
	}
	for i := range inv.Matrix.GPUs {
		if !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	return pick(inv, order)
}
