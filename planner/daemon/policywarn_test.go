package daemon

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
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

// A reservation that is about nothing that there is does nothing without a word: it
// is told of when it is set, and as long as it counts.
func TestReservationThatMatchesNothing(t *testing.T) {
	d := settingDaemon(t, &fakeUsage{})
	d.view.Store(&observe.View{Snapshot: &model.Snapshot{Nodes: []model.Node{{ID: "1", Name: "gpu-1", Levels: map[string]string{"rack": "r1"}}}}})
	const text = `reservation "m" {
  kind  = "maintenance"
  nodes = ["gpu-1", "gpu-2"]
  from  = "2100-12-01T22:00:00Z"
  until = "2100-12-02T22:00:00Z"
}
reservation "k" {
  kind   = "capacity"
  queue  = "nowhere"
  gpus   = 2
  level  = "rack"
  domain = "r7"
}
reservation "past" {
  kind  = "maintenance"
  nodes = ["gpu-9"]
  from  = "2020-12-01T22:00:00Z"
  until = "2020-12-02T22:00:00Z"
}
`
	got, err := (backend{d}).Set(t.Context(), httpapi.SettingReservations, hcl(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []httpapi.Warning{
		{Subject: "reservation m", Text: `no node has the name or ID "gpu-2"; there are gpu-1: correct it if it is misspelt`},
		{Subject: "reservation k", Text: `no node is in rack "r7"; there are r1: correct it if it is misspelt`},
		{Subject: "reservation k", Text: `no job is in queue "nowhere", and it is not configured, so that 2 GPUs are kept for nobody: correct it if it is misspelt`},
	}
	if diff := cmp.Diff(want, got.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, (backend{d}).Status().Warnings); diff != "" {
		t.Errorf("warnings of the status (-want +got):\n%s", diff)
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
