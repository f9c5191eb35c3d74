package apply_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// onFailure is an elastic gang of three that says what becomes of the others
// when one fails.
func onFailure(kind, what string, low int, policy *api.ReschedulePolicy) *api.Job {
	j := elasticJob(kind, "job", 3, low, 3)
	j.Meta["caravan_on_failure"] = what
	if what != "continue" {
		j.TaskGroups[0].Meta = nil
	}
	j.TaskGroups[0].ReschedulePolicy = policy
	return j
}

func tries(n int, interval time.Duration) *api.ReschedulePolicy {
	return &api.ReschedulePolicy{Attempts: &n, Interval: &interval, Unlimited: ptr(false)}
}

// failMember ends the member with that index in Nomad badly, or as it is told.
func (f *fakeNomad) failMember(index string, status string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.allocs {
		if strings.HasSuffix(a.Name, "["+index+"]") && a.ClientStatus == "running" {
			a.ClientStatus = status
			return a.ID
		}
	}
	f.t.Fatalf("member %s does not run", index)
	return ""
}

// TestAMemberFails: what becomes of the others is as the job says.
func TestAMemberFails(t *testing.T) {
	tests := map[string]struct {
		job     *api.Job
		breakIt func(*fakeNomad)
		// want is how many members are in force afterwards, and phase in what.
		want  int
		phase record.Phase
		// wantReason are parts of what the record says.
		wantReason []string
		wantHeld   string
		wantKeep   string
		wantRetry  time.Duration
	}{
		"the others go on": {onFailure("batch", "continue", 2, nil), func(f *fakeNomad) { f.failMember("0", "failed") }, 2, record.PhaseRunning,
			[]string{`member 0 of group "w"`, `has failed (task "t": Exit Code: 3) and is not started again`, "runs on with 2 of 3 members", "that was failure 1, so it does not grow before"}, "", "", 2 * time.Second},
		"two at once": {onFailure("batch", "continue", 1, nil), func(f *fakeNomad) { f.failMember("0", "failed"); f.failMember("2", "failed") }, 1, record.PhaseRunning,
			[]string{"1 more of 3 members are lost", "runs on with 1 of 3"}, "", "", 2 * time.Second},
		"one fails, one is lost": {onFailure("batch", "continue", 1, nil), func(f *fakeNomad) { f.failMember("0", "failed"); f.down[f.nodes[2]] = true }, 1, record.PhaseRunning,
			[]string{"has failed"}, "", "", 2 * time.Second},
		"too few are left": {onFailure("batch", "continue", 2, nil), func(f *fakeNomad) { f.failMember("0", "failed"); f.failMember("2", "failed") }, 0, record.PhaseQueued,
			[]string{"the gang of 3 is stopped whole"}, "", "", 2 * time.Second},
		"a service, the last one": {onFailure("service", "continue", 2, nil), func(f *fakeNomad) { f.failMember("2", "failed") }, 2, record.PhaseRunning,
			[]string{"runs on with 2 of 3 members"}, "", "", 2 * time.Second},
		"a service, the first one: its place stays its own": {onFailure("service", "continue", 2, nil), func(f *fakeNomad) { f.failMember("0", "failed") }, 3, record.PhaseRunning, []string{"it fits"}, "", "", 0},
		"a service, too few":                {onFailure("service", "continue", 3, nil), func(f *fakeNomad) { f.failMember("0", "failed") }, 0, record.PhaseQueued, []string{"stopped whole"}, "", "", 2 * time.Second},
		"one has completed before":          {onFailure("batch", "continue", 2, nil), func(f *fakeNomad) { f.failMember("1", "complete"); f.failMember("0", "failed") }, 3, record.PhaseRunning, []string{"it fits"}, "", "", 0},
		"no more tries, for an hour":        {onFailure("batch", "continue", 2, tries(0, time.Hour)), func(f *fakeNomad) { f.failMember("0", "failed") }, 2, record.PhaseRunning, []string{"allows 0 more tries within 1h0m0s, so it does not grow before"}, "", "", time.Hour},
		"no more tries":                     {onFailure("batch", "continue", 2, tries(0, 0)), func(f *fakeNomad) { f.failMember("0", "failed") }, 2, record.PhaseRunning, []string{"keeps its size"}, "", "keeps its size", 0},
		"restart":                           {onFailure("batch", "restart", 2, nil), func(f *fakeNomad) { f.failMember("0", "failed") }, 0, record.PhaseQueued, []string{"stopped whole"}, "", "", 2 * time.Second},
		"fail":                              {onFailure("batch", "fail", 2, nil), func(f *fakeNomad) { f.failMember("0", "failed") }, 0, record.PhaseQueued, []string{"has failed (task", "stopped whole"}, `caravan_on_failure is "fail"`, "", 0},
		"fail, as the members have told":    {onFailure("batch", "fail", 2, nil), func(f *fakeNomad) { f.condemn("", "rank 1 failed first, with exit code 7") }, 0, record.PhaseQueued, []string{"rank 1 failed first, with exit code 7; the gang of 3 is stopped whole"}, `caravan_on_failure is "fail"`, "", 0},
		"restart, but the members gave up":  {onFailure("batch", "restart", 2, nil), func(f *fakeNomad) { f.condemn("", "rank 1 failed; rank 2 has completed") }, 0, record.PhaseQueued, []string{"rank 2 has completed"}, "", "", 2 * time.Second},
		"a gang that is not there any more": {onFailure("batch", "fail", 2, nil), func(f *fakeNomad) { f.condemn("v", "x") }, 3, record.PhaseRunning, []string{"it fits"}, "", "", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 3)
			f.submit(tt.job)
			e := apply.NewExecutor(f.client, f, options())
			run(t, f, e, "running", settledJob("train", 3))
			tt.breakIt(f)
			before, began := f.running(), f.now
			var acted time.Time
			for range 12 {
				n := f.writes
				e.Execute(t.Context(), f.view(), nil)
				if f.writes > n && acted.IsZero() {
					acted = f.now
				}
				f.tick()
			}
			rec := f.records["default/train"]
			if rec.Phase != tt.phase || len(rec.Members) != tt.want {
				t.Fatalf("%s with %d members, want %s with %d: %s\n%s", rec.Phase, len(rec.Members), tt.phase, tt.want, rec.Reason, strings.Join(f.log, "\n"))
			}
			for _, want := range tt.wantReason {
				if !strings.Contains(rec.Reason, want) {
					t.Errorf("reason %q, want %q", rec.Reason, want)
				}
			}
			if !strings.Contains(rec.Held, tt.wantHeld) || (rec.Held == "") != (tt.wantHeld == "") {
				t.Errorf("held %q, want %q", rec.Held, tt.wantHeld)
			}
			if !strings.Contains(rec.KeepSize, tt.wantKeep) || (rec.KeepSize == "") != (tt.wantKeep == "") {
				t.Errorf("keeps its size because %q, want %q", rec.KeepSize, tt.wantKeep)
			}
			var retry time.Duration
			if !rec.RetryAfter.IsZero() {
				retry = rec.RetryAfter.Sub(acted)
			}
			if retry != tt.wantRetry {
				t.Errorf("tried again after %s, want %s", retry, tt.wantRetry)
			}
			if tt.wantHeld != "" && acted != began {
				t.Errorf("held after %s, want at once", acted.Sub(began))
			}
			want := before
			if tt.want == 0 {
				want = map[string]string{}
			}
			if diff := cmp.Diff(want, f.running()); diff != "" {
				t.Errorf("running (-want +got):\n%s", diff)
			}
			if len(rec.GangFailures) > 0 && tt.want == 0 {
				t.Errorf("still said to fail: %v", rec.GangFailures)
			}
		})
	}
}

// condemn records that a gang has failed by its members' own word.
func (f *fakeNomad) condemn(gang, why string) {
	rec := f.records["default/train"]
	rec.GangFailures = map[string]string{gang: why}
	f.records["default/train"] = rec
}

// TestFailedMemberIsReplaced: the gang grows back, later each time, and onto the
// very place of the one that has failed.
func TestFailedMemberIsReplaced(t *testing.T) {
	f := newFake(t, 3)
	f.submit(onFailure("batch", "continue", 2, &api.ReschedulePolicy{Unlimited: ptr(true)}))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "running", settledJob("train", 3))
	var waits []time.Duration
	for range 3 {
		gone := f.failMember("1", "failed")
		before := f.running()
		v := run(t, f, e, "it runs on", settledJob("train", 2))
		m, _ := v.Job("default", "train")
		waits = append(waits, m.Record.RetryAfter.Sub(m.Record.Failures[""].Last))
		v = run(t, f, e, "it is whole again", settledJob("train", 3))
		m, _ = v.Job("default", "train")
		if m.Record.Growth != nil || f.now.Before(m.Record.Failures[""].Last.Add(waits[len(waits)-1])) {
			t.Errorf("it grew too early, or is not done: %+v", m.Record)
		}
		after := f.running()
		for id := range before {
			if after[id] == "" {
				t.Errorf("allocation %s is gone:\n%s", id, strings.Join(f.log, "\n"))
			}
		}
		for _, s := range m.Members {
			if s.Alloc.ID == gone {
				t.Errorf("the one that has failed counts as a member")
			}
		}
	}
	if diff := cmp.Diff([]time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}, waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	// What has run for long without a failure is forgiven.
	f.now = f.now.Add(time.Hour)
	f.failMember("1", "failed")
	v := run(t, f, e, "it runs on", settledJob("train", 2))
	if m, _ := v.Job("default", "train"); m.Record.Failures[""].Count != 1 {
		t.Errorf("after an hour it counts %+v", m.Record.Failures)
	}
}

// TestGrowthOntoAFailedMembersPlace: who has failed there before is not the new
// member that Nomad cannot place.
func TestGrowthOntoAFailedMembersPlace(t *testing.T) {
	f := newFake(t, 3)
	f.submit(onFailure("batch", "continue", 2, nil))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "running", settledJob("train", 3))
	f.failMember("1", "failed")
	run(t, f, e, "it runs on", settledJob("train", 2))
	f.planned = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, n := range f.nodes {
			f.unusable[n] = "full"
		}
	}
	run(t, f, e, "it is to grow", func(v *observe.View) bool {
		m, _ := v.Job("default", "train")
		return m.Record.Growth != nil
	})
	f.planned = nil
	v := run(t, f, e, "it is taken back", settledJob("train", 2))
	m, _ := v.Job("default", "train")
	if !strings.Contains(m.Record.Reason, "the gang cannot grow") || m.Record.Failures[""].Count != 1 {
		t.Errorf("%s: %+v", m.Record.Reason, m.Record.Failures)
	}
}

// TestGrowthLosesMembersTwice: a node is lost while a gang grows, and another member
// fails while that is taken back. Who is left goes on, if that is enough and the job
// says so.
func TestGrowthLosesMembersTwice(t *testing.T) {
	for name, tt := range map[string]struct {
		onFailure string
		low       int
		stays     bool
	}{
		"enough are left":             {"continue", 1, true},
		"too few are left":            {"continue", 2, false},
		"a failure concerns them all": {"restart", 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 6)
			job := elasticJob("batch", "job", 4, tt.low, 4)
			job.Meta["caravan_on_failure"] = tt.onFailure
			f.submit(job)
			e := apply.NewExecutor(f.client, f, options())
			grows := func(taken bool) func(*observe.View) bool {
				return func(v *observe.View) bool {
					m, _ := v.Job("default", "train")
					return m.Record.Growth != nil && (m.Record.Growth.Undo != "") == taken
				}
			}
			m, _ := run(t, f, e, "running", settledJob("train", 4)).Job("default", "train")
			f.down[m.Members[3].Member.Node] = true
			run(t, f, e, "it grows again", grows(false))
			f.down[m.Members[0].Member.Node] = true
			run(t, f, e, "that is taken back", grows(true))
			f.failMember("1", "failed")
			last := m.Members[2].Alloc.ID
			run(t, f, e, "it is whole again", settledJob("train", 4))
			if stays := f.running()[last] != ""; stays != tt.stays {
				t.Errorf("the last one runs on: %v, want %v:\n%s", stays, tt.stays, strings.Join(f.log, "\n"))
			}
		})
	}
}

// TestKeptSize: a gang that is to keep its size does not grow until its count
// is set anew.
func TestKeptSize(t *testing.T) {
	f := newFake(t, 3)
	f.submit(onFailure("batch", "continue", 1, tries(0, 0)))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "running", settledJob("train", 3))
	f.failMember("0", "failed")
	run(t, f, e, "it runs on", settledJob("train", 2))
	writes := f.writes
	for range 30 {
		v := f.view()
		e.Execute(t.Context(), v, decide(f, v))
		f.tick()
	}
	if f.writes != writes || len(f.running()) != 2 {
		t.Fatalf("it grew: %v", f.log[writes:])
	}
	if !f.scale("w", 2) || !f.scale("w", 3) {
		t.Fatal("not resized")
	}
	run(t, f, e, "it grows", settledJob("train", 3))
}

// TestFailuresStopAnywhere lets the planner die at each write that a failed
// member makes it do.
func TestFailuresStopAnywhere(t *testing.T) {
	for _, after := range []bool{false, true} {
		total := 1
		for n := 1; n <= total; n++ {
			f := newFake(t, 3)
			f.submit(onFailure("batch", "continue", 2, nil))
			run(t, f, apply.NewExecutor(f.client, f, options()), "running", settledJob("train", 3))
			f.failMember("1", "failed")
			before := f.running()
			total = max(total, f.diesThenMends(n, after, func(*fakeNomad) {}, 3))
			for id := range before {
				if f.running()[id] == "" {
					t.Errorf("dies at write %d, after=%v: allocation %s is gone:\n%s", n, after, id, strings.Join(f.log, "\n"))
				}
			}
		}
		if total < 4 {
			t.Errorf("only %d writes", total)
		}
	}
}

// TestFailuresAtRandom: whatever fails, is lost, completes or is tried again by
// Nomad, while enough are left nobody else is stopped, no GPU is held twice, and
// a gang none of whose members has completed is whole in the end.
func TestFailuresAtRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := newFake(t, 6)
		kind := rapid.SampledFrom([]string{"batch", "service"}).Draw(rt, "type")
		low := rapid.IntRange(1, 3).Draw(rt, "min")
		job := elasticJob(kind, rapid.SampledFrom([]string{"job", "group"}).Draw(rt, "gang"), 4, low, 4)
		job.Meta["caravan_on_failure"] = "continue"
		job.TaskGroups[0].ReschedulePolicy = &api.ReschedulePolicy{Unlimited: ptr(true)}
		f.submit(job)
		e := apply.NewExecutor(f.client, f, options())
		turn := func(n int) {
			for range n {
				v := f.view()
				e.Execute(t.Context(), v, decide(f, v))
				f.oneHolder()
				f.tick()
			}
		}
		run(t, f, e, "running", settledJob("train", 4))
		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			var live []*api.AllocationListStub
			f.mu.Lock()
			for _, a := range f.allocs {
				if a.ClientStatus == "running" && a.DesiredStatus == "run" && !f.down[a.NodeID] {
					live = append(live, a)
				}
			}
			f.mu.Unlock()
			if len(live) == 0 {
				turn(30)
				continue
			}
			// A start that is not through yet is taken back whole.
			rec := f.records["default/train"]
			begun := rec.Phase == record.PhaseRunning || rec.Growth != nil
			victim := live[rapid.IntRange(0, len(live)-1).Draw(rt, "victim")]
			if rapid.IntRange(0, 3).Draw(rt, "how") == 0 {
				f.down[victim.NodeID] = true
			} else {
				victim.ClientStatus = "failed"
			}
			before := f.running()
			for _, a := range f.allocs {
				if rec.Growth != nil && a.CreateIndex > rec.Growth.Index {
					delete(before, a.ID) // what a gang is being given may be taken back
				}
			}
			turn(rapid.IntRange(0, 5).Draw(rt, "turns"))
			if begun && len(before) >= low {
				after := f.running()
				for id := range before {
					// A service in which one that is not the last has failed is stopped
					// whole when a node is lost as well.
					if after[id] == "" && kind == "batch" {
						rt.Fatalf("%d of at least %d were left, and %s was stopped:\n%s", len(before), low, id, strings.Join(f.log, "\n"))
					}
				}
			}
			if rapid.Bool().Draw(rt, "retry") {
				f.retry("train")
			}
		}
		clear(f.down)
		turn(20)
		f.retry("train")
		turn(80)
		if v := f.view(); !settledJob("train", 4)(v) || len(f.running()) != 4 {
			m, _ := v.Job("default", "train")
			rt.Fatalf("%d run, %d members, %s: %s\n%s", len(f.running()), len(m.Members), m.Record.Phase, m.Record.Reason, strings.Join(f.log, "\n"))
		}
	})
}
