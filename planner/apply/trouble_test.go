package apply_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// gatedJob is fakeJob with the user's own gate, so that nothing of it is placed
// before it is decided on.
// unfit records that the job's preflight has found a node unfit.
func (f *fakeNomad) unfit(node string, at time.Time) {
	rec := f.records["default/train"]
	rec.Avoid(node, node, "XID 79", at, time.Hour)
	f.records["default/train"] = rec
}

func gatedJob(id, kind, gang string, count, gpus int) *api.Job {
	job := fakeJob(id, kind, gang, count, gpus)
	job.Constraints = []*api.Constraint{api.NewConstraint(rewrite.GateAttribute, "=", "open")}
	return job
}

// TestTrouble: what befalls a running gang of two, each on a node of its own,
// and what is done about it.
func TestTrouble(t *testing.T) {
	tests := map[string]struct {
		kind, gang string
		breakIt    func(*fakeNomad)
		// wantAfter is when something is done; 0 is at once, -1 never.
		wantAfter time.Duration
		// wantReason are parts of what the record says then.
		wantReason []string
		wantKept   int
		// wantRetry: it waits for a while that grows.
		wantRetry bool
		wantHeld  string
	}{
		"a lost node takes the gang with it": {"service", "job", func(f *fakeNomad) { f.down[f.nodes[0]] = true }, 0,
			[]string{`member 0 of group "w" on node `, "no contact with the node", "the gang of 2 is stopped whole", "GPUs stay fenced", "/purge"}, 0, false, ""},
		"an unknown member counts as gone": {"service", "job", func(f *fakeNomad) { f.allocs[0].ClientStatus = "unknown" }, 0,
			[]string{"no contact with the node"}, 0, false, ""},
		"Nomad has given up on the node already": {"batch", "job", func(f *fakeNomad) {
			f.down[f.nodes[0]], f.allocs[0].ClientStatus, f.allocs[0].DesiredStatus = true, "lost", "stop"
		}, 0, []string{"no contact with the node"}, 0, false, ""},
		"a purged node": {"service", "job", func(f *fakeNomad) { f.nodes = f.nodes[1:] }, 0,
			[]string{"is gone with its node", "under a new ID"}, 0, false, ""},
		"a drain moves the whole gang": {"service", "job", func(f *fakeNomad) { f.unusable[f.nodes[1]] = "draining" }, 0,
			[]string{"member 1", "the node is drained", "stopped whole"}, 0, false, ""},
		"a drain of all its nodes": {"batch", "job", func(f *fakeNomad) { f.unusable[f.nodes[0]], f.unusable[f.nodes[1]] = "draining", "draining" }, 0, []string{"1 more of 2 members"}, 0, false, ""},
		"a node that a preflight found unfit": {"batch", "job", func(f *fakeNomad) {
			f.unfit(f.nodes[1], f.now)
		}, 0, []string{"member 1", "preflight has found the node unfit: XID 79", "stopped whole"}, 0, false, ""},
		"a lone member on an unfit node": {"service", "none", func(f *fakeNomad) {
			f.unfit(f.nodes[0], f.now)
		}, 0, []string{"found the node unfit"}, 1, false, ""},
		"a node that was unfit before": {"batch", "job", func(f *fakeNomad) {
			f.unfit(f.nodes[1], f.records["default/train"].Admitted.Add(-time.Minute))
		}, -1, nil, 2, false, ""},
		"an ineligible node disturbs nothing": {"service", "job", func(f *fakeNomad) { f.unusable[f.nodes[1]] = "ineligible" }, -1, nil, 2, false, ""},
		"a client that starts":                {"service", "job", func(f *fakeNomad) { f.unusable[f.nodes[1]] = "initializing" }, -1, nil, 2, false, ""},
		"evicted by Nomad": {"service", "job", func(f *fakeNomad) {
			f.allocs[1].DesiredStatus, f.allocs[1].ClientStatus = "evict", "complete"
		}, 0, []string{"evicted by Nomad's own preemption", "set-config"}, 0, false, ""},
		"a sick GPU, after a while":     {"batch", "job", func(f *fakeNomad) { f.sick[gpu(f.nodes[0], 3)] = "XID 79" }, 4 * time.Second, []string{"1 of its 8 GPUs reported unhealthy for 4s", "XID 79", "see to the GPU"}, 0, false, ""},
		"a GPU that vanishes for good":  {"batch", "job", func(f *fakeNomad) { f.hidden[gpu(f.nodes[0], 3)] = true }, 8 * time.Second, []string{"1 of its 8 GPUs not listed", "agent's log"}, 0, false, ""},
		"a failed member":               {"batch", "job", func(f *fakeNomad) { f.allocs[0].ClientStatus = "failed" }, 3 * time.Second, []string{`has failed (task "t": Exit Code: 3) and is not started again`}, 0, true, ""},
		"a member that is told to stop": {"service", "job", func(f *fakeNomad) { f.allocs[0].DesiredStatus = "stop" }, 3 * time.Second, []string{"is gone"}, 0, true, ""},
		"a member where it should not be": {"service", "job", func(f *fakeNomad) {
			f.allocs[0].AllocatedResources.Tasks["t"].Devices[0].DeviceIDs[0] = "GPU-other"
		}, 3 * time.Second, []string{"was to have 8 GPUs, and Nomad placed it on"}, 0, true, ""},
		"a completed member breaks nothing": {"batch", "job", func(f *fakeNomad) { f.allocs[0].ClientStatus = "complete" }, -1, nil, 2, false, ""},
		"a completed member, and the other lost": {"batch", "job", func(f *fakeNomad) {
			f.allocs[0].ClientStatus, f.down[f.nodes[1]] = "complete", true
		}, 0, []string{"1 of 2 members have completed, and would run a second time"}, 0, false, ""},
		"a lone member is lost alone":       {"service", "none", func(f *fakeNomad) { f.down[f.nodes[0]] = true }, 0, []string{"1 of 2 members are placed anew"}, 1, false, ""},
		"a lone member is drained alone":    {"service", "none", func(f *fakeNomad) { f.unusable[f.nodes[0]] = "draining" }, 0, []string{"is drained"}, 1, false, ""},
		"a failed lone member is Nomad's":   {"batch", "none", func(f *fakeNomad) { f.allocs[0].ClientStatus = "failed" }, -1, nil, 2, false, ""},
		"a failed lone replica is Nomad's":  {"service", "none", func(f *fakeNomad) { f.allocs[0].ClientStatus = "failed" }, -1, nil, 2, false, ""},
		"a lone member with a sick GPU":     {"service", "none", func(f *fakeNomad) { f.sick[gpu(f.nodes[0], 0)] = "ECC" }, 4 * time.Second, []string{"unhealthy"}, 1, false, ""},
		"a lone member that somebody stops": {"service", "none", func(f *fakeNomad) { f.allocs[0].DesiredStatus = "stop" }, 3 * time.Second, []string{"is gone"}, 1, true, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 2)
			f.submit(gatedJob("train", test.kind, test.gang, 2, 8))
			e := apply.NewExecutor(f.client, f, options())
			placed(t, f, run(t, f, e, "running", phase("train", record.PhaseRunning)), "train", 2)
			before, began, acted := f.writes, f.now, time.Duration(-1)
			test.breakIt(f)
			for range 12 {
				e.Execute(t.Context(), f.view(), nil)
				if f.writes > before && acted < 0 {
					acted = f.now.Sub(began)
				}
				if due := e.Due(); acted < 0 && test.wantAfter > 0 && f.now.Sub(began) < test.wantAfter && due.IsZero() {
					t.Errorf("at %s nothing is due", f.now.Sub(began))
				}
				f.tick()
			}
			if acted < test.wantAfter || test.wantAfter < 0 && acted >= 0 || acted > test.wantAfter+2*time.Second {
				t.Errorf("acted after %s, want %s: %v", acted, test.wantAfter, f.log[before:])
			}
			rec := f.records["default/train"]
			for _, want := range test.wantReason {
				if !strings.Contains(rec.Reason, want) {
					t.Errorf("reason %q, want %q", rec.Reason, want)
				}
			}
			if len(test.wantReason) > 0 && (len(rec.History) == 0 || rec.History[0].Text != rec.Reason) {
				t.Errorf("history %+v", rec.History)
			}
			if len(rec.Members) != test.wantKept {
				t.Errorf("%d members are in force, want %d", len(rec.Members), test.wantKept)
			}
			if got := !rec.RetryAfter.IsZero(); got != test.wantRetry {
				t.Errorf("waits before the next try: %v, want %v", got, test.wantRetry)
			}
			if test.wantKept == 0 {
				if rec.Phase != record.PhaseQueued || !rewrite.IsGated(f.jobs["train"]) {
					t.Errorf("phase %s, gated %v", rec.Phase, rewrite.IsGated(f.jobs["train"]))
				}
				for _, a := range f.allocs {
					if a.DesiredStatus == "run" && (a.ClientStatus == "running" || a.ClientStatus == "unknown") {
						t.Errorf("allocation %s was not told to stop", a.ID)
					}
				}
			}
		})
	}
}

// TestTroubleThatPasses: what heals in time disturbs nothing.
func TestTroubleThatPasses(t *testing.T) {
	tests := map[string]struct {
		breakIt, mend func(*fakeNomad)
		lasts         int
	}{
		"a device plugin that restarts": {
			func(f *fakeNomad) {
				for i := range gpusPerNode {
					f.hidden[gpu(f.nodes[0], i)] = true
				}
			}, func(f *fakeNomad) { clear(f.hidden) }, 7},
		"a GPU that is unhealthy for a moment": {
			func(f *fakeNomad) { f.sick[gpu(f.nodes[0], 0)] = "XID 63" }, func(f *fakeNomad) { clear(f.sick) }, 3},
		"a member that Nomad places again": {
			func(f *fakeNomad) { f.allocs[0].DesiredStatus = "stop" },
			func(f *fakeNomad) { f.schedule(f.jobs["train"], true) }, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 2)
			f.submit(gatedJob("train", "service", "job", 2, 8))
			e := apply.NewExecutor(f.client, f, options())
			placed(t, f, run(t, f, e, "running", phase("train", record.PhaseRunning)), "train", 2)
			before := f.writes
			// Twice: what has passed must not count the second time.
			for range 2 {
				test.breakIt(f)
				for range test.lasts {
					e.Execute(t.Context(), f.view(), nil)
					f.tick()
				}
				test.mend(f)
				e.Execute(t.Context(), f.view(), nil)
			}
			if f.writes != before {
				t.Errorf("something was written: %v", f.log[before:])
			}
			placed(t, f, f.view(), "train", 2)
		})
	}
}

// TestTrimWhileDevicesVanish: a member that stays must not be restarted because
// its node lists no GPUs at the moment at which another member is taken off.
func TestTrimWhileDevicesVanish(t *testing.T) {
	for _, gpus := range []int{8, 4} {
		f := newFake(t, 2)
		f.submit(gatedJob("train", "service", "none", 2, gpus))
		e := apply.NewExecutor(f.client, f, options())
		v := run(t, f, e, "running", phase("train", record.PhaseRunning))
		m := placed(t, f, v, "train", 2)
		if f.allocs[0].ID != m.Members[0].Alloc.ID {
			t.Fatal("the first allocation is not the first member's")
		}
		stays := m.Members[1].Alloc
		want := f.jobs["train"].LookupTaskGroup(stays.TaskGroup).Tasks[0].Resources.Devices[0].Constraints
		for i := range gpusPerNode {
			f.hidden[gpu(stays.NodeID, i)] = true
		}
		f.allocs[0].DesiredStatus, f.allocs[0].ClientStatus = "evict", "complete"
		for range 3 {
			e.Execute(t.Context(), f.view(), nil)
			f.tick()
		}
		got := f.jobs["train"].LookupTaskGroup(stays.TaskGroup).Tasks[0].Resources.Devices[0].Constraints
		if len(got) != len(want) || len(got) > 0 && *got[0] != *want[0] {
			t.Errorf("%d GPUs each: the device constraints were %v and are %v", gpus, want, got)
		}
		if len(f.records["default/train"].Members) != 1 {
			t.Errorf("%d GPUs each: members %v", gpus, f.records["default/train"].Members)
		}
	}
}

// TestFailuresAreBounded by the reschedule block, as in Nomad.
func TestFailuresAreBounded(t *testing.T) {
	tests := map[string]struct {
		kind      string
		policy    *api.ReschedulePolicy
		wantTries int // gangs started, 6 is the most that is looked at
		wantWaits []time.Duration
		wantHeld  string
	}{
		"batch by default": {"batch", nil, 2, []time.Duration{2 * time.Second}, "that was failure 2"},
		"never again":      {"batch", &api.ReschedulePolicy{Attempts: ptr(0), Unlimited: ptr(false)}, 1, nil, "allows 0 more tries"},
		"twice more in an hour": {"service", &api.ReschedulePolicy{Attempts: ptr(2), Interval: ptr(time.Hour), Unlimited: ptr(false)}, 3,
			[]time.Duration{2 * time.Second, 4 * time.Second}, "within 1h0m0s"},
		"service by default": {"service", nil, 6,
			[]time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 20 * time.Second, 20 * time.Second}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 2)
			job := gatedJob("train", test.kind, "job", 2, 8)
			job.TaskGroups[0].ReschedulePolicy = test.policy
			f.submit(job)
			e := apply.NewExecutor(f.client, f, options())
			tries := 0
			var waits []time.Duration
			for tries < 6 {
				run(t, f, e, "running", phase("train", record.PhaseRunning))
				tries++
				// Two members fail at once; that is one failure.
				for _, a := range f.allocs {
					if a.ClientStatus == "running" {
						a.ClientStatus = "failed"
					}
				}
				run(t, f, e, "rolled back", phase("train", record.PhaseRollback))
				rec := f.records["default/train"]
				if rec.Held != "" {
					break
				}
				waits = append(waits, rec.RetryAfter.Sub(rec.Failures[""].Last))
			}
			if tries != test.wantTries || !slices.Equal(waits, test.wantWaits) {
				t.Errorf("%d tries with waits %v, want %d with %v", tries, waits, test.wantTries, test.wantWaits)
			}
			rec := f.records["default/train"]
			if !strings.Contains(rec.Held, test.wantHeld) || (rec.Held == "") != (test.wantHeld == "") {
				t.Errorf("held %q, want %q", rec.Held, test.wantHeld)
			}
			if rec.Held == "" {
				return
			}
			// Held: even a decision does not place it; another submission does.
			for range 10 {
				v := f.view()
				e.Execute(t.Context(), v, decide(f, v))
				f.tick()
			}
			if got := f.records["default/train"]; got.Phase != record.PhaseQueued || got.Held == "" {
				t.Errorf("phase %s, held %q", got.Phase, got.Held)
			}
			again := gatedJob("train", test.kind, "job", 2, 8)
			again.Priority = ptr(60)
			f.submit(again)
			run(t, f, e, "running", phase("train", record.PhaseRunning))
		})
	}
}

// TestPlannerAwayForAnHour: whatever happened meanwhile, one look by a planner
// that knows nothing is enough to do what is right.
func TestPlannerAwayForAnHour(t *testing.T) {
	f := newFake(t, 4)
	for _, job := range []string{"a", "b"} {
		f.submit(gatedJob(job, "service", "job", 2, 8))
	}
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "running", func(v *observe.View) bool {
		return phase("a", record.PhaseRunning)(v) && phase("b", record.PhaseRunning)(v)
	})
	va, _ := f.view().Job("default", "a")
	// Gone: a's first node, for good. b was admitted when the planner died, and
	// all of it was placed long ago.
	f.down[va.Members[0].Member.Node] = true
	rec := f.records["default/b"]
	rec.Phase, rec.Deadline = record.PhaseAdmitted, f.now.Add(5*time.Second)
	f.records["default/b"] = rec
	f.now = f.now.Add(time.Hour)
	v := f.view()
	apply.NewExecutor(f.client, f, options()).Execute(t.Context(), v, nil)
	if got := f.records["default/a"]; got.Phase != record.PhaseRollback {
		t.Errorf("a is %s", got.Phase)
	}
	if got := f.records["default/b"]; got.Phase != record.PhaseRunning {
		t.Errorf("b is %s", got.Phase)
	}
	placed(t, f, f.view(), "b", 2)
}

// TestDrainIsStaggered: of gangs whose nodes are drained together as many save their
// checkpoints at once as the policy says, for each storage, and the others follow; one
// that has waited for long enough leaves in any case.
func TestDrainIsStaggered(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		f := newFake(t, 8)
		opts := options()
		opts.Stops = func() preempt.Policy { return preempt.Policy{MaxAtOnce: 1} }
		e := apply.NewExecutor(f.client, f, opts)
		names := []string{"a", "b", "c"}
		for _, name := range names {
			job := gatedJob(name, "batch", "job", 1, 8)
			if name == "c" {
				job.Meta["caravan_checkpoint_storage"] = "other"
			}
			f.submit(job)
		}
		run(t, f, e, "they run", func(v *observe.View) bool {
			return settledJob("a", 1)(v) && settledJob("b", 1)(v) && settledJob("c", 1)(v)
		})
		for _, name := range names {
			f.unusable[f.records["default/"+name].Members[0].Node] = "draining"
		}
		stopped := func() (out string) {
			for _, name := range names {
				if f.records["default/"+name].Phase != record.PhaseRunning {
					out += name
				}
			}
			return out
		}
		idle := func(*observe.View) *model.Plan { return &model.Plan{} }
		e.Execute(t.Context(), f.view(), idle(nil))
		if got := stopped(); got != "ac" {
			t.Fatalf("%q are stopped, want a and c", got)
		}
		e.Execute(t.Context(), f.view(), idle(nil))
		if got := f.records["default/b"].Reason; stopped() != "ac" || !strings.Contains(got, "it leaves when fewer gangs save their checkpoints, since at most 1 may at once, or 15m0s after the drain began") {
			t.Fatalf("%q are stopped; b: %s", stopped(), got)
		}
		if stuck {
			f.now = f.now.Add(16 * time.Minute)
		} else {
			f.turns(e, 3, idle)
		}
		e.Execute(t.Context(), f.view(), idle(nil))
		if got := stopped(); got != "abc" {
			t.Errorf("then %q are stopped, want all (stuck: %t)", got, stuck)
		}
	}
}
