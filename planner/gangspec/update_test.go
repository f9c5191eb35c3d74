package gangspec_test

import (
	"strings"
	"testing"

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
		"another image":        {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Config = map[string]any{"image": "x"} }, true},
		"another environment":  {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"} }, true},
		"another priority":     {func(j *api.Job) { j.Priority = ptr(70) }, true},
		"another count":        {func(j *api.Job) { j.TaskGroups[0].Count = ptr(3) }, false},
		"more GPUs":            {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = ptr(uint64(4)) }, false},
		"another constraint":   {func(j *api.Job) { j.Constraints = []*api.Constraint{{LTarget: "${node.class}", RTarget: "a"}} }, false},
		"another gang":         {func(j *api.Job) { j.Meta["caravan_gang"] = "job" }, false},
		"another driver":       {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "docker" }, false},
		"a batch job":          {func(j *api.Job) { j.Type = ptr("batch") }, false},
		"a contract at fault":  {func(j *api.Job) { j.Meta["caravan_min"] = "x" }, false},
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
	job := &api.Job{Update: &api.UpdateStrategy{Canary: ptr(1)}, TaskGroups: []*api.TaskGroup{
		{Name: ptr("a")}, {Name: ptr("b"), Update: &api.UpdateStrategy{Canary: ptr(0), HealthCheck: ptr("manual")}},
	}}
	got := strings.Join(gangspec.Warnings(job), "\n")
	for _, want := range []string{`group "a": update.canary = 1 is not done`, "max_parallel = 1 gangs at a time", `group "b": update.health_check = "manual"`} {
		if !strings.Contains(got, want) {
			t.Errorf("warnings %q, want %q", got, want)
		}
	}
	job.Type = ptr("batch")
	if got := gangspec.Warnings(job); got != nil {
		t.Errorf("a batch job is warned of %q", got)
	}
}
