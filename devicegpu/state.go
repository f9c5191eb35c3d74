package devicegpu

import (
	"slices"

	"github.com/caravan-sched/caravan/devicegpu/health"
	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// without returns the inventory without the GPUs and MIG instances to be
// ignored.
func without(inv nvml.Inventory, ignored map[string]bool) nvml.Inventory {
	var keep []int
	for i, g := range inv.Matrix.GPUs {
		if !ignored[g.UUID] {
			keep = append(keep, i)
		}
	}
	out := pick(inv, keep)
	for i := range out.GPUs {
		out.GPUs[i].Instances = slices.DeleteFunc(slices.Clone(out.GPUs[i].Instances), func(inst nvml.Instance) bool { return ignored[inst.UUID] })
	}
	return out
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

// settle returns the inventory as Nomad is to have it: with the judgement of
// each GPU's health; with the GPUs that were there before, since Nomad would
// forget who holds a GPU that is no longer listed; and with what was known
// before of the GPUs that cannot tell it now, since a sick GPU must not change
// the attributes of its group, by which jobs choose its healthy siblings.
func settle(before, now nvml.Inventory, tracker *health.Tracker) nvml.Inventory {
	now = withLost(before, judge(before, now, tracker))
	if now.DriverVersion == "" {
		now.DriverVersion = before.DriverVersion
	}
	if now.CUDAVersion == "" {
		now.CUDAVersion = before.CUDAVersion
	}
	return now
}

// Judge returns the inventory with the judgement of each GPU's health at first
// sight, with the configuration's defaults.
func Judge(inv nvml.Inventory) nvml.Inventory {
	tracker := health.New(nil, nil)
	tracker.Look(inv)
	return judge(nvml.Inventory{}, inv, tracker)
}

// judge sets the GPUs' health, and fills in what is not readable now.
func judge(before, now nvml.Inventory, tracker *health.Tracker) nvml.Inventory {
	out := pick(now, indexes(len(now.GPUs)))
	old := make([]int, len(out.GPUs))
	for i := range out.GPUs {
		old[i] = -1
		uuid := out.Matrix.GPUs[i].UUID
		out.GPUs[i].Unhealthy = tracker.Reason(uuid)
		if at, ok := before.Matrix.Index(uuid); ok {
			old[i] = at
			fill(&out, i, before, at)
		}
		judgeInstances(&out.GPUs[i], uuid, tracker)
	}
	for i := range out.GPUs {
		for j := range i {
			if old[i] < 0 || old[j] < 0 {
				continue
			}
			// Bridges do not come off a running machine: a link that is missing
			// now is down, or cannot be read, which is health's to tell.
			was, is := before.Matrix.Links[old[i]][old[j]], out.Matrix.Links[i][j]
			if was.Kind.Fast() && (!is.Kind.Fast() || is.Count < was.Count) {
				out.Matrix.SetLink(i, j, was)
				out.Matrix.NVSwitch = out.Matrix.NVSwitch || before.Matrix.NVSwitch
			}
		}
	}
	return out
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// fill takes over what was known of a GPU and is not readable now.
func fill(inv *nvml.Inventory, i int, before nvml.Inventory, at int) {
	g, old := &inv.GPUs[i], before.GPUs[at]
	keep(&g.Minor, old.Minor)
	keep(&g.MemoryMiB, old.MemoryMiB)
	keep(&g.BAR1MiB, old.BAR1MiB)
	keep(&g.PowerLimitW, old.PowerLimitW)
	keep(&g.CoresClockMHz, old.CoresClockMHz)
	keep(&g.MemoryClockMHz, old.MemoryClockMHz)
	keep(&g.PCIeGeneration, old.PCIeGeneration)
	keep(&g.PCIeWidth, old.PCIeWidth)
	keep(&g.DisplayOn, old.DisplayOn)
	keep(&g.PersistenceOn, old.PersistenceOn)
	if g.ComputeCapability == "" {
		g.ComputeCapability = old.ComputeCapability
	}
	if g.MIG == nil {
		g.MIG, g.Partial = old.MIG, true
	}
	g.Instances = withGone(old.Instances, g.Instances, g.Partial || !answers(*g))
	fillPlace(&inv.Matrix, i, before.Matrix, at)
	if place := &inv.Matrix.GPUs[i]; place.Fabric == (topology.Fabric{}) && g.Health.Fabric != nvml.FabricCompleted {
		place.Fabric = before.Matrix.GPUs[at].Fabric
	}
}

func keep[T any](p **T, old *T) {
	if *p == nil {
		*p = old
	}
}

// answers reports whether the GPU itself was read.
func answers(g nvml.GPU) bool { return g.Health.Lost == "" && g.Health.Silent == "" }

func fillPlace(m *topology.Matrix, i int, before topology.Matrix, at int) {
	g, old := &m.GPUs[i], before.GPUs[at]
	if g.Model == "" {
		g.Model = old.Model
	}
	if g.BusID == "" {
		g.BusID, g.NUMA, g.CPUs, g.Switch = old.BusID, old.NUMA, old.CPUs, old.Switch
		if sameNICs(*m, before) && m.NICPaths != nil {
			m.NICPaths[i] = before.NICPaths[at]
		}
	}
	g.NVLinkGeneration = max(g.NVLinkGeneration, old.NVLinkGeneration)
}

func sameNICs(a, b topology.Matrix) bool {
	return slices.EqualFunc(a.NICs, b.NICs, func(x, y topology.NIC) bool { return x.BusID == y.BusID && x.Name == y.Name })
}

// goneLooks is for how many looks a MIG instance that was destroyed stays
// listed as unhealthy. Nobody can hold it any more, and its like, made anew,
// has its UUID; so it need not stay for good.
const goneLooks = 3

// withGone returns the instances with those of before that are missing: for
// some looks, or as long as the list is not complete.
func withGone(before, now []nvml.Instance, partial bool) []nvml.Instance {
	out := slices.Clone(now)
	for _, inst := range before {
		if slices.ContainsFunc(now, func(i nvml.Instance) bool { return i.UUID == inst.UUID }) {
			continue
		}
		if !partial {
			inst.Gone++
		}
		if inst.Gone < goneLooks {
			out = append(out, inst)
		}
	}
	return out
}

// The reasons of an instance's, beside its own errors.
const (
	goneUnhealthy   = "the MIG instance is not there any more"
	parentUnhealthy = "its GPU: "
)

func judgeInstances(g *nvml.GPU, uuid string, tracker *health.Tracker) {
	g.Instances = slices.Clone(g.Instances)
	for k := range g.Instances {
		inst := &g.Instances[k]
		inst.Unhealthy = tracker.InstanceReason(uuid, inst.GPUInstance, inst.ComputeInstance)
		switch {
		case inst.Gone > 0:
			inst.Unhealthy = goneUnhealthy
		case inst.Unhealthy == "" && g.Unhealthy != "":
			inst.Unhealthy = parentUnhealthy + g.Unhealthy
		}
	}
	slices.SortFunc(g.Instances, func(a, b nvml.Instance) int {
		if a.GPUInstance != b.GPUInstance {
			return a.GPUInstance - b.GPUInstance
		}
		return a.ComputeInstance - b.ComputeInstance
	})
}

// lostUnhealthy is why a GPU is unhealthy that was found before and is not now.
const lostUnhealthy = "the GPU was there before and is not found any more"

// withLost returns the inventory with every GPU of the one before it that is
// missing, as unhealthy. If nothing else changed, the links of the lost GPUs
// stay as they were, and with them the node's attributes.
func withLost(before, now nvml.Inventory) nvml.Inventory {
	var lost []int
	for i, g := range before.Matrix.GPUs {
		if _, ok := now.Matrix.Index(g.UUID); !ok {
			lost = append(lost, i)
		}
	}
	if len(lost) == 0 || len(now.GPUs)+len(lost) > topology.MaxGPUs {
		return inOrderOf(before, now)
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
	same := sameNICs(before.Matrix, now.Matrix)
	for k, i := range lost {
		at := n + k
		out.GPUs = append(out.GPUs, asLost(before.GPUs[i]))
		m.GPUs[at] = before.Matrix.GPUs[i]
		for j := range at {
			if old, ok := before.Matrix.Index(m.GPUs[j].UUID); ok {
				m.SetLink(at, j, before.Matrix.Links[i][old])
			}
		}
		if same && m.NICPaths != nil {
			copy(m.NICPaths[at], before.Matrix.NICPaths[i])
		}
	}
	out.Matrix = m
	return inOrderOf(before, out)
}

func asLost(g nvml.GPU) nvml.GPU {
	g.Unhealthy = lostUnhealthy
	g.Health = nvml.Health{Lost: lostUnhealthy}
	g.Instances = slices.Clone(g.Instances)
	for k := range g.Instances {
		g.Instances[k].Unhealthy = parentUnhealthy + lostUnhealthy
	}
	return g
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
