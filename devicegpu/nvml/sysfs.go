package nvml

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// readHost reads the PCIe tree, NUMA nodes and RDMA cards from a file system
// that is mounted at /sys. What is not there is left out: a container may hide
// all of it.
func readHost(sys fs.FS, gpus []string) host {
	h := host{places: map[string]place{}}
	for _, busID := range gpus {
		if p, ok := readPlace(sys, "bus/pci/devices/"+busID); ok {
			h.places[busID] = p
		}
	}
	entries, err := fs.ReadDir(sys, "class/infiniband")
	if err != nil {
		return h
	}
	for _, e := range entries {
		dir := "class/infiniband/" + e.Name()
		device, err := follow(sys, dir+"/device")
		if err != nil {
			continue // soft RoCE and the like have no card
		}
		if _, err := fs.Lstat(sys, device+"/physfn"); err == nil {
			continue // a virtual function, meant for a guest
		}
		busID, err := topology.NormalizeBusID(path.Base(device))
		if err != nil {
			continue
		}
		if p, ok := readPlace(sys, device); ok {
			h.places[busID] = p
		}
		h.nics = append(h.nics, topology.NIC{Name: e.Name(), BusID: busID, RDMA: true, Switch: -1, SpeedMbps: readRate(sys, dir)})
	}
	return h
}

// readPlace reads where a PCI device hangs: the real path of its folder runs
// from the host bridge over every bridge to the device.
func readPlace(sys fs.FS, dir string) (place, bool) {
	resolved, err := follow(sys, dir)
	if err != nil {
		return place{}, false
	}
	parts := strings.Split(resolved, "/")
	root := slices.IndexFunc(parts, func(s string) bool { return strings.HasPrefix(s, "pci") })
	if root < 0 {
		return place{}, false
	}
	p := place{root: strings.Join(parts[:root+1], "/"), bridges: parts[root+1 : len(parts)-1], numa: -1}
	if n, err := strconv.Atoi(readText(sys, resolved+"/numa_node")); err == nil {
		p.numa = n
	}
	if list, err := topology.ParseList(readText(sys, resolved+"/local_cpulist")); err == nil {
		p.cpus = topology.FormatList(list)
	}
	return p, true
}

// follow resolves the symbolic links of a path. Every folder in the part of
// sysfs that is read here is reached over one link at most.
func follow(sys fs.FS, name string) (string, error) {
	for range 8 {
		info, err := fs.Lstat(sys, name)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return name, nil
		}
		target, err := fs.ReadLink(sys, name)
		if err != nil {
			return "", err
		}
		// The folder that holds the link may itself be reached over one, and
		// ".." counts from where it really is.
		parent, err := follow(sys, path.Dir(name))
		if err != nil {
			return "", err
		}
		name = path.Join(parent, target)
	}
	return "", fs.ErrInvalid
}

func readText(sys fs.FS, name string) string {
	data, err := fs.ReadFile(sys, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// readRate reads the speed of a card's fastest port, "400 Gb/sec (4X NDR)", in
// Mbit/s; 0 if it is not told.
func readRate(sys fs.FS, dir string) int {
	ports, err := fs.ReadDir(sys, dir+"/ports")
	if err != nil {
		return 0
	}
	fastest := 0
	for _, port := range ports {
		number, _, ok := strings.Cut(readText(sys, dir+"/ports/"+port.Name()+"/rate"), " Gb/sec")
		if gbps, err := strconv.ParseFloat(number, 64); ok && err == nil && gbps > 0 && gbps < 1e6 {
			fastest = max(fastest, int(gbps*1000))
		}
	}
	return fastest
}
