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

func TestResizes(t *testing.T) {
	base := func() *api.Job {
		return &api.Job{ID: new("j"), Type: new("service"), Meta: map[string]string{"caravan_gang": "job"}, TaskGroups: []*api.TaskGroup{
			{Name: new("w"), Count: new(2), Meta: map[string]string{"caravan_min": "1", "caravan_max": "4"}, Tasks: []*api.Task{{Name: "t", Driver: "raw_exec"}}},
			{Name: new("x"), Tasks: []*api.Task{{Name: "t", Driver: "raw_exec"}}},
		}}
	}
	tests := map[string]struct {
		change func(*api.Job)
		want   []gangspec.CountChange
	}{
		"nothing":           {func(*api.Job) {}, nil},
		"a count":           {func(j *api.Job) { j.TaskGroups[0].Count = new(3) }, []gangspec.CountChange{{Group: "w", From: 2, To: 3}}},
		"a count left out":  {func(j *api.Job) { j.TaskGroups[0].Count = nil }, []gangspec.CountChange{{Group: "w", From: 2, To: 1}}},
		"two counts":        {func(j *api.Job) { j.TaskGroups[0].Count, j.TaskGroups[1].Count = new(1), new(5) }, []gangspec.CountChange{{Group: "w", From: 2, To: 1}, {Group: "x", From: 1, To: 5}}},
		"beyond the bounds": {func(j *api.Job) { j.TaskGroups[0].Count = new(5) }, nil},
		"a bound":           {func(j *api.Job) { j.TaskGroups[0].Count = new(3); j.TaskGroups[0].Meta["caravan_max"] = "5" }, nil},
		"the environment, too": {func(j *api.Job) {
			j.TaskGroups[0].Count = new(3)
			j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"}
		}, nil},
		"a group more":          {func(j *api.Job) { j.TaskGroups = append(j.TaskGroups, &api.TaskGroup{Name: new("y")}) }, nil},
		"a group of other name": {func(j *api.Job) { j.TaskGroups[1].Name = new("y"); j.TaskGroups[0].Count = new(3) }, nil},
		"what makes it a gang": {func(j *api.Job) {
			j.Meta, j.TaskGroups = nil, j.TaskGroups[1:]
			j.TaskGroups[0].Tasks[0].Driver = "caravan"
		}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			next := base()
			tt.change(next)
			got, ok := gangspec.Resizes(base(), next)
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != (tt.want != nil) {
				t.Errorf("%v (-want +got):\n%s", ok, diff)
			}
		})
	}
	alone := &api.Job{ID: new("j"), TaskGroups: []*api.TaskGroup{{Name: new("w"), Tasks: []*api.Task{{Name: "t", Driver: "caravan"}}}}}
	pair, err := gangspec.Copy(alone)
	if err != nil {
		t.Fatal(err)
	}
	pair.TaskGroups[0].Count = new(2)
	if _, ok := gangspec.Resizes(alone, pair); ok {
		t.Error("one member becomes a gang, and that is no resize")
	}
}
