package driver

import (
	"context"
	"errors"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/driver/config"
	"github.com/caravan-sched/caravan/driver/container"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/supervisor"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// contain makes a container of a task with an image. The task's directories are
// at the same paths in it as on the host, so that what Nomad says about them in
// the environment holds there too.
func (p *Plugin) contain(ctx context.Context, t driver.TaskConfig, c config.Task, s supervisor.Start) (supervisor.Start, error) {
	found, faults := p.lookForRuntimes(ctx, fresh)
	runtime, err := container.Choose(found, faults, c.Runtime)
	if err != nil {
		return supervisor.Start{}, err
	}
	w := s.Workload
	// A runtime with a daemon starts containers elsewhere than its client.
	cpus, faultsOfCPUs := exec.Affinity(w)
	spec := container.Spec{
		Runtime: runtime, Name: "caravan-" + dirName(t.ID), Image: c.Image, Entrypoint: c.Entrypoint, Command: c.Command, Args: c.Args,
		Env: taskOnly(t.Env), User: t.User, ShmSize: shm(c, t), Ulimits: c.Ulimit,
		NetworkNamespace: w.NetworkNamespace, RuntimeArgs: c.RuntimeArgs,
		Limits: container.Limits{
			CPUShares: int64(w.Limits.CPUShares), CPUQuota: w.Limits.CPUQuota, CPUPeriod: w.Limits.CPUPeriod, CPUSet: cpus,
			MemoryBytes: w.Limits.MemoryBytes, MemoryReserveBytes: w.Limits.MemoryReserveBytes, OOMScoreAdj: w.Limits.OOMScoreAdj,
		},
		Labels: map[string]string{"caravan.alloc": t.AllocID, "caravan.job": t.JobID, "caravan.namespace": t.Namespace, "caravan.task": t.Name},
	}
	if !p.config().SimulatedGPUs() {
		// Simulated ones are nothing that a runtime could give.
		spec.GPUs = gpus(t)
	}
	if c.WorkDir != t.TaskDir() {
		spec.WorkDir = c.WorkDir
	}
	for _, dir := range []string{t.SharedDir(), t.LocalDir(), t.SecretsDir()} {
		spec.Mounts = append(spec.Mounts, container.Mount{HostPath: dir, TaskPath: dir})
	}
	for _, m := range t.Mounts {
		spec.Mounts = append(spec.Mounts, container.Mount{HostPath: m.HostPath, TaskPath: m.TaskPath, ReadOnly: m.ReadOnly, Propagation: m.Propagation})
	}
	for _, d := range t.Devices {
		// The GPUs' own nodes come with the runtime.
		if !strings.HasPrefix(d.HostPath, "/dev/nvidia") || strings.Contains(d.HostPath, "imex") {
			spec.Devices = append(spec.Devices, container.Device{HostPath: d.HostPath, TaskPath: d.TaskPath, Permissions: d.Permissions})
		}
	}
	s.Container = &spec
	// What is left of the workload is for the runtime's client.
	s.Workload.Command, s.Workload.Args, s.Workload.Env = runtime.Path, nil, nil
	s.Workload.User, s.Workload.Ulimits, s.Workload.NetworkNamespace = "", nil, ""
	s.Workload.RestrictDevices, s.Workload.Devices, s.Workload.Mounts = false, nil, nil
	s.Workload.Dir = t.TaskDir()
	return s, errors.Join(s.Validate(), spec.Check(), faultsOfCPUs)
}

// taskOnly leaves out what a task has from the agent's own environment, which
// Nomad gives to tasks that run on the host: the image has its own.
func taskOnly(env map[string]string) map[string]string {
	out := maps.Clone(env)
	for _, pair := range os.Environ() {
		if key, value, _ := strings.Cut(pair, "="); !strings.HasPrefix(key, "NOMAD_") && out[key] == value {
			delete(out, key)
		}
	}
	return out
}

// shm is the size of a container's /dev/shm: NCCL and data loaders need more
// than the 64 MiB that runtimes give, and it counts against the task's memory.
func shm(c config.Task, t driver.TaskConfig) string {
	if c.ShmSize != "" || t.Resources.Linux.MemoryLimitBytes <= 0 {
		return c.ShmSize
	}
	return strconv.FormatInt(t.Resources.Linux.MemoryLimitBytes, 10) + "b"
}
