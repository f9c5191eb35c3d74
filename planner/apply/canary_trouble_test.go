package apply_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestCanaryTrouble: what the cluster does to a canary is no fault of the
// version; another is placed, and the members run on.
func TestCanaryTrouble(t *testing.T) {
	for name, trouble := range map[string]func(f *fakeNomad, canary *api.AllocationListStub){
		"its node is lost":    func(f *fakeNomad, a *api.AllocationListStub) { f.down[a.NodeID] = true },
		"its node is drained": func(f *fakeNomad, a *api.AllocationListStub) { f.unusable[a.NodeID] = "draining" },
		"somebody stops it":   func(f *fakeNomad, a *api.AllocationListStub) { a.DesiredStatus, a.ClientStatus = "stop", "complete" },
		"its GPU is ill":      func(f *fakeNomad, a *api.AllocationListStub) { f.sick[idsOf(a)[0]] = "XID 79" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 5)
			f.submit(canaried("none", 2, 8, 1, false, "1"))
			e := apply.NewExecutor(f.client, f, options())
			run(t, f, e, "running", settledJob("serve", 2))
			before := f.places()
			f.resubmit(canaried("none", 2, 8, 1, false, "2"))
			v := run(t, f, e, "healthy", awaiting)
			m, _ := v.Job("default", "serve")
			was := m.Canaries[0].Alloc.ID
			for _, a := range f.allocs {
				if a.ID == was {
					trouble(f, a)
				}
			}
			run(t, f, e, "another", func(v *observe.View) bool {
				m, _ := v.Job("default", "serve")
				return awaiting(v) && m.Canaries[0].State == observe.AllocPlaced && m.Canaries[0].Alloc.ID != was
			})
			if f.kept(before) != 2 {
				t.Errorf("%d members run", f.kept(before))
			}
			f.edit(promoted)
			run(t, f, e, "through", through(2, "2"))
		})
	}
}

// TestMemberTroubleBesideCanaries: a member that is lost comes back in the
// version before, and the canary stays.
func TestMemberTroubleBesideCanaries(t *testing.T) {
	f := newFake(t, 5)
	f.submit(canaried("none", 3, 8, 1, false, "1"))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "running", settledJob("serve", 3))
	f.resubmit(canaried("none", 3, 8, 1, false, "2"))
	v := run(t, f, e, "healthy", awaiting)
	m, _ := v.Job("default", "serve")
	canary := m.Canaries[0].Alloc.ID
	f.unusable[m.Members[1].Member.Node] = "draining"
	run(t, f, e, "moved", func(v *observe.View) bool {
		now, _ := v.Job("default", "serve")
		return settledJob("serve", 3)(v) && len(now.Members) == 3 && now.Members[2].Member.Node != m.Members[1].Member.Node && now.Members[1].Member.Node != m.Members[1].Member.Node
	})
	if !f.places()[canary] {
		t.Error("the canary was stopped")
	}
	for _, g := range f.jobs["serve"].TaskGroups {
		if want := map[bool]string{true: "2", false: "1"}[strings.Contains(*g.Name, "-v")]; g.Tasks[0].Env["V"] != want {
			t.Errorf("group %s has version %s, want %s", *g.Name, g.Tasks[0].Env["V"], want)
		}
	}
	f.edit(promoted)
	run(t, f, e, "through", through(3, "2"))
}

// TestCanariesStopAnywhere: the planner dies at any write of an update with
// canaries, and of one that is taken back.
func TestCanariesStopAnywhere(t *testing.T) {
	for _, bad := range []bool{false, true} {
		for _, late := range []bool{false, true} {
			total := 1
			for n := 1; n <= total; n++ {
				t.Run(fmt.Sprintf("bad=%v/after=%v/write=%d", bad, late, n), func(t *testing.T) {
					f := newFake(t, 4)
					f.submit(canaried("none", 2, 8, 1, true, "1"))
					e := apply.NewExecutor(f.client, f, options())
					run(t, f, e, "running", settledJob("serve", 2))
					before, want, next := f.places(), "2", canaried("none", 2, 8, 1, true, "2")
					if bad {
						want, next = "1", canaried("none", 2, 8, 1, true, "2", "BAD")
						next.Update.AutoRevert = ptr(true)
					}
					f.resubmit(next)
					began, created := f.writes, len(f.allocs)
					f.dies(began+n, late, 2, want)
					placed(t, f, f.view(), "serve", 2)
					if !through(2, want)(f.view()) {
						t.Fatalf("the update never ends: %v", f.log[began:])
					}
					if got, want := len(f.allocs)-created, map[bool]int{true: 1, false: 2}[bad]; got != want {
						t.Errorf("%d members were started, want %d", got, want)
					}
					if bad && f.kept(before) != 2 {
						t.Errorf("%d members of before run", f.kept(before))
					}
					total = max(total, f.writes-began)
				})
			}
			if total < 6 {
				t.Errorf("only %d writes", total)
			}
		}
	}
}

// TestManualHealth: where health_check is "manual", somebody says what is well.
func TestManualHealth(t *testing.T) {
	for _, well := range []bool{true, false} {
		f := newFake(t, 4)
		f.submit(canaried("none", 2, 8, 1, true, "1"))
		e := apply.NewExecutor(f.client, f, options())
		run(t, f, e, "running", settledJob("serve", 2))
		next := canaried("none", 2, 8, 1, true, "2")
		next.Update.HealthCheck = ptr("manual")
		f.resubmit(next)
		v := run(t, f, e, "placed", func(v *observe.View) bool {
			m, _ := v.Job("default", "serve")
			return len(m.Canaries) == 1 && m.Canaries[0].State == observe.AllocPlaced
		})
		f.quiet(e)
		m, _ := v.Job("default", "serve")
		f.edit(func(ro *record.Rollout) { ro.Marked = map[string]bool{m.Canaries[0].Alloc.ID: well} })
		run(t, f, e, "acted on", func(v *observe.View) bool {
			m, _ := v.Job("default", "serve")
			if ro := m.Record.Rollout; !well {
				return ro.Failed != "" && strings.Contains(ro.Failed, "was marked as unhealthy")
			} else if ro != nil {
				// The rest is marked as it gets its turn.
				for _, s := range m.Members {
					if s.Alloc != nil && !ro.Marked[s.Alloc.ID] {
						f.edit(func(ro *record.Rollout) {
							marked := map[string]bool{s.Alloc.ID: true}
							for id := range ro.Marked {
								marked[id] = true
							}
							ro.Marked = marked
						})
					}
				}
			}
			return through(2, "2")(v)
		})
	}
}

// TestFailedCanariesAreTakenBack later, when a person asks for it.
func TestFailedCanariesAreTakenBack(t *testing.T) {
	f := newFake(t, 4)
	f.submit(canaried("none", 2, 8, 1, false, "1"))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "running", settledJob("serve", 2))
	before := f.places()
	f.resubmit(canaried("none", 2, 8, 1, false, "2", "BAD"))
	run(t, f, e, "failed", func(v *observe.View) bool {
		m, _ := v.Job("default", "serve")
		return m.Record.Rollout.Failed != ""
	})
	f.edit(func(ro *record.Rollout) { ro.GivenUp, ro.Undo = "it was given up by a user", true })
	v := run(t, f, e, "back", func(v *observe.View) bool { return through(2, "1")(v) && len(f.places()) == 2 })
	m, _ := v.Job("default", "serve")
	if f.kept(before) != 2 || m.Record.Ended == nil || !m.Record.Ended.Failed {
		t.Errorf("%d of before run; the update ended with %+v", f.kept(before), m.Record.Ended)
	}
}
