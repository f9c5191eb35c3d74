package barrier_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// TestReleasedMembersMeet: an operator has left to Nomad where the members run,
// and they are one gang all the same.
func TestReleasedMembersMeet(t *testing.T) {
	for name, gang := range map[string]model.Gang{"the job": model.GangJob, "the group": model.GangGroup} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 3, nil)
				r.cluster.job.Model.Gang = gang
				// Nomad has placed two, and the third later.
				third, member := r.cluster.job.Allocs[2], r.cluster.members[2]
				r.cluster.job.Allocs, r.cluster.members = r.cluster.job.Allocs[:2:2], r.cluster.members[:2:2]
				r.cluster.release()
				r.update()
				people := r.people(3)
				var early sync.WaitGroup
				told := make([]started, 3)
				for i := range 2 {
					early.Go(func() { told[i] = people[i].wait() })
				}
				time.Sleep(5 * time.Second)
				a, err := r.member(0, 0).ask()
				if err != nil || a.State != gangapi.JoinWaiting || !strings.Contains(a.Reason, "2 of 3 joined") {
					t.Errorf("while one is missing: %+v, %v", a, err)
				}
				r.cluster.job.Allocs = append(r.cluster.job.Allocs, third)
				r.cluster.members = append(r.cluster.members, member)
				r.update()
				told[2] = people[2].wait()
				early.Wait()
				for i, s := range told {
					if s.State != gangapi.JoinStart || s.Membership == nil || len(s.Membership.Members) != 3 || s.Membership.Epoch != told[0].Membership.Epoch {
						t.Errorf("member %d was told %+v, want a start of three", i, s.JoinAnswer)
					}
				}
			})
		})
	}
}

// TestReleasedWhileItRuns: the gang runs on, and who starts again does not start
// alone beside the others.
func TestReleasedWhileItRuns(t *testing.T) {
	tests := map[string]struct {
		// again is what befalls member 1, which then joins as that person.
		again func(r *rig, people []*person) *person
	}{
		"its task starts again": {func(_ *rig, people []*person) *person {
			people[1].join.Run = "run-1-again"
			return people[1]
		}},
		"Nomad places it anew": {func(r *rig, _ []*person) *person {
			r.cluster.alloc(1, func(a *api.AllocationListStub) { a.ClientStatus = "failed"; a.CreateIndex = 5 })
			r.cluster.members = append(r.cluster.members[:1:1], r.cluster.members[2:]...)
			r.cluster.add(1, 7)
			at := len(r.cluster.job.Allocs) - 1
			r.cluster.alloc(at, func(a *api.AllocationListStub) { a.CreateIndex = 9 })
			return r.member(1, 7)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 3, nil)
				people := r.begin(3)
				old := people[0].m.Epoch
				r.cluster.release()
				r.update()
				for i, p := range people {
					if a := p.report(gangapi.MemberRunning, nil); a.Order != nil || a.Gone || !a.Attached {
						t.Errorf("member %d of the gang that runs was told %+v", i, a)
					}
				}
				again := test.again(r, people)
				r.update()
				var wg sync.WaitGroup
				var back started
				wg.Go(func() { back = again.wait() })
				for _, p := range []*person{people[0], people[2]} {
					a := p.report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
					if a.Order == nil || a.Order.Kind != gangapi.OrderRestart {
						t.Fatalf("told %+v, want to come back to the barrier", a)
					}
					p.join.Attempt++
				}
				for _, s := range append(together(people[0], people[2]), func() started { wg.Wait(); return back }()) {
					if s.State != gangapi.JoinStart || len(s.Membership.Members) != 3 || s.Membership.Epoch == old {
						t.Errorf("told %+v, want a new start of three", s.JoinAnswer)
					}
				}
			})
		})
	}
}

// TestReleasedMemberThatHasCompleted is not awaited for a start that cannot be.
func TestReleasedMemberThatHasCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		people := r.begin(2)
		r.cluster.release()
		r.cluster.alloc(0, func(a *api.AllocationListStub) { a.ClientStatus = "complete"; a.CreateIndex = 1 })
		r.cluster.members = r.cluster.members[1:]
		r.update()
		if a := people[1].report(gangapi.MemberRunning, nil); a.Order != nil || a.Gone {
			t.Errorf("the other was told %+v", a)
		}
		st := r.service.Gangs("ml", "train")
		if len(st) != 1 || st[0].Phase != "running" || len(st[0].Members) != 2 {
			t.Errorf("gangs %+v", st)
		}
	})
}
