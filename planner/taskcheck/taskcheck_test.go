package taskcheck

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/jobspecs"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

func TestParse(t *testing.T) {
	job := func(driver, duration string, config map[string]any) *api.Job {
		task := api.NewTask("main", driver)
		task.Config = config
		return api.NewBatchJob("j", "j", "global", 50).SetMeta("caravan_duration", duration).
			AddTaskGroup(api.NewTaskGroup("g", 2).AddTask(task).AddTask(nil)).AddTaskGroup(nil)
	}
	bad := map[string]any{"member": "king", "command": "x", "comand": "${x}"}
	tests := map[string]struct {
		job  *api.Job
		want []string
	}{
		"no job":           {nil, []string{"job: job: there is none"}},
		"well":             {job("caravan", "5m", map[string]any{"command": "x"}), nil},
		"another driver's": {job("raw_exec", "5m", bad), nil},
		"nothing to run":   {job("caravan", "5m", nil), []string{`task "main" of group "g": config.command: allowed is a command, or an image`}},
		"settings and configs": {job("caravan", "soon", bad), []string{
			`job: caravan_duration = "soon": allowed is a duration`,
			`task "main" of group "g": config.comand = "${x}": allowed is nothing: there is no such option; did you mean "command"?`,
			`task "main" of group "g": config.member = "king": allowed is rank, follow, none`,
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(test.job)
			var faults *gangspec.Error
			if err != nil && !errors.As(err, &faults) {
				t.Fatal(err)
			}
			got := gangspec.Sentences(err)
			short := cmp.Comparer(func(a, b string) bool {
				return a == b || len(a) > 40 && len(b) > 40 && a[:40] == b[:40] && a[:20] == "job: caravan_duratio"
			})
			if diff := cmp.Diff(test.want, got, short); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExamples: what is handed out as a starting point is taken.
func TestExamples(t *testing.T) {
	names, err := fs.Glob(jobspecs.Files, "*.hcl")
	if err != nil || len(names) == 0 {
		t.Fatalf("%d examples, %v", len(names), err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(jobspecs.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		job, err := jobhcl.Parse(text, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(job); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
