package container

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Spec is a container to be run.
type Spec struct {
	Runtime Runtime `json:"runtime"`
	// Name is the container's, unique on the node.
	Name  string `json:"name"`
	Image string `json:"image"`
	// Entrypoint overrides the image's where it is not nil; Command and Args
	// override the image's command where Command is not "", else Args are added
	// to the entrypoint's.
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Command    string            `json:"command,omitempty"`
	Args       []string          `json:"args,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	// WorkDir is in the container; "" is the image's.
	WorkDir string `json:"work_dir,omitempty"`
	// User is a name or number in the image, with a group after a colon; "" is
	// the image's.
	User    string   `json:"user,omitempty"`
	Mounts  []Mount  `json:"mounts,omitempty"`
	Devices []Device `json:"devices,omitempty"`
	// GPUs are the UUIDs of NVIDIA's.
	GPUs []string `json:"gpus,omitempty"`
	// ShmSize is the size of /dev/shm with its unit, as "16g"; "" is the
	// runtime's own.
	ShmSize string            `json:"shm_size,omitempty"`
	Ulimits map[string]string `json:"ulimits,omitempty"`
	Limits  Limits            `json:"limits,omitzero"`
	// NetworkNamespace is the path of one to join; "" is the host's network.
	NetworkNamespace string `json:"network_namespace,omitempty"`
	// RuntimeArgs are put before the image.
	RuntimeArgs []string          `json:"runtime_args,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// Limits are resource limits; zero is none.
type Limits struct {
	CPUShares   int64  `json:"cpu_shares,omitempty"`
	CPUQuota    int64  `json:"cpu_quota,omitempty"`
	CPUPeriod   int64  `json:"cpu_period,omitempty"`
	CPUSet      string `json:"cpu_set,omitempty"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	// MemoryReserveBytes is kept from reclaim.
	MemoryReserveBytes int64 `json:"memory_reserve_bytes,omitempty"`
	OOMScoreAdj        int   `json:"oom_score_adj,omitempty"`
}

// Mount binds a path of the host into the container.
type Mount struct {
	HostPath    string `json:"host_path"`
	TaskPath    string `json:"task_path"`
	ReadOnly    bool   `json:"read_only,omitempty"`
	Propagation string `json:"propagation,omitempty"`
}

// Device is a device node for the container.
type Device struct {
	HostPath    string `json:"host_path"`
	TaskPath    string `json:"task_path"`
	Permissions string `json:"permissions,omitempty"`
}

// Check says everything that is wrong with the spec.
func (s Spec) Check() error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if strings.HasPrefix(s.Image, "-") || s.Image == "" || strings.ContainsAny(s.Image, " \t\n") {
		add("image is %q: allowed is the name of an image", s.Image)
	}
	if len(s.GPUs) > 0 && s.Runtime.NVIDIA == "" {
		add("%s cannot give GPUs to containers on this node: neither a CDI specification for %s nor the NVIDIA container runtime is there; run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", s.Runtime.Name, cdiKind)
	}
	if s.Runtime.Name == Docker && s.NetworkNamespace != "" {
		add("docker cannot join the network that Nomad made for the group: use network mode \"host\", or another runtime")
	}
	for _, m := range s.Mounts {
		if !filepath.IsAbs(m.HostPath) || !filepath.IsAbs(m.TaskPath) || strings.ContainsAny(m.HostPath+m.TaskPath, ":,\n") {
			add("mount of %q at %q: allowed are absolute paths without ':' and ','", m.HostPath, m.TaskPath)
		}
		if _, ok := propagations[m.Propagation]; !ok {
			add("mount of %q: propagation is %q: allowed is private, host-to-task, bidirectional", m.HostPath, m.Propagation)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		if k == "" || strings.ContainsAny(k, "=\n \t#") {
			add("environment variable %q: allowed is a name without '=', '#' and spaces", k)
		} else if s.Runtime.Name != Apptainer && strings.Contains(s.Env[k], "\n") && !plain(k) {
			add("environment variable %q has several lines: %s takes these for names of capital letters, digits and '_' alone that mean nothing to it", k, s.Runtime.Name)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("prepare container: %w", errors.Join(faults...))
}

// plain says that a variable means nothing to a runtime's client, so that it
// may stand in its environment.
func plain(key string) bool {
	if strings.Trim(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return false
	}
	if slices.Contains([]string{"PATH", "HOME", "TMPDIR", "USER", "SHELL", "REGISTRY_AUTH_FILE"}, key) {
		return false
	}
	return !slices.ContainsFunc([]string{
		"DOCKER", "BUILDKIT", "COMPOSE", "CONTAINER", "PODMAN", "BUILDAH", "STORAGE_", "NETAVARK", "XDG_", "LD_", "GO", "SSL_", "OTEL_",
		"HTTP_", "HTTPS_", "NO_", "ALL_", "SSH_", "GPG", "DBUS_", "NOTIFY_", "LISTEN_", "LC_", "LANG", "CNI_", "CRIO", "OCI_", "_",
	}, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// propagations are Nomad's names and the kernel's.
var propagations = map[string]string{"": "rprivate", "private": "rprivate", "host-to-task": "rslave", "bidirectional": "rshared"}

// invocation is how the runtime's client is called.
type invocation struct {
	args []string
	// env is added to the client's environment; file is what stands in the file
	// whose path takes the place of envFile in args, "" for none.
	env  []string
	file string
}

// envFile stands in an invocation's arguments for the path of its file.
const envFile = "\x00env"

// invoke is the call that runs the container in the foreground.
func (s Spec) invoke() invocation {
	if s.Runtime.Name == Apptainer {
		return s.apptainer()
	}
	in := invocation{args: []string{"run", "--name", s.Name, "--log-driver", "none", "--pull", "never", "--pids-limit", "-1"}}
	add := func(flag, value string) {
		if value != "" {
			in.args = append(in.args, flag, value)
		}
	}
	in.args = append(in.args, "--env-file", envFile)
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		if strings.Contains(s.Env[k], "\n") {
			in.env = append(in.env, k+"="+s.Env[k])
			add("--env", k)
			continue
		}
		in.file += k + "=" + s.Env[k] + "\n"
	}
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		add("--label", k+"="+s.Labels[k])
	}
	add("--network", s.network())
	add("--workdir", s.WorkDir)
	add("--user", s.User)
	add("--shm-size", s.ShmSize)
	for _, k := range slices.Sorted(maps.Keys(s.Ulimits)) {
		add("--ulimit", k+"="+strings.ReplaceAll(s.Ulimits[k], "unlimited", "-1"))
	}
	s.limit(add)
	for _, m := range s.Mounts {
		add("--volume", m.volume())
	}
	for _, d := range s.Devices {
		add("--device", d.HostPath+":"+d.TaskPath+":"+d.permissions())
	}
	in.args = append(in.args, s.gpus()...)
	in.args = append(in.args, s.RuntimeArgs...)
	command := s.command()
	if len(s.Entrypoint) > 0 {
		add("--entrypoint", s.Entrypoint[0])
		command = append(slices.Clone(s.Entrypoint[1:]), command...)
	}
	in.args = append(append(in.args, s.Image), command...)
	return in
}

func (s Spec) command() []string {
	if s.Command == "" {
		return s.Args
	}
	return append([]string{s.Command}, s.Args...)
}

func (s Spec) network() string {
	if s.NetworkNamespace == "" {
		return "host"
	}
	return "ns:" + s.NetworkNamespace
}

func (s Spec) limit(add func(flag, value string)) {
	l := s.Limits
	number := func(flag string, n int64) {
		if n != 0 {
			add(flag, strconv.FormatInt(n, 10))
		}
	}
	number("--cpu-shares", l.CPUShares)
	number("--cpu-quota", l.CPUQuota)
	number("--cpu-period", l.CPUPeriod)
	number("--memory", l.MemoryBytes)
	number("--memory-swap", l.MemoryBytes)
	number("--memory-reservation", l.MemoryReserveBytes)
	number("--oom-score-adj", int64(l.OOMScoreAdj))
	add("--cpuset-cpus", l.CPUSet)
}

// gpus are the arguments that give NVIDIA's GPUs.
func (s Spec) gpus() []string {
	if len(s.GPUs) == 0 {
		return nil
	}
	if s.Runtime.NVIDIA == NVIDIARuntime {
		// The UUIDs come by NVIDIA_VISIBLE_DEVICES, which the device plugin sets.
		return []string{"--runtime", "nvidia"}
	}
	var out []string
	for _, id := range s.GPUs {
		out = append(out, "--device", cdiKind+"="+id)
	}
	return out
}

func (m Mount) volume() string {
	mode := "rw"
	if m.ReadOnly {
		mode = "ro"
	}
	return m.HostPath + ":" + m.TaskPath + ":" + mode + "," + propagations[m.Propagation]
}

func (d Device) permissions() string {
	if d.Permissions == "" {
		return "rwm"
	}
	return d.Permissions
}

// apptainer has no daemon, no names and no limits of its own: the container is
// part of the workload that runs the client, whose limits hold.
func (s Spec) apptainer() invocation {
	verb := "exec"
	if s.Command == "" && len(s.Entrypoint) == 0 {
		verb = "run"
	}
	in := invocation{args: []string{verb, "--containall", "--no-eval", "--no-umask"}}
	add := func(flag, value string) {
		if value != "" {
			in.args = append(in.args, flag, value)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		in.env = append(in.env, "APPTAINERENV_"+k+"="+s.Env[k])
	}
	add("--pwd", s.WorkDir)
	add("--netns-path", s.NetworkNamespace)
	for _, m := range s.Mounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		add("--bind", m.HostPath+":"+m.TaskPath+":"+mode)
	}
	for _, d := range s.Devices {
		add("--bind", d.HostPath+":"+d.TaskPath)
	}
	if len(s.GPUs) > 0 {
		in.args = append(in.args, "--nv")
	}
	in.args = append(in.args, s.RuntimeArgs...)
	in.args = append(in.args, s.Image)
	in.args = append(append(in.args, s.Entrypoint...), s.command()...)
	return in
}
