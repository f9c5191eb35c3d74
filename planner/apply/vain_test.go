package apply_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// TestWhoWaitsInVainIsPlacedAnew: a job of the driver caravan that came past the
// gateway has no identity to join its gang with, and would wait for ever on its
// GPUs.
func TestWhoWaitsInVainIsPlacedAnew(t *testing.T) {
	tests := map[string]struct {
		gang string
		task func(*api.Task)
		// before is what an earlier planner has remembered of the job.
		before bool
		anew   bool
	}{
		"a gang":                         {gang: "job", anew: true},
		"a gang of each group":           {gang: "group", anew: true},
		"members one by one":             {gang: "none", anew: true},
		"a follower":                     {gang: "job", task: func(t *api.Task) { t.Config = map[string]any{"member": "follow"} }, anew: true},
		"one that was adopted before":    {gang: "job", before: true, anew: true},
		"one by one, and adopted before": {gang: "none", before: true, anew: true},
		"a task that does not wait":      {gang: "job", task: func(t *api.Task) { t.Config = map[string]any{"member": "none"} }},
		"a task with an identity of its author's": {gang: "job", task: func(t *api.Task) {
			t.Identities = []*api.WorkloadIdentity{{Name: "caravan", Audience: []string{"caravan"}, File: true}}
		}},
		"a task of another driver": {gang: "job", task: func(t *api.Task) { t.Driver = "exec" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 2)
			job := fakeJob("train", "batch", test.gang, 2, 8)
			task := job.TaskGroups[0].Tasks[0]
			task.Driver = "caravan"
			if test.task != nil {
				test.task(task)
			}
			f.submit(job)
			if test.before {
				adoptedBefore(t, f, "train")
			}
			e := apply.NewExecutor(f.client, f, options())
			v := run(t, f, e, "running", func(v *observe.View) bool {
				m, ok := v.Job("default", "train")
				return ok && m.Record != nil && m.Record.Phase == record.PhaseRunning && m.Record.Unpinned != test.anew
			})
			m := placed(t, f, v, "train", 2)
			if _, task := rewrite.Unidentified(m.Current); task != "" {
				t.Errorf("task %q runs without an identity", task)
			}
			told := len(m.Record.History) > 0 && strings.Contains(m.Record.History[len(m.Record.History)-1].Text, "past Caravan's gateway")
			if told != test.anew {
				t.Errorf("history %+v; want a word of the gateway: %v", m.Record.History, test.anew)
			}
			ran := 0
			for _, a := range f.allocs {
				if a.JobID == "train" {
					ran++
				}
			}
			if want := map[bool]int{true: 4, false: 2}[test.anew]; ran != want {
				t.Errorf("%d allocations were made, want %d", ran, want)
			}
		})
	}
}

// adoptedBefore remembers a job as a planner did that let it run on in any case.
func adoptedBefore(t *testing.T, f *fakeNomad, id string) {
	t.Helper()
	m, _ := f.view().Job("default", id)
	orig, err := rewrite.Strip(m.Current, nil)
	if err != nil {
		t.Fatal(err)
	}
	rec := &record.Record{Namespace: "default", JobID: id, Original: orig, SpecHash: gangspec.Hash(orig), Phase: record.PhaseRunning, Unpinned: true,
		PlacedHash: gangspec.Hash(orig), Submitted: f.now, PriorIndex: *m.Current.JobModifyIndex - 1}
	for _, s := range m.Members {
		rec.Members = append(rec.Members, s.Member)
	}
	if err := f.Put(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
}
