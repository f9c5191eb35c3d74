package exec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// deviceControl says how devices can be restricted: "v1", "bpf" or "".
func (h host) deviceControl() string {
	if writable(h.v1["devices"]) {
		return "v1"
	}
	if !writable(h.unified) {
		return ""
	}
	// Only loading a filter shows whether the kernel has them and lets us.
	instructions, license, err := cgroup2.DeviceFilter(standardDevices())
	if err != nil {
		return ""
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupDevice, Instructions: instructions, License: license})
	if err != nil {
		return ""
	}
	_ = program.Close()
	return "bpf"
}

// allAccess is every use of a device: read, write, make.
const allAccess = "rwm"

// standardDevices are those that programs take for granted; all else is denied.
func standardDevices() []specs.LinuxDeviceCgroup {
	rules := []specs.LinuxDeviceCgroup{deviceRule(false, "a", -1, -1, allAccess)}
	for _, d := range [][2]int64{
		{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, // null, zero, full, random, urandom
		{5, 0}, {5, 2}, {136, -1}, // tty, ptmx, pts
	} {
		rules = append(rules, deviceRule(true, "c", d[0], d[1], allAccess))
	}
	return rules
}

func deviceRule(allow bool, kind string, major, minor int64, access string) specs.LinuxDeviceCgroup {
	return specs.LinuxDeviceCgroup{Allow: allow, Type: kind, Major: &major, Minor: &minor, Access: access}
}

// deviceRules are the rules of a workload, in the order in which a later one
// overrules those before it; nil when it may use everything.
func deviceRules(spec Spec) ([]specs.LinuxDeviceCgroup, []Fault) {
	if !spec.RestrictDevices {
		return nil, nil
	}
	rules := standardDevices()
	var faults []Fault
	for i, device := range spec.Devices {
		more, why := device.rules()
		if why != "" {
			faults = append(faults, Fault{Field: fmt.Sprintf("devices[%d]", i), Value: device.Path, Why: why})
		}
		rules = append(rules, more...)
	}
	return rules, faults
}

// rules are the device's, or why there are none.
func (d Device) rules() (rules []specs.LinuxDeviceCgroup, why string) {
	access := d.Permissions
	if access == "" {
		access = allAccess
	}
	if strings.Trim(access, allAccess) != "" {
		return nil, fmt.Sprintf("has permissions %q; allowed are r, w and m", access)
	}
	paths := []string{d.Path}
	if strings.ContainsAny(d.Path, "*?[") {
		var err error
		if paths, err = filepath.Glob(d.Path); err != nil {
			return nil, "is not a pattern: " + err.Error()
		}
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, "cannot be used: " + plainError(err)
		}
		kind := "b"
		if info.Mode()&os.ModeCharDevice != 0 {
			kind = "c"
		}
		stat, ok := info.Sys().(*unixStat)
		if info.Mode()&os.ModeDevice == 0 || !ok {
			if path == d.Path {
				return nil, "is not a device"
			}
			continue // directories among the matches of a pattern
		}
		rules = append(rules, accessRules(kind, int64(unix.Major(stat.Rdev)), int64(unix.Minor(stat.Rdev)), access)...)
	}
	return rules, ""
}

// accessRules allows a use of a device. A filter of the library lets a use pass
// when any part of it is allowed (read and write where only read is), so what is
// not allowed is denied by a rule of its own.
func accessRules(kind string, major, minor int64, access string) []specs.LinuxDeviceCgroup {
	rules := []specs.LinuxDeviceCgroup{deviceRule(true, kind, major, minor, access)}
	denied := strings.Map(func(r rune) rune {
		if strings.ContainsRune(access, r) {
			return -1
		}
		return r
	}, allAccess)
	if denied != "" {
		rules = append(rules, deviceRule(false, kind, major, minor, denied))
	}
	return rules
}

// attachDeviceFilter puts a filter on a cgroup2 directory. It holds until it is
// detached or the cgroup is removed, also when this process ends.
func attachDeviceFilter(dir string, rules []specs.LinuxDeviceCgroup) (detach func() error, err error) {
	if dir == "" {
		return nil, fmt.Errorf("no device controller: %w", ErrUnsupported)
	}
	instructions, license, err := cgroup2.DeviceFilter(rules)
	if err != nil {
		return nil, fmt.Errorf("assemble device filter: %w", err)
	}
	fd, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open cgroup: %w", err)
	}
	remove, err := cgroup2.LoadAttachCgroupDeviceFilter(instructions, license, int(fd.Fd()))
	if err != nil {
		_ = fd.Close()
		return nil, fmt.Errorf("attach device filter: %w", err)
	}
	return func() error {
		err := remove()
		if closed := fd.Close(); err == nil {
			err = closed
		}
		return err
	}, nil
}
