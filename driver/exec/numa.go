package exec

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// busID matches PCI bus IDs, also with the eight digits of NVML's domains.
var busID = regexp.MustCompile(`^(?:[0-9a-f]{4}|[0-9a-f]{8}):[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// normalBusID is a PCI bus ID as the kernel writes it.
func normalBusID(id string) (string, bool) {
	id = strings.ToLower(strings.TrimSpace(id))
	if !busID.MatchString(id) {
		return "", false
	}
	domain, rest, _ := strings.Cut(id, ":")
	if len(domain) == 8 && strings.HasPrefix(domain, "0000") {
		domain = domain[4:]
	}
	return domain + ":" + rest, true
}

// Affinity is where a workload would run, as a list of the kernel's; "" is
// everywhere. The error is a *SpecError.
func Affinity(spec Spec) (string, error) {
	h, err := here()
	if err != nil {
		return "", err
	}
	cpus, faults := h.affinity(spec)
	if len(faults) > 0 {
		return "", &SpecError{Faults: faults}
	}
	return FormatCPUs(cpus), nil
}

// affinity is where a workload runs: nil leaves it everywhere. The nodes are a
// preference, so what the host does not tell changes nothing; CPUs named in the
// Spec that are not there are a fault.
func (h host) affinity(spec Spec) ([]int, []Fault) {
	var faults []Fault
	allowed := allowedCPUs()
	wanted, err := ParseCPUs(spec.CPUSet)
	if err != nil {
		faults = append(faults, Fault{Field: "cpu_set", Value: spec.CPUSet, Why: err.Error()})
	} else if len(wanted) > 0 {
		if online, known := h.onlineCPUs(); known && len(intersect(wanted, online)) < len(wanted) {
			faults = append(faults, Fault{Field: "cpu_set", Value: spec.CPUSet, Why: "has CPUs that are not online; there are " + FormatCPUs(online)})
		}
		allowed = wanted
	}
	var near []int
	for _, node := range h.nodes(spec, &faults) {
		near = append(near, h.nodeCPUs(node)...)
	}
	slices.Sort(near)
	if near = intersect(slices.Compact(near), allowed); len(near) > 0 {
		return near, faults
	}
	return wanted, faults
}

// nodes are the NUMA nodes asked for and those of the devices, as far as known.
func (h host) nodes(spec Spec, faults *[]Fault) []int {
	nodes := slices.Clone(spec.NUMANodes)
	for i, node := range spec.NUMANodes {
		if node < 0 {
			*faults = append(*faults, Fault{Field: fmt.Sprintf("numa_nodes[%d]", i), Value: strconv.Itoa(node), Why: "is not a node; the lowest is 0"})
		}
	}
	for i, device := range spec.NUMADevices {
		id, ok := normalBusID(device)
		if !ok {
			*faults = append(*faults, Fault{Field: fmt.Sprintf("numa_devices[%d]", i), Value: device, Why: "is not a PCI bus ID like 0000:3b:00.0"})
			continue
		}
		data, err := os.ReadFile(filepath.Join(h.sys, "bus/pci/devices", id, "numa_node"))
		if err != nil {
			continue
		}
		// The kernel writes -1 where the firmware does not tell.
		if node, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil && node >= 0 {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func (h host) nodeCPUs(node int) []int {
	return h.cpuFile("devices/system/node/node" + strconv.Itoa(node) + "/cpulist")
}

func (h host) onlineCPUs() (cpus []int, known bool) {
	cpus = h.cpuFile("devices/system/cpu/online")
	return cpus, len(cpus) > 0
}

func (h host) cpuFile(path string) []int {
	data, err := os.ReadFile(filepath.Join(h.sys, path))
	if err != nil {
		return nil
	}
	cpus, err := ParseCPUs(string(data))
	if err != nil {
		return nil
	}
	return cpus
}
