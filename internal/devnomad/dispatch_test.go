package devnomad_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
)

// A dispatch makes a job of its own; what the parent does not take is refused
// in Nomad's words.
func TestDispatch(t *testing.T) {
	c := startSpec(t, devcluster.Spec{Nodes: []devcluster.Node{{Name: "a"}}}, devnomad.Options{})
	jobs := c.Client().Jobs()
	task := api.NewTask("t", "raw_exec").SetConfig("command", "/bin/true")
	parent := api.NewBatchJob("sweep", "sweep", "global", 50).AddDatacenter("*").AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
	parent.ParameterizedJob = &api.ParameterizedJobConfig{Payload: "forbidden", MetaRequired: []string{"run"}, MetaOptional: []string{"seed"}}
	if _, _, err := jobs.Register(parent, nil); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		id      string
		meta    map[string]string
		payload string
		want    string
	}{
		"payload":      {"sweep", map[string]string{"run": "1"}, "x", "Payload provided but forbidden"},
		"unknown key":  {"sweep", map[string]string{"run": "1", "b": "", "a": ""}, "", "unpermitted metadata keys: [a b]"},
		"missing key":  {"sweep", nil, "", "required meta keys: [run]"},
		"not there":    {"swept", nil, "", "parameterized job not found"},
		"as it should": {"sweep", map[string]string{"run": "1"}, "", ""},
	} {
		_, _, err := jobs.Dispatch(test.id, test.meta, []byte(test.payload), "", nil)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	resp, _, err := jobs.Dispatch("sweep", map[string]string{"run": "7"}, nil, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	child, _, err := jobs.Info(resp.DispatchedJobID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(*child.ID, "sweep/dispatch-") || !child.Dispatched || *child.ParentID != "sweep" || child.Meta["run"] != "7" || *child.Version != 0 {
		t.Errorf("child = %+v", child)
	}
	if _, _, err := jobs.Dispatch(*child.ID, nil, nil, "", nil); err == nil || !strings.Contains(err.Error(), "is not a parameterized job") {
		t.Errorf("dispatch of a child: %v", err)
	}
	if _, _, err := jobs.Register(child, nil); err == nil {
		// Fact: what was dispatched cannot become anything else.
		child.Dispatched, child.ParameterizedJob = false, nil
		if _, _, err := jobs.Register(child, nil); err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("register a child as an ordinary job: %v", err)
		}
	}
}
