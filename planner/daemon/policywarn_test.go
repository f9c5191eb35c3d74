package daemon

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

func TestPolicyWarnings(t *testing.T) {
	s := &model.Snapshot{
		Jobs: []model.Job{
			{ID: "a", Queue: "org/a", PriorityClass: "high"}, {ID: "b", Queue: "org/b", PriorityClass: "hihg"}, {ID: "c", Queue: "org/b", PriorityClass: "now"},
			{ID: "d", Queue: "x", CheckpointStorage: "lustre"},
		},
		Queues: []model.Queue{{Path: "org", Priorities: map[string]int{"high": 80}}, {Path: "org/a"}, {Path: "org/b"}},
	}
	p := queue.Policy{
		Interactive: queue.Interactive{Classes: []string{"now", "high", "nwo"}, Queues: []string{"org", "x", "og"}},
		Preempt:     preempt.Policy{Storages: []preempt.Storage{{Name: "lustre"}, {Name: "lusrte"}}},
	}
	want := []httpapi.Warning{
		{Subject: "priority hihg", Text: "1 of the jobs name it, but neither their queues nor those above give it a number, so Nomad's priority counts: add it to priorities, or correct caravan_priority"},
		{Subject: "policy.interactive.classes", Text: `no job has the priority "nwo", and no queue gives it a number: correct it if it is misspelt`},
		{Subject: "policy.interactive.queues", Text: `no job is in queue "og", and it is not configured: correct it if it is misspelt`},
		{Subject: "policy.preempt.storage", Text: `no job has caravan_checkpoint_storage = "lusrte": correct it if it is misspelt`},
	}
	if diff := cmp.Diff(want, policyWarnings(&p, s)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if got := policyWarnings(&queue.Policy{}, &model.Snapshot{}); got != nil {
		t.Errorf("warnings of nothing: %v", got)
	}
}

// Whoever only observes is told what GPUs would be divided for, too.
func TestWouldDivide(t *testing.T) {
	plan := &model.Plan{Repartitions: []model.Repartition{
		{Node: "n1", GPU: "G1", To: []string{"3g.40gb", "3g.40gb"}, For: model.JobName{Namespace: "default", ID: "halves"}, Reason: "is idle"},
		{Node: "n1", GPU: "G2", For: model.JobName{Namespace: "default", ID: "halves"}, Reason: "is idle, too"},
	}}
	got := wouldBe(plan)[jobKey{"default", "halves"}]
	for _, want := range []string{"would have GPU G1 of node n1 divided into 3g.40gb, 3g.40gb if the planner did not only observe: is idle", "would have GPU G2 of node n1 divided so that it is whole"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}
