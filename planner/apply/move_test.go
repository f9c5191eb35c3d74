package apply_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// compacting decides as the planner does, with moves allowed: "big" has waited for
// hours.
func compacting(f *fakeNomad, v *observe.View) *model.Plan {
	f.t.Helper()
	states := map[record.Phase]model.State{record.PhaseQueued: model.StateQueued, record.PhaseAdmitted: model.StateAdmitted,
		record.PhaseRunning: model.StateRunning, record.PhaseRollback: model.StateStopping}
	s := *v.Snapshot
	s.Allocs, s.Nodes = slices.Clone(s.Allocs), slices.Clone(s.Nodes)
	for i := range s.Nodes {
		s.Nodes[i].Pool, s.Nodes[i].GPUs = api.NodePoolDefault, slices.Clone(s.Nodes[i].GPUs)
		for g := range s.Nodes[i].GPUs {
			s.Nodes[i].GPUs[g].Vendor, s.Nodes[i].GPUs[g].Type = "nvidia", "gpu"
		}
	}
	for _, m := range v.Managed {
		if m.Record == nil {
			continue
		}
		j := m.Model
		j.State, j.Members, j.RetryAfter = states[m.Record.Phase], m.Record.Members, m.Record.RetryAfter
		j.Started, j.Preempted, j.Moving = m.Record.Admitted, m.Record.Preempted, m.Record.Moving
		j.Groups = slices.Clone(j.Groups)
		for i := range j.Groups {
			j.Groups[i].Resources, j.Groups[i].Constraints = model.Resources{}, nil
		}
		if j.ID == "big" {
			j.Submitted = v.Taken.Add(-9 * time.Hour)
		}
		s.Jobs = append(s.Jobs, j)
	}
	for i := range s.Allocs {
		s.Allocs[i].Namespace = "default"
		at := slices.IndexFunc(f.allocs, func(a *api.AllocationListStub) bool { return a.ID == s.Allocs[i].ID })
		group, index, _ := rewrite.OriginByName(f.jobs[s.Allocs[i].Job], f.allocs[at].TaskGroup)
		s.Allocs[i].Group, s.Allocs[i].Index = group, index
	}
	plan, err := core.Decide(&s, core.Policy{Defrag: preempt.Defrag{Enabled: true, MinRunTime: time.Second}})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, d := range plan.Decisions {
		f.t.Logf("%s %s: %s %s", v.Taken.Format("05"), d.Job, d.Action, d.Reason)
	}
	return plan
}

// scattered runs "a" on four GPUs of one node and "b" on four of the other, and
// lets "big" wait for eight on one.
func scattered(t *testing.T, kind, gang string) (*fakeNomad, *apply.Executor) {
	t.Helper()
	f := newFake(t, 2)
	e := apply.NewExecutor(f.client, f, options())
	for _, name := range []string{"a", "fill", "b"} {
		f.submit(gatedJob(name, kind, gang, 1, 4))
		run(t, f, e, name+" runs", phase(name, record.PhaseRunning))
	}
	delete(f.jobs, "fill")
	delete(f.records, "default/fill")
	f.allocs = slices.DeleteFunc(f.allocs, func(a *api.AllocationListStub) bool { return a.JobID == "fill" })
	f.submit(gatedJob("big", "batch", "job", 1, 8))
	e.Execute(t.Context(), f.view(), nil)
	for range 12 {
		f.tick() // they have run for a while
	}
	return f, e
}

// TestMoveStopsAnywhere lets the planner die at each of its writes, before or
// after Nomad has done it, and another one take over: in the end the gang that
// was moved runs where a place was kept for it, and the one that waited where it
// was, and at no time is a GPU held twice.
func TestMoveStopsAnywhere(t *testing.T) {
	for name, how := range map[string][2]string{"a gang": {"batch", "job"}, "a service": {"service", "job"}, "a replica": {"service", "none"}} {
		for _, after := range []bool{false, true} {
			total := 1
			for n := 1; n <= total; n++ {
				t.Run(fmt.Sprintf("%s/after=%v/write=%d", name, after, n), func(t *testing.T) {
					total = max(total, movesAt(t, how[0], how[1], n, after))
				})
			}
			if total < 8 {
				t.Errorf("%s: the scenario has %d writes only", name, total)
			}
		}
	}
}

func movesAt(t *testing.T, kind, gang string, n int, after bool) (writes int) {
	f, e := scattered(t, kind, gang)
	dead, moved := false, ""
	first := f.writes
	f.fail = func(i int, _ string, late bool) int {
		writes = i - first
		if dead || i-first == n && late == after {
			dead = true
			return 500
		}
		return 0
	}
	kept := map[string][]model.Member{}
	for range 40 {
		v := f.view()
		for _, r := range e.Execute(t.Context(), v, compacting(f, v)) {
			if r.Kind == apply.KindMove && r.Changed && moved != r.Job && moved != "" {
				t.Fatalf("%s is moved, and then %s", moved, r.Job)
			} else if r.Kind == apply.KindMove && r.Changed {
				moved = r.Job
			}
		}
		for _, job := range []string{"a", "b"} {
			if m := f.records["default/"+job].Moving; len(m) > 0 {
				kept[job] = m[0].Members
			}
		}
		f.oneHolder()
		if dead {
			dead = false
			e = apply.NewExecutor(f.client, f, options())
		}
		f.tick()
	}
	f.fail = nil
	v := f.view()
	placed(t, f, v, "big", 1)
	placed(t, f, v, "a", 1)
	placed(t, f, v, "b", 1)
	if len(kept) != 1 {
		t.Fatalf("places are kept for %v, want them for one", kept)
	}
	for job, to := range kept {
		rec := f.records["default/"+job]
		if got := rec.Members; len(rec.Moving) > 0 || len(got) != 1 || got[0].Node != to[0].Node || !slices.Equal(got[0].GPUs, to[0].GPUs) {
			t.Errorf("%s runs at %+v, and %+v was kept for it (still %+v)", job, got, to, rec.Moving)
		}
		if len(rec.Preempted) != 1 || !rec.Preempted[0].Moved || rec.Preempted[0].By != "big" {
			t.Errorf("%s made room: %+v", job, rec.Preempted)
		}
	}
	return writes
}

// TestMoveWhoseRoomIsGone: the place that was kept is lost while the gang stops;
// then it takes its turn.
func TestMoveWhoseRoomIsGone(t *testing.T) {
	f, e := scattered(t, "batch", "job")
	v := f.view()
	results := e.Execute(t.Context(), v, compacting(f, v))
	at := slices.IndexFunc(results, func(r apply.Result) bool { return r.Kind == apply.KindMove })
	if at < 0 {
		t.Fatalf("nothing is moved: %+v", results)
	}
	job := results[at].Job
	to := f.records["default/"+job].Moving[0].Members[0]
	f.sick[to.GPUs[0]] = "XID 79"
	for range 12 {
		f.tick()
		v := f.view()
		e.Execute(t.Context(), v, compacting(f, v))
	}
	placed(t, f, f.view(), "big", 1)
	if rec := f.records["default/"+job]; rec.Phase != record.PhaseQueued {
		t.Errorf("%s is %s at %+v", job, rec.Phase, rec.Members)
	}
}
