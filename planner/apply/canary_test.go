package apply_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// canaried is a service job with canaries.
func canaried(gang string, count, gpus, canary int, promote bool, v string, more ...string) *api.Job {
	env := map[string]string{"V": v}
	for _, k := range more {
		env[k] = "1"
	}
	job := served(gang, count, gpus, 1, env)
	job.Update.Canary, job.Update.AutoPromote = &canary, &promote
	return job
}

// awaiting holds when the canaries are healthy and somebody must promote them.
func awaiting(v *observe.View) bool {
	m, ok := v.Job("default", "serve")
	return ok && m.Record.Rollout != nil && m.Record.Rollout.Canary != nil && m.Record.Rollout.Canary.Healthy
}

// edit changes the record of the job as a person does by way of the gateway.
func (f *fakeNomad) edit(change func(*record.Rollout)) {
	f.t.Helper()
	rec := f.records["default/serve"]
	rollout := *rec.Rollout
	if rollout.Canary != nil {
		canary := *rollout.Canary
		rollout.Canary = &canary
	}
	change(&rollout)
	rec.Rollout = &rollout
	if err := f.Put(f.t.Context(), &rec); err != nil {
		f.t.Fatal(err)
	}
}

func promoted(ro *record.Rollout) { ro.Canary.Promote = "a person" }

// kept counts the allocations that still run of those before.
func (f *fakeNomad) kept(before map[string]bool) (n int) {
	for id := range f.places() {
		if before[id] {
			n++
		}
	}
	return n
}

// TestCanaries: nothing of the old version is stopped before the canaries are
// promoted; they become members, and the rest is rolled as ever.
func TestCanaries(t *testing.T) {
	tests := map[string]struct {
		first, second func(promote bool) *api.Job
		nodes         int
		members       int
		canaries      int
	}{
		"one replica of three":            {func(p bool) *api.Job { return canaried("none", 3, 8, 1, p, "1") }, func(p bool) *api.Job { return canaried("none", 3, 8, 1, p, "2") }, 5, 3, 1},
		"two of three, on parts of nodes": {func(p bool) *api.Job { return canaried("none", 3, 4, 2, p, "1") }, func(p bool) *api.Job { return canaried("none", 3, 4, 2, p, "2") }, 3, 3, 2},
		"all":                             {func(p bool) *api.Job { return canaried("none", 2, 8, 2, p, "1") }, func(p bool) *api.Job { return canaried("none", 2, 8, 2, p, "2") }, 4, 2, 2},
		"a replica alone":                 {func(p bool) *api.Job { return canaried("none", 1, 8, 1, p, "1") }, func(p bool) *api.Job { return canaried("none", 1, 8, 1, p, "2") }, 2, 1, 1},
		"a gang":                          {func(p bool) *api.Job { return canaried("job", 2, 8, 1, p, "1") }, func(p bool) *api.Job { return canaried("job", 2, 8, 1, p, "2") }, 4, 2, 2},
		"a gang on parts of a node":       {func(p bool) *api.Job { return canaried("job", 2, 2, 1, p, "1") }, func(p bool) *api.Job { return canaried("job", 2, 2, 1, p, "2") }, 1, 2, 2},
		"both of two gangs": {func(p bool) *api.Job { return twoGroups(canaried("group", 2, 8, 2, p, "1")) },
			func(p bool) *api.Job { return twoGroups(canaried("group", 2, 8, 2, p, "2")) }, 8, 4, 4},
		"one of two gangs": {func(p bool) *api.Job { return oneCanary(twoGroups(canaried("group", 2, 8, 2, p, "1"))) },
			func(p bool) *api.Job { return oneCanary(twoGroups(canaried("group", 2, 8, 2, p, "2"))) }, 6, 4, 2},
	}
	for name, test := range tests {
		for _, itself := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/auto_promote=%v", name, itself), func(t *testing.T) {
				f := newFake(t, test.nodes)
				f.submit(test.first(itself))
				e := apply.NewExecutor(f.client, f, options())
				run(t, f, e, "running", settledJob("serve", test.members))
				before := f.places()
				f.resubmit(test.second(itself))
				if !itself {
					run(t, f, e, "healthy", awaiting)
					if f.kept(before) != test.members || len(f.places()) != test.members+test.canaries {
						t.Fatalf("%d of the old %d members run, and %d in all, want %d canaries beside them", f.kept(before), test.members, len(f.places()), test.canaries)
					}
					f.quiet(e)
					f.edit(promoted)
				}
				beside := map[string]bool{}
				v := run(t, f, e, "through", func(v *observe.View) bool {
					now := f.places()
					if len(now) < test.members {
						t.Errorf("%d members are live", len(now))
					}
					if m, _ := v.Job("default", "serve"); m.Record.Rollout.Beside() != nil {
						for _, s := range m.Canaries {
							if s.Alloc != nil {
								beside[s.Alloc.ID] = true
							}
						}
						if f.kept(before) != test.members {
							t.Errorf("%d of %d members run while there are canaries", f.kept(before), test.members)
						}
					}
					return through(test.members, "2")(v)
				})
				if len(beside) != test.canaries && itself {
					t.Errorf("%d canaries, want %d", len(beside), test.canaries)
				}
				if f.kept(before) != 0 || f.kept(beside) != len(beside) || len(f.places()) != test.members {
					t.Errorf("of the old %d run, of the canaries %d of %d, in all %d", f.kept(before), f.kept(beside), len(beside), len(f.places()))
				}
				m := placed(t, f, v, "serve", test.members)
				if !strings.Contains(m.Record.Reason, "the update is through") {
					t.Errorf("reason %q", m.Record.Reason)
				}
				f.quiet(e)
				// The next update finds members with names of their own.
				old := f.places()
				f.resubmit(canaryVersion(test.second(true), "3"))
				run(t, f, e, "again", through(test.members, "3"))
				placed(t, f, f.view(), "serve", test.members)
				if f.kept(old) != 0 {
					t.Errorf("%d members of version 2 run", f.kept(old))
				}
			})
		}
	}
}

// oneCanary takes the canary of the second group away.
func oneCanary(j *api.Job) *api.Job {
	j.TaskGroups[1].Update = &api.UpdateStrategy{Canary: ptr(0)}
	return j
}

func canaryVersion(j *api.Job, v string) *api.Job {
	j.Meta["version"] = v
	for _, g := range j.TaskGroups {
		for _, task := range g.Tasks {
			task.Env["V"] = v
		}
	}
	return j
}

// quiet fails if a planner that has nothing to do writes.
func (f *fakeNomad) quiet(e *apply.Executor) {
	f.t.Helper()
	writes := f.writes
	for range 5 {
		v := f.view()
		e.Execute(f.t.Context(), v, decide(f, v))
		f.tick()
	}
	if f.writes != writes {
		f.t.Errorf("writes without need: %v", f.log[writes:])
	}
}

// TestCanariesWaitForRoom, and the old version runs on meanwhile.
func TestCanariesWaitForRoom(t *testing.T) {
	f := newFake(t, 2)
	f.submit(canaried("job", 2, 8, 1, true, "1"))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "running", settledJob("serve", 2))
	before := f.places()
	f.resubmit(canaried("job", 2, 8, 1, true, "2"))
	f.now = f.now.Add(time.Hour) // no deadline runs
	f.quiet(e)
	if f.kept(before) != 2 {
		t.Errorf("%d members run", f.kept(before))
	}
	f.nodes = append(f.nodes, "aaaaaaaa-node", "bbbbbbbb-node")
	run(t, f, e, "through", through(2, "2"))
}

// TestCanariesFail: the old version is as it was, whatever becomes of them.
func TestCanariesFail(t *testing.T) {
	for name, test := range map[string]struct {
		more   []string
		revert bool
		person func(*record.Rollout)
		gone   bool
	}{
		"unhealthy":                 {more: []string{"BAD"}, gone: false},
		"unhealthy, auto_revert":    {more: []string{"BAD"}, revert: true, gone: true},
		"given up":                  {person: func(ro *record.Rollout) { ro.GivenUp = "the deployment was marked as failed" }},
		"given up, auto_revert":     {person: func(ro *record.Rollout) { ro.GivenUp = "the deployment was marked as failed" }, revert: true, gone: true},
		"given up, and rolled back": {person: func(ro *record.Rollout) { ro.GivenUp, ro.Undo = "it was called off", true }, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 4)
			f.submit(canaried("none", 2, 8, 1, false, "1"))
			e := apply.NewExecutor(f.client, f, options())
			run(t, f, e, "running", settledJob("serve", 2))
			before := f.places()
			next := canaried("none", 2, 8, 1, false, "2", test.more...)
			next.Update.AutoRevert = &test.revert
			f.resubmit(next)
			if test.person != nil {
				run(t, f, e, "healthy", awaiting)
				f.edit(test.person)
			}
			v := run(t, f, e, "failed", func(v *observe.View) bool {
				m, _ := v.Job("default", "serve")
				return test.gone && through(2, "1")(v) && len(f.places()) == 2 || !test.gone && m.Record.Rollout != nil && m.Record.Rollout.Failed != ""
			})
			m, _ := v.Job("default", "serve")
			want := "and the canaries stay beside them"
			if test.gone {
				want = "the update was taken back"
			}
			if !strings.Contains(m.Record.Reason, want) || !strings.Contains(m.Record.Reason, "before its canaries were promoted") {
				t.Errorf("reason %q, want %q", m.Record.Reason, want)
			}
			f.quiet(e)
			if f.kept(before) != 2 || len(f.places()) != map[bool]int{true: 2, false: 3}[test.gone] {
				t.Errorf("%d members of before run, %d in all", f.kept(before), len(f.places()))
			}
			f.resubmit(canaried("none", 2, 8, 1, true, "3"))
			run(t, f, e, "a corrected version", through(2, "3"))
			placed(t, f, f.view(), "serve", 2)
		})
	}
}

// TestCanaryPaused: a person holds an update, and lets it go on.
func TestCanaryPaused(t *testing.T) {
	f := newFake(t, 4)
	f.submit(canaried("none", 2, 8, 1, true, "1"))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "running", settledJob("serve", 2))
	f.resubmit(canaried("none", 2, 8, 1, true, "2"))
	f.edit(func(ro *record.Rollout) { ro.Paused = true })
	f.quiet(e)
	f.edit(func(ro *record.Rollout) { ro.Paused = false })
	run(t, f, e, "through", through(2, "2"))
}
