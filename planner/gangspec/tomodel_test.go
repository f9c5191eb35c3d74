package gangspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

func TestToModelResources(t *testing.T) {
	task := func(name, hook string, sidecar bool, cpu, mem int) *api.Task {
		out := &api.Task{Name: name, Driver: "exec", Resources: &api.Resources{CPU: &cpu, MemoryMB: &mem}}
		if hook != "" {
			out.Lifecycle = &api.TaskLifecycle{Hook: hook, Sidecar: sidecar}
		}
		return out
	}
	tests := map[string]struct {
		tasks []*api.Task
		want  model.Resources
	}{
		"defaults": {[]*api.Task{{Name: "t"}}, model.Resources{CPUMHz: 100, MemoryMiB: 300, DiskMiB: 300}},
		"main tasks add up": {[]*api.Task{task("a", "", false, 500, 1000), task("b", "", false, 200, 100)},
			model.Resources{CPUMHz: 700, MemoryMiB: 1100, DiskMiB: 300}},
		"a small prestart task costs nothing": {[]*api.Task{task("pre", "prestart", false, 100, 900), task("a", "", false, 500, 1000)},
			model.Resources{CPUMHz: 500, MemoryMiB: 1000, DiskMiB: 300}},
		"a large prestart task is the peak": {[]*api.Task{task("pre", "prestart", false, 900, 100), task("a", "", false, 500, 1000)},
			model.Resources{CPUMHz: 900, MemoryMiB: 1000, DiskMiB: 300}},
		"a sidecar runs all the time": {[]*api.Task{task("pre", "prestart", false, 900, 100), task("side", "prestart", true, 50, 50), task("a", "", false, 500, 1000)},
			model.Resources{CPUMHz: 950, MemoryMiB: 1050, DiskMiB: 300}},
		"poststart runs beside, poststop after": {[]*api.Task{task("a", "", false, 500, 1000), task("p", "poststart", false, 10, 10), task("z", "poststop", false, 600, 1)},
			model.Resources{CPUMHz: 600, MemoryMiB: 1010, DiskMiB: 300}},
		"cores come without MHz, and are never shared": {[]*api.Task{
			{Name: "a", Resources: &api.Resources{Cores: ptr(4), MemoryMB: ptr(10)}},
			{Name: "b", Lifecycle: &api.TaskLifecycle{Hook: "prestart"}, Resources: &api.Resources{Cores: ptr(2), MemoryMB: ptr(10)}}},
			model.Resources{Cores: 6, MemoryMiB: 10, DiskMiB: 300}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := gpuJob("batch", group("g", 1, test.tasks...))
			got := gangspec.ToModel(job, gangspec.Spec{})
			if diff := cmp.Diff(test.want, got.Groups[0].Resources); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}

func TestToModel(t *testing.T) {
	job := gpuJob("service",
		group("a", 2, gpuTask("docker", "nvidia/gpu", 4), gpuTask("docker", "gpu", 1)),
		group("idle", 0, gpuTask("docker", "gpu", 1)))
	job.Namespace, job.Priority, job.Datacenters = ptr("ml"), ptr(70), []string{"dc*"}
	job.Constraints = []*api.Constraint{{LTarget: "${attr.arch}", RTarget: "amd64"}}
	g := job.TaskGroups[0]
	g.Constraints = []*api.Constraint{{LTarget: "${meta.x}", Operand: "!=", RTarget: "y"}}
	g.EphemeralDisk = &api.EphemeralDisk{SizeMB: ptr(5000)}
	g.Networks = []*api.NetworkResource{{
		ReservedPorts: []api.Port{{Label: "b", Value: 9000}, {Label: "a", Value: 8000}},
		DynamicPorts:  []api.Port{{Label: "c", Value: 7000}, {Label: "d"}, {Label: "e", Value: 6000, IgnoreCollision: true}},
	}}
	g.Tasks[0].Resources.Networks = []*api.NetworkResource{{ReservedPorts: []api.Port{{Label: "z", Value: 8000}}}}
	g.Tasks[0].Resources.Devices[0].Constraints = []*api.Constraint{{LTarget: "${device.attr.memory}", Operand: ">=", RTarget: "80 GiB"}}
	g.Tasks[1].Name = "second"
	spec, err := gangspec.Parse(gpuJob("service", group("a", 2, gpuTask("docker", "gpu", 1))))
	if err != nil {
		t.Fatal(err)
	}
	spec.Groups[0].Max = 4
	want := model.Job{
		Namespace: "ml", ID: "train", Type: "service", Priority: 70, Queue: "default", Datacenters: []string{"dc*"}, Pool: "default",
		Constraints: []model.Constraint{{Left: "${attr.arch}", Operand: "=", Right: "amd64"}},
		Gang:        model.GangNone, Topology: model.Topology{Mode: "prefer"}, Collective: "ring", Preempt: "checkpoint",
		Groups: []model.TaskGroup{{
			Name: "a", Count: 2, Min: 2, Max: 4,
			Constraints: []model.Constraint{{Left: "${meta.x}", Operand: "!=", Right: "y"}, {Left: "${attr.driver.docker}", Operand: "is_set"}},
			Resources:   model.Resources{CPUMHz: 200, MemoryMiB: 600, DiskMiB: 5000},
			Ports:       []int{7000, 8000, 9000},
			Devices: []model.DeviceAsk{
				{Task: "main", Name: "nvidia/gpu", Count: 4, Constraints: []model.Constraint{{Left: "${device.attr.memory}", Operand: ">=", Right: "80 GiB"}}},
				{Task: "second", Name: "gpu", Count: 1},
			},
		}},
	}
	if diff := cmp.Diff(want, gangspec.ToModel(job, spec)); diff != "" {
		t.Errorf("ToModel (-want +got):\n%s", diff)
	}
}
