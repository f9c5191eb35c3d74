package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestQueueWarnings(t *testing.T) {
	s := &model.Snapshot{
		Nodes:  []model.Node{{GPUs: []model.GPU{{Model: "H100"}, {Model: "A100"}}}},
		Jobs:   []model.Job{{Queue: "org/a"}, {Queue: "org/a/ada"}, {Queue: "org/c"}, {Queue: "org/c"}, {Queue: "x"}},
		Queues: []model.Queue{{Path: "org"}, {Path: "org/a", Guarantee: map[string]int{"gpu/H100": 1, "gpu/H1000": 1}, Borrow: map[string]int{"gpu/H1000": 1}}},
	}
	want := []Warning{
		{"queue org/c", "it is not configured, and 2 of the jobs name it; they count for queue org: configure it, or correct caravan_queue"},
		{"queue x", "it is not configured, and 1 of the jobs name it; they count for queue default: configure it, or correct caravan_queue"},
		{"queue org/a", `no node has GPUs of the model "H1000" that it names; there are ["A100" "H100"]`},
	}
	if diff := cmp.Diff(want, queueWarnings(s)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if s.Queues = nil; queueWarnings(s) != nil {
		t.Error("warnings without queues")
	}
}
