package gangspec_test

import (
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

func TestSaves(t *testing.T) {
	block := func(driver string, value any) *api.Job {
		task := gpuTask(driver, "nvidia/gpu", 4)
		task.Config = map[string]any{"checkpoint": value}
		return gpuJob("batch", group("a", 2, task))
	}
	signal := map[string]any{"signal": "SIGUSR1"}
	meta := gpuJob("batch", group("a", 2, gpuTask("docker", "nvidia/gpu", 4)))
	meta.Meta = map[string]string{"caravan_checkpoint": "15m"}
	for name, tt := range map[string]struct {
		job  *api.Job
		want bool
	}{
		"nothing is said":                {job: gpuJob("batch", group("a", 2, gpuTask("caravan", "nvidia/gpu", 4)))},
		"its author says how often":      {job: meta, want: true},
		"the driver asks for one":        {job: block("caravan", signal), want: true},
		"as Nomad reads HCL":             {job: block("caravan", []map[string]any{signal}), want: true},
		"as JSON is read":                {job: block("caravan", []any{signal}), want: true},
		"the driver looks for them":      {job: block("caravan", map[string]any{"paths": []any{"ckpt"}}), want: true},
		"a signal without a name":        {job: block("caravan", map[string]any{"signal": "", "paths": []any{}})},
		"only how long a stop waits":     {job: block("caravan", []map[string]any{{"grace": "1m"}})},
		"a block without anything":       {job: block("caravan", map[string]any{})},
		"a list of nothing":              {job: block("caravan", []any{})},
		"no block":                       {job: block("caravan", "often")},
		"nothing in its place":           {job: block("caravan", nil)},
		"a list with nothing in it":      {job: block("caravan", []any{nil})},
		"a driver that asks for nothing": {job: block("docker", signal)},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := gangspec.Parse(tt.job)
			if err != nil {
				t.Fatal(err)
			}
			if got := gangspec.ToModel(tt.job, spec).Saves; got != tt.want {
				t.Errorf("saves %t, want %t", got, tt.want)
			}
		})
	}
}
