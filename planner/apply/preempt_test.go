package apply_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// contend lets the job "low" give way to "high" as long as that waits.
func contend(f *fakeNomad, v *observe.View, leave func(model.Member) bool) *model.Plan {
	plan := decide(f, v)
	low, ok := v.Job("default", "low")
	high, waits := v.Job("default", "high")
	if !ok || !waits || low.Record == nil || high.Record == nil || high.Record.Phase != record.PhaseQueued {
		return plan
	}
	p := model.Preemption{Namespace: "default", Job: "low", Action: model.ActionPreempt, For: model.JobName{Namespace: "default", ID: "high"}, ForGroup: "b", Reason: "gives way to high"}
	for _, s := range low.Members {
		if leave(s.Member) {
			p.Members = append(p.Members, s.Member)
		}
	}
	if len(p.Members) > 0 && !slices.ContainsFunc(plan.Decisions, func(d model.Decision) bool { return d.Job == "high" && d.Action == model.ActionAdmit }) {
		plan.Preemptions = append(plan.Preemptions, p)
	}
	return plan
}

func TestGiveWay(t *testing.T) {
	all := func(model.Member) bool { return true }
	tests := map[string]struct {
		gang, kind string
		groups     int
		leave      func(model.Member) bool
		// wantStopped are the members that stop, of two per group.
		wantStopped int
		want        []model.Preempted
	}{
		"a gang":                     {"job", "batch", 1, all, 2, []model.Preempted{{By: "high", ByGroup: "b"}}},
		"a gang of a service":        {"job", "service", 1, all, 2, []model.Preempted{{By: "high", ByGroup: "b"}}},
		"never a part of a gang":     {"job", "batch", 1, func(m model.Member) bool { return m.Index == 0 }, 2, []model.Preempted{{By: "high", ByGroup: "b"}}},
		"one of two groups":          {"group", "batch", 2, func(m model.Member) bool { return m.Group == "v" }, 2, []model.Preempted{{By: "high", ByGroup: "b", Group: "v"}}},
		"all of its groups":          {"group", "service", 2, all, 4, []model.Preempted{{By: "high", ByGroup: "b", Group: "w"}, {By: "high", ByGroup: "b", Group: "v"}}},
		"a member that stands alone": {"none", "batch", 1, func(m model.Member) bool { return m.Index == 1 }, 1, []model.Preempted{{By: "high", ByGroup: "b", Group: "w", Index: 1}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			members := 2 * test.groups
			f := newFake(t, members)
			low := gatedJob("low", test.kind, test.gang, 2, 8)
			if test.groups == 2 {
				other := fakeJob("other", test.kind, test.gang, 2, 8).TaskGroups[0]
				other.Name = ptr("v")
				low.TaskGroups = append(low.TaskGroups, other)
			}
			f.submit(low)
			e := apply.NewExecutor(f.client, f, options())
			placed(t, f, run(t, f, e, "low runs", phase("low", record.PhaseRunning)), "low", members)
			run(t, f, e, "calm", phase("low", record.PhaseRunning))
			f.submit(gatedJob("high", "batch", "job", 1, 8))
			run(t, f, e, "high waits", phase("high", record.PhaseQueued))
			v := f.view()
			results := e.Execute(t.Context(), v, contend(f, v, test.leave))
			if !slices.ContainsFunc(results, func(r apply.Result) bool { return r.Kind == apply.KindPreempt && r.Changed && r.Err == nil }) {
				t.Fatalf("results %+v", results)
			}
			stopped := 0
			for _, a := range f.allocs {
				if a.DesiredStatus != api.AllocDesiredStatusRun {
					stopped++
				}
			}
			if stopped != test.wantStopped {
				t.Errorf("%d members were told to stop, want %d", stopped, test.wantStopped)
			}
			rec := f.records["default/low"]
			if !strings.Contains(rec.Reason, "gives way to high") || rec.History[0].Kind != string(apply.KindPreempt) {
				t.Errorf("reason %q, history %+v", rec.Reason, rec.History)
			}
			got := slices.Clone(rec.Preempted)
			for i := range got {
				if got[i].At != v.Taken || got[i].Namespace != "default" {
					t.Errorf("noted %+v", got[i])
				}
				got[i].At, got[i].Namespace = test.want[0].At, ""
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("noted %+v, want %+v", got, test.want)
			}
			if stopped == members && !rewrite.GatedWhole(f.jobs["low"]) {
				t.Error("the job is not gated before its members stop")
			}
			f.tick()
			placed(t, f, run(t, f, e, "high runs", phase("high", record.PhaseRunning)), "high", 1)
		})
	}
}

// TestGiveWayOnlyOnce: a plan that is carried out again finds nothing to do.
func TestGiveWayOnlyOnce(t *testing.T) {
	f := newFake(t, 2)
	f.submit(gatedJob("low", "batch", "job", 2, 8))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "low runs", phase("low", record.PhaseRunning))
	f.submit(gatedJob("high", "batch", "job", 1, 8))
	run(t, f, e, "high waits", phase("high", record.PhaseQueued))
	v := f.view()
	plan := contend(f, v, func(model.Member) bool { return true })
	e.Execute(t.Context(), v, plan)
	for range 5 {
		for _, r := range e.Execute(t.Context(), f.view(), plan) {
			if r.Kind == apply.KindPreempt {
				t.Errorf("again: %+v", r)
			}
		}
		f.tick()
	}
	if rec := f.records["default/low"]; len(rec.Preempted) != 1 {
		t.Errorf("noted %+v, want it once", rec.Preempted)
	}
}

// TestGiveWayStopsAnywhere lets the planner die at each of its writes, before or
// after Nomad has done it, and another one take over: the gang is never in
// parts for long, the one that it is for starts, and then it starts again.
func TestGiveWayStopsAnywhere(t *testing.T) {
	for _, after := range []bool{false, true} {
		total := 1
		for n := 1; n <= total; n++ {
			t.Run(fmt.Sprintf("after=%v/write=%d", after, n), func(t *testing.T) {
				total = max(total, givesWayAt(t, n, after))
			})
		}
		if total < 8 {
			t.Errorf("the scenario has %d writes only", total)
		}
	}
}

func givesWayAt(t *testing.T, n int, after bool) (writes int) {
	f := newFake(t, 2)
	f.submit(gatedJob("low", "batch", "job", 2, 8))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "low runs", phase("low", record.PhaseRunning))
	f.submit(gatedJob("high", "batch", "job", 1, 8))
	run(t, f, e, "high waits", phase("high", record.PhaseQueued))
	dead := false
	first := f.writes
	f.fail = func(i int, _ string, late bool) int {
		writes = i - first
		if dead || i-first == n && late == after {
			dead = true
			return 500
		}
		return 0
	}
	all := func(model.Member) bool { return true }
	for range 40 {
		v := f.view()
		e.Execute(t.Context(), v, contend(f, v, all))
		if dead {
			dead = false
			e = apply.NewExecutor(f.client, f, options())
		}
		high, _ := v.Job("default", "high")
		if high.Record.Phase == record.PhaseAdmitted {
			for _, a := range f.allocs {
				if a.JobID == "low" && a.ClientStatus == "running" {
					t.Fatalf("high is admitted while %s runs", a.ID)
				}
			}
		}
		f.tick()
	}
	f.fail = nil
	v := f.view()
	placed(t, f, v, "high", 1)
	low, _ := v.Job("default", "low")
	if low.Record.Phase != record.PhaseQueued || len(low.Record.Preempted) != 1 {
		t.Errorf("low is %s, and gave way %+v", low.Record.Phase, low.Record.Preempted)
	}
	for _, a := range f.allocs {
		if a.JobID == "high" {
			a.ClientStatus = "complete"
		}
	}
	placed(t, f, run(t, f, e, "low runs again", phase("low", record.PhaseRunning)), "low", 2)
	return writes
}
