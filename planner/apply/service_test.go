package apply_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// What a job has had is kept in its record through preemption and a planner that
// starts anew; what the order forgets of it is noted with the placement.
func TestServiceIsKept(t *testing.T) {
	f := newFake(t, 2)
	f.submit(gatedJob("low", "batch", "job", 2, 8))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "low runs", phase("low", record.PhaseRunning))
	admitted := f.records["default/low"].Admitted
	f.now = f.now.Add(time.Hour)
	f.submit(gatedJob("high", "batch", "job", 1, 8))
	run(t, f, e, "high waits", phase("high", record.PhaseQueued))
	v := f.view()
	e.Execute(t.Context(), v, contend(f, v, func(model.Member) bool { return true }))
	ran := v.Taken.Sub(admitted)
	want := record.Service{GPUSeconds: 16 * ran.Seconds(), Ran: ran, RanByModel: map[string]time.Duration{"H100": ran}, At: v.Taken}
	if got := f.records["default/low"].Service; !cmp.Equal(got, want) {
		t.Errorf("after it gave way: %+v, want %+v", got, want)
	}

	e = apply.NewExecutor(f.client, f, options()) // another planner
	for range 4 {                                 // high runs, beside it there is no room
		f.tick()
		v := f.view()
		e.Execute(t.Context(), v, decide(f, v))
	}
	if got := f.records["default/low"].Service; !cmp.Equal(got, want) {
		t.Errorf("while it waits: %+v, want %+v", got, want)
	}
	f.jobs["high"].Stop, f.jobs["high"].Status = ptr(true), ptr("dead")
	for _, a := range f.allocs {
		if a.JobID == "high" {
			a.DesiredStatus, a.ClientStatus = api.AllocDesiredStatusStop, api.AllocClientStatusComplete
		}
	}
	for range 6 {
		f.tick()
		v := f.view()
		plan := decide(f, v)
		for i := range plan.Decisions {
			plan.Decisions[i].Forgets = plan.Decisions[i].Action == model.ActionAdmit
		}
		e.Execute(t.Context(), v, plan)
	}
	got := f.records["default/low"]
	if got.Phase != record.PhaseRunning {
		t.Fatalf("low is %s: %s", got.Phase, got.Reason)
	}
	want.GPUs, want.Model, want.Runs, want.At = 16, "H100", true, got.Admitted
	want.ForgottenGPUSeconds, want.ForgottenRan = want.GPUSeconds, want.Ran
	if !cmp.Equal(got.Service, want) {
		t.Errorf("placed again: %+v, want %+v", got.Service, want)
	}
}
