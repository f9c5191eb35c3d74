package topology

import (
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrNoNCCL is wrapped by WriteNCCL's errors: the matrix cannot be said in
// NCCL's XML.
var ErrNoNCCL = errors.New("no NCCL topology")

// WriteNCCL writes a topology file for NCCL_TOPO_FILE with the GPUs listed, and
// the RDMA cards near them. Details are by GPU of the matrix, as far as they
// are known; the indexes must be valid and distinct.
//
// What NCCL finds out by itself, such as its own numbers of the devices, is
// left to it. PCIe switches are made up, as in the files that cloud vendors
// publish. A matrix that NCCL's tree cannot hold is refused: a file that says
// something else is worse than none.
func WriteNCCL(m Matrix, details []Detail, gpus []int) ([]byte, error) {
	w := &ncclWriter{m: m, details: details, gpus: gpus}
	if err := w.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoNCCL, err)
	}
	w.placeNICs()
	text, err := xml.MarshalIndent(w.system(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoNCCL, err)
	}
	text = append(text, '\n')
	if err := w.verify(text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoNCCL, err)
	}
	return text, nil
}

type ncclWriter struct {
	m       Matrix
	details []Detail
	gpus    []int
	// nics are the cards that have a place, with the NUMA node of each.
	nics map[int]int
	// bridges counts the PCIe switches made up.
	bridges int
}

// unknownNUMA is NCCL's number for the CPU of a machine without NUMA.
const unknownNUMA = -1

func (w *ncclWriter) numa(gpu int) int {
	if n := w.m.GPUs[gpu].NUMA; len(n) > 0 {
		return n[0]
	}
	return unknownNUMA
}

func (w *ncclWriter) check() error {
	if len(w.gpus) == 0 || len(w.details) != len(w.m.GPUs) {
		return fmt.Errorf("%d GPUs, and details of %d of %d", len(w.gpus), len(w.details), len(w.m.GPUs))
	}
	for _, i := range w.gpus {
		if w.m.GPUs[i].BusID == "" {
			return fmt.Errorf("the PCI address of GPU %d is not known", i)
		}
		for _, j := range w.gpus {
			if w.m.Links[i][j].Kind == KindUnknown {
				return fmt.Errorf("how GPU %d reaches GPU %d is not known", i, j)
			}
		}
	}
	return nil
}

// placeNICs finds the cards that share a switch or a host bridge with one of
// the GPUs. The others NCCL finds by itself.
func (w *ncclWriter) placeNICs() {
	w.nics = map[int]int{}
	for n, nic := range w.m.NICs {
		if !nic.RDMA || nic.BusID == "" {
			continue
		}
		for _, g := range w.gpus {
			if k := w.m.NICPaths[g][n]; k.sharesSwitch() || k == KindPHB || k == KindNode {
				w.nics[n] = w.numa(g)
				break
			}
		}
	}
}

func (w *ncclWriter) system() element {
	root := element{XMLName: xml.Name{Local: "system"}, Attrs: attrs("version", "1")}
	var nodes []int
	for _, i := range w.gpus {
		nodes = append(nodes, w.numa(i))
	}
	slices.Sort(nodes)
	for _, n := range slices.Compact(nodes) {
		root.Children = append(root.Children, w.cpu(n))
	}
	return root
}

// cpu is a NUMA node with what hangs there.
func (w *ncclWriter) cpu(numa int) element {
	e := element{XMLName: xml.Name{Local: "cpu"}, Attrs: attrs("numaid", strconv.Itoa(numa))}
	groups := map[int][]int{}
	var order []int
	for _, i := range w.gpus {
		if w.numa(i) != numa {
			continue
		}
		g := w.m.GPUs[i]
		if mask := formatMask(g.CPUs); mask != "" && len(e.Attrs) == 1 {
			e.Attrs = append(e.Attrs, attrs("affinity", mask)...)
		}
		if g.Switch < 0 {
			e.Children = append(e.Children, w.gpu(i))
			continue
		}
		if groups[g.Switch] == nil {
			order = append(order, g.Switch)
		}
		groups[g.Switch] = append(groups[g.Switch], i)
	}
	for _, s := range order {
		e.Children = append(e.Children, w.group(groups[s], s))
	}
	for n := range w.m.NICs {
		if at, ok := w.nics[n]; ok && at == numa && !slices.Contains(order, w.m.NICs[n].Switch) {
			e.Children = append(e.Children, w.nic(n))
		}
	}
	return e
}

// group is a set of devices that reach one another below the host bridge: one
// switch for each set that is one hop apart, and one above them.
func (w *ncclWriter) group(gpus []int, number int) element {
	var nics []int
	for n := range w.m.NICs {
		if _, ok := w.nics[n]; ok && w.m.NICs[n].Switch == number {
			nics = append(nics, n)
		}
	}
	near := newSets(len(gpus) + len(nics))
	for a, i := range gpus {
		for b, j := range gpus[:a] {
			if w.m.Links[i][j].Kind == KindPIX {
				near.join(a, b)
			}
		}
		for b, n := range nics {
			if w.m.NICPaths[i][n] == KindPIX {
				near.join(a, len(gpus)+b)
			}
		}
	}
	var leaves []element
	for _, set := range near.groups() {
		leaf := w.bridge(gpus[0])
		for _, k := range set {
			if k < len(gpus) {
				leaf.Children = append(leaf.Children, w.gpu(gpus[k]))
			} else {
				leaf.Children = append(leaf.Children, w.nic(nics[k-len(gpus)]))
			}
		}
		leaves = append(leaves, leaf)
	}
	if len(leaves) == 1 {
		return leaves[0]
	}
	top := w.bridge(gpus[0])
	top.Children = leaves
	return top
}

// bridge makes up a PCIe switch as fast as a GPU's slot. The bus is one that no
// machine has.
func (w *ncclWriter) bridge(like int) element {
	w.bridges++
	e := element{XMLName: xml.Name{Local: "pci"}, Attrs: attrs(
		"busid", fmt.Sprintf("ffff:ff:%02x.%d", w.bridges/8, w.bridges%8), "class", "0x060400")}
	d := w.details[like]
	if d.PCIeGeneration < 1 || d.PCIeWidth < 1 {
		d = Detail{PCIeGeneration: 4, PCIeWidth: 16} // what the clouds' files have
	}
	e.Attrs = append(e.Attrs, linkAttrs(d)...)
	return e
}

func (w *ncclWriter) gpu(i int) element {
	d := w.details[i]
	class, vendor := "0x030200", vendorNVIDIA
	if d.Vendor == "amd" {
		class, vendor = "0x120000", vendorAMD
	}
	e := element{XMLName: xml.Name{Local: "pci"}, Attrs: attrs("busid", w.m.GPUs[i].BusID, "class", class, "vendor", vendor)}
	if d.PCIeGeneration > 0 && d.PCIeWidth > 0 {
		e.Attrs = append(e.Attrs, linkAttrs(d)...)
	}
	g := element{XMLName: xml.Name{Local: "gpu"}, Children: w.joints(i)}
	switch {
	case d.Architecture != "":
		g.Attrs = attrs("gcn", d.Architecture)
	case d.ComputeCapability != "":
		g.Attrs = attrs("sm", strings.ReplaceAll(d.ComputeCapability, ".", ""))
	}
	if len(g.Attrs)+len(g.Children) > 0 {
		e.Children = append(e.Children, g)
	}
	return e
}

// hiddenSwitch is how NCCL writes an NVSwitch whose address is not known.
const hiddenSwitch = "fffffff:ffff:ff"

// joints lists all links of a GPU, those to GPUs that are not in the file too:
// NCCL may find these when another task of the gang has them.
func (w *ncclWriter) joints(i int) []element {
	if w.m.NVSwitch {
		most := 0
		for _, l := range w.m.Links[i] {
			most = max(most, l.Count)
		}
		if most == 0 {
			return nil
		}
		return []element{joint("nvlink", hiddenSwitch, most, "0x068000")}
	}
	var out []element
	for j, l := range w.m.Links[i] {
		switch {
		case w.m.GPUs[j].BusID == "":
		case l.Kind == KindNVLink:
			out = append(out, joint("nvlink", w.m.GPUs[j].BusID, l.Count, "0x030200"))
		case l.Kind == KindXGMI:
			out = append(out, joint("xgmi", w.m.GPUs[j].BusID, l.Count, "0x120000"))
		}
	}
	return out
}

func joint(name, target string, count int, class string) element {
	return element{XMLName: xml.Name{Local: name}, Attrs: attrs("target", target, "count", strconv.Itoa(count), "tclass", class)}
}

func (w *ncclWriter) nic(n int) element {
	return element{XMLName: xml.Name{Local: "pci"}, Attrs: attrs("busid", w.m.NICs[n].BusID, "class", "0x020700")}
}

func attrs(pairs ...string) []xml.Attr {
	var out []xml.Attr
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, xml.Attr{Name: xml.Name{Local: pairs[i]}, Value: pairs[i+1]})
	}
	return out
}

// linkAttrs writes a PCIe link as the kernel does.
func linkAttrs(d Detail) []xml.Attr {
	rate := map[int]string{1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}[d.PCIeGeneration]
	if rate == "" {
		return nil
	}
	return attrs("link_speed", rate+" GT/s PCIe", "link_width", strconv.Itoa(d.PCIeWidth))
}

// verify reads the file back and compares it with the matrix.
func (w *ncclWriter) verify(text []byte) error {
	f, err := Parse(text)
	if err != nil {
		return err
	}
	if len(f.Matrix.GPUs) != len(w.gpus) {
		return fmt.Errorf("%d GPUs are read back of %d", len(f.Matrix.GPUs), len(w.gpus))
	}
	at := map[string]int{}
	for k, g := range f.Matrix.GPUs {
		at[g.BusID] = k
	}
	nicAt := map[string]int{}
	for k, n := range f.Matrix.NICs {
		nicAt[n.BusID] = k
	}
	for _, i := range w.gpus {
		a := at[w.m.GPUs[i].BusID]
		for _, j := range w.gpus {
			want, got := w.m.Links[i][j], f.Matrix.Links[a][at[w.m.GPUs[j].BusID]]
			if sameInNCCL(want.Kind) != sameInNCCL(got.Kind) || want.Count != got.Count {
				return fmt.Errorf("GPUs %d and %d are joined by %s, which NCCL would take for %s", i, j, want, got)
			}
		}
		for n := range w.nics {
			want, got := w.m.NICPaths[i][n], f.Matrix.NICPaths[a][nicAt[w.m.NICs[n].BusID]]
			if want != KindUnknown && sameInNCCL(want) != sameInNCCL(got) {
				return fmt.Errorf("GPU %d reaches NIC %s by %s, which NCCL would take for %s", i, w.m.NICs[n].BusID, want, got)
			}
		}
	}
	return nil
}

// sameInNCCL is the kind as NCCL knows it: it does not tell the host bridges
// of one NUMA node apart.
func sameInNCCL(k Kind) Kind {
	if k == KindNode {
		return KindPHB
	}
	return k
}
