// Package exec runs one workload on a Linux host: a command with everything it
// starts, inside what the host offers to hold it together (cgroups, namespaces),
// and gets rid of all of it again.
//
// Starting needs a few steps inside the new process before the user's code
// begins. They are done by the calling binary itself, run once more; so the
// binary must call [Main] before anything else, and so must the TestMain of
// tests that start workloads.
//
// [Start] makes the calling process a child subreaper: what a workload leaves
// behind comes back to it and is found, killed and reaped. Children that the
// process starts by other means must therefore stay in its session: those in
// another one are taken for such orphans. Without cgroups, an orphan that dropped
// Mark from its environment counts for every workload of the process, so such
// workloads should have a process each.
package exec

import "time"

// Mark is the variable in the environment of every process of a workload that
// says which workload it belongs to; its value is the Spec's ID. Processes are
// found by it when no cgroup holds them.
const Mark = "CARAVAN_WORKLOAD"

// Spec describes a workload. The zero value of a field asks for nothing.
type Spec struct {
	// ID names the workload on this host: 1 to 128 letters, digits, '.', '_' and
	// '-', beginning with a letter or a digit.
	ID string `json:"id"`

	// Command is an absolute path, a path relative to Dir when it has a slash,
	// or a name that is looked up in the PATH of Env.
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	// Env is the whole environment, KEY=value each. Mark is added to it.
	Env []string `json:"env,omitempty"`
	// Dir is the working directory, absolute.
	Dir string `json:"dir"`
	// User is a name, a uid, or either with ":" and a group name or gid; empty
	// is the user of the calling process.
	User string `json:"user,omitempty"`
	// Groups are supplementary groups, names or gids, beside those that the
	// host's group database gives the user.
	Groups []string `json:"groups,omitempty"`

	// Stdout and Stderr are paths of FIFOs (or files, which are appended to);
	// empty discards. A FIFO without a reader neither blocks the start nor
	// kills who writes; a full one blocks the writer until it is read again.
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`

	// Ulimits are resource limits by their names in ulimit and prlimit, in lower
	// case: "nofile": "1024:4096", "memlock": "unlimited". One value is both
	// soft and hard.
	Ulimits map[string]string `json:"ulimits,omitempty"`

	// CPUSet limits to CPUs in the kernel's list form, "0-3,8".
	CPUSet string `json:"cpu_set,omitempty"`
	// NUMANodes and NUMADevices (PCI bus IDs, "0000:3b:00.0") narrow the CPUs to
	// those of the given nodes and of the nodes that the devices are attached
	// to. It is a preference: where the host does not tell a node, or where
	// nothing of CPUSet would be left, they change nothing.
	NUMANodes   []int    `json:"numa_nodes,omitempty"`
	NUMADevices []string `json:"numa_devices,omitempty"`

	Limits Limits `json:"limits,omitzero"`

	// RestrictDevices leaves only the standard devices (null, zero, full,
	// random, urandom, tty, ptmx, pts) and Devices usable. Where the host has
	// nothing to enforce it with (Facilities.Devices), Start fails.
	RestrictDevices bool     `json:"restrict_devices,omitempty"`
	Devices         []Device `json:"devices,omitempty"`

	// PIDNamespace gives the workload PIDs of its own, with a /proc to match, so
	// it also gets mounts of its own. The command runs below a small init, not
	// as PID 1, so that signals keep their default meaning.
	PIDNamespace bool `json:"pid_namespace,omitempty"`
	// MountNamespace keeps mounts, Mounts among them, from the host.
	MountNamespace bool `json:"mount_namespace,omitempty"`
	// IPCNamespace gives System V IPC and POSIX queues of its own. (NCCL's
	// shared memory is in /dev/shm, which stays the host's.)
	IPCNamespace bool `json:"ipc_namespace,omitempty"`
	// Mounts are bind mounts; they imply MountNamespace.
	Mounts []Mount `json:"mounts,omitempty"`
	// NetworkNamespace is the path of a network namespace to join.
	NetworkNamespace string `json:"network_namespace,omitempty"`

	// CgroupParent is the cgroup that Nomad made for the task
	// (LinuxResources.CpusetCgroupPath). With cgroup v2 the workload runs and is
	// limited in it, where Nomad expects it, and Nomad removes it. With v1 it is
	// the cpuset cgroup; CgroupScope ("ALLOC.TASK") then names the task's
	// cgroups below nomad/ of the freezer, cpu and memory hierarchies. Empty, or
	// where it does not exist, the workload gets cgroups of its own.
	CgroupParent string `json:"cgroup_parent,omitempty"`
	CgroupScope  string `json:"cgroup_scope,omitempty"`
	// NoCgroups uses no cgroups at all: the workload is held together by its
	// process tree and its environment, and Limits apart from OOMScoreAdj are
	// not enforced.
	NoCgroups bool `json:"no_cgroups,omitempty"`
}

// Limits are resource limits; zero is no limit.
type Limits struct {
	// CPUShares is a relative weight, 1024 being one core's in Nomad's terms of
	// 1 MHz each; 2 to 262144.
	CPUShares uint64 `json:"cpu_shares,omitempty"`
	// CPUQuota is how much CPU time may be used in each CPUPeriod, both in
	// microseconds. A period of 0 is 100,000.
	CPUQuota  int64 `json:"cpu_quota,omitempty"`
	CPUPeriod int64 `json:"cpu_period,omitempty"`
	// MemoryBytes is the most memory; MemoryReserveBytes is kept from reclaim.
	MemoryBytes        int64 `json:"memory_bytes,omitempty"`
	MemoryReserveBytes int64 `json:"memory_reserve_bytes,omitempty"`
	// Processes is how many processes and threads there may be.
	Processes int64 `json:"processes,omitempty"`
	// OOMScoreAdj is what the kernel's choice of a victim is shifted by,
	// −1000 to 1000.
	OOMScoreAdj int `json:"oom_score_adj,omitempty"`
}

// Device is a device that the workload may use.
type Device struct {
	// Path is the device's node on the host, or a pattern of filepath.Match. A
	// pattern may match nothing; a plain path must exist.
	Path string `json:"path"`
	// Permissions are any of r (read), w (write), m (make); empty is "rwm".
	Permissions string `json:"permissions,omitempty"`
}

// Mount binds a directory or file of the host to another place.
type Mount struct {
	// HostPath is what is bound; it must exist.
	HostPath string `json:"host_path"`
	// TaskPath is where; it must exist, as a workload without an image sees the
	// host's files, and nothing is created on the host for a mount.
	TaskPath string `json:"task_path"`
	ReadOnly bool   `json:"read_only,omitempty"`
	// Propagation is Nomad's "private" (also when empty), "host-to-task" or
	// "bidirectional".
	Propagation string `json:"propagation,omitempty"`
}

// Exit is how a process ended.
type Exit struct {
	// Code is its exit code, 0 when a signal ended it.
	Code int `json:"code"`
	// Signal is the number of the signal that ended it, 0 when it exited.
	Signal int `json:"signal,omitempty"`
	// OOM is set when the kernel killed something of the workload for lack of
	// memory while it ran. It is false where no cgroup tells.
	OOM bool `json:"oom,omitempty"`
}

// Usage is what a workload uses. A nil field was not measured.
type Usage struct {
	Time time.Time `json:"time"`
	// Total is of the workload as a whole, Processes by PID (on the host).
	Total     Sample         `json:"total"`
	Processes map[int]Sample `json:"processes,omitempty"`
}

// Sample is a measurement of a workload or of one process.
type Sample struct {
	// CPU percents are of one core since the measurement before, so they may
	// exceed 100; nil in the first one.
	CPUUserPercent   *float64 `json:"cpu_user_percent,omitempty"`
	CPUSystemPercent *float64 `json:"cpu_system_percent,omitempty"`
	CPUPercent       *float64 `json:"cpu_percent,omitempty"`
	// CPUTime is all CPU time used since the start.
	CPUTime *time.Duration `json:"cpu_time,omitempty"`
	// ThrottledPeriods and ThrottledTime count since the start how often and
	// how long the CPU quota held the workload back.
	ThrottledPeriods *uint64        `json:"throttled_periods,omitempty"`
	ThrottledTime    *time.Duration `json:"throttled_time,omitempty"`

	RSSBytes    *uint64 `json:"rss_bytes,omitempty"`
	CacheBytes  *uint64 `json:"cache_bytes,omitempty"`
	SwapBytes   *uint64 `json:"swap_bytes,omitempty"`
	KernelBytes *uint64 `json:"kernel_bytes,omitempty"`
	// UsageBytes is what the memory limit is compared with; MaxUsageBytes its
	// highest value so far.
	UsageBytes    *uint64 `json:"usage_bytes,omitempty"`
	MaxUsageBytes *uint64 `json:"max_usage_bytes,omitempty"`
}

// Facilities is what a host has to hold workloads with.
type Facilities struct {
	// Cgroups is "v2", "v1", "hybrid" (v1 controllers beside a cgroup2 mount) or
	// "none".
	Cgroups string `json:"cgroups"`
	// Controllers are those usable for limits, sorted.
	Controllers []string `json:"controllers,omitempty"`
	// Freezer is how a workload is suspended: "v2", "v1" or "signal".
	Freezer string `json:"freezer"`
	// Kill is how the whole tree is killed: "cgroup.kill", "cgroup" (by the
	// list of its processes) or "scan".
	Kill string `json:"kill"`
	// Devices is how devices are restricted: "bpf", "v1" or "" (not at all).
	Devices string `json:"devices,omitempty"`
	// Namespaces are the kinds that workloads can get: ipc, mnt, net, pid;
	// sorted.
	Namespaces []string `json:"namespaces,omitempty"`
	// Root says that the calling process is root.
	Root bool `json:"root"`
}
