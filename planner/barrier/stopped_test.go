package barrier_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/record"
)

// The planner stops what is left of a gang that has failed. A member that is
// stopped before it has heard of the failure is told all the same, whichever planner
// leads then.
func TestToldThoughStopped(t *testing.T) {
	for name, another := range map[string]bool{"the same planner": false, "the next planner": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 3, map[string]string{"caravan_on_failure": "fail"})
				people := r.begin(3)
				people[2].report(gangapi.MemberExited, exits(3))
				synctest.Wait()
				r.cluster.record(func(rec *record.Record) { rec.Phase, rec.Members = record.PhaseQueued, nil })
				r.cluster.members = nil
				for i := range 3 {
					r.cluster.alloc(i, func(a *api.AllocationListStub) { a.DesiredStatus = "stop" })
				}
				if another {
					r.lead()
				} else {
					r.update()
				}
				go func() { time.Sleep(time.Second); r.update() }()
				want := `allocation alloc-0- is to be stopped (stop); ranks 4 to 5 (member 2 of group "w") on n2 failed first, with exit code 3 after 1m1s`
				a := people[0].report(gangapi.MemberStopping, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
				if !a.Gone || a.Reason != want {
					t.Errorf("told %+v, want %q", a, want)
				}
				go func() { time.Sleep(time.Second); r.update() }()
				// Of another epoch that planner knows nothing.
				a = people[1].report(gangapi.MemberStopping, func(q *gangapi.ReportRequest) { q.Epoch, q.WaitMS = "7-x", 5000 })
				if !a.Gone || a.Reason != "allocation alloc-1- is to be stopped (stop)" {
					t.Errorf("one of another epoch is told %+v", a)
				}
			})
		})
	}
}
