package devicegpu

import (
	"math"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// deviceType is Nomad's name for GPUs.
const deviceType = "gpu"

// unknownModel is the group's name where the model is not known.
const unknownModel = "GPU"

// Groups makes Nomad's device groups of an inventory: one per vendor and
// model, in the order of their first GPU.
func Groups(inv nvml.Inventory, simulated bool) ([]device.Group, error) {
	encoded := ""
	if len(inv.GPUs) > 0 {
		var err error
		if encoded, err = topology.Encode(inv.Matrix); err != nil {
			return nil, err
		}
	}
	var out []device.Group
	members := map[[2]string][]int{}
	for i, g := range inv.GPUs {
		key := groupKey(inv, i)
		if members[key] == nil {
			out = append(out, device.Group{Vendor: key[0], Type: deviceType, Name: key[1]})
		}
		members[key] = append(members[key], i)
		at := 0
		for out[at].Vendor != key[0] || out[at].Name != key[1] {
			at++
		}
		out[at].Devices = append(out[at].Devices, device.Device{
			ID: inv.Matrix.GPUs[i].UUID, Healthy: g.Unhealthy == "", HealthDescription: g.Unhealthy, PCIBusID: inv.Matrix.GPUs[i].BusID,
		})
	}
	for i := range out {
		of := members[[2]string{out[i].Vendor, out[i].Name}]
		a := attributes{}
		a.addModel(inv, of)
		a.addTopology(inv.Matrix, of)
		a.text(topology.AttrTopology, encoded)
		if simulated {
			a["simulated"] = attr.Bool(true)
		}
		out[i].Attributes = a
	}
	return out, nil
}

func groupKey(inv nvml.Inventory, i int) [2]string {
	key := [2]string{clean(inv.GPUs[i].Vendor), clean(inv.Matrix.GPUs[i].Model)}
	if key[1] == "" {
		key[1] = unknownModel
	}
	return key
}

// clean makes a text fit for Nomad: what is not UTF-8 could not be sent, and
// would take every other device with it.
func clean(s string) string { return strings.ToValidUTF8(s, "?") }

// attributes are a group's. What is not reported is not there, so that a
// constraint on it is not met by a made-up value.
type attributes map[string]attr.Value

func (a attributes) text(key, s string) {
	if s != "" {
		a[key] = attr.String(clean(s))
	}
}

// number sets the smallest of the GPUs' values: what every one of them has.
func (a attributes) number(key, unit string, gpus []nvml.GPU, field func(nvml.GPU) *uint64) {
	lowest := uint64(math.MaxUint64)
	for _, g := range gpus {
		p := field(g)
		if p == nil {
			return
		}
		lowest = min(lowest, *p)
	}
	if lowest > math.MaxInt64 {
		return
	}
	a[key] = attr.IntUnit(int64(lowest), unit)
}

// flag sets a mode the way nomad-device-nvidia prints it, "0" or "1", if every
// GPU reports it; it is on if it is on for all of them.
func (a attributes) flag(key string, gpus []nvml.GPU, field func(nvml.GPU) *bool) {
	on := "1"
	for _, g := range gpus {
		switch p := field(g); {
		case p == nil:
			return
		case !*p:
			on = "0"
		}
	}
	a[key] = attr.String(on)
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
	if cc, err := strconv.ParseFloat(gpus[0].ComputeCapability, 64); err == nil {
		a["compute_capability"] = attr.Float(cc)
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

// addTopology sets what people constrain on. It is the same on every node of a
// kind, for attributes are part of a node's computed class; what differs by
// node is left to AttrTopology and other "unique." keys.
func (a attributes) addTopology(m topology.Matrix, of []int) {
	group := m.Subset(of)
	largest := 0
	islands := group.Islands()
	for _, island := range islands {
		largest = max(largest, len(island))
	}
	a["nvlink_island_size"] = attr.Int(int64(largest))
	a["nvlink_islands"] = attr.Int(int64(len(islands)))
	a["nvswitch"] = attr.Bool(group.NVSwitch && largest > 1)
	if gen := group.GPUs[0].NVLinkGeneration; gen > 0 {
		a["nvlink_generation"] = attr.Int(int64(gen))
	}
	if gbs := fastestLink(group); gbs > 0 {
		a["nvlink_bandwidth"] = attr.FloatUnit(gbs, "GB/s")
	}
	numa, switches := map[int]bool{}, map[int]bool{}
	fabric := group.GPUs[0].Fabric
	for _, g := range group.GPUs {
		if len(g.NUMA) > 0 {
			numa[g.NUMA[0]] = true
		}
		if g.Switch >= 0 {
			switches[g.Switch] = true
		}
		if g.Fabric != fabric {
			fabric = topology.Fabric{} // not one domain
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
	a["nvlink_fabric"] = attr.Bool(fabric.ClusterUUID != "")
	if fabric.ClusterUUID != "" {
		a["unique.fabric_cluster"] = attr.String(clean(fabric.ClusterUUID))
		a["unique.fabric_clique"] = attr.Int(int64(fabric.CliqueID))
	}
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
