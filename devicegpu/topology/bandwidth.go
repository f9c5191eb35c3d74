package topology

import (
	"strconv"
	"strings"
)

// NVLinkGBs returns the bandwidth of one NVLink in GB/s per direction for a
// generation, and 0 for a generation that is not known.
//
// Source: NVIDIA's architecture white papers, whose figures are for both
// directions together: P100 160 GB/s over 4 links, V100 300 over 6, A100 600
// over 12, H100 900 over 18, B200 1800 over 18, Rubin 3600 over 36.
func NVLinkGBs(generation int) float64 {
	switch generation {
	case 1:
		return 20
	case 2, 3, 4:
		return 25
	case 5, 6:
		return 50
	}
	return 0
}

// nvlinkGBsUnknown is what is assumed of one NVLink when its generation is not
// known (nvidia-smi's matrix does not name the GPUs). It is right from Volta to
// Hopper and too low for later ones; within a node only the ratios matter.
const nvlinkGBsUnknown = 25

// NVLinkGeneration returns the NVLink generation of a CUDA compute capability,
// as in "9.0", and 0 if it is not known. Whether a GPU has NVLinks at all is
// another question.
//
// Source: the white papers of Pascal, Volta, Turing, Ampere, Hopper and
// Blackwell, and NVIDIA's pages on Rubin. Ada (8.9) has no NVLink.
func NVLinkGeneration(capability string) int {
	left, right, _ := strings.Cut(capability, ".")
	major, _ := strconv.Atoi(left) // what is no number is no known capability
	minor, _ := strconv.Atoi(right)
	switch {
	case major == 6 && minor == 0:
		return 1
	case major == 7 && (minor == 0 || minor == 5):
		return 2
	case major == 8 && (minor == 0 || minor == 6):
		return 3
	case major == 9:
		return 4
	case major == 10 && minor < 7:
		return 5
	case major == 10:
		return 6
	}
	return 0
}

// XGMIGBs returns the bandwidth of one XGMI (Infinity Fabric) link in GB/s per
// direction for an AMD architecture ("gfx942", or RCCL's older "942"), and 0
// if it is not known.
//
// Source: AMD's CDNA white papers and product pages, halved for one direction:
// MI50/MI60 and MI100 92 GB/s a link, MI250X 100, MI300X 128, MI350 153.6.
func XGMIGBs(gcn string) float64 {
	switch strings.TrimPrefix(gcn, "gfx") {
	case "906", "908":
		return 46
	case "90a", "910":
		return 50
	case "942":
		return 64
	case "950":
		return 76.8
	}
	return 0
}

// PCIeGBs returns the bandwidth of a PCIe link in GB/s per direction, 0 if the
// generation is not known.
//
// Source: the PCI-SIG's transfer rates (2.5, 5, 8, 16, 32, 64 GT/s a lane),
// less the line code (8b/10b until 2, 128b/130b until 5, 242/256 FLIT in 6).
func PCIeGBs(generation, width int) float64 {
	perLane := map[int]float64{
		1: 2.5 * 8 / 10, 2: 5.0 * 8 / 10,
		3: 8.0 * 128 / 130, 4: 16.0 * 128 / 130, 5: 32.0 * 128 / 130,
		6: 64.0 * 242 / 256,
	}[generation]
	return perLane * float64(max(width, 0)) / 8
}

// PCIeGeneration returns the generation of a rate in GT/s a lane, 0 if there
// is none.
func PCIeGeneration(gts float64) int {
	switch gts {
	case 2.5:
		return 1
	case 5:
		return 2
	case 8:
		return 3
	case 16:
		return 4
	case 32:
		return 5
	case 64:
		return 6
	}
	return 0
}

// The cost of leaving a PCIe switch.
//
// Source: NCCL, src/graph/topo.h: INTEL_P2P_OVERHEAD takes a factor of 6/5 for
// GPU-to-GPU traffic over a CPU, AMD_ZEN12_BW is 16 GB/s for traffic between
// sockets (SRP_QPI_BW is 22, SKL_QPI_BW 10). PCI_BW, 12 GB/s, is what NCCL
// takes for a third-generation slot.
const (
	hostBridgeFactor = 5.0 / 6
	interSocketGBs   = 16
	pcieGBsUnknown   = 12
)

// PathGBs returns the bandwidth between two GPUs over a PCIe path in GB/s per
// direction, where slotGBs is what the slower one's slot can do (0 is
// unknown). It is 0 for the other kinds.
func PathGBs(kind Kind, slotGBs float64) float64 {
	if slotGBs <= 0 {
		slotGBs = pcieGBsUnknown
	}
	switch kind {
	case KindPIX, KindPXB:
		return slotGBs
	case KindPHB, KindNode:
		return slotGBs * hostBridgeFactor
	case KindSys:
		return min(slotGBs*hostBridgeFactor, interSocketGBs)
	}
	return 0
}

// lowRateNVLinkGBs is NVLink 3 as the GA102 boards have it (RTX A6000, A40,
// A10G's kin, RTX 3090): 112.5 GB/s both ways over 4 links, by NVIDIA's
// product pages.
const lowRateNVLinkGBs = 112.5 / 2 / 4

// SetNVLinkBandwidth fills in the bandwidth of the matrix's NVLinks from the
// GPUs' generations. The compute capabilities, by GPU, tell the boards with a
// lower rate apart; "" is unknown.
func (m *Matrix) SetNVLinkBandwidth(capabilities []string) {
	rate := func(i int) float64 {
		if capabilities[i] == "8.6" {
			return lowRateNVLinkGBs
		}
		if gbs := NVLinkGBs(m.GPUs[i].NVLinkGeneration); gbs > 0 {
			return gbs
		}
		return nvlinkGBsUnknown
	}
	for i := range m.GPUs {
		for j := range i {
			if l := m.Links[i][j]; l.Kind == KindNVLink {
				l.GBs = min(rate(i), rate(j)) * float64(l.Count)
				m.SetLink(i, j, l)
			}
		}
	}
}
