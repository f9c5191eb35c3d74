package topology

import (
	"slices"
	"strings"
)

// setNVLinkBandwidth sets the generation of the GPUs that have NVLinks, and
// the links' bandwidth.
func (m *Matrix) setNVLinkBandwidth(details []Detail) {
	capabilities := make([]string, len(details))
	for i, row := range m.Links {
		capabilities[i] = details[i].ComputeCapability
		if slices.ContainsFunc(row, func(l Link) bool { return l.Kind == KindNVLink }) {
			m.GPUs[i].NVLinkGeneration = NVLinkGeneration(capabilities[i])
		}
	}
	m.SetNVLinkBandwidth(capabilities)
}

// SetPCIeBandwidth sets the bandwidth of the PCIe paths between GPUs, from
// that of each one's way to the host bridge (0 is unknown).
func (m *Matrix) SetPCIeBandwidth(slotGBs []float64) {
	for i := range m.GPUs {
		for j := range i {
			if l := m.Links[i][j]; !l.Kind.Fast() {
				l.GBs = PathGBs(l.Kind, min(slotGBs[i], slotGBs[j]))
				m.SetLink(i, j, l)
			}
		}
	}
}

// modelCapabilities are CUDA's compute capabilities by a word of the model's
// name, from NVIDIA's list of CUDA GPUs. Only families that may have NVLink
// are needed.
var modelCapabilities = map[string]string{
	"P100": "6.0", "V100": "7.0", "V100S": "7.0", "T4": "7.5",
	"A100": "8.0", "A800": "8.0", "A30": "8.0", "A40": "8.6", "A10": "8.6", "A10G": "8.6", "A6000": "8.6", "A5000": "8.6", "3090": "8.6",
	"L4": "8.9", "L40": "8.9", "L40S": "8.9", "4090": "8.9",
	"H100": "9.0", "H200": "9.0", "H800": "9.0", "H20": "9.0", "GH200": "9.0",
	"B100": "10.0", "B200": "10.0", "GB200": "10.0", "B300": "10.3", "GB300": "10.3",
	"8000": "7.5", "2080": "7.5",
}

// modelCapability finds the compute capability of a model's name, "" if it is
// not known.
func modelCapability(model string) string {
	words := strings.FieldsFunc(model, func(r rune) bool { return r == ' ' || r == '-' || r == '_' })
	for _, w := range words {
		if cc := modelCapabilities[w]; cc != "" {
			return cc
		}
	}
	return ""
}

// pciModels are product names by vendor and device ID, from the PCI ID
// repository and NVIDIA's driver release notes.
var pciModels = map[string]string{
	"10de:1db1": "Tesla V100-SXM2-16GB", "10de:1db5": "Tesla V100-SXM2-32GB", "10de:1db8": "Tesla V100-SXM3-32GB",
	"10de:20b0": "NVIDIA A100-SXM4-40GB", "10de:20b2": "NVIDIA A100-SXM4-80GB", "10de:20b5": "NVIDIA A100 80GB PCIe", "10de:20f1": "NVIDIA A100-PCIE-40GB",
	"10de:2330": "NVIDIA H100 80GB HBM3", "10de:2331": "NVIDIA H100 PCIe", "10de:2321": "NVIDIA H100 NVL", "10de:2335": "NVIDIA H200",
	"10de:2901": "NVIDIA B200", "10de:2941": "NVIDIA GB200", "10de:26b9": "NVIDIA L40S", "10de:27b8": "NVIDIA L4", "10de:1eb8": "Tesla T4",
	"1002:66a1": "AMD Instinct MI50", "1002:738c": "AMD Instinct MI100", "1002:740c": "AMD Instinct MI250X", "1002:740f": "AMD Instinct MI210",
	"1002:74a1": "AMD Instinct MI300X", "1002:74a5": "AMD Instinct MI325X", "1002:75a0": "AMD Instinct MI350X", "1002:75a3": "AMD Instinct MI355X",
}
