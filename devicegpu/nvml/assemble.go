package nvml

import (
	"fmt"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// found is what is known of a GPU before it is put into a matrix.
type found struct {
	GPU
	uuid, busID, model string
	fabric             topology.Fabric
	// direct counts the NVLinks to other GPUs, by their bus IDs; switched
	// those to NVSwitches.
	direct   map[string]int
	switched int
}

// place is where a device hangs in the PCIe tree.
type place struct {
	// root names the host bridge; bridges are those below it, from the top.
	root    string
	bridges []string
	numa    int // -1 is unknown
	cpus    string
}

// host is what the operating system knows of the PCIe devices.
type host struct {
	places map[string]place // by bus ID
	nics   []topology.NIC
	// problems are sentences for an operator.
	problems []string
}

// assemble adds the GPUs to the inventory.
func (inv *Inventory) assemble(all []found, h host) {
	if len(h.nics) > topology.MaxNICs {
		inv.problem("%d RDMA devices; only the first %d are taken", len(h.nics), topology.MaxNICs)
		h.nics = h.nics[:topology.MaxNICs]
	}
	inv.Problems = append(inv.Problems, h.problems...)
	m := topology.Empty(len(all), len(h.nics))
	copy(m.NICs, h.nics)
	for i, f := range all {
		inv.GPUs = append(inv.GPUs, f.GPU)
		g := &m.GPUs[i]
		g.UUID, g.BusID, g.Model, g.Fabric = f.uuid, f.busID, f.model, f.fabric
		at, known := h.places[f.busID]
		if known {
			g.CPUs = at.cpus
			if at.numa >= 0 {
				g.NUMA = []int{at.numa}
			}
		}
		for j := range i {
			m.SetLink(i, j, topology.Link{Kind: h.path(f.busID, all[j].busID)})
		}
		for n, nic := range h.nics {
			m.NICPaths[i][n] = h.path(f.busID, nic.BusID)
		}
		if down := f.Health.LinksInactive; down > 0 && f.Health.LinksActive > 0 {
			inv.problem("GPU %d (%s): %d NVLinks are down", i, f.uuid, down)
		}
	}
	m.GroupSwitches()
	inv.joinNVLinks(&m, all)
	setBandwidth(&m, all)
	inv.Matrix = m
}

func (inv *Inventory) problem(format string, args ...any) {
	inv.Problems = append(inv.Problems, fmt.Sprintf(format, args...))
}

func (inv *Inventory) joinNVLinks(m *topology.Matrix, all []found) {
	for i, a := range all {
		for j, b := range all[:i] {
			count := min(a.direct[b.busID], b.direct[a.busID])
			if a.direct[b.busID] != b.direct[a.busID] {
				inv.problem("GPU %d has %d NVLinks to GPU %d, which has %d back", i, a.direct[b.busID], j, b.direct[a.busID])
			}
			if switched := min(a.switched, b.switched); switched > 0 {
				count += switched
				m.NVSwitch = true
			}
			if count > 0 {
				m.SetLink(i, j, topology.Link{Kind: topology.KindNVLink, Count: count})
			}
		}
	}
}

func setBandwidth(m *topology.Matrix, all []found) {
	slots, capabilities := make([]float64, len(all)), make([]string, len(all))
	for i, f := range all {
		if f.PCIeGeneration != nil && f.PCIeWidth != nil {
			slots[i] = topology.PCIeGBs(int(*f.PCIeGeneration), int(*f.PCIeWidth))
		}
		capabilities[i] = f.ComputeCapability
		if f.switched > 0 || len(f.direct) > 0 {
			m.GPUs[i].NVLinkGeneration = topology.NVLinkGeneration(f.ComputeCapability)
		}
	}
	m.SetNVLinkBandwidth(capabilities)
	m.SetPCIeBandwidth(slots)
}

// path is how two devices reach each other over PCIe. A PCIe switch is two
// bridges deep, its upstream port and one of its downstream ports: devices on
// ports of one switch are PIX, those with more bridges between them PXB.
func (h host) path(a, b string) topology.Kind {
	x, okX := h.places[a]
	y, okY := h.places[b]
	switch {
	case !okX || !okY:
		return topology.KindUnknown
	case x.root != y.root && x.numa != y.numa:
		return topology.KindSys
	case x.root != y.root:
		return topology.KindNode
	}
	shared := 0
	for shared < len(x.bridges) && shared < len(y.bridges) && x.bridges[shared] == y.bridges[shared] {
		shared++
	}
	switch below := max(len(x.bridges), len(y.bridges)) - shared; {
	case shared == 0:
		return topology.KindPHB
	case below <= 1:
		return topology.KindPIX
	}
	return topology.KindPXB
}
