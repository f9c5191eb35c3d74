package devicegpu

import (
	"math"
	"slices"
	"strconv"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
)

// attributes are a group's. What is not reported is not there, so that a
// constraint on it is not met by a made-up value.
type attributes map[string]attr.Value

func (a attributes) text(key, s string) {
	if s != "" {
		a[key] = attr.String(clean(s))
	}
}

// reading is one unit's value of an attribute.
type reading struct {
	value *uint64
	// sick is set when the unit is unhealthy: what it cannot tell says nothing
	// of its siblings.
	sick bool
}

// lowest sets the smallest of the values, which every unit has; nothing if one
// that is well does not report any.
func (a attributes) lowest(key, unit string, readings []reading) {
	lowest := uint64(math.MaxUint64)
	for _, r := range readings {
		if r.value == nil && !r.sick {
			return
		}
		if r.value != nil {
			lowest = min(lowest, *r.value)
		}
	}
	if lowest <= math.MaxInt64 {
		a[key] = attr.IntUnit(int64(lowest), unit)
	}
}

// number is lowest for a field of GPUs.
func (a attributes) number(key, unit string, gpus []nvml.GPU, field func(nvml.GPU) *uint64) {
	readings := make([]reading, 0, len(gpus))
	for _, g := range gpus {
		readings = append(readings, reading{field(g), g.Unhealthy != ""})
	}
	a.lowest(key, unit, readings)
}

// flag sets a mode the way nomad-device-nvidia prints it, "0" or "1", as
// number sets values; it is on if it is on for all.
func (a attributes) flag(key string, gpus []nvml.GPU, field func(nvml.GPU) *bool) {
	on := ""
	for _, g := range gpus {
		switch p := field(g); {
		case p == nil && g.Unhealthy == "":
			return
		case p == nil:
		case !*p:
			on = "0"
		case on == "":
			on = "1"
		}
	}
	a.text(key, on)
}

// addModel sets what nomad-device-nvidia 1.1 reports, under its names, and
// more of the kind.
func (a attributes) addModel(inv nvml.Inventory, of []int) {
	gpus := make([]nvml.GPU, 0, len(of))
	for _, i := range of {
		gpus = append(gpus, inv.GPUs[i])
	}
	a.number("memory", "MiB", gpus, func(g nvml.GPU) *uint64 { return g.MemoryMiB })
	a.number("power", "W", gpus, func(g nvml.GPU) *uint64 { return g.PowerLimitW })
	a.number("bar1", "MiB", gpus, func(g nvml.GPU) *uint64 { return g.BAR1MiB })
	a.number("cores_clock", "MHz", gpus, func(g nvml.GPU) *uint64 { return g.CoresClockMHz })
	a.number("memory_clock", "MHz", gpus, func(g nvml.GPU) *uint64 { return g.MemoryClockMHz })
	a.number("pci_bandwidth", "MB/s", gpus, pciBandwidthMBs)
	a.number("pcie_generation", "", gpus, func(g nvml.GPU) *uint64 { return g.PCIeGeneration })
	a.number("pcie_width", "", gpus, func(g nvml.GPU) *uint64 { return g.PCIeWidth })
	a.flag("display_state", gpus, func(g nvml.GPU) *bool { return g.DisplayOn })
	a.flag("persistence_mode", gpus, func(g nvml.GPU) *bool { return g.PersistenceOn })
	a.text("driver_version", inv.DriverVersion)
	a.text("cuda_version", inv.CUDAVersion)
	for _, g := range gpus {
		if cc, err := strconv.ParseFloat(g.ComputeCapability, 64); err == nil && !math.IsInf(cc, 0) && !math.IsNaN(cc) {
			a["compute_capability"] = attr.Float(cc)
			break
		}
	}
}

// pciBandwidthMBs is nomad-device-nvidia's figure: 1024 MB/s a lane in
// generation 3, doubled by each later one. (Its own value for generation 5 is
// three quarters of that, for 6 a half; a lower bound that it meets, this one
// meets too.)
func pciBandwidthMBs(g nvml.GPU) *uint64 {
	if g.PCIeGeneration == nil || g.PCIeWidth == nil || *g.PCIeGeneration < 1 || *g.PCIeGeneration > 8 {
		return nil
	}
	mbs := (*g.PCIeWidth << 8) << (*g.PCIeGeneration - 1)
	return &mbs
}

// addLinks sets what people constrain on. It is the same on every node of a
// kind, for attributes are part of a node's computed class; what differs by
// node is left to AttrTopology and other "unique." keys.
func (a attributes) addLinks(inv nvml.Inventory, of []int) {
	group := inv.Matrix.Subset(of)
	largest := 0
	islands := group.Islands()
	for _, island := range islands {
		largest = max(largest, len(island))
	}
	a["nvlink_island_size"] = attr.Int(int64(largest))
	a["nvlink_islands"] = attr.Int(int64(len(islands)))
	a["nvswitch"] = attr.Bool(group.NVSwitch && largest > 1)
	generation := 0
	var domains []topology.Fabric
	for k, g := range group.GPUs {
		generation = max(generation, g.NVLinkGeneration)
		if g.Fabric != (topology.Fabric{}) || inv.GPUs[of[k]].Unhealthy == "" {
			domains = append(domains, g.Fabric)
		}
	}
	if generation > 0 {
		a["nvlink_generation"] = attr.Int(int64(generation))
	}
	if gbs := fastestLink(group); gbs > 0 {
		a["nvlink_bandwidth"] = attr.FloatUnit(gbs, "GB/s")
	}
	domains = slices.Compact(domains)
	one := len(domains) == 1 && domains[0].ClusterUUID != ""
	a["nvlink_fabric"] = attr.Bool(one)
	if one {
		a["unique.fabric_cluster"] = attr.String(clean(domains[0].ClusterUUID))
		a["unique.fabric_clique"] = attr.Int(int64(domains[0].CliqueID))
	}
}

// addInstances sets what is different for MIG instances, which have no NVLinks,
// and tells of each which GPU it is a part of. The instances of one group have
// one profile.
func (a attributes) addInstances(inv nvml.Inventory, of []unit) error {
	var list []topology.Instance
	var memory, multiprocessors, slots []reading
	for _, u := range of {
		inst := inv.GPUs[u.gpu].Instances[u.instance]
		list = append(list, topology.Instance{
			UUID: inst.UUID, Parent: inv.Matrix.GPUs[u.gpu].UUID, Index: u.gpu,
			Profile: clean(inst.Profile), GPUInstance: inst.GPUInstance, ComputeInstance: inst.ComputeInstance,
		})
		sick := inst.Unhealthy != ""
		memory = append(memory, reading{inst.MemoryMiB, sick})
		multiprocessors = append(multiprocessors, reading{inst.Multiprocessors, sick})
		slots = append(slots, reading{inst.Slices, sick})
	}
	encoded, err := topology.EncodeInstances(list)
	if err != nil {
		return err
	}
	a.text(topology.AttrInstances, encoded)
	a.text("mig_profile", list[0].Profile)
	delete(a, "memory") // the whole GPU's
	a.lowest("memory", "MiB", memory)
	a.lowest("mig_multiprocessors", "", multiprocessors)
	a.lowest("mig_slices", "", slots)
	return nil
}

// addPlace sets where in the node the GPUs are.
func (a attributes) addPlace(m topology.Matrix, of []int) {
	numa, switches := map[int]bool{}, map[int]bool{}
	for _, i := range of {
		g := m.GPUs[i]
		if len(g.NUMA) > 0 {
			numa[g.NUMA[0]] = true
		}
		if g.Switch >= 0 {
			switches[g.Switch] = true
		}
	}
	if len(numa) > 0 {
		a["numa_nodes"] = attr.Int(int64(len(numa)))
	}
	if len(switches) > 0 {
		a["pcie_switches"] = attr.Int(int64(len(switches)))
	}
	rdma := 0
	for _, n := range m.NICs {
		if n.RDMA {
			rdma++
		}
	}
	a["rdma_nics"] = attr.Int(int64(rdma))
}

// fastestLink is the most bandwidth that two of the GPUs have by NVLink or
// XGMI, in GB/s per direction.
func fastestLink(m topology.Matrix) float64 {
	fastest := 0.0
	for _, row := range m.Links {
		for _, l := range row {
			if l.Kind.Fast() {
				fastest = max(fastest, l.GBs)
			}
		}
	}
	return fastest
}
