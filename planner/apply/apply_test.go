package apply_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

func fakeJob(id, kind, gang string, count, gpus int) *api.Job {
	g := &api.TaskGroup{Name: ptr("w"), Count: &count, Tasks: []*api.Task{{Name: "t", Driver: "exec", Resources: &api.Resources{
		Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(gpus))}}}}}}
	return &api.Job{ID: &id, Type: &kind, Meta: map[string]string{"caravan_gang": gang}, TaskGroups: []*api.TaskGroup{g}}
}

// run turns the planner's loop until the condition holds.
func run(t *testing.T, f *fakeNomad, e *apply.Executor, what string, holds func(*observe.View) bool) *observe.View {
	t.Helper()
	for range 60 {
		v := f.view()
		if holds(v) {
			return v
		}
		for _, r := range e.Execute(t.Context(), v, decide(f, v)) {
			t.Logf("%s %s %s: %s (changed %v) %v", v.Taken.Format("05"), r.Kind, r.Job, r.Reason, r.Changed, r.Err)
		}
		f.tick()
	}
	t.Fatalf("not within 60 turns: %s\n%s", what, strings.Join(f.log, "\n"))
	return nil
}

// placed checks that the job runs exactly where its record says.
func placed(t *testing.T, f *fakeNomad, v *observe.View, job string, members int) *observe.Managed {
	t.Helper()
	m, ok := v.Job("default", job)
	if !ok || m.Record == nil {
		t.Fatalf("job %s has no record", job)
	}
	if len(m.Members) != members {
		t.Fatalf("job %s has %d members, want %d", job, len(m.Members), members)
	}
	for _, s := range m.Members {
		if s.State != observe.AllocPlaced {
			t.Errorf("member %d is %s", s.Member.Index, s.State)
		}
	}
	live := 0
	for _, a := range v.Snapshot.Allocs {
		if a.Job == job {
			live++
		}
	}
	if live != members {
		t.Errorf("job %s has %d allocations, want %d", job, live, members)
	}
	return m
}

func TestUngatedGangIsGatedThenPlaced(t *testing.T) {
	f := newFake(t, 4)
	f.submit(fakeJob("thief", "system", "none", 1, 1))
	f.submit(fakeJob("big", "batch", "job", 5, 8))
	e := apply.NewExecutor(f.client, f, options())
	// Part of it ran before anyone saw it: that is stopped, and it waits whole.
	v := run(t, f, e, "queued", phase("big", record.PhaseQueued))
	m, _ := v.Job("default", "big")
	if !rewrite.IsGated(m.Current) || len(m.Record.Members) != 0 {
		t.Error("the job is not gated")
	}
	for _, a := range v.Snapshot.Allocs {
		if a.Job == "big" {
			t.Errorf("allocation %s still holds %v", a.ID, a.GPUs)
		}
	}
	if want := "Caravan holds this job"; m.Current.UI == nil || !strings.Contains(m.Current.UI.Description, want) || m.Current.UI.Links[0].URL != "http://caravan/default/big" {
		t.Errorf("ui %+v", m.Current.UI)
	}
	f.submit(fakeJob("small", "batch", "job", 2, 8))
	v = run(t, f, e, "running", phase("small", record.PhaseRunning))
	placed(t, f, v, "small", 2)
	if f.jobs["thief"].Constraints != nil {
		t.Error("a system job was touched")
	}
}

func TestPlacedByNomadIsAdopted(t *testing.T) {
	f := newFake(t, 2)
	f.submit(fakeJob("old", "service", "job", 2, 8))
	e := apply.NewExecutor(f.client, f, options())
	v := run(t, f, e, "adopted", phase("old", record.PhaseRunning))
	m := placed(t, f, v, "old", 2)
	if !m.Record.Unpinned || *m.Current.Version != 0 {
		t.Errorf("unpinned %v, version %d; want untouched", m.Record.Unpinned, *m.Current.Version)
	}
	// A part of a job whose members stand alone runs on, and no more is placed.
	f = newFake(t, 1)
	f.submit(fakeJob("sweep", "batch", "none", 2, 8))
	e = apply.NewExecutor(f.client, f, options())
	v = run(t, f, e, "adopted", phase("sweep", record.PhaseRunning))
	m = placed(t, f, v, "sweep", 1)
	if !rewrite.IsGated(m.Current) {
		t.Error("Nomad may place the rest")
	}
}

// TestStopsAnywhere lets the planner die at each of its writes, before or
// after Nomad has done it, and another one take over. A lost race on the way
// makes the first admission fail.
func TestStopsAnywhere(t *testing.T) {
	for _, after := range []bool{false, true} {
		total := 1
		for n := 1; n <= total; n++ {
			t.Run(fmt.Sprintf("after=%v/write=%d", after, n), func(t *testing.T) {
				total = max(total, diesAt(t, n, after))
			})
		}
		if total < 8 {
			t.Errorf("the scenario has %d writes only", total)
		}
	}
}

func diesAt(t *testing.T, n int, after bool) (writes int) {
	f := newFake(t, 4)
	job := fakeJob("train", "batch", "job", 2, 8)
	job.Constraints = []*api.Constraint{api.NewConstraint(rewrite.GateAttribute, "=", "open")}
	f.submit(job)
	// Somebody takes a GPU of the second node right after the first dry-run.
	var thief *api.AllocationListStub
	f.planned = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if thief == nil {
			thief = f.occupy("thief", f.nodes[1], 0)
		}
	}
	dead := false
	f.fail = func(i int, _ string, late bool) int {
		dead = dead || i == n && late == after
		if dead {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	for range 60 {
		// Whoever died is replaced by one that knows nothing.
		e := apply.NewExecutor(f.client, f, options())
		for range 3 {
			v := f.view()
			e.Execute(t.Context(), v, decide(f, v))
			if dead {
				break
			}
			f.tick()
		}
		if dead {
			f.fail, dead = nil, false
		}
		if v := f.view(); phase("train", record.PhaseRunning)(v) {
			m := placed(t, f, v, "train", 2)
			for _, s := range m.Members {
				if s.Member.Node == f.nodes[1] {
					t.Error("a member is where the thief is")
				}
			}
			if got := *m.Current.Version; got > 5 {
				t.Errorf("it took %d versions", got)
			}
			return f.writes
		}
	}
	t.Fatalf("it never runs:\n%s", strings.Join(f.log, "\n"))
	return 0
}

func TestLostRaceIsRolledBackWhole(t *testing.T) {
	f := newFake(t, 2)
	f.submit(fakeJob("train", "service", "job", 3, 8))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "queued", phase("train", record.PhaseQueued))
	// A placement that cannot be had: the third member's node is full.
	rec := f.records["default/train"]
	f.nodes = append(f.nodes, "ffffffff-node")
	for i, node := range f.nodes {
		var ids []string
		for k := range gpusPerNode {
			ids = append(ids, gpu(node, k))
		}
		rec.Members = append(rec.Members, model.Member{Group: "w", Index: i, Rank: i, Node: node, GPUs: ids})
	}
	f.occupy("thief", "ffffffff-node", 0)
	rec.Phase, rec.Admitted, rec.Deadline = record.PhaseAdmitted, f.now, f.now.Add(5*time.Second)
	f.records["default/train"] = rec
	run(t, f, e, "rolled back", phase("train", record.PhaseRollback))
	v := run(t, f, e, "queued again", phase("train", record.PhaseQueued))
	m, _ := v.Job("default", "train")
	if m.Record.Attempts != 1 || !strings.Contains(m.Record.Reason, "2 of 3 members were placed within 5s") || !m.Record.RetryAfter.After(m.Record.Submitted) {
		t.Errorf("attempts %d, reason %q", m.Record.Attempts, m.Record.Reason)
	}
	if len(v.Snapshot.Allocs) != 1 {
		t.Errorf("%d allocations are there, want the thief's alone", len(v.Snapshot.Allocs))
	}
}

func TestNomadInTrouble(t *testing.T) {
	tests := map[string]struct {
		status int
		want   error
		text   string
	}{
		"a server error":         {http.StatusInternalServerError, apply.ErrUnavailable, "told to fail"},
		"no leader":              {http.StatusServiceUnavailable, apply.ErrUnavailable, ""},
		"throttled":              {http.StatusTooManyRequests, apply.ErrThrottled, ""},
		"garbage":                {-1, apply.ErrGarbage, ""},
		"a token without rights": {http.StatusForbidden, apply.ErrForbidden, `the capability submit-job in namespace "default"`},
		"a job that is refused":  {http.StatusBadRequest, apply.ErrRefused, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 3)
			running := fakeJob("running", "service", "job", 1, 8)
			running.Constraints = []*api.Constraint{api.NewConstraint(rewrite.GateAttribute, "=", "open")}
			f.submit(running)
			e := apply.NewExecutor(f.client, f, options())
			run(t, f, e, "running", phase("running", record.PhaseRunning))
			f.submit(fakeJob("train", "batch", "job", 4, 8))
			f.fail = func(_ int, what string, after bool) int {
				if strings.HasPrefix(what, "jobs") && after == (test.status < 0) {
					return test.status
				}
				return 0
			}
			results := e.Execute(t.Context(), f.view(), nil)
			at := slices.IndexFunc(results, func(r apply.Result) bool { return r.Err != nil })
			if at < 0 || !errors.Is(results[at].Err, test.want) || !strings.Contains(results[at].Err.Error(), test.text) {
				t.Fatalf("results %+v, want %v with %q", results, test.want, test.text)
			}
			// A refusal is not asked for again and again.
			before := len(f.log)
			for range 2 {
				e.Execute(t.Context(), f.view(), nil)
			}
			asked := 0
			for _, what := range f.log[before:] {
				if strings.HasPrefix(what, "jobs") {
					asked++
				}
			}
			if refused := errors.Is(test.want, apply.ErrRefused) || errors.Is(test.want, apply.ErrForbidden); refused && asked > 0 {
				t.Errorf("asked %d times more", asked)
			}
			placed(t, f, f.view(), "running", 1)
			f.fail = nil
			run(t, f, e, "queued", phase("train", record.PhaseQueued))
		})
	}
}

func TestChangedInNomadItself(t *testing.T) {
	f := newFake(t, 2)
	e := apply.NewExecutor(f.client, f, options())
	submit := func(priority int) {
		job := fakeJob("train", "batch", "job", 2, 8)
		job.Priority = &priority
		job.Constraints = []*api.Constraint{api.NewConstraint(rewrite.GateAttribute, "=", "open")}
		f.submit(job)
	}
	submit(50)
	first := placed(t, f, run(t, f, e, "running", phase("train", record.PhaseRunning)), "train", 2)
	// The same file again only loses the pins: they come back, nothing stops.
	submit(50)
	v := run(t, f, e, "pinned again", func(v *observe.View) bool {
		m, _ := v.Job("default", "train")
		return rewrite.IsPinned(m.Current) && !rewrite.IsGated(m.Current)
	})
	again := placed(t, f, v, "train", 2)
	if first.Members[0].Alloc.ID != again.Members[0].Alloc.ID {
		t.Error("a member was stopped")
	}
	// Another file is another submission.
	submit(60)
	v = run(t, f, e, "the new version runs", func(v *observe.View) bool {
		m, _ := v.Job("default", "train")
		return phase("train", record.PhaseRunning)(v) && *m.Record.Original.Priority == 60
	})
	if m := placed(t, f, v, "train", 2); m.Members[0].Alloc.ID == first.Members[0].Alloc.ID || m.Record.SpecHash == first.Record.SpecHash {
		t.Error("the old version runs on")
	}
	// Stopped and purged: nothing is remembered.
	f.jobs["train"].Stop = ptr(true)
	for _, a := range f.allocs {
		a.DesiredStatus = "stop"
	}
	run(t, f, e, "forgotten", func(*observe.View) bool { return len(f.records) == 0 })
	if !deref(f.jobs["train"].Stop) {
		t.Error("a stopped job was registered again")
	}
	submit(70)
	run(t, f, e, "running", phase("train", record.PhaseRunning))
	delete(f.jobs, "train")
	run(t, f, e, "forgotten", func(*observe.View) bool { return len(f.records) == 0 })
}

func TestGatewayOnItsWay(t *testing.T) {
	f := newFake(t, 2)
	e := apply.NewExecutor(f.client, f, options())
	orig := fakeJob("train", "batch", "job", 2, 8)
	f.records["default/train"] = record.Record{Namespace: "default", JobID: "train", Original: orig, SpecHash: "x", Phase: record.PhaseQueued, Arriving: f.now, Submitted: f.now}
	e.Execute(t.Context(), f.view(), nil)
	if len(f.records) != 1 {
		t.Error("a record was forgotten while its job was on its way")
	}
	f.now = f.now.Add(record.ArrivingFor)
	e.Execute(t.Context(), f.view(), nil)
	if len(f.records) != 0 {
		t.Error("a record whose job never came stayed")
	}
}

// TestVersionThatNomadNeverGot: the gateway recorded it, and could neither
// register it nor put the record back.
func TestVersionThatNomadNeverGot(t *testing.T) {
	f := newFake(t, 2)
	e := apply.NewExecutor(f.client, f, options())
	own := gatedJob("train", "service", "job", 2, 8)
	own.Update = &api.UpdateStrategy{MaxParallel: ptr(2)}
	f.submit(own)
	placed(t, f, run(t, f, e, "running", phase("train", record.PhaseRunning)), "train", 2)
	before := f.records["default/train"]
	next := record.Record{Namespace: "default", JobID: "train", Original: fakeJob("train", "service", "job", 1, 4), SpecHash: "x", Phase: record.PhaseQueued,
		Arriving: f.now, Submitted: f.now, PriorIndex: *f.jobs["train"].JobModifyIndex, Prior: &before, ModifyIndex: before.ModifyIndex}
	next.Original.TaskGroups[0].Name = ptr("other")
	if err := f.Put(t.Context(), &next); err != nil {
		t.Fatal(err)
	}
	writes := f.writes
	e.Execute(t.Context(), f.view(), nil)
	if f.writes != writes {
		t.Errorf("something was done while the version was on its way: %v", f.log)
	}
	f.now = f.now.Add(record.ArrivingFor)
	e.Execute(t.Context(), f.view(), nil)
	rec := f.records["default/train"]
	if rec.SpecHash != before.SpecHash || rec.Phase != record.PhaseRunning || rec.Original.Update == nil || rec.Prior != nil {
		t.Errorf("record of %s, %s, update %v; want that of before", rec.SpecHash, rec.Phase, rec.Original.Update)
	}
	if len(rec.History) == 0 || !strings.Contains(rec.History[0].Text, "did not reach Nomad") {
		t.Errorf("history = %+v", rec.History)
	}
	f.tick()
	placed(t, f, run(t, f, e, "running", phase("train", record.PhaseRunning)), "train", 2)
	// One that did arrive has nothing before it any more.
	next.ModifyIndex, next.PriorIndex, next.Arriving = f.records["default/train"].ModifyIndex, *f.jobs["train"].JobModifyIndex-1, f.now
	next.Original, next.SpecHash, next.Phase, next.Members = before.Original, before.SpecHash, before.Phase, before.Members
	next.Deadline, next.Recalls = f.now, []record.Recall{{Alloc: "x", At: f.now}}
	if err := f.Put(t.Context(), &next); err != nil {
		t.Fatal(err)
	}
	e.Execute(t.Context(), f.view(), nil)
	if f.records["default/train"].Prior != nil {
		t.Error("the version before is kept although it was replaced")
	}
}

func TestReleasedIsLeftAlone(t *testing.T) {
	f := newFake(t, 2)
	e := apply.NewExecutor(f.client, f, options())
	job := fakeJob("train", "batch", "job", 1, 8)
	f.submit(job)
	f.records["default/train"] = record.Record{Namespace: "default", JobID: "train", Phase: record.PhaseReleased, Original: job}
	before := f.writes
	for range 3 {
		v := f.view()
		e.Execute(t.Context(), v, decide(f, v))
		f.tick()
	}
	if f.writes != before {
		t.Errorf("a released job was touched: %v", f.log)
	}
}
