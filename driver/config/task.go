package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/driver/ulimit"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// Role is a task's part in its gang.
type Role string

// The roles.
const (
	// RoleRank: the task counts as its member, and waits at the barrier.
	RoleRank Role = "rank"
	// RoleFollow: the task starts with the gang and does not count.
	RoleFollow Role = "follow"
	// RoleNone: the task starts at once.
	RoleNone Role = "none"
)

var roles = []string{string(RoleRank), string(RoleFollow), string(RoleNone)}

// Runtimes are the container runtimes, in the order in which they are looked
// for.
var Runtimes = []string{"podman", "docker", "apptainer"}

// TaskOptions are what a task's config block may hold.
var TaskOptions = []Option{
	{Key: "command", Type: "string", Doc: "what to run: a path, or a name that is looked up in the task's `PATH`. Needed without an `image`; with one it overrides the image's command"},
	{Key: "args", Type: "list(string)", Default: "[]", Doc: "its arguments"},
	{Key: "work_dir", Type: "string", Doc: "where it runs: absolute, or below the task's directory, which is the default"},
	{Key: "ulimit", Free: "string", Doc: "resource limits by name, `\"SOFT:HARD\"`, one value for both, or `\"unlimited\"`: `nofile = \"65536\"`, `memlock = \"unlimited\"`"},
	{Key: "pid_namespace", Type: "bool", Default: "false", Doc: "give the task process IDs of its own"},
	{Key: "mount_namespace", Type: "bool", Default: "false", Doc: "give the task mounts of its own. A task with volumes always has them"},
	{Key: "device_isolation", Type: "bool", Default: "true", Doc: "let the task open only those GPU device nodes that were reserved for it, where the host's cgroups can"},
	{Key: "numa_affinity", Type: "bool", Default: "true", Doc: "run the task on the cores that are near its GPUs, unless Nomad reserved cores for it"},
	{Key: "image", Type: "string", Doc: "a container image to run the task in"},
	{Key: "runtime", Type: "string", Doc: "`podman`, `docker` or `apptainer`; by default the first of them that the node has"},
	{Key: "entrypoint", Type: "list(string)", Doc: "overrides the image's"},
	{Key: "runtime_args", Type: "list(string)", Default: "[]", Doc: "further arguments for the runtime's `run`; the operator must have allowed them"},
	{Key: "shm_size", Type: "string", Doc: "size of a container's `/dev/shm`, as `\"16g\"`; by default the task's memory limit"},
	{Key: "member", Type: "string", Default: `"rank"`, Doc: "`rank`: the task counts as its member of the gang and waits at the barrier; `follow`: it starts with the gang and does not count; `none`: it starts at once"},
	{Key: "processes", Type: "number", Default: "0", Doc: "how many ranks the member has; 0 is one for each GPU, or one"},
	{Key: "port_label", Type: "string", Default: `"rendezvous"`, Doc: "the label of the group's port that the members meet at, should this one be rank 0; without such a port, a free one of the node's"},
	{Key: "join_timeout", Type: "string", Doc: "how long to wait at the barrier before the task fails; the plugin's by default"},
	{Key: "checkpoint", Doc: "how the task makes checkpoints", Block: []Option{
		{Key: "signal", Type: "string", Doc: "asks for one, as `\"SIGUSR1\"`; without it none is asked for"},
		{Key: "grace", Type: "string", Default: `"2m"`, Doc: "how long a stop waits for it, within `kill_timeout`"},
		{Key: "paths", Type: "list(string)", Default: "[]", Doc: "files, directories or patterns, absolute or below the task's directory, whose newest complete entry is the newest checkpoint"},
	}},
	{Key: "resize_signal", Type: "string", Doc: "tells an elastic task that its gang has another size; without it, it watches the membership file"},
	{Key: "fence_after", Type: "string", Doc: "how long the task may run on while its node is cut off from Nomad's servers; `\"0s\"` is for ever. The plugin's by default"},
	{Key: "preflight", Doc: "a check before the task joins the barrier; a node that fails it is reported, and the gang is placed without it", Block: []Option{
		{Key: "gpu", Type: "bool", Default: "true", Doc: "look at the health of the reserved GPUs"},
		{Key: "command", Type: "string", Doc: "a command whose exit code 0 says that the node is fit"},
		{Key: "args", Type: "list(string)", Default: "[]", Doc: "its arguments"},
		{Key: "timeout", Type: "string", Default: `"2m"`, Doc: "after which it has failed"},
	}},
}

// rawTask is the config block as it comes from Nomad.
type rawTask struct {
	Command         string            `codec:"command"`
	Args            []string          `codec:"args"`
	WorkDir         string            `codec:"work_dir"`
	Ulimit          map[string]string `codec:"ulimit"`
	PIDNamespace    bool              `codec:"pid_namespace"`
	MountNamespace  bool              `codec:"mount_namespace"`
	DeviceIsolation bool              `codec:"device_isolation"`
	NUMAAffinity    bool              `codec:"numa_affinity"`
	Image           string            `codec:"image"`
	Runtime         string            `codec:"runtime"`
	Entrypoint      []string          `codec:"entrypoint"`
	RuntimeArgs     []string          `codec:"runtime_args"`
	ShmSize         string            `codec:"shm_size"`
	Member          string            `codec:"member"`
	Processes       int               `codec:"processes"`
	PortLabel       string            `codec:"port_label"`
	JoinTimeout     string            `codec:"join_timeout"`
	Checkpoint      *rawCheckpoint    `codec:"checkpoint"`
	ResizeSignal    string            `codec:"resize_signal"`
	FenceAfter      string            `codec:"fence_after"`
	Preflight       *rawPreflight     `codec:"preflight"`
}

type rawCheckpoint struct {
	Signal string   `codec:"signal"`
	Grace  string   `codec:"grace"`
	Paths  []string `codec:"paths"`
}

type rawPreflight struct {
	GPU     bool     `codec:"gpu"`
	Command string   `codec:"command"`
	Args    []string `codec:"args"`
	Timeout string   `codec:"timeout"`
}

// Task is a valid task's configuration.
type Task struct {
	Command string
	Args    []string
	// WorkDir is absolute.
	WorkDir                       string
	Ulimit                        map[string]string
	PIDNamespace, MountNamespace  bool
	DeviceIsolation, NUMAAffinity bool
	Image, Runtime                string
	Entrypoint, RuntimeArgs       []string
	ShmSize                       string
	Role                          Role
	Processes                     int
	PortLabel                     string
	JoinTimeout                   time.Duration
	CheckpointSignal              string
	CheckpointGrace               time.Duration
	CheckpointPaths               []string
	ResizeSignal                  string
	// FenceAfter is 0 where the task is never fenced.
	FenceAfter time.Duration
	// Preflight is nil where there is none.
	Preflight *Preflight
}

// Preflight is the check before the barrier.
type Preflight struct {
	GPU     bool
	Command string
	Args    []string
	Timeout time.Duration
}

// TaskSchema describes a task's config block to Nomad.
func TaskSchema() *hclspec.Spec { return Schema(TaskOptions) }

// unset is a config block without anything.
func unset() rawTask {
	return rawTask{DeviceIsolation: true, NUMAAffinity: true, Member: string(RoleRank), PortLabel: "rendezvous"}
}

// ReadTask reads a task's config block. The error lists every fault.
func ReadTask(t driver.TaskConfig, plugin Plugin) (Task, error) {
	raw := unset()
	if err := t.Decode(&raw); err != nil {
		return Task{}, err
	}
	out, f := raw.read(t.TaskDir(), plugin)
	return out, f.err("the task's config block")
}

// read is the task in the directory dir, as far as there are no faults.
func (raw rawTask) read(dir string, plugin Plugin) (Task, faults) {
	var f faults
	if raw.Checkpoint == nil {
		raw.Checkpoint = &rawCheckpoint{Grace: "2m"}
	}
	out := Task{
		Command: raw.Command, Args: raw.Args, WorkDir: below(dir, raw.WorkDir), Ulimit: raw.Ulimit,
		PIDNamespace: raw.PIDNamespace, MountNamespace: raw.MountNamespace,
		DeviceIsolation: raw.DeviceIsolation, NUMAAffinity: raw.NUMAAffinity,
		Image: raw.Image, Runtime: raw.Runtime, Entrypoint: raw.Entrypoint, RuntimeArgs: raw.RuntimeArgs, ShmSize: raw.ShmSize,
		Role: Role(raw.Member), Processes: raw.Processes, PortLabel: raw.PortLabel,
		JoinTimeout:      f.duration("join_timeout", raw.JoinTimeout, plugin.JoinTimeout, time.Second),
		CheckpointSignal: f.signal("checkpoint.signal", raw.Checkpoint.Signal),
		CheckpointGrace:  f.duration("checkpoint.grace", raw.Checkpoint.Grace, 0, 0),
		ResizeSignal:     f.signal("resize_signal", raw.ResizeSignal),
		FenceAfter:       f.duration("fence_after", raw.FenceAfter, plugin.FenceAfter, 0),
	}
	if out.FenceAfter > 0 && out.FenceAfter < leastFence {
		f.add("fence_after", raw.FenceAfter, fmt.Sprintf("%q for never, or at least %s, as Nomad's own heartbeats may be that far apart", "0s", leastFence))
	}
	f.oneOf("member", raw.Member, roles)
	f.paths(&out, dir, raw.Checkpoint.Paths)
	f.preflight(&out, raw.Preflight)
	f.workload(raw, plugin)
	if raw.Processes < 0 || raw.Processes > mostProcesses {
		f.add("processes", raw.Processes, fmt.Sprintf("0 to %d", mostProcesses))
	}
	f.ulimits(raw.Ulimit)
	return out, f
}

// leastFence keeps a heartbeat that is late from ending a task: Nomad's clients
// may be silent for that long in a large cluster before they count as lost.
const leastFence = 10 * time.Second

// mostProcesses is more than any node has cores.
const mostProcesses = 4096

func (f *faults) workload(raw rawTask, plugin Plugin) {
	if raw.Image == "" {
		if raw.Command == "" {
			f.add("command", "", "a command, or an image")
		}
		for key, value := range map[string]string{
			"runtime": raw.Runtime, "entrypoint": strings.Join(raw.Entrypoint, " "),
			"runtime_args": strings.Join(raw.RuntimeArgs, " "), "shm_size": raw.ShmSize,
		} {
			if value != "" {
				f.add(key, value, "nothing without an image")
			}
		}
		return
	}
	if raw.Runtime != "" {
		f.oneOf("runtime", raw.Runtime, plugin.Runtimes)
	}
	if len(raw.RuntimeArgs) > 0 && !plugin.RuntimeArgs {
		f.add("runtime_args", strings.Join(raw.RuntimeArgs, " "), "nothing: the operator has not set allow_runtime_args")
	}
	if raw.PIDNamespace || raw.MountNamespace {
		f.add("pid_namespace, mount_namespace", "true", "false with an image: a container has its own")
	}
}

func (f *faults) ulimits(limits map[string]string) {
	for name, value := range limits {
		if _, known := ulimit.Resource(name); !known {
			f.add("ulimit."+name, value, "a limit of "+strings.Join(ulimit.Names(), ", "))
		} else if _, _, err := ulimit.Parse(value); err != nil {
			f.add("ulimit."+name, value, `a number or "unlimited", or two of them as "SOFT:HARD", the first not above the second`)
		}
	}
}

func (f *faults) paths(out *Task, dir string, patterns []string) {
	for _, p := range patterns {
		if _, err := filepath.Match(p, ""); err != nil || p == "" {
			f.add("checkpoint.paths", p, "paths and patterns as in a shell: *, ?, [a-z]")
			continue
		}
		out.CheckpointPaths = append(out.CheckpointPaths, below(dir, p))
	}
}

func (f *faults) preflight(out *Task, raw *rawPreflight) {
	if raw == nil {
		return
	}
	out.Preflight = &Preflight{GPU: raw.GPU, Command: raw.Command, Args: raw.Args, Timeout: f.duration("preflight.timeout", raw.Timeout, 0, time.Second)}
	if raw.Command == "" && len(raw.Args) > 0 {
		f.add("preflight.args", strings.Join(raw.Args, " "), "nothing without preflight.command")
	}
}

// below is path, or path below dir where it is relative.
func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// Counts says whether the task waits at the barrier or follows it.
func (t Task) Counts() bool { return slices.Contains([]Role{RoleRank, RoleFollow}, t.Role) }
