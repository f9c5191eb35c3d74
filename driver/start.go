package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/driver/config"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/supervisor"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// handleVersion is that of handle.
const handleVersion = 1

// handle is what Nomad keeps for us about a task.
type handle struct {
	// Dir is the supervisor's state directory.
	Dir string `codec:"dir"`
}

// Start implements driver.Plugin. It returns as soon as the task's supervisor
// runs: the user's code is started by that, after the barrier.
func (p *Plugin) Start(ctx context.Context, t driver.TaskConfig) (driver.Handle, *driver.Network, error) {
	cfg := p.config()
	if !cfg.Enabled {
		return driver.Handle{}, nil, errors.New("start task: the driver is disabled in the plugin's configuration")
	}
	if _, err := p.find(t.ID); err == nil {
		return driver.Handle{}, nil, fmt.Errorf("start task: task %s is there already", t.ID)
	}
	start, err := p.describe(ctx, t, cfg)
	if err != nil {
		return driver.Handle{}, nil, fmt.Errorf("start task: %w", err)
	}
	root, err := stateDir(cfg, p.log)
	if err != nil {
		return driver.Handle{}, nil, fmt.Errorf("start task: %w", err)
	}
	dir := filepath.Join(root, dirName(t.ID))
	client, err := supervisor.Launch(ctx, p.binary, dir, start)
	if err != nil {
		// The host may be short of something just now: Nomad may try again.
		return driver.Handle{}, nil, &driver.Recoverable{Err: errors.Join(fmt.Errorf("start task: %w", err), os.RemoveAll(dir))}
	}
	h, err := driver.NewHandle(handleVersion, t, handle{Dir: dir})
	if err != nil {
		return driver.Handle{}, nil, errors.Join(fmt.Errorf("start task: %w", err), client.Destroy(ctx, true))
	}
	p.keep(newTask(t, client, time.Now()))
	return h, nil, nil
}

// dirName is a task's directory below the state directory. A task's ID has
// slashes.
func dirName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:12])
}

// describe makes of Nomad's task what its supervisor has to know.
func (p *Plugin) describe(ctx context.Context, t driver.TaskConfig, cfg config.Plugin) (supervisor.Start, error) {
	c, err := config.ReadTask(t, cfg)
	t, resolverErr := withResolver(t)
	if err := errors.Join(err, allowUser(t.User, cfg.DeniedUsers), resolverErr, meetable(t, c.PortLabel)); err != nil {
		return supervisor.Start{}, err
	}
	s := supervisor.Start{
		Task: supervisor.Task{
			Namespace: t.Namespace, Job: t.JobID, Group: t.Group, Alloc: t.AllocID, Task: t.Name, Node: t.NodeID, NodeName: t.NodeName,
		},
		Workload:     p.workload(t, c, cfg),
		Role:         supervisor.Role(c.Role),
		Files:        supervisor.Files{Dir: filepath.Join(t.LocalDir(), "caravan")},
		Checkpoint:   supervisor.Checkpoint{Signal: c.CheckpointSignal, Grace: c.CheckpointGrace, Paths: c.CheckpointPaths},
		Fence:        fence(t, c, cfg),
		ResizeSignal: c.ResizeSignal,
	}
	if c.Counts() {
		s.Barrier = barrier(t, c, cfg)
	}
	if f := c.Preflight; f != nil {
		s.Preflight = &supervisor.Preflight{Command: f.Command, Args: f.Args, Timeout: f.Timeout}
		if f.GPU {
			s.Preflight.GPUSource, s.Preflight.GPUSeed, s.Preflight.GPUFaults = cfg.GPUSource, cfg.MockSeed, cfg.MockFaults
		}
	}
	if c.Image != "" {
		return p.contain(ctx, t, c, s)
	}
	return s, errors.Join(s.Validate(), asWritten(exec.Check(withID(s.Workload))))
}

// written are the keys of a job that fields of a workload come from, by the
// fields' names.
var written = map[string]string{
	"dir": "config.work_dir", "ulimits": "config.ulimit", "command": "config.command", "args": "config.args",
	"pid_namespace": "config.pid_namespace", "mount_namespace": "config.mount_namespace",
	"restrict_devices": "config.device_isolation", "user": "user", "env": "env",
}

// asWritten names in an error what its reader can change: keys of the job, not
// fields of a workload.
func asWritten(err error) error {
	var spec *exec.SpecError
	if !errors.As(err, &spec) {
		return err
	}
	out := &exec.SpecError{}
	for _, f := range spec.Faults {
		field := strings.IndexAny(f.Field+".", ".[")
		if key, ok := written[f.Field[:field]]; ok {
			f.Field = key + f.Field[field:]
		}
		out.Faults = append(out.Faults, f)
	}
	return out
}

// withID is the workload as the supervisor will start it, for checks.
func withID(w exec.Spec) exec.Spec {
	w.ID = "check"
	return w
}

// fence asks the local agent by the socket that it makes for each task, which
// needs no settings, unless the operator has set an address.
func fence(t driver.TaskConfig, c config.Task, cfg config.Plugin) supervisor.Fence {
	if cfg.Nomad != "" {
		return supervisor.Fence{Nomad: cfg.Nomad, TLS: supervisor.TLS(cfg.NomadTLS), After: c.FenceAfter}
	}
	return supervisor.Fence{
		Socket: filepath.Join(t.SecretsDir(), "api.sock"), TokenFile: identityFile(t), Nomad: "http://127.0.0.1:4646", After: c.FenceAfter,
	}
}

// identityFile is where Nomad puts the workload identity that Caravan has put
// into the job.
func identityFile(t driver.TaskConfig) string {
	return filepath.Join(t.SecretsDir(), "nomad_"+gangapi.IdentityName+".jwt")
}

func barrier(t driver.TaskConfig, c config.Task, cfg config.Plugin) supervisor.Barrier {
	address, port := meetingPoint(t, c.PortLabel, cfg)
	return supervisor.Barrier{
		Planners: cfg.Planners, TLS: supervisor.TLS(cfg.PlannerTLS),
		IdentityFile: identityFile(t),
		JoinTimeout:  c.JoinTimeout, Address: address, Port: port, GPUs: granted(t), Processes: c.Processes,
	}
}

// workload is the user's code as it is to run without an image.
func (p *Plugin) workload(t driver.TaskConfig, c config.Task, cfg config.Plugin) exec.Spec {
	w := exec.Spec{
		Command: c.Command, Args: c.Args, Env: t.Environ(), Dir: c.WorkDir, User: t.User,
		Stdout: t.StdoutPath, Stderr: t.StderrPath, Ulimits: c.Ulimit,
		CPUSet:       t.Resources.Linux.CPUSet,
		Limits:       p.limits(t.Resources),
		PIDNamespace: c.PIDNamespace, MountNamespace: c.MountNamespace,
		CgroupParent: t.Resources.Linux.Cgroup, CgroupScope: t.AllocID + "." + t.Name, NoCgroups: !cfg.Cgroups,
	}
	if c.NUMAAffinity && w.CPUSet == "" {
		w.NUMADevices = split(t.Env[envBusIDs])
	}
	if n := t.Network; n != nil && n.Mode == driver.NetworkGroup {
		w.NetworkNamespace = n.Path
	}
	for _, m := range t.Mounts {
		// Without an image a task sees the host's files where they are, and may
		// write what it may write.
		if m.HostPath != m.TaskPath || m.ReadOnly {
			w.Mounts = append(w.Mounts, exec.Mount{HostPath: m.HostPath, TaskPath: m.TaskPath, ReadOnly: m.ReadOnly, Propagation: m.Propagation})
		}
	}
	if host, err := p.probe(); c.DeviceIsolation && cfg.Cgroups && err == nil && host.Devices != "" {
		w.RestrictDevices = true
		for _, d := range t.Devices {
			w.Devices = append(w.Devices, exec.Device{Path: d.HostPath, Permissions: d.Permissions})
		}
		for _, path := range cfg.AllowedDevices {
			// A path that is not there would be a fault; a pattern is none.
			if _, err := os.Stat(path); err == nil || strings.ContainsAny(path, `*?[\`) {
				w.Devices = append(w.Devices, exec.Device{Path: path})
			}
		}
	}
	return w
}

// noMemoryMax is the `memory_max` of a task that may have all of the node's
// memory.
const noMemoryMax = -1

// limits are what Nomad gives to a task. With `memory_max`, `memory` is what is
// kept for it.
func (p *Plugin) limits(r driver.Resources) exec.Limits {
	p.mu.Lock()
	compute := p.compute
	p.mu.Unlock()
	l := exec.Limits{
		CPUShares: uint64(compute.shares(r.Linux.CPUShares)), CPUQuota: r.Linux.CPUQuota, CPUPeriod: r.Linux.CPUPeriod,
		MemoryBytes: r.Linux.MemoryLimitBytes, OOMScoreAdj: int(r.Linux.OOMScoreAdj),
	}
	switch {
	case r.MemoryMaxMiB == noMemoryMax:
		l.MemoryBytes, l.MemoryReserveBytes = 0, r.MemoryMiB<<20
	case r.MemoryMaxMiB > r.MemoryMiB && r.MemoryMiB > 0:
		l.MemoryBytes, l.MemoryReserveBytes = r.MemoryMaxMiB<<20, r.MemoryMiB<<20
	}
	return l
}

// The variables by which the device plugin tells a task about its GPUs.
const (
	envNVIDIADevices = "NVIDIA_VISIBLE_DEVICES"
	envROCmDevices   = "ROCR_VISIBLE_DEVICES"
	envBusIDs        = "CARAVAN_GPU_BUS_IDS"
	envSlice         = "CARAVAN_GPU_SLICE"
)

// granted are the devices that Nomad has given the task, by their IDs: its GPUs, or
// the slice of a GPU that others use too.
func granted(t driver.TaskConfig) []string {
	if slice := t.DeviceEnv[envSlice]; slice != "" {
		return []string{slice}
	}
	return gpus(t)
}

// gpus are the UUIDs of the GPUs that the device plugin has reserved.
func gpus(t driver.TaskConfig) []string {
	for _, key := range []string{envNVIDIADevices, envROCmDevices} {
		if list := split(t.DeviceEnv[key]); list != nil {
			return list
		}
	}
	return nil
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// meetingPoint is where other members reach this one: its port with the label
// on the address that Nomad gave it, else the node's address and a free port.
func meetingPoint(t driver.TaskConfig, label string, cfg config.Plugin) (string, int) {
	for _, port := range t.Resources.Ports {
		if port.Label == label && label != "" {
			ip := port.HostIP
			if cfg.Address != "" {
				ip = cfg.Address
			}
			return ip, port.Value
		}
	}
	if cfg.Address != "" {
		return cfg.Address, 0
	}
	for _, n := range t.Resources.Networks {
		if _, err := netip.ParseAddr(n.IP); err == nil {
			return n.IP, 0
		}
	}
	return route(cfg.Planners), 0
}

// meetable refuses a port that is another one inside of the group's network:
// the members have one number to meet at.
func meetable(t driver.TaskConfig, label string) error {
	for _, port := range t.Resources.Ports {
		if port.Label == label && label != "" && port.To > 0 && port.To != port.Value && t.Network != nil && t.Network.Mode == driver.NetworkGroup {
			return fmt.Errorf("port %q is %d on the node and %d in the group's network: members could not meet there; leave `to` out, or make both one with `static`", label, port.Value, port.To)
		}
	}
	return nil
}

// route is this host's address on the way to the planner. Nothing is sent.
func route(planners []string) string {
	for _, p := range planners {
		u, err := url.Parse(p)
		if err != nil {
			continue
		}
		conn, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), "9"))
		if err != nil {
			continue
		}
		local := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		if conn.Close() == nil {
			return local.String()
		}
	}
	return "127.0.0.1"
}

// allowUser refuses the users that the operator does not want tasks to run as.
func allowUser(name string, denied []string) error {
	if len(denied) == 0 {
		return nil
	}
	given, _, _ := strings.Cut(name, ":")
	names := []string{given}
	if given == "" {
		if u, err := user.Current(); err == nil {
			names = []string{u.Username, u.Uid}
		}
	} else if u, err := user.Lookup(given); err == nil {
		names = append(names, u.Username, u.Uid)
	} else if u, err := user.LookupId(given); err == nil {
		names = append(names, u.Username, u.Uid)
	}
	for _, d := range denied {
		if slices.Contains(names, d) {
			return fmt.Errorf("user is %q: tasks may not run as %s here; the operator's denied_users is %q", name, d, denied)
		}
	}
	return nil
}
