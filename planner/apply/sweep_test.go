package apply_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// TestSweepRunsEachMemberOnce on a cluster that is too small for all at once.
func TestSweepRunsEachMemberOnce(t *testing.T) {
	f := newFake(t, 2)
	job := fakeJob("sweep", "batch", "none", 5, 8)
	job.Constraints = []*api.Constraint{api.NewConstraint(rewrite.GateAttribute, "=", "open")}
	f.submit(job)
	e := apply.NewExecutor(f.client, f, options())
	for range 40 {
		v := f.view()
		e.Execute(t.Context(), v, decide(f, v))
		f.tick()
		// The oldest running member ends.
		for _, a := range f.allocs {
			if a.ClientStatus == "running" && f.now.Sub(time.Unix(0, a.CreateTime)) > 3*time.Second {
				a.ClientStatus = "complete"
				break
			}
		}
	}
	ran := map[string]int{}
	for _, a := range f.allocs {
		ran[a.TaskGroup]++
	}
	for i := range 5 {
		if name := fmt.Sprintf("w-%d", i); ran[name] != 1 {
			t.Errorf("%s ran %d times", name, ran[name])
		}
	}
}

func TestBackoff(t *testing.T) {
	f := newFake(t, 1)
	job := fakeJob("train", "batch", "job", 1, 8)
	f.submit(job)
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "adopted", phase("train", record.PhaseRunning))
	delete(f.jobs, "train")
	f.allocs = nil
	delete(f.records, "default/train")
	// Its node looks free to the planner, and Nomad finds it full.
	job = fakeJob("train", "batch", "job", 1, 8)
	job.Constraints = []*api.Constraint{api.NewConstraint(rewrite.GateAttribute, "=", "open")}
	f.submit(job)
	v := f.view()
	e.Execute(t.Context(), v, nil)
	free := f.view()
	plan := decide(f, free)
	f.down[f.nodes[0]] = true
	var waits []time.Duration
	for range 6 {
		v := f.view()
		results := e.Execute(t.Context(), v, plan)
		if len(results) != 1 || !errors.Is(results[0].Err, apply.ErrNoFit) {
			t.Fatalf("results %+v, want ErrNoFit", results)
		}
		rec := f.records["default/train"]
		waits = append(waits, rec.RetryAfter.Sub(v.Taken))
		f.now = rec.RetryAfter.Add(-time.Second)
		if results := e.Execute(t.Context(), f.view(), plan); len(results) != 1 || results[0].Changed || results[0].Err != nil {
			t.Fatalf("tried too early: %+v", results)
		}
		f.now = rec.RetryAfter
	}
	want := []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 20 * time.Second, 20 * time.Second}
	if !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
}

// TestHeldMember: when the job of single members is registered anew, those
// that run are kept from being placed again; one that fails then is tried
// again as often as its reschedule policy says.
func TestHeldMember(t *testing.T) {
	f := newFake(t, 1)
	job := fakeJob("sweep", "batch", "none", 3, 4)
	job.TaskGroups[0].ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(1), Unlimited: ptr(false)}
	job.Constraints = []*api.Constraint{api.NewConstraint(rewrite.GateAttribute, "=", "open")}
	f.submit(job)
	e := apply.NewExecutor(f.client, f, options())
	settle := func(turns int) {
		for range turns {
			v := f.view()
			e.Execute(t.Context(), v, decide(f, v))
			f.tick()
		}
	}
	end := func(group, status string) {
		t.Helper()
		for _, a := range f.allocs {
			if a.TaskGroup == group && a.ClientStatus == "running" {
				a.ClientStatus = status
				return
			}
		}
		t.Fatalf("no member of %s runs: %v", group, f.log)
	}
	gates := func(group string) (n int) {
		for _, c := range f.jobs["sweep"].LookupTaskGroup(group).Constraints {
			if c.LTarget == rewrite.GateAttribute && c.Operand == "=" {
				n++
			}
		}
		return n
	}
	settle(4)
	if gates("w-0")+gates("w-1") != 0 || gates("w") != 1 {
		t.Fatalf("gates: %d, %d, %d", gates("w-0"), gates("w-1"), gates("w"))
	}
	// The third takes the first one's place, and the second is held meanwhile.
	end("w-0", "complete")
	settle(4)
	if gates("w-1") != 1 || gates("w-2") != 0 {
		t.Fatalf("gates: %d, %d", gates("w-1"), gates("w-2"))
	}
	end("w-1", "failed")
	settle(12)
	end("w-1", "failed")
	settle(12)
	end("w-2", "complete")
	settle(12)
	ran := map[string]int{}
	for _, a := range f.allocs {
		ran[a.TaskGroup]++
	}
	if ran["w-0"] != 1 || ran["w-1"] != 2 || ran["w-2"] != 1 {
		t.Errorf("runs %v, want one each, and two of the member that failed", ran)
	}
}
