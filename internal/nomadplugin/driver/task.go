package driver

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
)

// TaskConfig is a task to be started.
type TaskConfig struct {
	ID, Name                    string
	Namespace                   string
	JobID, JobName, ParentJobID string
	Group, AllocID              string
	NodeID, NodeName            string
	Env, DeviceEnv              map[string]string
	User                        string
	AllocDir                    string
	StdoutPath, StderrPath      string
	Resources                   Resources
	Mounts                      []Mount
	Devices                     []DeviceNode
	Network                     *NetworkIsolation
	DNS                         *DNS
	// Raw is the task's config block in msgpack, checked against
	// TaskConfigSchema. See Decode.
	Raw []byte
}

// Decode reads the config block into a struct with `codec` tags.
func (t TaskConfig) Decode(into any) error {
	if len(t.Raw) == 0 {
		return nil
	}
	if err := base.Unmarshal(t.Raw, into); err != nil {
		return fmt.Errorf("decode configuration of task %q: %w", t.Name, err)
	}
	return nil
}

// Environ is Env as a process takes it, sorted.
func (t TaskConfig) Environ() []string {
	out := make([]string, 0, len(t.Env))
	for _, k := range slices.Sorted(maps.Keys(t.Env)) {
		out = append(out, k+"="+t.Env[k])
	}
	return out
}

// TaskDir is the task's own folder.
func (t TaskConfig) TaskDir() string { return filepath.Join(t.AllocDir, t.Name) }

// LocalDir is the task's private data.
func (t TaskConfig) LocalDir() string { return filepath.Join(t.TaskDir(), "local") }

// SecretsDir is the task's private data that the API does not show.
func (t TaskConfig) SecretsDir() string { return filepath.Join(t.TaskDir(), "secrets") }

// SharedDir is shared by the allocation's tasks.
func (t TaskConfig) SharedDir() string { return filepath.Join(t.AllocDir, "alloc") }

// Resources are what a task was given. 0 and "" mean not given.
type Resources struct {
	CPUMHz, MemoryMiB, MemoryMaxMiB int64
	Networks                        []NetworkResource
	Ports                           []PortMapping
	Linux                           Linux
}

// Linux are the limits for the kernel.
type Linux struct {
	CPUPeriod, CPUQuota, CPUShares int64
	MemoryLimitBytes               int64
	OOMScoreAdj                    int64
	CPUSet, Cgroup                 string
	// PercentTicks is the task's share of the node's compute.
	PercentTicks float64
}

// NetworkResource is an interface with ports.
type NetworkResource struct {
	Device, CIDR, IP  string
	MBits             int
	Reserved, Dynamic []Port
}

// Port is a labelled port of the host.
type Port struct {
	Label string
	Value int
}

// PortMapping maps a port of the host into the allocation's network.
type PortMapping struct {
	Label     string
	Value, To int
	HostIP    string
}

// Mount is a file or folder of the host for the task.
type Mount struct {
	TaskPath, HostPath string
	ReadOnly           bool
	Propagation        string
	SELinuxLabel       string
	// Request is the volume request that it comes from, "" if none.
	Request string
}

// DeviceNode is a device node of the host for the task.
type DeviceNode struct {
	TaskPath, HostPath string
	// Permissions are the cgroup's: some of "rwm".
	Permissions string
}

// NetworkIsolation is an allocation's network.
type NetworkIsolation struct {
	Mode   NetworkMode
	Path   string
	Labels map[string]string
	// Hosts is nil if the network has no hosts file.
	Hosts *Hosts
}

// Hosts is the allocation's own line in its hosts file.
type Hosts struct{ Hostname, Address string }

// DNS is a resolver configuration.
type DNS struct{ Servers, Searches, Options []string }

// Network is where a task can be reached, if a driver chose that.
type Network struct {
	Ports map[string]int
	IP    string
	// Advertise says that services should use IP.
	Advertise bool
}

// Handle is what Nomad keeps about a task, so that a later process of the
// driver can recover it.
type Handle struct {
	// Version is the driver's own, of the driver's state; 0 is reserved.
	Version int
	Config  TaskConfig
	State   State
	// DriverState is the driver's own. See NewHandle.
	DriverState []byte
}

// NewHandle returns the handle of a running task, with the driver's state in
// msgpack.
func NewHandle(version int, task TaskConfig, state any) (Handle, error) {
	data, err := base.Marshal(state)
	if err != nil {
		return Handle{}, fmt.Errorf("encode driver state of task %q: %w", task.Name, err)
	}
	return Handle{Version: version, Config: task, State: StateRunning, DriverState: data}, nil
}

// DecodeState reads what NewHandle was given.
func (h Handle) DecodeState(into any) error {
	if err := base.Unmarshal(h.DriverState, into); err != nil {
		return fmt.Errorf("decode driver state of task %q: %w", h.Config.Name, err)
	}
	return nil
}

// Usage is what a task uses.
type Usage struct {
	TaskID string
	Time   time.Time
	// Total is of all processes; PerProcess is by process ID.
	Total      ResourceUsage
	PerProcess map[string]ResourceUsage
}

// ResourceUsage is what processes use. Nil is not measured.
type ResourceUsage struct {
	// SystemPercent and UserPercent are of one core, Percent is both; TicksMHz
	// is the same in MHz.
	SystemPercent, UserPercent, Percent, TicksMHz *float64
	ThrottledPeriods, ThrottledNanos              *uint64
	// Memory in bytes.
	RSS, Cache, Swap, Usage, MaxUsage, KernelUsage, KernelMaxUsage *uint64
}
