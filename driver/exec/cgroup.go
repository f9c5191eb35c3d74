package exec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// ownParent is the cgroup below which workloads get cgroups of their own.
const ownParent = "caravan"

// cgroups are the cgroups that hold one workload.
type cgroups struct {
	host host
	// unified is the cgroup2 directory, empty where there is none.
	unified string
	// v1 maps controllers to the workload's directories in their hierarchies.
	v1 map[string]string
	// scope is the name of the task's cgroups among Nomad's in v1.
	scope string
	// owned are the directories made for the workload, to be removed with it.
	owned []string
	// detach takes the device filter away again; nil without one.
	detach func() error
	// base is what the cgroups had counted before the workload began: those that
	// Nomad made outlive a restart of the task's code.
	base counters
}

// place decides which cgroups a workload belongs into, without making them.
func (h host) place(spec Spec) *cgroups {
	g := &cgroups{host: h, v1: map[string]string{}, scope: spec.CgroupScope}
	if spec.NoCgroups {
		return g
	}
	own := filepath.Join(ownParent, spec.ID)
	if writable(h.unified) {
		g.unified = filepath.Join(h.unified, own)
		if within(h.unified, spec.CgroupParent) && exists(spec.CgroupParent) {
			g.unified = spec.CgroupParent
		} else {
			g.owned = append(g.owned, g.unified)
		}
	}
	// Two controllers may be one hierarchy, in which a process is in one place.
	byRoot := map[string]string{}
	for _, c := range v1Controllers {
		if dir := nomadV1(h.v1[c], c, spec); dir != "" && writable(h.v1[c]) {
			byRoot[h.v1[c]] = dir
		}
	}
	for _, c := range v1Controllers {
		root := h.v1[c]
		if !writable(root) {
			continue
		}
		if byRoot[root] == "" {
			byRoot[root] = filepath.Join(root, own)
			g.owned = append(g.owned, byRoot[root])
		}
		g.v1[c] = byRoot[root]
	}
	return g
}

// nomadV1 is the cgroup that Nomad made for a task in a v1 hierarchy, empty if
// it made none. Nomad makes freezer, cpu and memory for each task; its cpuset is
// of the task only where the task reserved cores.
func nomadV1(root, controller string, spec Spec) string {
	dir := ""
	switch controller {
	case "cpuset":
		if within(root, spec.CgroupParent) {
			dir = spec.CgroupParent
		}
	case "freezer", "cpu", "memory":
		if spec.CgroupScope != "" {
			dir = filepath.Join(root, "nomad", spec.CgroupScope)
		}
	}
	if dir == "" || !exists(dir) {
		return ""
	}
	return dir
}

// within reports whether path lies below root.
func within(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && path != "" && rel != "." && rel != ".." && !strings.HasPrefix(rel, "../")
}

// create makes the cgroups and sets the limits.
func (g *cgroups) create(spec Spec, devices []specs.LinuxDeviceCgroup) error {
	resources := spec.resources()
	if err := g.createUnified(resources); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	if err := g.createV1(resources, devices); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	if len(devices) > 0 && g.v1["devices"] == "" {
		detach, err := attachDeviceFilter(g.unified, devices)
		if err != nil {
			return fmt.Errorf("restrict devices: %w", err)
		}
		g.detach = detach
	}
	g.base = g.count()
	return nil
}

// resources are the limits in the form of the OCI runtime specification.
func (s Spec) resources() *specs.LinuxResources {
	r := &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: s.CPUSet}, Memory: &specs.LinuxMemory{}, Pids: &specs.LinuxPids{}}
	if s.Limits.CPUShares > 0 {
		r.CPU.Shares = &s.Limits.CPUShares
	}
	if s.Limits.CPUQuota > 0 {
		period := uint64(s.Limits.CPUPeriod)
		if period == 0 {
			period = defaultCPUPeriod
		}
		r.CPU.Quota, r.CPU.Period = &s.Limits.CPUQuota, &period
	}
	if s.Limits.MemoryBytes > 0 {
		// The same limit for memory and swap together: no swap, as with
		// Nomad's own drivers.
		r.Memory.Limit, r.Memory.Swap = &s.Limits.MemoryBytes, &s.Limits.MemoryBytes
	}
	if s.Limits.MemoryReserveBytes > 0 {
		r.Memory.Reservation = &s.Limits.MemoryReserveBytes
	}
	if s.Limits.Processes > 0 {
		r.Pids.Limit = &s.Limits.Processes
	}
	return r
}

// add moves a process into the cgroups.
func (g *cgroups) add(pid int) error {
	for _, dir := range g.dirs() {
		file := filepath.Join(dir, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("add process to cgroup: %w", err)
		}
	}
	return nil
}

// dirs are all directories, each once, in a stable order.
func (g *cgroups) dirs() []string {
	var all []string
	for _, c := range v1Controllers {
		if dir := g.v1[c]; dir != "" {
			all = append(all, dir)
		}
	}
	if g.unified != "" {
		all = append(all, g.unified)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// shared reports whether a directory holds other tasks as well: Nomad's v1
// cpuset of all tasks without cores of their own.
func (g *cgroups) shared(dir string) bool {
	return dir == g.v1["cpuset"] && !slices.Contains(g.owned, dir) && filepath.Base(dir) != g.scope
}

// holders are the directories that hold this workload and nothing else.
func (g *cgroups) holders() []string {
	return slices.DeleteFunc(g.dirs(), g.shared)
}

// pids are the processes in the cgroups and in those below them. Zombies are
// not listed by the kernel's v2.
func (g *cgroups) pids() []int {
	var all []int
	for _, dir := range g.holders() {
		for _, d := range descendants(dir) {
			data, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
			if err != nil {
				continue // gone, and with it all that was in it
			}
			for _, field := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
					all = append(all, pid)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// descendants lists a directory and the directories below it, children first.
func descendants(dir string) []string {
	var all []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, descendants(filepath.Join(dir, e.Name()))...)
		}
	}
	return append(all, dir)
}

// kill kills everything in the cgroups as far as the kernel does that itself.
func (g *cgroups) kill() {
	if g.unified != "" {
		// Errors show in what is left.
		_ = writeExisting(filepath.Join(g.unified, "cgroup.kill"), "1")
	}
}

// remove removes the cgroups made for the workload, and takes the filter off
// those that were not.
func (g *cgroups) remove() error {
	var errs []error
	if g.detach != nil {
		if err := g.detach(); err != nil {
			errs = append(errs, fmt.Errorf("remove device filter: %w", err))
		}
		g.detach = nil
	}
	for _, dir := range g.owned {
		// The workload may have made cgroups of its own below.
		for _, d := range descendants(dir) {
			if err := removeCgroup(d); err != nil {
				errs = append(errs, fmt.Errorf("remove cgroup: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeCgroup removes an empty cgroup. The kernel may need a moment after the
// last process was reaped, in which it answers EBUSY.
func removeCgroup(dir string) error {
	pause := time.Millisecond
	for range 10 {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		time.Sleep(pause)
		pause *= 2
	}
	return &os.PathError{Op: "rmdir", Path: dir, Err: unix.EBUSY}
}

// writeExisting writes to a file that the kernel offers; it makes none.
func writeExisting(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
