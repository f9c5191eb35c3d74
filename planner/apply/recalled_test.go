package apply_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// TestRecall: a user told one member of a gang to stop.
func TestRecall(t *testing.T) {
	tests := map[string]struct {
		gang, kind string
		groups     int
		group      string
		// wantStopped are the members that are stopped, of the job's two per group.
		wantStopped int
		wantReason  string
	}{
		"the gang is the job":            {"job", "service", 1, "", 2, "the gang of 2 is stopped whole"},
		"a batch gang":                   {"job", "batch", 1, "", 2, "the gang of 2 is stopped whole"},
		"the gang is one of two groups":  {"group", "service", 2, "v", 2, `the gangs "v" are stopped whole and wait whole, the others run on`},
		"the gang is the only group":     {"group", "batch", 1, "w", 2, `the gangs "w" are stopped whole`},
		"a group that the job lacks now": {"group", "service", 1, "gone", 0, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 4)
			job := gatedJob("train", test.kind, test.gang, 2, 8)
			if test.groups == 2 {
				other := fakeJob("other", test.kind, test.gang, 2, 8).TaskGroups[0]
				other.Name = ptr("v")
				job.TaskGroups = append(job.TaskGroups, other)
			}
			f.submit(job)
			e := apply.NewExecutor(f.client, f, options())
			all := 2 * test.groups
			placed(t, f, run(t, f, e, "running", phase("train", record.PhaseRunning)), "train", all)
			run(t, f, e, "calm", phase("train", record.PhaseRunning))
			first := map[string]bool{}
			named := ""
			for _, a := range f.allocs {
				if first[a.ID] = true; a.TaskGroup == test.group || test.group == "" {
					named = a.ID
				}
			}
			rec := f.records["default/train"]
			rec.Recall(record.Recall{Group: test.group, Alloc: named, By: "alice", At: f.now})
			if err := f.Put(t.Context(), &rec); err != nil {
				t.Fatal(err)
			}
			v := f.view()
			e.Execute(t.Context(), v, nil)
			stopped := 0
			for _, a := range f.allocs {
				if a.DesiredStatus != api.AllocDesiredStatusRun {
					stopped++
				}
			}
			if stopped != test.wantStopped {
				t.Errorf("%d members were told to stop, want %d", stopped, test.wantStopped)
			}
			rec = f.records["default/train"]
			if test.wantStopped == 0 {
				return
			}
			if !strings.Contains(rec.Reason, test.wantReason) || !strings.Contains(rec.Reason, "was told to stop by alice") {
				t.Errorf("reason %q, want %q", rec.Reason, test.wantReason)
			}
			if r := rec.Recalled(test.group); r == nil || !r.Taken {
				t.Errorf("recall = %+v, want one that was taken", r)
			}
			if test.wantStopped == all && !rewrite.GatedWhole(f.jobs["train"]) {
				t.Error("the job is not gated before its members stop")
			}
			f.tick()
			v = run(t, f, e, "running again", func(v *observe.View) bool {
				m, ok := v.Job("default", "train")
				return ok && m.Record.Phase == record.PhaseRunning && len(m.Members) == all && len(m.Record.Recalls) == 0
			})
			again := 0
			for _, s := range placed(t, f, v, "train", all).Members {
				if first[s.Alloc.ID] {
					again++
				}
			}
			if again != all-test.wantStopped {
				t.Errorf("%d members are those of before, want %d", again, all-test.wantStopped)
			}
		})
	}
}
