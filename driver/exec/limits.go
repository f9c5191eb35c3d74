package exec

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// defaultCPUPeriod is the kernel's own, in microseconds.
const defaultCPUPeriod = 100_000

// createUnified makes the cgroup2 directory and sets what its controllers allow.
func (g *cgroups) createUnified(resources *specs.LinuxResources) error {
	if g.unified == "" {
		return nil
	}
	group, err := filepath.Rel(g.host.unified, g.unified)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(g.unified, 0o755); err != nil {
		return err
	}
	manager, err := cgroup2.Load("/"+group, cgroup2.WithMountpoint(g.host.unified))
	if err != nil {
		return err
	}
	if slices.Contains(g.owned, g.unified) {
		for _, c := range unifiedControllers(g.host.unified) {
			if slices.Contains(v2Controllers, c) {
				// A controller that cannot be delegated is not offered below;
				// what it would limit stays unlimited, as Probe says.
				_ = manager.ToggleControllers([]string{c}, cgroup2.Enable)
			}
		}
	}
	return manager.Update(unifiedResources(resources, unifiedControllers(g.unified)))
}

// unifiedResources turns limits into those of cgroup2, as far as the
// controllers are there.
func unifiedResources(resources *specs.LinuxResources, controllers []string) *cgroup2.Resources {
	r := cgroup2.ToResources(resources)
	if !slices.Contains(controllers, "cpuset") || resources.CPU.Cpus == "" {
		r.CPU.Cpus = ""
	}
	if !slices.Contains(controllers, "cpu") {
		r.CPU.Weight, r.CPU.Max = nil, ""
	}
	if !slices.Contains(controllers, "memory") {
		r.Memory = nil
	}
	if !slices.Contains(controllers, "pids") {
		r.Pids = nil
	}
	return r
}

// createV1 makes the v1 directories and sets the limits in them.
func (g *cgroups) createV1(resources *specs.LinuxResources, devices []specs.LinuxDeviceCgroup) error {
	for _, name := range v1Controllers {
		dir := g.v1[name]
		if dir == "" || g.shared(dir) {
			continue // nothing there is this workload's to set
		}
		root := g.host.v1[name]
		group, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		limits := *resources
		limits.Devices = devices
		if name == "memory" && !exists(filepath.Join(root, "memory.memsw.limit_in_bytes")) {
			memory := *resources.Memory
			memory.Swap = nil // the kernel does not account swap
			limits.Memory = &memory
		}
		if err := v1Create(name, filepath.Dir(root), group, &limits); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// v1Create makes a cgroup in the hierarchy of a controller, which the library
// looks for by its name in parent. Hierarchies of several controllers are mounted
// once ("cpu,cpuacct"), with a link for each.
func v1Create(name, parent, group string, limits *specs.LinuxResources) error {
	switch name {
	case "cpu":
		return cgroup1.NewCpu(parent).Create(group, limits)
	case "cpuset":
		return cgroup1.NewCpuset(parent).Create(group, limits)
	case "devices":
		return cgroup1.NewDevices(parent).Create(group, limits)
	case "memory":
		memory := cgroup1.NewMemory(parent)
		// Update orders the two limits so that neither is refused when the
		// cgroup had others before.
		if err := os.MkdirAll(memory.Path(group), 0o755); err != nil {
			return err
		}
		return memory.Update(group, limits)
	case "pids":
		return cgroup1.NewPids(parent).Create(group, limits)
	default:
		return os.MkdirAll(filepath.Join(parent, name, group), 0o755)
	}
}
