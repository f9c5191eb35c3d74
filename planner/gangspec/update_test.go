package gangspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

func TestRolls(t *testing.T) {
	base := func() *api.Job {
		return &api.Job{ID: ptr("j"), Meta: map[string]string{"caravan_gang": "none"}, TaskGroups: []*api.TaskGroup{{Name: ptr("w"), Count: ptr(2),
			Tasks: []*api.Task{{Name: "t", Driver: "exec", Resources: &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(2))}}}}}}}}
	}
	tests := map[string]struct {
		change func(*api.Job)
		want   bool
	}{
		"another image":       {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Config = map[string]any{"image": "x"} }, true},
		"another environment": {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"} }, true},
		"another priority":    {func(j *api.Job) { j.Priority = ptr(70) }, true},
		"another count":       {func(j *api.Job) { j.TaskGroups[0].Count = ptr(3) }, false},
		"more GPUs":           {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = ptr(uint64(4)) }, false},
		"another constraint":  {func(j *api.Job) { j.Constraints = []*api.Constraint{{LTarget: "${node.class}", RTarget: "a"}} }, false},
		"another gang":        {func(j *api.Job) { j.Meta["caravan_gang"] = "job" }, false},
		"another driver":      {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "docker" }, false},
		"a batch job":         {func(j *api.Job) { j.Type = ptr("batch") }, false},
		"a contract at fault": {func(j *api.Job) { j.Meta["caravan_min"] = "x" }, false},
		"a constraint of Nomad's own": {func(j *api.Job) {
			j.TaskGroups[0].Constraints = []*api.Constraint{{LTarget: "${attr.nomad.service_discovery}", RTarget: "true", Operand: "="}}
		}, true},
		"another memory limit": {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.MemoryMB = ptr(4096) }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			next := base()
			test.change(next)
			if got := gangspec.Rolls(base(), next); got != test.want {
				t.Errorf("Rolls = %v, want %v", got, test.want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	job := &api.Job{Update: &api.UpdateStrategy{Canary: ptr(2)}, Meta: map[string]string{"caravan_gang": "group"}, TaskGroups: []*api.TaskGroup{
		{Name: ptr("a"), Count: ptr(4)}, {Name: ptr("b"), Count: ptr(2), Update: &api.UpdateStrategy{HealthCheck: ptr("manual")}},
		{Name: ptr("c"), Count: ptr(2), Volumes: map[string]*api.VolumeRequest{"v": {PerAlloc: true}}},
	}}
	got := strings.Join(gangspec.Warnings(job), "\n")
	for _, want := range []string{`group "a": update.canary = 2 is one more gang of 4`, `group "c": update.canary = 2 is not done: a volume with per_alloc`} {
		if !strings.Contains(got, want) {
			t.Errorf("warnings %q, want %q", got, want)
		}
	}
	if strings.Contains(got, `group "b": update.canary`) {
		t.Errorf("warnings %q about what is done as it says", got)
	}
	job.Meta["caravan_gang"] = "none"
	if got := strings.Join(gangspec.Warnings(job), "\n"); strings.Contains(got, "one more gang") {
		t.Errorf("warnings %q", got)
	}
	job.Type = ptr("batch")
	if got := gangspec.Warnings(job); got != nil {
		t.Errorf("a batch job is warned of %q", got)
	}
}

func TestCanaries(t *testing.T) {
	version := func(gang, env string, canaries ...int) *api.Job {
		j := &api.Job{ID: ptr("j"), Meta: map[string]string{"caravan_gang": gang}}
		for i, n := range canaries {
			j.TaskGroups = append(j.TaskGroups, &api.TaskGroup{Name: ptr(string(rune('a' + i))), Count: ptr(2 + i), Update: &api.UpdateStrategy{Canary: ptr(n)},
				Tasks: []*api.Task{{Name: "t", Driver: "exec", Env: map[string]string{"V": env}}}})
		}
		return j
	}
	edit := func(j *api.Job, change func(*api.Job)) *api.Job { change(j); return j }
	perAlloc := func(j *api.Job) {
		j.TaskGroups[0].Volumes = map[string]*api.VolumeRequest{"v": {PerAlloc: true}}
	}
	tests := map[string]struct {
		next *api.Job
		want map[string]int
	}{
		"members alone":             {version("none", "2", 1, 2), map[string]int{"a": 1, "b": 2}},
		"no more than members":      {version("none", "2", 5), map[string]int{"a": 2}},
		"none asked for":            {version("none", "2", 0, 0), nil},
		"a gang":                    {version("group", "2", 1, 0), map[string]int{"a": 2}},
		"the job":                   {version("job", "2", 1, 0), map[string]int{"a": 2, "b": 3}},
		"nothing changed":           {version("none", "1", 1, 1), nil},
		"one group changed":         {edit(version("none", "1", 1, 1), func(j *api.Job) { j.TaskGroups[1].Tasks[0].Env["V"] = "2" }), map[string]int{"b": 1}},
		"the job's meta":            {edit(version("none", "1", 1), func(j *api.Job) { j.Meta["x"] = "y" }), map[string]int{"a": 1}},
		"only how it is updated":    {edit(version("none", "1", 1), func(j *api.Job) { j.TaskGroups[0].Update.MaxParallel = ptr(7) }), nil},
		"a volume of each member's": {edit(version("none", "2", 1, 1), perAlloc), map[string]int{"b": 1}},
		"the same in a gang":        {edit(version("job", "2", 1, 1), perAlloc), nil},
		"no service":                {edit(version("none", "2", 1), func(j *api.Job) { j.Type = ptr("batch") }), nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := version(test.next.Meta["caravan_gang"], "1", 1, 1)
			if diff := cmp.Diff(test.want, gangspec.Canaries(before, test.next)); diff != "" {
				t.Errorf("canaries (-want +got):\n%s", diff)
			}
		})
	}
	auto := version("none", "2", 1, 1)
	auto.Update = &api.UpdateStrategy{AutoPromote: ptr(true)}
	if !gangspec.PromotesItself(auto) {
		t.Error("auto_promote is not seen")
	}
	auto.TaskGroups[1].Update.AutoPromote = ptr(false)
	if gangspec.PromotesItself(auto) {
		t.Error("one group that does not say auto_promote is enough")
	}
}
