package barrier_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/observe"
)

func TestOneFailsAllKnow(t *testing.T) {
	elastic := map[string]string{"caravan_min": "2", "caravan_max": "4"}
	with := func(onFailure string) map[string]string {
		out := map[string]string{"caravan_on_failure": onFailure}
		for k, v := range elastic {
			out[k] = v
		}
		return out
	}
	const reason = `ranks 4 to 5 (member 2 of group "w") on n2 failed first, with exit code 3 after 1m1s`
	t.Run("restart", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 4, nil)
			people := r.begin(4)
			people[2].report(gangapi.MemberExited, exits(3))
			for _, i := range []int{0, 1, 3} {
				a := people[i].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
				if a.Order == nil || a.Order.Kind != gangapi.OrderRestart || a.Order.Reason != reason {
					t.Fatalf("member %d was told %+v", i, a.Order)
				}
				// What comes of the order is no failure.
				people[i].report(gangapi.MemberExited, func(q *gangapi.ReportRequest) { q.Exit = &gangapi.Exit{Signal: 15, Ordered: true} })
				people[i].join.Attempt++
			}
			old := people[0].m.Epoch
			people[2].join.Run = "run-2-again"
			for i, s := range together(people...) {
				if s.State != gangapi.JoinStart || s.Membership.Epoch == old || s.Membership.Generation != 1 {
					t.Errorf("member %d was told %+v", i, s.JoinAnswer)
				}
			}
			if a := people[0].report(gangapi.MemberRunning, nil); a.Order != nil || !a.Attached {
				t.Errorf("after the new start: %+v", a)
			}
			// One that has heard of nothing, and is still in the old epoch, leaves it.
			people[1].m = &rendezvous.Membership{Epoch: old}
			people[1].seen = 0
			if a := people[1].report(gangapi.MemberRunning, nil); a.Order == nil || a.Order.Kind != gangapi.OrderRestart {
				t.Errorf("of the old epoch: %+v", a)
			}
		})
	})
	t.Run("restart: those that fail because of it are told, and it is not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 4, nil)
			people := r.begin(4)
			first := people[2].report(gangapi.MemberExited, exits(3))
			second := people[0].report(gangapi.MemberExited, func(q *gangapi.ReportRequest) { exits(1)(q); q.WaitMS = 2000 })
			synctest.Wait()
			again := people[2].report(gangapi.MemberExited, exits(3))
			third := people[1].report(gangapi.MemberExited, exits(1))
			done := people[3].report(gangapi.MemberExited, exits(0))
			for name, a := range map[string]gangapi.ReportAnswer{"the first": first, "the first again": again, "one that has completed": done} {
				if a.Order != nil {
					t.Errorf("%s was told %+v", name, a.Order)
				}
			}
			for _, a := range []gangapi.ReportAnswer{second, third} {
				if a.Order == nil || a.Order.Kind != gangapi.OrderRestart || !a.Order.Urgent || a.Order.Reason != reason {
					t.Errorf("one that failed after it was told %+v", a.Order)
				}
			}
		})
	})
	t.Run("fail", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 4, map[string]string{"caravan_on_failure": "fail"})
			people := r.begin(4)
			people[2].report(gangapi.MemberExited, exits(3))
			a := people[0].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
			if a.Order == nil || a.Order.Kind != gangapi.OrderFail || a.Order.Reason != reason {
				t.Fatalf("told %+v", a.Order)
			}
			people[2].join.Run = "again"
			if s := people[2].wait(); s.State != gangapi.JoinRefused || !strings.Contains(s.Reason, reason) {
				t.Errorf("the one that failed was told %+v", s.JoinAnswer)
			}
			// Placed anew it may start again.
			for i := range r.cluster.members {
				r.cluster.alloc(i, func(a *api.AllocationListStub) { a.DesiredStatus = "stop" })
			}
			r.cluster.members = nil
			var next []*person
			for i := range 4 {
				r.cluster.add(i, i+4)
				next = append(next, r.member(i, i+4))
			}
			r.update()
			for _, s := range together(next...) {
				if s.State != gangapi.JoinStart {
					t.Errorf("told %+v", s.JoinAnswer)
				}
			}
			time.Sleep(time.Millisecond)
			go func() { time.Sleep(time.Second); r.update() }()
			if a := people[0].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 }); !a.Gone || a.Attached {
				t.Errorf("one of before was told %+v", a)
			}
		})
	})
	t.Run("continue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 4, with("continue"))
			people := r.begin(4)
			epoch := people[0].m.Epoch
			people[2].report(gangapi.MemberExited, exits(3))
			for _, i := range []int{0, 1, 3} {
				a := people[i].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
				if a.Order != nil || a.Membership == nil || a.Membership.Epoch != epoch || a.Membership.Generation != 2 || len(a.Membership.Members) != 3 {
					t.Fatalf("member %d was told %+v", i, a)
				}
			}
			// It comes back, and joins those who went on.
			people[2].join.Run = "again"
			s := people[2].wait()
			if s.State != gangapi.JoinStart || s.Membership.Epoch != epoch || s.Membership.Generation != 3 || len(s.Membership.Members) != 4 {
				t.Fatalf("told %+v", s.JoinAnswer)
			}
			a := people[0].report(gangapi.MemberRunning, nil)
			if a.Membership == nil || a.Membership.Generation != 3 || a.Membership.Members[0].Alloc != people[0].who.Alloc {
				t.Errorf("told %+v", a)
			}
			// Below the least number the gang cannot go on.
			for i := range 3 {
				people[i].report(gangapi.MemberRunning, nil)
				people[i].report(gangapi.MemberExited, exits(3))
				synctest.Wait()
			}
			a = people[3].report(gangapi.MemberRunning, nil)
			if a.Order == nil || a.Order.Kind != gangapi.OrderRestart || !strings.Contains(a.Order.Reason, "1 are left, and 2 must be") {
				t.Errorf("told %+v", a)
			}
		})
	})
}

// A member that ends by itself and well is not missed, but the gang cannot
// start again without it.
func TestACompletedMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, nil)
		people := r.begin(3)
		people[0].report(gangapi.MemberExited, exits(0))
		r.cluster.members[0].State = observe.AllocComplete
		r.cluster.alloc(0, func(a *api.AllocationListStub) { a.ClientStatus = "complete" })
		r.update()
		if a := people[1].report(gangapi.MemberRunning, nil); a.Order != nil || a.Membership != nil {
			t.Errorf("told %+v", a)
		}
		people[2].report(gangapi.MemberExited, exits(1))
		a := people[1].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
		if a.Order == nil || a.Order.Kind != gangapi.OrderFail || !strings.Contains(a.Order.Reason, "has completed") {
			t.Errorf("told %+v", a.Order)
		}
	})
}

// A task that comes back without a word of how it ended has failed.
func TestAMemberStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, nil)
		people := r.begin(3)
		people[1].join.Run = "after a crash"
		back := make(chan started, 1)
		go func() { back <- people[1].wait() }()
		for _, i := range []int{0, 2} {
			a := people[i].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
			if a.Order == nil || a.Order.Kind != gangapi.OrderRestart || !strings.Contains(a.Order.Reason, `(member 1 of group "w") on n1 has started again`) {
				t.Fatalf("told %+v", a.Order)
			}
			people[i].join.Attempt++
		}
		for _, s := range append(together(people[0], people[2]), <-back) {
			if s.State != gangapi.JoinStart {
				t.Errorf("told %+v", s.JoinAnswer)
			}
		}
	})
}

func TestTheSizeChanges(t *testing.T) {
	elastic := map[string]string{"caravan_min": "2", "caravan_max": "6"}
	t.Run("an elastic gang shrinks and grows while it runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 4, elastic)
			people := r.begin(4)
			time.Sleep(time.Minute)
			r.cluster.members = r.cluster.members[:3]
			r.cluster.alloc(3, func(a *api.AllocationListStub) { a.DesiredStatus = "stop" })
			r.update()
			a := people[0].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
			if a.Membership == nil || a.Membership.Generation != 2 || len(a.Membership.Members) != 3 || a.Membership.Min != 2 || a.Membership.Max != 6 {
				t.Fatalf("told %+v", a)
			}
			r.cluster.add(3, 4)
			r.cluster.add(4, 5)
			r.update()
			fresh := []*person{r.member(3, 4), r.member(4, 5)}
			for i, s := range together(fresh...) {
				if s.State != gangapi.JoinStart || s.Membership.Generation != 3 || len(s.Membership.Members) != 5 || s.Membership.Epoch != people[0].m.Epoch || s.StartInMS != 0 {
					t.Errorf("new member %d was told %+v", i, s.JoinAnswer)
				}
			}
			for _, p := range people[:3] {
				if a := p.report(gangapi.MemberRunning, nil); a.Order != nil || a.Membership == nil || a.Membership.Members[0].Alloc != people[0].who.Alloc || a.Membership.MasterPort != 29500 {
					t.Errorf("told %+v", a)
				}
			}
		})
	})
	t.Run("one new member does not come", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 3, elastic)
			people := r.begin(3)
			r.cluster.add(3, 4)
			r.cluster.add(4, 5)
			r.update()
			began := time.Now()
			s := r.member(3, 4).wait()
			if took := time.Since(began); s.State != gangapi.JoinStart || len(s.Membership.Members) != 4 || took < 29*time.Second || took > 32*time.Second {
				t.Errorf("after %v it was told %+v", took, s.JoinAnswer)
			}
			if a := people[0].report(gangapi.MemberRunning, nil); a.Membership == nil || len(a.Membership.Members) != 4 {
				t.Errorf("told %+v", a)
			}
		})
	})
	for name, meta := range map[string]map[string]string{
		"a gang of a fixed size is restarted":        nil,
		"an elastic gang that wants to be restarted": {"caravan_min": "2", "caravan_max": "6", "caravan_on_resize": "restart"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 3, meta)
				people := r.begin(3)
				r.cluster.add(3, 4)
				r.update()
				// Nobody is disturbed before the new one is there.
				if a := people[0].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 }); a.Order != nil {
					t.Fatalf("told %+v", a.Order)
				}
				fresh := r.member(3, 4)
				back := make(chan started, 1)
				go func() { back <- fresh.wait() }()
				for _, p := range people {
					a := p.report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
					if a.Order == nil || a.Order.Kind != gangapi.OrderRestart || a.Order.Reason != "the gang changes from 3 to 4 members" {
						t.Fatalf("told %+v", a.Order)
					}
					p.join.Attempt++
				}
				for _, s := range append(together(people...), <-back) {
					if s.State != gangapi.JoinStart || len(s.Membership.Members) != 4 {
						t.Errorf("told %+v", s.JoinAnswer)
					}
				}
			})
		})
	}
}

func TestSuspendAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		if _, err := r.service.Suspend(t.Context(), "ml", "other", true, "x"); !errors.Is(err, barrier.ErrNoGang) {
			t.Errorf("an unknown job: %v", err)
		}
		people := r.begin(2)
		suspend := func(on bool, want int) {
			t.Helper()
			if n, err := r.service.Suspend(t.Context(), "ml", "train", on, "suspended by an operator"); n != want || err != nil {
				t.Fatalf("%d gangs changed, want %d; %v", n, want, err)
			}
		}
		suspend(false, 0)
		time.Sleep(time.Hour)
		at := time.Now()
		suspend(true, 1)
		suspend(true, 0)
		a := people[0].report(gangapi.MemberRunning, nil)
		if a.Order == nil || a.Order.Kind != gangapi.OrderSuspend || a.Order.Reason != "suspended by an operator" {
			t.Fatalf("told %+v", a.Order)
		}
		if a := people[0].report(gangapi.MemberSuspended, nil); a.Order != nil {
			t.Errorf("told %+v again", a.Order)
		}
		// Another planner takes over; member 1 has not heard of it yet.
		r.lead()
		if a := people[1].report(gangapi.MemberRunning, nil); a.Order == nil || a.Order.Kind != gangapi.OrderSuspend {
			t.Fatalf("told %+v", a.Order)
		}
		if st := r.service.Gangs("ml", "train"); len(st) != 1 || st[0].Phase != "suspended" || st[0].Reason != "suspended by an operator" || !st[0].Suspended.Equal(at) {
			t.Errorf("shown as %+v", st)
		}
		suspend(false, 1)
		for _, p := range people {
			if a := p.report(gangapi.MemberSuspended, nil); a.Order == nil || a.Order.Kind != gangapi.OrderResume {
				t.Errorf("told %+v", a.Order)
			}
			if a := p.report(gangapi.MemberRunning, nil); a.Order != nil {
				t.Errorf("told %+v again", a.Order)
			}
		}
	})
}

func TestAnUnfitNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		sick := r.member(1, 1)
		sick.join.WaitMS = 1000
		sick.join.Fault = &gangapi.NodeFault{Check: "gpu", GPU: "GPU-1-1", Detail: "XID 79"}
		a, err := sick.ask()
		if err != nil || a.State != gangapi.JoinWaiting || a.Reason != "the preflight found the node unfit (gpu of GPU GPU-1-1: XID 79); the gang is moved" {
			t.Errorf("it was told %+v, %v", a, err)
		}
		want := []barrier.Unfit{{Namespace: "ml", Job: "train", Node: "node-1", NodeName: "n1", Fault: *sick.join.Fault}}
		if diff := cmp.Diff(want, r.unfit); diff != "" {
			t.Errorf("told to the planner (-want +got):\n%s", diff)
		}
		healthy := r.member(0, 0)
		healthy.join.WaitMS = 1000
		if a, err = healthy.ask(); err != nil || a.State != gangapi.JoinWaiting || !strings.Contains(a.Reason, "its node is unfit: gpu of GPU GPU-1-1: XID 79") {
			t.Errorf("the other was told %+v, %v", a, err)
		}
	})
}

func TestProgressIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		people := r.begin(2)
		people[1].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) {
			q.Progress = &gangapi.Progress{Step: new(int64(120)), Throughput: new(31.5), Checkpoint: &gangapi.Checkpoint{AgeMS: 4000, Step: new(int64(100))}}
		})
		time.Sleep(10 * time.Second)
		st := r.service.Gangs("ml", "train")
		if len(st) != 1 || st[0].Phase != "running" || st[0].Epoch != people[0].m.Epoch || len(st[0].Members) != 2 {
			t.Fatalf("shown as %+v", st)
		}
		m := st[0].Members[1]
		if *m.Step != 120 || *m.Throughput != 31.5 || *m.CheckpointAgeMS != 14_000 || *m.CheckpointStep != 100 || m.State != gangapi.MemberRunning {
			t.Errorf("member 1 is shown as %+v", m)
		}
	})
}

// A start is told in words for as many as there are.
func TestAStartIsTold(t *testing.T) {
	for n, want := range map[int]string{1: ": 1 member starts, on n0", 3: ": 3 members start together, rank 0 is on n0"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, n, nil)
			r.begin(n)
			st := r.service.Gangs("ml", "train")
			if len(st) != 1 || len(st[0].Events) != 1 || st[0].Events[0].Text != "epoch "+st[0].Epoch+want {
				t.Errorf("told of %d: %+v, want an event that ends in %q", n, st, want)
			}
		})
	}
}

// Where a task has joined for another one, a third may report, if it says the
// run that has joined; any other task of the allocation does not count.
func TestASidecarReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		people := r.begin(2)
		steps := func(step int64) func(*gangapi.ReportRequest) {
			return func(q *gangapi.ReportRequest) { q.Progress = &gangapi.Progress{Step: &step} }
		}
		sidecar := r.member(1, 1)
		sidecar.who.Task, sidecar.m = "report", people[1].m
		sidecar.report(gangapi.MemberRunning, steps(120))
		stranger := r.member(1, 1)
		stranger.who.Task, stranger.m, stranger.join.Run = "logs", people[1].m, "other"
		stranger.report(gangapi.MemberRunning, steps(7))
		m := r.service.Gangs("ml", "train")[0].Members[1]
		if m.Step == nil || *m.Step != 120 {
			t.Errorf("member 1 is shown as %+v, want step 120", m)
		}
	})
}
