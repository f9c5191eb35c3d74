package gangspec

import (
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Nomad's defaults for what a task does not ask for.
const (
	defaultCPUMHz    = 100
	defaultMemoryMiB = 300
	defaultDiskMiB   = 300
)

// ToModel returns the job as the decision core reads it, without state,
// members and times of its life. The job is the user's own, without gate and
// pins. It need not be canonical: what is missing is completed as Nomad
// completes it.
func ToModel(job *api.Job, spec Spec) model.Job {
	if job == nil {
		return model.Job{}
	}
	out := model.Job{
		Namespace:     deref(job.Namespace),
		ID:            deref(job.ID),
		Type:          Type(job),
		Priority:      api.JobDefaultPriority,
		Queue:         spec.Queue,
		PriorityClass: spec.Priority,
		Datacenters:   slices.Clone(job.Datacenters),
		Pool:          deref(job.NodePool),
		Constraints:   constraints(job.Constraints),
		Gang:          spec.Gang,
		Topology:      spec.Topology,
		Regions:       slices.Clone(spec.Regions),
		Data:          slices.Clone(spec.Data),
		Collective:    spec.Collective,
		Models:        slices.Clone(spec.Models),
		MixModels:     spec.Mix,
		Speed:         speedOf(spec),
		Duration:      spec.Duration,
		Deadline:      spec.Deadline,
		Preempt:       spec.Preempt,
		Saves:         savesWork(job, spec),

		CheckpointStorage: spec.CheckpointStorage,
		CheckpointGiB:     spec.CheckpointGiB,

		Burst:      spec.Burst,
		MixSites:   spec.BurstMix,
		Budget:     spec.Budget,
		OutputGB:   spec.OutputGB,
		Checkpoint: spec.Checkpoint,

		ResizeRestarts: spec.OnResize == ResizeRestart,
	}
	if spec.Move == MoveNever {
		out.Move = model.MoveNever
	}
	if out.Namespace == "" {
		out.Namespace = api.DefaultNamespace
	}
	if out.Pool == "" {
		out.Pool = api.NodePoolDefault
	}
	if len(out.Datacenters) == 0 {
		out.Datacenters = []string{"*"}
	}
	if p := deref(job.Priority); p != 0 {
		out.Priority = p
	}
	for _, g := range job.TaskGroups {
		if g != nil && Count(g) > 0 {
			out.Groups = append(out.Groups, taskGroup(g, spec))
		}
	}
	return out
}

func taskGroup(g *api.TaskGroup, spec Spec) model.TaskGroup {
	out := model.TaskGroup{
		Name:        deref(g.Name),
		Count:       Count(g),
		Constraints: constraints(g.Constraints),
		Resources:   resources(g),
		Ports:       staticPorts(g),
	}
	for _, b := range spec.Groups {
		if b.Group == out.Name && b.Elastic() {
			out.Min, out.Max = b.Min, b.Max
		}
		if b.Group == out.Name {
			out.Slice = b.Slice
		}
	}
	for _, t := range g.Tasks {
		if t == nil {
			continue
		}
		out.Constraints = append(out.Constraints, constraints(t.Constraints)...)
		out.Constraints = append(out.Constraints, driverConstraint(t.Driver)...)
		out.Devices = append(out.Devices, devices(t, spec.Share)...)
	}
	out.Constraints = append(out.Constraints, volumeConstraints(g.Volumes)...)
	out.Constraints = distinct(out.Constraints)
	return out
}

// driverConstraint says what Nomad demands of a node without being told: that
// it has the task's driver.
func driverConstraint(driver string) []model.Constraint {
	if driver == "" {
		return nil
	}
	return []model.Constraint{{Left: "${attr.driver." + driver + "}", Operand: api.ConstraintAttributeIsSet}}
}

func devices(t *api.Task, share string) []model.DeviceAsk {
	if t.Resources == nil {
		return nil
	}
	var out []model.DeviceAsk
	for _, d := range t.Resources.Devices {
		if d == nil {
			continue
		}
		count := 1
		if d.Count != nil {
			count = int(*d.Count)
		}
		out = append(out, model.DeviceAsk{Task: t.Name, Name: d.Name, Count: count, Constraints: constraints(d.Constraints), Shared: sharedOf(d, share)})
	}
	return out
}

// constraints copies Nomad's constraints; an operand left out is "=".
func constraints(in []*api.Constraint) []model.Constraint {
	var out []model.Constraint
	for _, c := range in {
		if c == nil {
			continue
		}
		operand := c.Operand
		if operand == "" {
			operand = "="
		}
		out = append(out, model.Constraint{Left: c.LTarget, Operand: operand, Right: c.RTarget})
	}
	return out
}

// distinct drops repetitions and keeps the order.
func distinct(in []model.Constraint) []model.Constraint {
	var out []model.Constraint
	for _, c := range in {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// resources is what one member asks for at its peak. Tasks with a lifecycle
// hook do not all run at the same time, and Nomad counts the largest of the
// phases: prestart tasks, main tasks, poststop tasks, where prestart sidecars
// run through the first two and poststart tasks belong to the second.
// Reserved cores are never shared between the phases.
func resources(g *api.TaskGroup) model.Resources {
	var before, main, after model.Resources
	cores := 0
	for _, t := range g.Tasks {
		if t == nil {
			continue
		}
		ask := taskResources(t.Resources)
		cores += ask.Cores
		switch {
		case t.Lifecycle == nil || t.Lifecycle.Hook == api.TaskLifecycleHookPoststart:
			main = sum(main, ask)
		case t.Lifecycle.Hook == api.TaskLifecycleHookPrestart:
			before = sum(before, ask)
			if t.Lifecycle.Sidecar {
				main = sum(main, ask)
			}
		default:
			after = sum(after, ask)
		}
	}
	out := model.Resources{
		CPUMHz:    max(before.CPUMHz, main.CPUMHz, after.CPUMHz),
		MemoryMiB: max(before.MemoryMiB, main.MemoryMiB, after.MemoryMiB),
		Cores:     cores,
		DiskMiB:   defaultDiskMiB,
	}
	if g.EphemeralDisk != nil && g.EphemeralDisk.SizeMB != nil {
		out.DiskMiB = *g.EphemeralDisk.SizeMB
	}
	return out
}

func sum(a, b model.Resources) model.Resources {
	a.CPUMHz += b.CPUMHz
	a.MemoryMiB += b.MemoryMiB
	return a
}

// taskResources completes a task's request. A task with reserved cores asks
// for no MHz beside: Nomad takes those of the cores.
func taskResources(r *api.Resources) model.Resources {
	out := model.Resources{CPUMHz: defaultCPUMHz, MemoryMiB: defaultMemoryMiB}
	if r == nil {
		return out
	}
	if r.MemoryMB != nil {
		out.MemoryMiB = *r.MemoryMB
	}
	switch {
	case deref(r.Cores) > 0:
		out.Cores, out.CPUMHz = *r.Cores, 0
	case r.CPU != nil:
		out.CPUMHz = *r.CPU
	}
	return out
}

// staticPorts are the host ports that a member claims, sorted. A port that may
// collide (Nomad's ignore_collision) claims nothing.
func staticPorts(g *api.TaskGroup) []int {
	networks := slices.Clone(g.Networks)
	for _, t := range g.Tasks {
		if t != nil && t.Resources != nil {
			networks = append(networks, t.Resources.Networks...)
		}
	}
	var out []int
	for _, n := range networks {
		if n == nil {
			continue
		}
		for _, p := range append(slices.Clone(n.ReservedPorts), n.DynamicPorts...) {
			if p.Value > 0 && !p.IgnoreCollision {
				out = append(out, p.Value)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// speedOf is what the job says of its speed; nil for nothing.
func speedOf(spec Spec) *model.Speed {
	if len(spec.Speed) == 0 {
		return nil
	}
	return &model.Speed{Declared: slices.Clone(spec.Speed)}
}
