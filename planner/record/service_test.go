package record

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// A life in runs: what a job has had is what it held, each time for as long as
// it did.
func TestAccount(t *testing.T) {
	begin := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(hours int) time.Time { return begin.Add(time.Duration(hours) * time.Hour) }
	two := []model.Member{{GPUs: []string{"a", "b"}}, {GPUs: []string{"c", "d"}}}
	rec := &Record{Phase: PhaseQueued}
	for i, step := range []struct {
		hour    int
		phase   Phase
		members []model.Member
		want    Service
	}{
		{0, PhaseQueued, nil, Service{}},
		{1, PhaseAdmitted, two, Service{GPUs: 4, Runs: true, At: at(1)}},
		{2, PhaseRunning, two, Service{GPUs: 4, Runs: true, At: at(1)}}, // nothing else is held
		{3, PhaseRunning, two[:1], Service{GPUSeconds: 8 * 3600, Ran: 2 * time.Hour, GPUs: 2, Runs: true, At: at(3)}},
		{5, PhaseRollback, two[:1], Service{GPUSeconds: 12 * 3600, Ran: 4 * time.Hour, At: at(5)}},
		{6, PhaseQueued, nil, Service{GPUSeconds: 12 * 3600, Ran: 4 * time.Hour, At: at(5)}},
		{9, PhaseAdmitted, []model.Member{{}}, Service{GPUSeconds: 12 * 3600, Ran: 4 * time.Hour, Runs: true, At: at(9)}},
		{10, PhaseQueued, nil, Service{GPUSeconds: 12 * 3600, Ran: 5 * time.Hour, At: at(10)}},
	} {
		rec.Phase, rec.Members = step.phase, step.members
		rec.Account(at(step.hour))
		if diff := cmp.Diff(step.want, rec.Service); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
	rec.Model = "B" // what has no GPUs is of no model
	rec.Phase, rec.Members = PhaseAdmitted, two
	rec.Account(at(11))
	rec.Account(at(13))
	rec.Phase = PhaseQueued
	rec.Account(at(14))
	before := rec.Service.RanByModel
	rec.Model, rec.Phase = "A", PhaseRunning
	rec.Account(at(20))
	want := map[string]time.Duration{"A": 2 * time.Hour, "B": 3 * time.Hour}
	if diff := cmp.Diff(want, rec.Service.UpTo(at(22)).RanByModel); diff != "" || before["A"] != 0 || len(rec.Service.RanByModel) != 1 {
		t.Errorf("by model (-want +got):\n%s", diff)
	}
	rec.Phase, rec.Service.RanByModel, rec.Service.Model = PhaseQueued, nil, ""
	rec.Service.Ran, rec.Service.GPUSeconds = 5*time.Hour, 12*3600
	rec.Service.Forget()
	if s := rec.Service; s.ForgottenGPUSeconds != 12*3600 || s.ForgottenRan != 5*time.Hour {
		t.Errorf("forgot %+v", s)
	}
	if s := (Service{GPUs: 2, Runs: true, At: at(3)}).UpTo(at(2)); s.GPUSeconds != 0 || !s.At.Equal(at(3)) {
		t.Errorf("a clock that goes back: %+v", s)
	}
}
