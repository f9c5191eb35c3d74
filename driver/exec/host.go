package exec

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// host is where this package finds the kernel's file systems. Tests put
// directories of their own there.
type host struct {
	proc string
	sys  string
	// unified is the mount point of cgroup2, v1 maps controllers to their mount
	// points. Either may be empty.
	unified string
	v1      map[string]string
}

// here is the host that the calling process runs on.
func here() (host, error) {
	h := host{proc: "/proc", sys: "/sys"}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return h, fmt.Errorf("read mounts: %w", err)
	}
	h.unified, h.v1 = cgroupMounts(string(data))
	return h, nil
}

// cgroupMounts finds the cgroup hierarchies in the text of
// /proc/self/mountinfo. Of several mounts of one, the first counts; bind mounts
// of a part of a hierarchy are passed over as long as their root shows.
func cgroupMounts(mountinfo string) (unified string, v1 map[string]string) {
	v1 = map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(mountinfo))
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		mount, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(mount) < 5 || len(super) < 3 {
			continue
		}
		point := unescapeMount(mount[4])
		switch super[0] {
		case "cgroup2":
			if unified == "" {
				unified = point
			}
		case "cgroup":
			for _, option := range strings.Split(super[2], ",") {
				if _, known := v1[option]; !known && slices.Contains(v1Controllers, option) {
					v1[option] = point
				}
			}
		}
	}
	return unified, v1
}

// unescapeMount undoes the kernel's octal escapes of blanks in mount points.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// v1Controllers are the v1 controllers that workloads are put into.
var v1Controllers = []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"}

// v2Controllers are the v2 controllers that limits are made with.
var v2Controllers = []string{"cpu", "cpuset", "memory", "pids"}

// unifiedControllers lists the controllers that a cgroup2 directory has.
func unifiedControllers(dir string) []string {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

func writable(path string) bool { return path != "" && unix.Access(path, unix.W_OK) == nil }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Probe says what this host has.
func Probe() (Facilities, error) {
	h, err := here()
	if err != nil {
		return Facilities{}, fmt.Errorf("probe host: %w", err)
	}
	return h.probe(), nil
}

func (h host) probe() Facilities {
	f := Facilities{Cgroups: "none", Freezer: "signal", Kill: "scan", Root: os.Geteuid() == 0}
	unified := writable(h.unified)
	for _, c := range v1Controllers {
		if writable(h.v1[c]) {
			f.Controllers = append(f.Controllers, c)
		}
	}
	switch {
	case len(f.Controllers) > 0 && unified:
		f.Cgroups = "hybrid"
	case len(f.Controllers) > 0:
		f.Cgroups = "v1"
	case unified:
		f.Cgroups = "v2"
		for _, c := range unifiedControllers(h.unified) {
			if slices.Contains(v2Controllers, c) {
				f.Controllers = append(f.Controllers, c)
			}
		}
		slices.Sort(f.Controllers)
	}
	if writable(h.v1["freezer"]) {
		f.Freezer, f.Kill = "v1", "cgroup"
	}
	if unified {
		f.Freezer, f.Kill = "v2", "cgroup"
		if h.hasKill() {
			f.Kill = "cgroup.kill"
		}
	}
	f.Devices = h.deviceControl()
	f.Namespaces = h.namespaces()
	return f
}

// hasKill reports whether cgroup.kill (Linux 5.14) is there. The root of the
// hierarchy does not have it, so a cgroup has to be made to see.
func (h host) hasKill() bool {
	dir, err := os.MkdirTemp(h.unified, "caravan-probe-")
	if err != nil {
		return false
	}
	defer func() { _ = os.Remove(dir) }()
	return exists(filepath.Join(dir, "cgroup.kill"))
}

func (h host) namespaces() []string {
	if !capable(unix.CAP_SYS_ADMIN) {
		return nil
	}
	var kinds []string
	for _, kind := range []string{"ipc", "mnt", "net", "pid"} {
		if exists(filepath.Join(h.proc, "self/ns", kind)) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// ignoreMissing drops errors about files and processes that are gone.
func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
