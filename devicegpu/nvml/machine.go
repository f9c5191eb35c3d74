package nvml

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// machine describes a simulated DGX with eight GPUs. Model, memory, driver and
// compute capability are those of go-nvml's mock machines. The mocks have no
// NVLinks, clocks, slots or NICs; those are filled in as the real machine has
// them.
//
// Sources: NVIDIA's DGX A100 and H100/H200 user guides (bus IDs of GPUs and
// ConnectX cards, processors) and the GPUs' data sheets (power, clocks, links).
// The DGX B200 is given the bus IDs of the H100.
type machine struct {
	model, driver, cuda string
	capability          string
	memoryMiB, bar1MiB  uint64
	powerW              uint64
	coresMHz, memoryMHz uint64
	pcieGeneration      uint64
	// nvlinks is how many each GPU has to the NVSwitches.
	nvlinks        int
	gpuBus, nicBus []string
	// numa is the NUMA node of GPU and NIC by index; cpus are its processors.
	numa    []int
	cpus    map[int]string
	nicMbps int
	// shared is how many GPUs, and as many NICs, hang below one PCIe switch;
	// levels is how many ports lie between it and them.
	shared, levels int
}

const pcieWidth = 16

func hgx(m machine) machine {
	m.pcieGeneration, m.nvlinks, m.shared, m.levels = 5, 18, 1, 1
	m.gpuBus = strings.Fields("1b 43 52 61 9d c3 d1 df")
	m.nicBus = strings.Fields("18 40 4f 5e 9a c0 ce dc")
	m.numa = []int{0, 0, 0, 0, 1, 1, 1, 1}
	m.cpus = map[int]string{0: "0-55,112-167", 1: "56-111,168-223"}
	m.nicMbps = 400_000
	return m
}

var machines = map[string]machine{
	"dgxa100": {
		model: "NVIDIA A100-SXM4-40GB", driver: "550.54.15", cuda: "12.4", capability: "8.0",
		memoryMiB: 40960, bar1MiB: 65536, powerW: 400, coresMHz: 1410, memoryMHz: 1215,
		pcieGeneration: 4, nvlinks: 12, shared: 2, levels: 2,
		gpuBus: strings.Fields("07 0f 47 4e 87 90 b7 bd"), nicBus: strings.Fields("0c 12 4b 54 8d 94 ba cc"),
		numa:    []int{3, 3, 1, 1, 7, 7, 5, 5},
		cpus:    map[int]string{3: "48-63,176-191", 1: "16-31,144-159", 7: "112-127,240-255", 5: "80-95,208-223"},
		nicMbps: 200_000,
	},
	"dgxh100": hgx(machine{
		model: "NVIDIA H100 80GB HBM3", driver: "550.54.15", cuda: "12.4", capability: "9.0",
		memoryMiB: 81920, bar1MiB: 131072, powerW: 700, coresMHz: 1980, memoryMHz: 2619,
	}),
	"dgxh200": hgx(machine{
		model: "NVIDIA H200 141GB HBM3e", driver: "550.54.15", cuda: "12.4", capability: "9.0",
		memoryMiB: 144384, bar1MiB: 262144, powerW: 700, coresMHz: 1980, memoryMHz: 3201,
	}),
	"dgxb200": hgx(machine{
		model: "NVIDIA B200 180GB HBM3e", driver: "560.28.03", cuda: "12.6", capability: "10.0",
		memoryMiB: 184320, bar1MiB: 262144, powerW: 1000, coresMHz: 1965, memoryMHz: 3996,
	}),
}

func machineNames() []string { return slices.Sorted(maps.Keys(machines)) }

func (m machine) busID(bus string) string { return "0000:" + bus + ":00.0" }

// host is the machine's PCIe side.
func (m machine) host() host {
	h := host{places: map[string]place{}}
	for i, bus := range m.gpuBus {
		h.places[m.busID(bus)] = m.place(i, "gpu")
		nic := topology.NIC{Name: fmt.Sprintf("mlx5_%d", i), BusID: m.busID(m.nicBus[i]), RDMA: true, SpeedMbps: m.nicMbps, Switch: -1}
		h.nics = append(h.nics, nic)
		h.places[nic.BusID] = m.place(i, "nic")
	}
	return h
}

func (m machine) place(i int, device string) place {
	sw := fmt.Sprintf("switch%d", i/m.shared)
	p := place{root: "root of " + sw, bridges: []string{sw}, numa: m.numa[i], cpus: m.cpus[m.numa[i]]}
	for level := range m.levels {
		p.bridges = append(p.bridges, fmt.Sprintf("%s%d port %d", device, i, level))
	}
	return p
}

// found is what NVML would tell of GPU i.
func (m machine) found(i int, uuid string) found {
	return found{
		uuid: uuid, busID: m.busID(m.gpuBus[i]), model: m.model, switched: m.nvlinks,
		GPU: GPU{
			Vendor: "nvidia", Minor: &i, MemoryMiB: &m.memoryMiB, BAR1MiB: &m.bar1MiB, PowerLimitW: &m.powerW,
			CoresClockMHz: &m.coresMHz, MemoryClockMHz: &m.memoryMHz,
			PCIeGeneration: &m.pcieGeneration, PCIeWidth: ptr(uint64(pcieWidth)),
			DisplayOn: ptr(false), PersistenceOn: ptr(true), ComputeCapability: m.capability,
			MIG: ptr(false),
			Health: Health{
				UncorrectedVolatile: ptr(uint64(0)), UncorrectedAggregate: ptr(uint64(0)), SRAMThreshold: ptr(false),
				RemapPending: ptr(false), RemapFailed: ptr(false), MIGPending: ptr(false),
				LinksActive: m.nvlinks, LinksToSwitches: m.nvlinks,
			},
		},
	}
}

// inventory is what a source finds on the machine. Through go-nvml's mocks the
// same must come out.
func (m machine) inventory(name, seed string) Inventory {
	inv := Inventory{DriverVersion: m.driver, CUDAVersion: m.cuda}
	var all []found
	for i := range m.gpuBus {
		all = append(all, m.found(i, stableUUID(seed, name, i)))
	}
	inv.assemble(all, m.host())
	return inv
}

func ptr[T any](v T) *T { return &v }
