package gangspec_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

func ptr[T any](v T) *T { return &v }

func gpuTask(driver, device string, count uint64) *api.Task {
	return &api.Task{Name: "main", Driver: driver, Resources: &api.Resources{
		Devices: []*api.RequestedDevice{{Name: device, Count: &count}},
	}}
}

func gpuJob(kind string, groups ...*api.TaskGroup) *api.Job {
	return &api.Job{ID: ptr("train"), Type: &kind, TaskGroups: groups}
}

func group(name string, count int, tasks ...*api.Task) *api.TaskGroup {
	return &api.TaskGroup{Name: &name, Count: &count, Tasks: tasks}
}

func TestManaged(t *testing.T) {
	tests := map[string]struct {
		job  *api.Job
		want bool
	}{
		"batch with the vendor's GPU":  {gpuJob("batch", group("g", 1, gpuTask("exec", "nvidia/gpu", 1))), true},
		"service with any GPU":         {gpuJob("service", group("g", 1, gpuTask("exec", "gpu", 1))), true},
		"a model with slashes":         {gpuJob("batch", group("g", 1, gpuTask("exec", "nvidia/gpu/A/B", 1))), true},
		"another vendor":               {gpuJob("batch", group("g", 1, gpuTask("exec", "amd/gpu", 1))), false},
		"another type":                 {gpuJob("batch", group("g", 1, gpuTask("exec", "nvidia/nic", 1))), false},
		"no device":                    {gpuJob("batch", group("g", 1, &api.Task{Name: "t"})), false},
		"system":                       {gpuJob("system", group("g", 1, gpuTask("exec", "gpu", 1))), false},
		"sysbatch":                     {gpuJob("sysbatch", group("g", 1, gpuTask("exec", "gpu", 1))), false},
		"no job":                       {nil, false},
		"null group, task and request": {gpuJob("batch", nil, group("g", 1, nil, &api.Task{Resources: &api.Resources{Devices: []*api.RequestedDevice{nil}}})), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := gangspec.Managed(test.job, gangspec.DefaultDevices); got != test.want {
				t.Errorf("Managed = %v, want %v", got, test.want)
			}
		})
	}
}

func TestUnmanageable(t *testing.T) {
	with := func(change func(*api.Job)) *api.Job {
		job := gpuJob("batch", group("g", 1, gpuTask("exec", "gpu", 1)))
		change(job)
		return job
	}
	tests := map[string]struct {
		job  *api.Job
		want string
	}{
		"batch":         {with(func(*api.Job) {}), ""},
		"no type":       {with(func(j *api.Job) { j.Type = nil }), ""},
		"periodic":      {with(func(j *api.Job) { j.Periodic = &api.PeriodicConfig{} }), "periodic"},
		"parameterized": {with(func(j *api.Job) { j.ParameterizedJob = &api.ParameterizedJobConfig{} }), "parameterized"},
		"dispatched": {with(func(j *api.Job) {
			j.ParameterizedJob, j.Dispatched, j.ParentID = &api.ParameterizedJobConfig{}, true, ptr("p")
		}), "dispatched"},
		"periodic child": {with(func(j *api.Job) { j.ParentID = ptr("nightly") }), `"nightly"`},
		"system":         {with(func(j *api.Job) { j.Type = ptr("system") }), "system"},
		"multiregion":    {with(func(j *api.Job) { j.Multiregion = &api.Multiregion{Regions: []*api.MultiregionRegion{{Name: "x"}}} }), "multiregion"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := gangspec.Unmanageable(test.job)
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("Unmanageable = %q, want it to name %q", got, test.want)
			}
		})
	}
}

func TestParseDefaults(t *testing.T) {
	tests := map[string]struct {
		job  *api.Job
		want model.Gang
	}{
		"any driver":                    {gpuJob("batch", group("g", 4, gpuTask("exec", "gpu", 1))), model.GangNone},
		"our driver, one member":        {gpuJob("batch", group("g", 1, gpuTask("caravan", "gpu", 1))), model.GangNone},
		"our driver, several":           {gpuJob("batch", group("g", 4, gpuTask("caravan", "gpu", 1))), model.GangJob},
		"our driver, several groups":    {gpuJob("batch", group("a", 1, gpuTask("caravan", "gpu", 1)), group("b", 1, gpuTask("exec", "gpu", 1))), model.GangJob},
		"count left out is one":         {gpuJob("batch", &api.TaskGroup{Name: ptr("g"), Tasks: []*api.Task{gpuTask("caravan", "gpu", 1)}}), model.GangNone},
		"count left to scaling's least": {gpuJob("batch", &api.TaskGroup{Name: ptr("g"), Scaling: &api.ScalingPolicy{Min: ptr(int64(2))}, Tasks: []*api.Task{gpuTask("caravan", "gpu", 1)}}), model.GangJob},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := gangspec.Parse(test.job)
			if err != nil {
				t.Fatal(err)
			}
			if got.Gang != test.want {
				t.Errorf("Gang = %q, want %q", got.Gang, test.want)
			}
			if got.Queue != "default" || got.Preempt != "checkpoint" || got.Topology.Mode != model.TopologyPrefer {
				t.Errorf("defaults are %+v", got)
			}
		})
	}
}

func TestParseReadsEverything(t *testing.T) {
	job := gpuJob("batch", group("a", 4, gpuTask("exec", "gpu", 1)), group("b", 2, gpuTask("exec", "gpu", 1)))
	job.Meta = map[string]string{
		"caravan_gang": "group", "caravan_queue": "org/team", "caravan_topology": "require:rack",
		"caravan_duration": "90m", "caravan_deadline": "36h", "caravan_preempt": "never",
		"caravan_checkpoint": "10m", "caravan_checkpoint_storage": "lustre-2", "caravan_checkpoint_gib": "40", "caravan_burst": "allow", "caravan_budget": "99.50", "other": "x",
		"caravan_on_failure": "continue", "caravan_on_resize": "restart",
		"caravan_models": "NVIDIA H100 80GB HBM3=1, NVIDIA A100-SXM4-80GB = .5,NVIDIA L4", "caravan_mix": "true", "caravan_share": "never", "caravan_collective": "alltoall",
		"caravan_regions": "eu,us", "caravan_data": "imagenet, s3://bucket/laion 5b",
		"caravan_speed": "4 : 3.5, 1:1,2:1.9",
	}
	job.TaskGroups[0].Meta = map[string]string{"caravan_min": "2", "caravan_max": "8", "caravan_queue": "org/team"}
	job.TaskGroups[1].Meta = map[string]string{"caravan_slice": "2:node"}
	got, err := gangspec.Parse(job)
	if err != nil {
		t.Fatal(err)
	}
	want := gangspec.Spec{
		Gang: model.GangGroup, Queue: "org/team", Topology: model.Topology{Mode: "require", Level: "rack"},
		Groups:   []gangspec.Bounds{{Group: "a", Count: 4, Min: 2, Max: 8}, {Group: "b", Count: 2, Min: 2, Max: 2, Slice: model.Slice{Size: 2, Level: "node"}}},
		Duration: 90 * time.Minute, DeadlineAfter: 36 * time.Hour, Preempt: "never", Move: "allow", Checkpoint: 10 * time.Minute, CheckpointStorage: "lustre-2", CheckpointGiB: 40,
		Burst: "allow", Budget: 99.5, OnFailure: "continue", OnResize: "restart",
		Models: []model.ModelSpeed{{Name: "NVIDIA H100 80GB HBM3", Speed: 1}, {Name: "NVIDIA A100-SXM4-80GB", Speed: 0.5}, {Name: "NVIDIA L4", Speed: 1}}, Mix: true, Share: "never", Collective: "alltoall",
		Regions: []string{"eu", "us"}, Data: []string{"imagenet", "s3://bucket/laion 5b"},
		Speed: []model.SpeedPoint{{Members: 1, Rate: 1}, {Members: 2, Rate: 1.9}, {Members: 4, Rate: 3.5}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse (-want +got):\n%s", diff)
	}
	at := time.Date(2031, 5, 17, 0, 0, 0, 0, time.UTC)
	if got := got.DeadlineFor(at); !got.Equal(at.Add(36 * time.Hour)) {
		t.Errorf("DeadlineFor = %v", got)
	}
}

func TestParseFaults(t *testing.T) {
	tests := map[string]struct {
		change func(*api.Job)
		want   []string
	}{
		"unknown key, near": {func(j *api.Job) { j.Meta["caravan_topolgy"] = "rack" },
			[]string{`job: caravan_topolgy = "rack": there is no such setting (did you mean "caravan_topology"?)`}},
		"unknown key, near none": {func(j *api.Job) { j.Meta["caravan_foo"] = "1" },
			[]string{`job: caravan_foo = "1": there is no such setting; there are caravan_gang, `}},
		"count of no cluster": {func(j *api.Job) { j.TaskGroups[0].Count = ptr(math.MaxInt) },
			[]string{`group "g": count = "9223372036854775807": allowed is at most 1048576`}},
		"no device": {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = ptr(uint64(0)) },
			[]string{`task "main" of group "g": count of device "gpu" = "0": allowed is 1 or more`}},
		"gang": {func(j *api.Job) { j.Meta["caravan_gang"] = "jobs" },
			[]string{`job: caravan_gang = "jobs": allowed is job, group or none (did you mean "job"?)`}},
		"topology without its mode": {func(j *api.Job) { j.Meta["caravan_topology"] = "rack" },
			[]string{`did you mean "require:rack"?`}},
		"topology level": {func(j *api.Job) { j.Meta["caravan_topology"] = "require:rak" },
			[]string{`did you mean "rack"?`}},
		"min above count": {func(j *api.Job) { j.Meta["caravan_min"] = "9" },
			[]string{`job: caravan_min = "9": allowed is at most the group's count, 4`}},
		"max below count": {func(j *api.Job) { j.TaskGroups[0].Meta["caravan_max"] = "3" },
			[]string{`group "g": caravan_max = "3": allowed is at least the group's count, 4`}},
		"count 0": {func(j *api.Job) { j.TaskGroups[0].Count = ptr(0) },
			[]string{`group "g": count = "0": allowed is 1 or more`}},
		"no group":   {func(j *api.Job) { j.TaskGroups = nil }, []string{"no task group"}},
		"queue":      {func(j *api.Job) { j.Meta["caravan_queue"] = "a//b" }, []string{"caravan_queue"}},
		"deadline":   {func(j *api.Job) { j.Meta["caravan_deadline"] = "tomorrow" }, []string{"RFC 3339"}},
		"duration":   {func(j *api.Job) { j.Meta["caravan_duration"] = "-1h" }, []string{"above 0"}},
		"on_failure": {func(j *api.Job) { j.Meta["caravan_on_failure"] = "contine" }, []string{`(did you mean "continue"?)`}},
		"on_failure without room": {func(j *api.Job) { j.Meta["caravan_on_failure"] = "continue" },
			[]string{"fewer members than count"}},
		"on_resize": {func(j *api.Job) { j.Meta["caravan_on_resize"] = "resize" }, []string{"notify or restart"}},
		"a region of no name": {func(j *api.Job) { j.Meta["caravan_regions"] = "eu,,us" },
			[]string{`job: caravan_regions = "eu,,us": "" does not go; allowed are up to 64 different names with commas between them, such as "eu, us"`}},
		"a region twice":           {func(j *api.Job) { j.Meta["caravan_regions"] = "eu, eu" }, []string{`"eu" is there twice`}},
		"a region twice, and none": {func(j *api.Job) { j.Meta["caravan_regions"] = "eu, eu," }, []string{`"eu" is there twice`}},
		"a region with a space":    {func(j *api.Job) { j.Meta["caravan_regions"] = "e u" }, []string{`"e u" does not go`}},
		"data that cannot be read": {func(j *api.Job) { j.Meta["caravan_data"] = "a\x00b" }, []string{`caravan_data`}},
		"storage":                  {func(j *api.Job) { j.Meta["caravan_checkpoint_storage"] = "a b" }, []string{`job: caravan_checkpoint_storage = "a b": allowed is the name of a storage, of letters, digits, ".", "_" and "-"`}},
		"checkpoint size":          {func(j *api.Job) { j.Meta["caravan_checkpoint_gib"] = "40GB" }, []string{`job: caravan_checkpoint_gib = "40GB": allowed is a whole number of GiB, 1 to 1048576, such as "40"`}},
		"collective":               {func(j *api.Job) { j.Meta["caravan_collective"] = "all2all" }, []string{`job: caravan_collective = "all2all": allowed is ring or alltoall (did you mean "alltoall"?)`}},
		"a slice that is no number": {func(j *api.Job) { j.Meta["caravan_gang"], j.Meta["caravan_slice"] = "job", "x" },
			[]string{`job: caravan_slice = "x": allowed is "SIZE" or "SIZE:LEVEL", SIZE 2 or more and a divisor of the group's count, 4`}},
		"a slice that is no part": {func(j *api.Job) { j.Meta["caravan_gang"], j.Meta["caravan_slice"] = "job", "3:rack" },
			[]string{`caravan_slice = "3:rack": allowed is`}},
		"a slice in an island": {func(j *api.Job) { j.Meta["caravan_gang"], j.Meta["caravan_slice"] = "job", "2:island" },
			[]string{`caravan_slice = "2:island": the level allowed is node, domain, rack, block, zone or region`}},
		"slices of an elastic group": {func(j *api.Job) {
			j.Meta["caravan_gang"], j.Meta["caravan_slice"], j.Meta["caravan_min"] = "job", "2", "2"
		}, []string{"a group in slices has a fixed count"}},
		"slices of no gang": {func(j *api.Job) { j.Meta["caravan_slice"] = "2" },
			[]string{`group "g": caravan_slice = "2:domain": members that are placed one by one come in no slices`}},
		"slices wider than the gang": {func(j *api.Job) {
			j.Meta["caravan_gang"], j.Meta["caravan_slice"], j.Meta["caravan_topology"] = "job", "2:block", "require:rack"
		}, []string{`the whole gang is in one rack by caravan_topology already`}},
		"models without a name":      {func(j *api.Job) { j.Meta["caravan_models"] = "H100=1,=2" }, []string{`caravan_models = "H100=1,=2": a name is missing; allowed are names as caravan topology shows them`}},
		"models with an empty entry": {func(j *api.Job) { j.Meta["caravan_models"] = "H100=1," }, []string{`a name is missing`}},
		"models whose speed is none": {func(j *api.Job) { j.Meta["caravan_models"] = "H100=fast" }, []string{`the speed "fast" is no number above 0`}},
		"models of no speed":         {func(j *api.Job) { j.Meta["caravan_models"] = "H100=0" }, []string{`the speed "0" is no number above 0`}},
		"models of endless speed":    {func(j *api.Job) { j.Meta["caravan_models"] = "H100=Inf" }, []string{`the speed "Inf" is no number above 0`}},
		"a model twice":              {func(j *api.Job) { j.Meta["caravan_models"] = "H100=1, H100 = 2" }, []string{`"H100" is listed twice`}},
		"a path for a model":         {func(j *api.Job) { j.Meta["caravan_models"] = "nvidia/gpu/H100" }, []string{`"nvidia/gpu/H100" is no name of a model`}},
		"many models":                {func(j *api.Job) { j.Meta["caravan_models"] = strings.Repeat("H,", 32) + "X" }, []string{`"H" is listed twice`}},
		"models and one in the request": {func(j *api.Job) {
			j.Meta["caravan_models"] = "H100,A100"
			j.TaskGroups[0].Tasks[0].Resources.Devices[0].Name = "nvidia/gpu/H100"
		}, []string{`task "main" of group "g": device "nvidia/gpu/H100": it names its model, and caravan_models = "H100,A100" names those that the job takes; ask for "nvidia/gpu", or leave caravan_models out`}},
		"models and no device": {func(j *api.Job) {
			j.Meta["caravan_models"] = "H100"
			j.TaskGroups[0].Tasks[0].Resources.Devices = nil
		}, []string{`job: caravan_models = "H100": no task asks for a device`}},
		"a mixture of nothing":  {func(j *api.Job) { j.Meta["caravan_mix"] = "true" }, []string{`job: caravan_mix = "true": it says whether one gang may have several of the models in caravan_models`}},
		"speed without members": {func(j *api.Job) { j.Meta["caravan_speed"] = "1:1,3.5" }, []string{`job: caravan_speed = "1:1,3.5": "3.5" is no MEMBERS:SPEED; allowed are speeds by the gang's members, each beside the others, such as "1:1, 2:1.9, 4:3.5"`}},
		"speed of no members":   {func(j *api.Job) { j.Meta["caravan_speed"] = "0:1" }, []string{`the members "0" are no whole number from 1 to 1048576`}},
		"speed of half a one":   {func(j *api.Job) { j.Meta["caravan_speed"] = "0.5:1" }, []string{`the members "0.5" are no whole number`}},
		"no speed":              {func(j *api.Job) { j.Meta["caravan_speed"] = "1:0" }, []string{`the speed "0" is no number above 0`}},
		"speed is no number":    {func(j *api.Job) { j.Meta["caravan_speed"] = "1:NaN" }, []string{`the speed "NaN" is no number above 0`}},
		"speeds far apart":      {func(j *api.Job) { j.Meta["caravan_speed"] = "1:1e-30,2:1" }, []string{`the speed "1e-30" is no number above 0`}},
		"one size twice":        {func(j *api.Job) { j.Meta["caravan_speed"] = "2:1, 2:1.9" }, []string{`2 members are listed twice`}},
		"many sizes":            {func(j *api.Job) { j.Meta["caravan_speed"] = manySizes(65) }, []string{"allowed are at most 64 sizes"}},
		"share":                 {func(j *api.Job) { j.Meta["caravan_share"] = "yes" }, []string{`job: caravan_share = "yes": allowed is never, allow or only`}},
		"mix":                   {func(j *api.Job) { j.Meta["caravan_mix"] = "yes" }, []string{`job: caravan_mix = "yes": allowed is true or false`}},
		"budget":                {func(j *api.Job) { j.Meta["caravan_budget"] = "NaN" }, []string{"amount above 0"}},
		"in a task's meta": {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Meta = map[string]string{"caravan_gang": "job"} },
			[]string{`task "main" of group "g": caravan_gang = "job": the meta of a task is not read`}},
		"job and group disagree": {func(j *api.Job) {
			j.Meta["caravan_gang"], j.TaskGroups[0].Meta["caravan_gang"] = "job", "none"
		}, []string{`group "g": caravan_gang = "none": job has "job"`}},
		"the gate as meta": {func(j *api.Job) { j.Meta["caravan_gate"] = "open" }, []string{"constraint"}},
		"all at once": {func(j *api.Job) {
			j.Meta["caravan_gang"], j.Meta["caravan_budget"], j.Meta["caravan_x"] = "?", "0", "1"
		}, []string{"caravan_gang", "caravan_budget", "caravan_x"}},
		"several groups and one bound": {func(j *api.Job) {
			j.TaskGroups = append(j.TaskGroups, group("h", 1, gpuTask("exec", "gpu", 1)))
			j.Meta["caravan_max"] = "8"
		}, []string{"several groups"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job := gpuJob("batch", group("g", 4, gpuTask("exec", "gpu", 1)))
			job.Meta, job.TaskGroups[0].Meta = map[string]string{}, map[string]string{}
			test.change(job)
			_, err := gangspec.Parse(job)
			var e *gangspec.Error
			if !errors.As(err, &e) {
				t.Fatalf("Parse: %v, want an *Error", err)
			}
			if len(e.Faults) != len(test.want) {
				t.Errorf("%d faults, want %d: %v", len(e.Faults), len(test.want), e.Sentences())
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestWritten(t *testing.T) {
	job := gpuJob("system", group("g", 1, gpuTask("exec", "gpu", 1)))
	if got := gangspec.Written(job); got != nil {
		t.Errorf("Written of a job without settings = %v", got)
	}
	job.Meta = map[string]string{"caravan_queue": "a", "other": "b"}
	job.TaskGroups[0].Meta = map[string]string{"caravan_gang": "job", "caravan_queue": "a"}
	if diff := cmp.Diff([]string{"caravan_gang", "caravan_queue"}, gangspec.Written(job)); diff != "" {
		t.Errorf("Written (-want +got):\n%s", diff)
	}
}

func TestParseCustomLevel(t *testing.T) {
	job := gpuJob("batch", group("g", 1, gpuTask("exec", "gpu", 1)))
	job.Meta = map[string]string{"caravan_topology": "prefer:pod"}
	if _, err := gangspec.Parse(job); err == nil {
		t.Error("Parse accepted an unknown level")
	}
	got, err := gangspec.Parse(job, "pod")
	if err != nil || got.Topology.Level != "pod" {
		t.Errorf("Parse = %+v, %v", got.Topology, err)
	}
}

// manySizes is a speed for each size up to n.
func manySizes(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%d:1", i+1))
	}
	return strings.Join(all, ",")
}
