// Package topology describes how the GPUs of one node are joined: NVLink and
// XGMI, PCIe switches, NUMA nodes and network cards. It reads that from
// `nvidia-smi topo -m` and from NCCL's XML files, answers what a scheduler
// asks of it (islands, bandwidth, the best order of a set of GPUs), and packs
// it into one short string that fits in a Nomad device attribute.
//
// The package is pure: no I/O, no clock, nothing global.
package topology

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The largest node that a Matrix may describe. The limits bound what a decoder
// allocates for hostile input; they are far above any machine sold.
const (
	MaxGPUs = 128
	MaxNICs = 256
)

// ErrInvalid is wrapped by every error of Matrix.Validate.
var ErrInvalid = errors.New("invalid GPU topology")

// Matrix is the topology of one node.
type Matrix struct {
	GPUs []GPU `json:"gpus"`
	NICs []NIC `json:"nics,omitempty"`
	// Links is symmetric: Links[i][j] joins GPUs[i] and GPUs[j], and
	// Links[i][i] is KindSelf.
	Links [][]Link `json:"links"`
	// NICPaths[g][n] is how GPUs[g] reaches NICs[n]; nil when there is no NIC.
	NICPaths [][]Kind `json:"nic_paths,omitempty"`
	// NVSwitch is set when the NVLinks go through switches: every pair gets
	// the whole bandwidth at once, whichever GPUs are taken.
	NVSwitch bool `json:"nvswitch,omitempty"`
}

// GPU is one GPU of a node. What a source does not say is zero, or as noted.
type GPU struct {
	// UUID is the device's ID in Nomad.
	UUID string `json:"uuid,omitempty"`
	// BusID is the PCI address in its canonical form (see NormalizeBusID).
	BusID string `json:"bus_id,omitempty"`
	Model string `json:"model,omitempty"`
	// NUMA are the NUMA nodes near the GPU, ascending; the first one has the
	// CPUs. Empty is unknown.
	NUMA []int `json:"numa,omitempty"`
	// CPUs is the CPU affinity in the kernel's list form, "0-55,112-167".
	CPUs string `json:"cpus,omitempty"`
	// Switch numbers the groups of GPUs and NICs that reach one another
	// without the CPU's host bridge; -1 is none or unknown.
	Switch int `json:"switch"`
	// NVLinkGeneration is 1 (Pascal) to 6 (Rubin); 0 is none or unknown.
	NVLinkGeneration int    `json:"nvlink_generation,omitempty"`
	Fabric           Fabric `json:"fabric,omitzero"`
}

// Fabric is the NVLink domain beyond the node (an NVL72 rack) that a GPU
// belongs to. GPUs with equal, non-zero Fabrics can use NVLink to each other.
type Fabric struct {
	// ClusterUUID is lower-case hexadecimal with dashes.
	ClusterUUID string `json:"cluster_uuid,omitempty"`
	CliqueID    uint32 `json:"clique_id,omitempty"`
}

// NIC is a network card.
type NIC struct {
	// Name is the RDMA device ("mlx5_0") where it is known, else the source's
	// own name for it.
	Name  string `json:"name,omitempty"`
	BusID string `json:"bus_id,omitempty"`
	// RDMA is set for InfiniBand, RoCE and EFA.
	RDMA bool `json:"rdma,omitempty"`
	// SpeedMbps is the port speed in Mbit/s, 0 if unknown.
	SpeedMbps int `json:"speed_mbps,omitempty"`
	// Switch is as for a GPU.
	Switch int `json:"switch"`
}

// Empty returns a matrix of n GPUs and m NICs whose paths are unknown.
func Empty(n, m int) Matrix {
	x := Matrix{GPUs: make([]GPU, n), NICs: make([]NIC, m), Links: make([][]Link, n)}
	for i := range n {
		x.GPUs[i].Switch = -1
		x.Links[i] = make([]Link, n)
		x.Links[i][i] = Link{Kind: KindSelf}
	}
	for i := range m {
		x.NICs[i].Switch = -1
	}
	if m > 0 {
		x.NICPaths = make([][]Kind, n)
		for i := range n {
			x.NICPaths[i] = make([]Kind, m)
		}
	}
	return x
}

// SetLink sets the link between two GPUs in both directions.
func (m *Matrix) SetLink(i, j int, l Link) { m.Links[i][j], m.Links[j][i] = l, l }

// Islands returns the sets of GPUs that are joined by NVLink or XGMI, directly
// or over GPUs between them (a DGX-1's cube mesh is one island of eight), as
// ascending indexes, ordered by their first. A GPU without such a link is an
// island of one.
func (m Matrix) Islands() [][]int {
	sets := newSets(len(m.GPUs))
	for i, row := range m.Links {
		for j, l := range row {
			if l.Kind.Fast() {
				sets.join(i, j)
			}
		}
	}
	return sets.groups()
}

// NearestNICs returns the RDMA NICs that GPU g reaches over the shortest path,
// ascending; none if it has no path to one.
func (m Matrix) NearestNICs(g int) []int {
	var nearest []int
	best := KindUnknown.Distance()
	for n := range m.NICs {
		if !m.NICs[n].RDMA {
			continue
		}
		switch d := m.NICPaths[g][n].Distance(); {
		case d < best:
			best, nearest = d, []int{n}
		case d == best && best < KindUnknown.Distance():
			nearest = append(nearest, n)
		}
	}
	return nearest
}

// Index returns the index of the GPU with the UUID.
func (m Matrix) Index(uuid string) (int, bool) {
	i := slices.IndexFunc(m.GPUs, func(g GPU) bool { return g.UUID == uuid })
	return i, i >= 0
}

// Subset returns the matrix of only the GPUs listed, in that order, with all
// NICs. The indexes must be valid and distinct.
func (m Matrix) Subset(gpus []int) Matrix {
	s := Matrix{NICs: m.NICs, NVSwitch: m.NVSwitch, GPUs: make([]GPU, 0, len(gpus)), Links: make([][]Link, 0, len(gpus))}
	for _, i := range gpus {
		s.GPUs = append(s.GPUs, m.GPUs[i])
		row := make([]Link, 0, len(gpus))
		for _, j := range gpus {
			row = append(row, m.Links[i][j])
		}
		s.Links = append(s.Links, row)
		if m.NICPaths != nil {
			s.NICPaths = append(s.NICPaths, m.NICPaths[i])
		}
	}
	return s
}

// Validate reports every fault of the matrix at once.
func (m Matrix) Validate() error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if n := len(m.GPUs); n > MaxGPUs {
		fault("%d GPUs: at most %d are allowed", n, MaxGPUs)
	}
	if n := len(m.NICs); n > MaxNICs {
		fault("%d NICs: at most %d are allowed", n, MaxNICs)
	}
	if len(faults) == 0 {
		m.validateGPUs(fault)
		m.validateLinks(fault)
		m.validateNICs(fault)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %s", ErrInvalid, strings.Join(faults, "; "))
	}
	return nil
}

func (m Matrix) validateGPUs(fault func(string, ...any)) {
	seen := map[string]int{}
	for i, g := range m.GPUs {
		if first, ok := seen[g.UUID]; ok && g.UUID != "" {
			fault("GPU %d has the UUID %q of GPU %d", i, g.UUID, first)
		}
		seen[g.UUID] = i
		if !canonicalBusID(g.BusID) {
			fault("GPU %d has bus ID %q: want the form 0000:18:00.0", i, g.BusID)
		}
		if !validNUMA(g.NUMA) {
			fault("GPU %d has NUMA nodes %v: want ascending, distinct, from 0 to %d", i, g.NUMA, maxListValue)
		}
		if g.Switch < -1 || g.Switch >= MaxGPUs {
			fault("GPU %d has switch group %d: want -1 to %d", i, g.Switch, MaxGPUs-1)
		}
		if g.NVLinkGeneration < 0 || g.NVLinkGeneration > 255 {
			fault("GPU %d has NVLink generation %d", i, g.NVLinkGeneration)
		}
	}
}

func validNUMA(nodes []int) bool {
	for i, n := range nodes {
		if n < 0 || n > maxListValue || i > 0 && n <= nodes[i-1] {
			return false
		}
	}
	return true
}

func (m Matrix) validateLinks(fault func(string, ...any)) {
	n := len(m.GPUs)
	if len(m.Links) != n {
		fault("%d rows of links for %d GPUs", len(m.Links), n)
		return
	}
	for i, row := range m.Links {
		if len(row) != n {
			fault("row %d has %d links for %d GPUs", i, len(row), n)
			return
		}
	}
	for i, row := range m.Links {
		for j, l := range row[:i+1] {
			if err := l.validate(i == j); err != nil {
				fault("link %d-%d: %v", j, i, err)
			}
			if l != m.Links[j][i] {
				fault("link %d-%d is %s one way and %s the other", j, i, m.Links[j][i], l)
			}
		}
	}
}

func (m Matrix) validateNICs(fault func(string, ...any)) {
	for i, n := range m.NICs {
		if !canonicalBusID(n.BusID) {
			fault("NIC %d has bus ID %q: want the form 0000:18:00.0", i, n.BusID)
		}
		if n.Switch < -1 || n.Switch >= MaxGPUs {
			fault("NIC %d has switch group %d: want -1 to %d", i, n.Switch, MaxGPUs-1)
		}
		if n.SpeedMbps < 0 || n.SpeedMbps > math.MaxInt32 {
			fault("NIC %d has a speed of %d Mbit/s", i, n.SpeedMbps)
		}
	}
	if len(m.NICs) == 0 {
		if m.NICPaths != nil {
			fault("there are paths to NICs but no NICs")
		}
		return
	}
	if len(m.NICPaths) != len(m.GPUs) {
		fault("%d rows of NIC paths for %d GPUs", len(m.NICPaths), len(m.GPUs))
		return
	}
	for i, row := range m.NICPaths {
		if len(row) != len(m.NICs) {
			fault("row %d has %d paths for %d NICs", i, len(row), len(m.NICs))
			continue
		}
		for j, k := range row {
			if _, ok := kindCode[k]; !ok || k.Fast() || k == KindSelf {
				fault("path of GPU %d to NIC %d is %q: want %s", i, j, string(k), pcieKinds)
			}
		}
	}
}
