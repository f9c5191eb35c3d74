package barrier_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// TestCanariesAreAGangOfTheirOwn: they start together and without those that
// they run beside, and when they take their places nobody starts again.
func TestCanariesAreAGangOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		before := together(r.people(2)...)
		for i := range 2 {
			r.cluster.add(i, 2+i)
		}
		canaries := r.cluster.members[2:]
		for i := range canaries {
			canaries[i].Member.Slot = 7
		}
		job := *r.cluster.job
		r.cluster.members, job.Canaries = slices.Clone(r.cluster.members[:2]), slices.Clone(canaries)
		r.cluster.job = &job
		r.update()
		people := []*person{r.member(0, 2), r.member(1, 3)}
		beside := together(people...)
		for i, s := range beside {
			if s.State != gangapi.JoinStart || s.Membership == nil || len(s.Membership.Members) != 2 || s.Membership.Epoch == before[0].Membership.Epoch {
				t.Fatalf("canary %d: %+v", i, s.JoinAnswer)
			}
			if s.Membership.MasterAddr != "10.0.0.3" {
				t.Errorf("canary %d meets at %s", i, s.Membership.MasterAddr)
			}
		}
		// They are promoted, and the others stop.
		for i := range 2 {
			r.cluster.alloc(i, func(a *api.AllocationListStub) { a.DesiredStatus = "stop" })
		}
		job = *r.cluster.job
		r.cluster.members, job.Canaries = slices.Clone(job.Canaries), nil
		r.cluster.job = &job
		r.update()
		time.Sleep(time.Second)
		again, err := people[0].ask()
		if err != nil || again.State != gangapi.JoinStart || again.Membership == nil || again.Membership.Epoch != beside[0].Membership.Epoch {
			t.Errorf("a promoted canary is told %+v, %v", again, err)
		}
		if old, err := r.member(0, 0).ask(); err != nil || old.State == gangapi.JoinStart {
			t.Errorf("a member of before is told %+v, %v", old, err)
		}
		synctest.Wait()
		for name := range r.docs.data {
			if !strings.HasSuffix(name, "/7") {
				t.Errorf("%s is left", name)
			}
		}
	})
}
