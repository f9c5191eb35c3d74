package topology

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// element is any element of NCCL's XML.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
}

func (e *element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return strings.TrimSpace(a.Value)
		}
	}
	return ""
}

// all returns the children of one name.
func (e *element) all(name string) []*element {
	var out []*element
	for i := range e.Children {
		if e.Children[i].XMLName.Local == name {
			out = append(out, &e.Children[i])
		}
	}
	return out
}

func (e *element) first(name string) *element {
	if all := e.all(name); len(all) > 0 {
		return all[0]
	}
	return nil
}

// place is where a device hangs in the PCIe tree.
type place struct {
	cpu     int        // index of the <cpu>
	bridges []*element // from the CPU down to the device
	slotGBs float64    // the slowest PCIe link on the way, 0 if unknown
}

// ncclGPU and ncclNIC are the devices of a file.
type ncclGPU struct {
	place
	busID string
	pci   *element
	gpu   *element // nil in the files that cloud vendors publish
	numa  []int
	cpus  string
}

type ncclNIC struct {
	place
	nic NIC
}

// ncclReader walks a file.
type ncclReader struct {
	gpus     []ncclGPU
	nics     []ncclNIC
	problems []string
}

func (r *ncclReader) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// parseNCCL reads NCCL's and RCCL's topology XML: what they dump with
// NCCL_TOPO_DUMP_FILE, and the partial ones that cloud vendors publish for
// NCCL_TOPO_FILE, in which the PCI class is all that tells a device.
func parseNCCL(data []byte) (File, error) {
	var root element
	if err := xml.Unmarshal(data, &root); err != nil {
		return File{}, fmt.Errorf("read XML: %w", err)
	}
	if root.XMLName.Local != "system" {
		return File{}, fmt.Errorf("the XML's root is <%s>, want NCCL's <system>", root.XMLName.Local)
	}
	r := &ncclReader{}
	for i, cpu := range r.hostCPUs(&root) {
		if err := r.readCPU(i, cpu); err != nil {
			return File{}, err
		}
	}
	if len(r.gpus) > MaxGPUs || len(r.nics) > MaxNICs {
		return File{}, fmt.Errorf("%d GPUs and %d NICs: at most %d and %d are allowed", len(r.gpus), len(r.nics), MaxGPUs, MaxNICs)
	}
	if err := r.sortGPUs(); err != nil {
		return File{}, err
	}
	return r.file()
}

// hostCPUs returns the <cpu>s of one host: NCCL can dump several hosts of an
// NVLink domain into one file.
func (r *ncclReader) hostCPUs(root *element) []*element {
	cpus := root.all("cpu")
	hosts := map[string]bool{}
	for _, cpu := range cpus {
		hosts[cpu.attr("host_hash")] = true
	}
	if len(hosts) < 2 {
		return cpus
	}
	r.problem("the file describes %d hosts; only the first one is taken", len(hosts))
	first := cpus[0].attr("host_hash")
	return slices.DeleteFunc(cpus, func(cpu *element) bool { return cpu.attr("host_hash") != first })
}

func (r *ncclReader) readCPU(index int, cpu *element) error {
	var numa []int
	if s := cpu.attr("numaid"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n > maxListValue {
			return fmt.Errorf("<cpu numaid=%q>: want a number up to %d", s, maxListValue)
		}
		if n >= 0 {
			numa = []int{n}
		}
	}
	cpus, err := parseMask(cpu.attr("affinity"))
	if err != nil {
		return fmt.Errorf("<cpu numaid=%q>: %w", cpu.attr("numaid"), err)
	}
	at := place{cpu: index}
	for i := range cpu.Children {
		switch child := &cpu.Children[i]; child.XMLName.Local {
		case "nic":
			r.addNIC(at, nil, child)
		case "pci":
			if err := r.readPCI(at, child, numa, cpus); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxBridges bounds the depth of the tree; PCIe's 256 buses do the same.
const maxBridges = 64

func (r *ncclReader) readPCI(at place, pci *element, numa []int, cpus string) error {
	if gbs := pciLinkGBs(pci); gbs > 0 && (at.slotGBs == 0 || gbs < at.slotGBs) {
		at.slotGBs = gbs
	}
	switch {
	case isGPU(pci):
		busID, err := NormalizeBusID(pci.attr("busid"))
		if err != nil {
			return fmt.Errorf("GPU: %w", err)
		}
		r.gpus = append(r.gpus, ncclGPU{place: at, busID: busID, pci: pci, gpu: pci.first("gpu"), numa: numa, cpus: cpus})
	case strings.HasPrefix(pci.attr("class"), "0x02") || pci.first("nic") != nil:
		r.addNIC(at, pci, pci.first("nic"))
	default:
		if len(at.bridges) == maxBridges {
			return fmt.Errorf("<pci busid=%q>: more than %d bridges above it", pci.attr("busid"), maxBridges)
		}
		at.bridges = append(slices.Clip(at.bridges), pci)
		for _, child := range pci.all("pci") {
			if err := r.readPCI(at, child, numa, cpus); err != nil {
				return err
			}
		}
	}
	return nil
}

// isGPU tells a GPU by NCCL's <gpu> in it, or by its class: 0x03 is a display
// controller, which a server's management chip is too, 0x12 an accelerator.
func isGPU(pci *element) bool {
	if pci.first("gpu") != nil {
		return true
	}
	class, vendor := pci.attr("class"), pci.attr("vendor")
	return (strings.HasPrefix(class, "0x03") || strings.HasPrefix(class, "0x12")) &&
		(vendor == "" || vendor == vendorNVIDIA || vendor == vendorAMD)
}

const (
	vendorNVIDIA = "0x10de"
	vendorAMD    = "0x1002"
	vendorAmazon = "0x1d0f" // its class 0x0200 devices are EFA
)

func (r *ncclReader) addNIC(at place, pci, nic *element) {
	n := ncclNIC{place: at, nic: NIC{Switch: -1}}
	if pci != nil {
		// An address that cannot be read makes the NIC anonymous; nothing is
		// looked up by it.
		n.nic.BusID, _ = NormalizeBusID(pci.attr("busid"))
		n.nic.RDMA = strings.HasPrefix(pci.attr("class"), "0x0207") || pci.attr("vendor") == vendorAmazon
	}
	if nic != nil {
		for _, net := range nic.all("net") {
			if n.nic.Name == "" {
				n.nic.Name = net.attr("name")
			}
			if speed, err := strconv.Atoi(net.attr("speed")); err == nil && speed > n.nic.SpeedMbps && speed < 1<<31 {
				n.nic.SpeedMbps = speed
			}
			n.nic.RDMA = n.nic.RDMA || net.attr("gdr") == "1" || isRDMAName(net.attr("name"))
		}
	}
	r.nics = append(r.nics, n)
}

// isRDMAName tells a verbs device from a network interface by its driver's
// prefix, or the kernel's persistent name.
func isRDMAName(name string) bool {
	for _, prefix := range []string{"mlx", "bnxt_re", "irdma", "efa", "rdmap", "roce", "ionic", "ib"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// pciLinkGBs reads link_speed ("16 GT/s", "32.0 GT/s PCIe") and link_width.
func pciLinkGBs(pci *element) float64 {
	generation, width := pciLink(pci)
	return PCIeGBs(generation, width)
}

func pciLink(pci *element) (generation, width int) {
	speed, _, _ := strings.Cut(pci.attr("link_speed"), " ")
	gts, err := strconv.ParseFloat(speed, 64)
	if err != nil {
		return 0, 0
	}
	width, err = strconv.Atoi(pci.attr("link_width"))
	if err != nil || width < 0 || width > 32 {
		return 0, 0
	}
	return PCIeGeneration(gts), width
}

// sortGPUs puts the GPUs into the order of their device numbers where every
// one has one, and keeps the file's order otherwise.
func (r *ncclReader) sortGPUs() error {
	seenBus, seenDev := map[string]bool{}, map[int]bool{}
	for _, g := range r.gpus {
		if seenBus[g.busID] {
			return fmt.Errorf("two GPUs have the bus ID %s", g.busID)
		}
		seenBus[g.busID] = true
		if dev, ok := g.dev(); ok {
			seenDev[dev] = true
		}
	}
	if len(seenDev) == len(r.gpus) {
		slices.SortStableFunc(r.gpus, func(a, b ncclGPU) int {
			x, _ := a.dev()
			y, _ := b.dev()
			return cmp.Compare(x, y)
		})
	}
	return nil
}

func (g ncclGPU) dev() (int, bool) {
	if g.gpu == nil {
		return 0, false
	}
	n, err := strconv.Atoi(g.gpu.attr("dev"))
	return n, err == nil
}
