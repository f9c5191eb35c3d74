package exec

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

type unixStat = syscall.Stat_t

// validID keeps IDs usable as a file name and as a value in the environment.
var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// plan is a Spec that was checked, with all that had to be looked up for it.
type plan struct {
	spec    Spec
	child   childConfig
	devices []specs.LinuxDeviceCgroup
}

// Check says everything that is wrong with a Spec on this host, without
// starting it: nil or a *SpecError, unless the host itself cannot be read.
func Check(spec Spec) error {
	h, err := here()
	if err != nil {
		return err
	}
	_, err = h.check(spec)
	return err
}

func (h host) check(spec Spec) (*plan, error) {
	var faults []Fault
	p := &plan{spec: spec}
	if !validID.MatchString(spec.ID) {
		faults = append(faults, Fault{"id", spec.ID, `is not an ID; allowed are 1 to 128 letters, digits, ".", "_" and "-", beginning with a letter or a digit`})
	}
	p.child = childConfig{Dir: spec.Dir, Args: append([]string{spec.Command}, spec.Args...), OOMScoreAdj: spec.Limits.OOMScoreAdj}
	var more []Fault
	p.child.Env, more = environment(spec)
	faults = append(faults, more...)
	faults = append(faults, checkDir(spec.Dir)...)
	if p.child.Path, more = lookCommand(spec.Command, spec.Dir, p.child.Env); len(more) == 0 {
		more = checkArgs(spec.Args)
	}
	faults = append(faults, more...)
	p.child.User, more = identify(spec.User, spec.Groups)
	faults = append(faults, more...)
	p.child.Rlimits, more = h.rlimits(spec.Ulimits)
	faults = append(faults, more...)
	p.child.CPUs, more = h.affinity(spec)
	faults = append(faults, more...)
	faults = append(faults, checkLimits(spec.Limits)...)
	p.devices, more = deviceRules(spec)
	faults = append(faults, more...)
	faults = append(faults, checkOutput("stdout", spec.Stdout)...)
	faults = append(faults, checkOutput("stderr", spec.Stderr)...)
	faults = append(faults, h.checkNamespaces(spec)...)
	faults = append(faults, h.checkFacilities(spec, p.child.User)...)
	if len(faults) > 0 {
		return nil, &SpecError{Faults: faults}
	}
	p.child.Mounts = spec.Mounts
	p.child.NetworkNamespace = spec.NetworkNamespace
	return p, nil
}

// environment is the workload's, with the mark.
func environment(spec Spec) ([]string, []Fault) {
	env, faults := mergeEnv(nil, spec.Env)
	env, _ = mergeEnv(env, []string{Mark + "=" + spec.ID})
	return env, faults
}

// mergeEnv puts entries over an environment: of two for one variable the later
// counts, which is for each program to decide when both are there.
func mergeEnv(base, entries []string) (env []string, faults []Fault) {
	env = slices.Clone(base)
	at := map[string]int{}
	for i, entry := range env {
		key, _, _ := strings.Cut(entry, "=")
		at[key] = i
	}
	for i, entry := range entries {
		key, _, ok := strings.Cut(entry, "=")
		if !ok || key == "" || strings.ContainsRune(entry, 0) {
			faults = append(faults, Fault{fmt.Sprintf("env[%d]", i), entry, "is not of the form KEY=value"})
			continue
		}
		if old, known := at[key]; known {
			env[old] = entry
			continue
		}
		at[key] = len(env)
		env = append(env, entry)
	}
	return env, faults
}

func checkDir(dir string) []Fault {
	why := ""
	info, err := os.Stat(dir)
	switch {
	case !filepath.IsAbs(dir):
		why = "is not an absolute path"
	case err != nil:
		why = "cannot be used: " + plainError(err)
	case !info.IsDir():
		why = "is not a directory"
	default:
		return nil
	}
	return []Fault{{"dir", dir, why}}
}

// lookCommand finds the file of a command as execvp(3) would.
func lookCommand(command, dir string, env []string) (string, []Fault) {
	fault := func(why string) []Fault { return []Fault{{"command", command, why}} }
	if command == "" {
		return "", fault("is needed")
	}
	if strings.ContainsRune(command, 0) {
		return "", fault("has a zero byte")
	}
	if strings.Contains(command, "/") {
		path := command
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if why := notExecutable(path); why != "" {
			return "", fault(why)
		}
		return path, nil
	}
	search := pathOf(env)
	why := ""
	for _, d := range filepath.SplitList(search) {
		path := filepath.Join(d, command)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		reason := notExecutable(path)
		if reason == "" {
			return path, nil
		}
		if exists(path) && why == "" {
			why = fmt.Sprintf("was found at %s, which %s", path, reason)
		}
	}
	if why == "" {
		why = fmt.Sprintf("was not found in the PATH (%s)", search)
	}
	return "", fault(why)
}

// pathOf is the PATH of an environment; without one, the usual directories.
func pathOf(env []string) string {
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	return path
}

func notExecutable(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "cannot be run: " + plainError(err)
	case info.IsDir():
		return "is a directory"
	case !info.Mode().IsRegular():
		return "is not a file"
	case info.Mode()&0o111 == 0:
		return "is not executable"
	}
	return ""
}

func checkArgs(args []string) []Fault {
	var faults []Fault
	for i, arg := range args {
		if strings.ContainsRune(arg, 0) {
			faults = append(faults, Fault{fmt.Sprintf("args[%d]", i), arg, "has a zero byte"})
		}
	}
	return faults
}

func checkLimits(l Limits) []Fault {
	var faults []Fault
	check := func(field string, value int64, low, high int64, allowed string) {
		if value != 0 && (value < low || value > high) {
			faults = append(faults, Fault{"limits." + field, strconv.FormatInt(value, 10), "is out of range; allowed are " + allowed})
		}
	}
	const most = 1<<62 - 1
	check("cpu_shares", int64(min(l.CPUShares, most)), 2, 262144, "2 to 262144")
	check("cpu_quota", l.CPUQuota, 1000, most, "1000 µs and more")
	check("cpu_period", l.CPUPeriod, 1000, 1_000_000, "1000 to 1000000 µs")
	check("memory_bytes", l.MemoryBytes, 1<<20, most, "1 MiB and more")
	check("memory_reserve_bytes", l.MemoryReserveBytes, 1, most, "1 byte and more")
	check("processes", l.Processes, 1, 1<<22, "1 to 4194304")
	check("oom_score_adj", int64(l.OOMScoreAdj), -1000, 1000, "-1000 to 1000")
	return faults
}

// checkNamespaces looks at what the namespaces are made with.
func (h host) checkNamespaces(spec Spec) []Fault {
	var faults []Fault
	if path := spec.NetworkNamespace; path != "" {
		// Whether it is one shows when it is joined.
		if _, err := os.Stat(path); err != nil {
			faults = append(faults, Fault{"network_namespace", path, "cannot be joined: " + plainError(err)})
		}
	}
	for i, m := range spec.Mounts {
		field := fmt.Sprintf("mounts[%d].", i)
		from, err := os.Stat(m.HostPath)
		if err != nil {
			faults = append(faults, Fault{field + "host_path", m.HostPath, "cannot be mounted: " + plainError(err)})
		}
		to, errTo := os.Stat(m.TaskPath)
		if errTo != nil {
			faults = append(faults, Fault{field + "task_path", m.TaskPath, "cannot be mounted on (a task without an image sees the host's files, and nothing is made there): " + plainError(errTo)})
		}
		if err == nil && errTo == nil && from.IsDir() != to.IsDir() {
			faults = append(faults, Fault{field + "task_path", m.TaskPath, "and " + m.HostPath + " must both be directories or both be files"})
		}
		if !slices.Contains([]string{"", "private", "host-to-task"}, m.Propagation) {
			faults = append(faults, Fault{field + "propagation", m.Propagation, `is not possible; allowed are "private" and "host-to-task"`})
		}
	}
	return faults
}

// checkFacilities says what was asked for that the host or the rights of the
// calling process do not give.
func (h host) checkFacilities(spec Spec, id *identity) []Fault {
	var faults []Fault
	needs := []struct {
		field      string
		asked      bool
		capability int
		name       string
	}{
		{"pid_namespace", spec.PIDNamespace, unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
		{"mount_namespace", spec.MountNamespace, unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
		{"ipc_namespace", spec.IPCNamespace, unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
		{"mounts", len(spec.Mounts) > 0, unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
		{"network_namespace", spec.NetworkNamespace != "", unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
		{"user", id != nil && id.differs(), unix.CAP_SETUID, "CAP_SETUID"},
		{"limits.oom_score_adj", spec.Limits.OOMScoreAdj < 0, unix.CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE"},
	}
	for _, n := range needs {
		if n.asked && !capable(n.capability) {
			faults = append(faults, Fault{n.field, "", "needs an agent that runs as root, with " + n.name})
		}
	}
	if spec.RestrictDevices && (spec.NoCgroups || h.deviceControl() == "") {
		faults = append(faults, Fault{"restrict_devices", "", "this host has no way to restrict devices: neither cgroup2 with BPF nor the v1 devices controller"})
	}
	return faults
}

// capable reports whether the calling process has a capability.
func capable(capability int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}

// plainError is an error without what its reader knows already: the call and
// the path.
func plainError(err error) string {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	if errors.Is(err, unix.ENOENT) {
		return "it does not exist"
	}
	return err.Error()
}
