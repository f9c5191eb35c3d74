package apply_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestPromisesAreWritten: what a plan promises is in the job's record, whether the job is
// admitted by the same plan or waits, and out of it when it is taken back.
func TestPromisesAreWritten(t *testing.T) {
	for name, admits := range map[string]bool{"a job that waits": false, "a job that is admitted": true} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 2)
			f.submit(gatedJob("due", "batch", "job", 2, 8))
			e := apply.NewExecutor(f.client, f, options())
			e.Execute(t.Context(), f.view(), nil) // it is seen for the first time
			by := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			promised := &model.Promised{At: by.Add(-time.Hour), Deadline: by, GPUs: 16}
			v := f.view()
			plan := &model.Plan{Promises: []model.Promise{{Namespace: "default", Job: "due", Promised: promised, Reason: "it can meet it"}}}
			if admits {
				plan.Decisions = decide(f, v).Decisions
			}
			results := e.Execute(t.Context(), v, plan)
			if len(results) != 1 || results[0].Err != nil || !results[0].Changed {
				t.Fatalf("results %+v", results)
			}
			want := record.PhaseQueued
			if admits {
				want = record.PhaseAdmitted
			}
			rec := f.records["default/due"]
			if rec.Promised == nil || *rec.Promised != *promised || rec.Phase != want {
				t.Fatalf("record is %s with %+v, want %s with %+v", rec.Phase, rec.Promised, want, promised)
			}
			if admits {
				return
			}
			plan = &model.Plan{Promises: []model.Promise{{Namespace: "default", Job: "due", Reason: "a node has failed"}, {Namespace: "default", Job: "gone", Reason: "nobody has it"}}}
			if results = e.Execute(t.Context(), f.view(), plan); len(results) != 1 || results[0].Err != nil {
				t.Fatalf("results %+v", results)
			}
			rec = f.records["default/due"]
			told := slices.ContainsFunc(rec.History, func(e record.Event) bool { return strings.Contains(e.Text, "a node has failed") })
			if rec.Promised != nil || !told {
				t.Errorf("record has %+v, history %+v", rec.Promised, rec.History)
			}
		})
	}
}

// TestPromiseIsLeftToTheNext: a promise of a job whose record somebody else has written
// meanwhile is not written, and the trouble is told.
func TestPromiseIsLeftToTheNext(t *testing.T) {
	f := newFake(t, 2)
	f.submit(gatedJob("due", "batch", "job", 2, 8))
	e := apply.NewExecutor(f.client, f, options())
	e.Execute(t.Context(), f.view(), nil)
	v := f.view()
	other := f.records["default/due"]
	if err := f.Put(t.Context(), &other); err != nil {
		t.Fatal(err)
	}
	plan := &model.Plan{Promises: []model.Promise{{Namespace: "default", Job: "due", Promised: &model.Promised{}, Reason: "it can meet it"}}}
	results := e.Execute(t.Context(), v, plan)
	if len(results) != 1 || !errors.Is(results[0].Err, record.ErrConflict) || f.records["default/due"].Promised != nil {
		t.Errorf("results %+v, record has %+v", results, f.records["default/due"].Promised)
	}
}
