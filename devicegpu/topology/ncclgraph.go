package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// file builds the matrix from the devices.
func (r *ncclReader) file() (File, error) {
	m := Empty(len(r.gpus), len(r.nics))
	f := File{Format: "NCCL XML", Details: make([]Detail, len(r.gpus))}
	slots := make([]float64, len(r.gpus))
	for i, g := range r.gpus {
		f.Details[i] = g.detail()
		m.GPUs[i].BusID, m.GPUs[i].NUMA, m.GPUs[i].CPUs = g.busID, g.numa, g.cpus
		m.GPUs[i].Model = g.model(f.Details[i])
		slots[i] = g.slotGBs
		for j := range i {
			m.SetLink(i, j, Link{Kind: pathKind(g.place, r.gpus[j].place)})
		}
		for j, n := range r.nics {
			m.NICPaths[i][j] = pathKind(g.place, n.place)
		}
	}
	for i, n := range r.nics {
		m.NICs[i] = n.nic
	}
	// The PCIe tree is known whole here, so the groups are made before NVLinks
	// cover it.
	m.GroupSwitches()
	if err := r.joinGPUs(&m, f.Details); err != nil {
		return File{}, err
	}
	m.setNVLinkBandwidth(f.Details)
	m.SetPCIeBandwidth(slots)
	r.noteMissingLinks()
	f.Matrix, f.Problems = m, r.problems
	return f, nil
}

// pathKind names the way between two places. NCCL's XML has one <cpu> per NUMA
// node and does not tell host bridges apart, so that what meets there is PHB,
// as NCCL itself calls it.
func pathKind(a, b place) Kind {
	if a.cpu != b.cpu {
		return KindSys
	}
	shared := 0
	for shared < len(a.bridges) && shared < len(b.bridges) && a.bridges[shared] == b.bridges[shared] {
		shared++
	}
	switch crossed := len(a.bridges) + len(b.bridges) - 2*shared + 1; {
	case shared == 0:
		return KindPHB
	case crossed == 1:
		return KindPIX
	}
	return KindPXB
}

func (g ncclGPU) detail() Detail {
	d := Detail{Vendor: "nvidia"}
	d.PCIeGeneration, d.PCIeWidth = pciLink(g.pci)
	if g.gpu != nil && g.gpu.attr("gcn") != "" {
		d.Vendor = "amd"
		d.Architecture = g.gpu.attr("gcn")
	}
	if class := g.pci.attr("class"); g.pci.attr("vendor") == vendorAMD || strings.HasPrefix(class, "0x12") || strings.HasPrefix(class, "0x0380") {
		d.Vendor = "amd"
	}
	if g.pci.attr("vendor") == vendorNVIDIA {
		d.Vendor = "nvidia"
	}
	if d.Vendor == "nvidia" && g.gpu != nil {
		// sm is the capability without its dot: 90, 100, 103.
		if sm := g.gpu.attr("sm"); len(sm) >= 2 && len(sm) <= 3 {
			d.ComputeCapability = sm[:len(sm)-1] + "." + sm[len(sm)-1:]
		}
	}
	return d
}

func (g ncclGPU) model(d Detail) string {
	id := strings.TrimPrefix(g.pci.attr("vendor"), "0x") + ":" + strings.TrimPrefix(g.pci.attr("device"), "0x")
	switch {
	case pciModels[id] != "":
		return pciModels[id]
	case d.Architecture != "":
		return "AMD gfx" + strings.TrimPrefix(d.Architecture, "gfx")
	case d.ComputeCapability != "":
		return "NVIDIA sm_" + strings.ReplaceAll(d.ComputeCapability, ".", "")
	}
	return ""
}

// joints are the links that one GPU lists.
type joints struct {
	direct   map[int]Link // by GPU
	switched int          // NVLinks to switches
}

// xgmiGBsUnknown is what is assumed of an XGMI link of an architecture that is
// not known: the slowest there is.
const xgmiGBsUnknown = 46

func (r *ncclReader) joinGPUs(m *Matrix, details []Detail) error {
	all := make([]joints, len(r.gpus))
	for i := range r.gpus {
		j, err := r.readJoints(i)
		if err != nil {
			return err
		}
		all[i] = j
	}
	switches := slices.ContainsFunc(all, func(j joints) bool { return j.switched > 0 })
	for i := range all {
		if switches && all[i].switched == 0 {
			r.problem("GPU %d lists no NVLinks to the switches that other GPUs are joined by", i)
		}
		for k := range i {
			l := r.joint(i, k, all)
			if l.Count == 0 {
				continue
			}
			if l.Kind == KindXGMI {
				rate := min(XGMIGBs(details[i].Architecture), XGMIGBs(details[k].Architecture))
				if rate == 0 {
					rate = xgmiGBsUnknown
				}
				l.GBs = rate * float64(l.Count)
			}
			m.SetLink(i, k, l)
			m.NVSwitch = m.NVSwitch || all[i].switched > 0 && all[k].switched > 0
		}
	}
	return nil
}

// joint is the link between two GPUs: what both of them list, plus what both
// of them have to the switches.
func (r *ncclReader) joint(i, k int, all []joints) Link {
	a, b := all[i].direct[k], all[k].direct[i]
	l := a
	if a != b {
		r.problem("GPU %d lists %d links to GPU %d, which lists %d back", k, b.Count, i, a.Count)
		if a.Count == 0 || b.Count > 0 && b.Count < a.Count {
			l = b
		}
	}
	if switched := min(all[i].switched, all[k].switched); switched > 0 {
		l = Link{Kind: KindNVLink, Count: l.Count + switched}
	}
	l.Count = min(l.Count, maxLinkCount)
	return l
}

// readJoints reads a GPU's <nvlink> and <xgmi> elements.
func (r *ncclReader) readJoints(i int) (joints, error) {
	j := joints{direct: map[int]Link{}}
	if r.gpus[i].gpu == nil {
		return j, nil
	}
	for _, kind := range []Kind{KindNVLink, KindXGMI} {
		name := "nvlink"
		if kind == KindXGMI {
			name = "xgmi"
		}
		for _, e := range r.gpus[i].gpu.all(name) {
			count, err := strconv.Atoi(e.attr("count"))
			if err != nil || count < 0 || count > maxLinkCount {
				return j, fmt.Errorf("GPU %d: <%s count=%q>: want a number up to %d", i, name, e.attr("count"), maxLinkCount)
			}
			if count > 0 {
				r.addJoint(&j, i, kind, count, e)
			}
		}
	}
	return j, nil
}

func (r *ncclReader) addJoint(j *joints, i int, kind Kind, count int, e *element) {
	target, class := e.attr("target"), e.attr("tclass")
	to := -1
	if busID, err := NormalizeBusID(target); err == nil {
		for k := range r.gpus {
			if r.gpus[k].busID == busID {
				to = k
			}
		}
	}
	switch {
	case to == i:
		r.problem("GPU %d lists %d links to itself, so the file does not say which GPU they lead to", i, count)
	case to >= 0:
		j.direct[to] = Link{Kind: kind, Count: j.direct[to].Count + count}
	case strings.HasPrefix(class, "0x068001"):
		// The links of a POWER9 or Grace CPU join no GPUs.
	case strings.HasPrefix(class, "0x0680"), class == "" && strings.HasPrefix(strings.ToLower(target), "fff"):
		// Guests of a hypervisor see their NVSwitches as ffff…
		j.switched += count
	default:
		r.problem("GPU %d lists %d links to %q, which is not in the file", i, count, target)
	}
}

// noteMissingLinks says so where a file is silent about NVLink: only <gpu>
// elements could tell, and cloud vendors leave them out.
func (r *ncclReader) noteMissingLinks() {
	silent := 0
	for _, g := range r.gpus {
		if g.gpu == nil {
			silent++
		}
	}
	if silent > 0 && len(r.gpus) > 1 {
		r.problem("the file has no NVLink information for %d of %d GPUs (NCCL adds it when it runs): they are shown as not joined", silent, len(r.gpus))
	}
}
