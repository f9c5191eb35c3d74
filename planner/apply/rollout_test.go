package apply_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// served is a gated service job of a version, rolled max_parallel gangs at a
// time.
func served(gang string, count, gpus, parallel int, env map[string]string) *api.Job {
	job := gatedJob("serve", "service", gang, count, gpus)
	job.Update = &api.UpdateStrategy{MaxParallel: &parallel}
	job.TaskGroups[0].Tasks[0].Env = env
	job.Meta["version"] = env["V"]
	return job
}

func twoGroups(job *api.Job) *api.Job {
	second := *job.TaskGroups[0]
	second.Name = ptr("v")
	task := *second.Tasks[0]
	second.Tasks = []*api.Task{&task}
	job.TaskGroups = append(job.TaskGroups, &second)
	return job
}

// resubmit hands in a new version as the gateway does: the record says that an
// update begins, and of the job nothing changes yet.
func (f *fakeNomad) resubmit(job *api.Job) {
	f.t.Helper()
	v := f.view()
	m, _ := v.Job("default", *job.ID)
	orig, err := rewrite.Strip(job, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	if !gangspec.Rolls(m.Record.Original, orig) {
		f.t.Fatal("it cannot be rolled")
	}
	next := *m.Record
	next.Rollout = m.Record.NewRollout(*m.Current.JobModifyIndex, f.now)
	next.Rollout.Begin(gangspec.Canaries(next.Rollout.Original, orig))
	next.Original, next.SpecHash, next.PlacedHash, next.Held = orig, gangspec.Hash(orig), gangspec.Hash(orig), ""
	mixed, err := apply.Mix(&next, m.Current, apply.Cluster(v))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.Put(f.t.Context(), &next); err != nil {
		f.t.Fatal(err)
	}
	f.submit(mixed)
}

// through holds when no update is under way any more.
func through(members int, env string) func(*observe.View) bool {
	return func(v *observe.View) bool {
		m, ok := v.Job("default", "serve")
		return settledJob("serve", members)(v) && ok && m.Record.Rollout == nil && m.Record.Original.TaskGroups[0].Tasks[0].Env["V"] == env && rewrite.RollingTo(m.Current) == ""
	}
}

func TestRollout(t *testing.T) {
	tests := map[string]struct {
		first, second *api.Job
		members       int
		// wantSteps is how many members were replaced at a time.
		wantSteps []int
	}{
		"replicas, one by one":     {served("none", 3, 8, 1, map[string]string{"V": "1"}), served("none", 3, 8, 1, map[string]string{"V": "2"}), 3, []int{1, 1, 1}},
		"replicas, two by two":     {served("none", 3, 4, 2, map[string]string{"V": "1"}), served("none", 3, 4, 2, map[string]string{"V": "2"}), 3, []int{2, 1}},
		"all at once, if asked":    {served("none", 3, 4, 0, map[string]string{"V": "1"}), served("none", 3, 4, 0, map[string]string{"V": "2"}), 3, []int{3}},
		"a gang is replaced whole": {served("job", 3, 8, 1, map[string]string{"V": "1"}), served("job", 3, 8, 1, map[string]string{"V": "2"}), 3, []int{3}},
		"gang by gang":             {twoGroups(served("group", 2, 8, 1, map[string]string{"V": "1"})), twoGroups(served("group", 2, 8, 1, map[string]string{"V": "2"})), 4, []int{2, 2}},
		"nothing that restarts a member": {served("none", 3, 8, 1, map[string]string{"V": "1"}), func() *api.Job {
			job := served("none", 3, 8, 1, map[string]string{"V": "1"})
			job.Priority = ptr(70)
			return job
		}(), 3, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 4)
			f.submit(test.first)
			e := apply.NewExecutor(f.client, f, options())
			v := run(t, f, e, "running", settledJob("serve", test.members))
			before, _ := v.Job("default", "serve")
			f.resubmit(test.second)
			var steps []int
			seen := f.places()
			v = run(t, f, e, "through", func(v *observe.View) bool {
				now := f.places()
				n := 0
				for id := range now {
					if !seen[id] {
						n++
					}
				}
				if seen = now; n > 0 {
					steps = append(steps, n)
				}
				if live := len(now); live < test.members {
					t.Errorf("%d members are live", live)
				}
				m, _ := v.Job("default", "serve")
				return through(test.members, "")(v) || through(test.members, "1")(v) && m.Record.SpecHash != before.Record.SpecHash || through(test.members, "2")(v)
			})
			after := placed(t, f, v, "serve", test.members)
			if !slices.Equal(steps, test.wantSteps) {
				t.Errorf("replaced %v at a time, want %v", steps, test.wantSteps)
			}
			for i, s := range after.Members {
				if was := before.Members[i].Member; s.Member.Node != was.Node || !slices.Equal(s.Member.GPUs, was.GPUs) {
					t.Errorf("member %d moved", i)
				}
			}
			if after.Record.SpecHash == before.Record.SpecHash || !after.Record.Submitted.Equal(before.Record.Submitted) || !strings.Contains(after.Record.Reason, "the update is through") {
				t.Errorf("record %+v", after.Record)
			}
		})
	}
}

// places are the live allocations.
func (f *fakeNomad) places() map[string]bool {
	out := map[string]bool{}
	for _, a := range f.allocs {
		if a.JobID == "serve" && a.DesiredStatus == "run" && a.ClientStatus == "running" {
			out[a.ID] = true
		}
	}
	return out
}

// TestRolloutFails: a version that is not healthy stops the update after its
// first gang, or is taken back, as the user's update block says.
func TestRolloutFails(t *testing.T) {
	for _, revert := range []bool{false, true} {
		t.Run(fmt.Sprintf("auto_revert=%v", revert), func(t *testing.T) {
			f := newFake(t, 4)
			f.submit(served("none", 3, 8, 1, map[string]string{"V": "1"}))
			e := apply.NewExecutor(f.client, f, options())
			v := run(t, f, e, "running", settledJob("serve", 3))
			first, _ := v.Job("default", "serve")
			bad := served("none", 3, 8, 1, map[string]string{"V": "2", "BAD": "1"})
			bad.Update.AutoRevert = &revert
			f.resubmit(bad)
			if revert {
				v = run(t, f, e, "taken back", func(v *observe.View) bool { return through(3, "1")(v) && len(v.Managed[0].Record.History) > 3 })
				m := placed(t, f, v, "serve", 3)
				if m.Record.SpecHash != first.Record.SpecHash || !strings.Contains(m.Record.Reason, "taken back") || !strings.Contains(m.Record.Reason, "was not healthy") {
					t.Errorf("record %+v", m.Record)
				}
			} else {
				v = run(t, f, e, "stopped", func(v *observe.View) bool {
					m, _ := v.Job("default", "serve")
					return m.Record.Rollout != nil && m.Record.Rollout.Failed != ""
				})
				m, _ := v.Job("default", "serve")
				for _, want := range []string{"failed with 1 of 3 members changed", "the others keep the version before"} {
					if !strings.Contains(m.Record.Reason, want) {
						t.Errorf("reason %q, want %q", m.Record.Reason, want)
					}
				}
				writes := f.writes
				for range 5 {
					e.Execute(t.Context(), f.view(), nil)
					f.tick()
				}
				if f.writes != writes {
					t.Errorf("a stopped update goes on: %v", f.log[writes:])
				}
			}
			kept := f.places()
			same := 0
			for _, s := range first.Members {
				if kept[s.Alloc.ID] {
					same++
				}
			}
			if same != 2 {
				t.Errorf("%d members were left alone, want 2", same)
			}
			f.resubmit(served("none", 3, 8, 1, map[string]string{"V": "3"}))
			placed(t, f, run(t, f, e, "the corrected version runs", through(3, "3")), "serve", 3)
		})
	}
}

// TestRolloutStopsAnywhere: the planner dies at any write of an update.
func TestRolloutStopsAnywhere(t *testing.T) {
	for _, late := range []bool{false, true} {
		total := 1
		for n := 1; n <= total; n++ {
			t.Run(fmt.Sprintf("after=%v/write=%d", late, n), func(t *testing.T) {
				f := newFake(t, 4)
				f.submit(served("none", 3, 8, 1, map[string]string{"V": "1"}))
				e := apply.NewExecutor(f.client, f, options())
				run(t, f, e, "running", settledJob("serve", 3))
				f.resubmit(served("none", 3, 8, 1, map[string]string{"V": "2"}))
				began, created := f.writes, len(f.allocs)
				f.dies(began+n, late, 3, "2")
				placed(t, f, f.view(), "serve", 3)
				if !through(3, "2")(f.view()) {
					t.Fatalf("the update never ends: %v", f.log[began:])
				}
				if got := len(f.allocs) - created; got != 3 {
					t.Errorf("%d members were started, want each once", got)
				}
				total = max(total, f.writes-began)
			})
		}
		if total < 8 {
			t.Errorf("only %d writes", total)
		}
	}
}

// dies lets the planner die before or after a write, and another one go on,
// until the update is through.
func (f *fakeNomad) dies(write int, late bool, members int, version string) {
	f.t.Helper()
	e, dead := apply.NewExecutor(f.client, f, options()), false
	f.fail = func(i int, _ string, after bool) int {
		dead = dead || i == write && after == late
		if dead {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	for range 60 {
		v := f.view()
		e.Execute(f.t.Context(), v, decide(f, v))
		f.oneHolder()
		if len(f.places()) < members {
			f.t.Error("a member is missing")
		}
		f.tick()
		if dead {
			f.fail, dead = nil, false
			e = apply.NewExecutor(f.client, f, options())
		}
		if through(members, version)(f.view()) {
			return
		}
	}
}

// TestRolloutPastTheGateway: a version that the user registers with Nomad
// itself is rolled too, where Nomad has not taken members off by then.
func TestRolloutPastTheGateway(t *testing.T) {
	f := newFake(t, 5)
	f.submit(twoGroups(served("group", 2, 8, 1, map[string]string{"V": "1"})))
	e := apply.NewExecutor(f.client, f, options())
	v := run(t, f, e, "running", settledJob("serve", 4))
	before, _ := v.Job("default", "serve")
	f.submit(twoGroups(served("group", 2, 8, 1, map[string]string{"V": "2"})))
	v = run(t, f, e, "through", through(4, "2"))
	for i, s := range placed(t, f, v, "serve", 4).Members {
		if s.Member.Node != before.Members[i].Member.Node {
			t.Errorf("member %d moved", i)
		}
	}
	// A version that asks for something else is queued.
	f.submit(twoGroups(served("group", 2, 4, 1, map[string]string{"V": "3"})))
	run(t, f, e, "queued", phase("serve", "queued"))
	run(t, f, e, "runs", through(4, "3"))
}
