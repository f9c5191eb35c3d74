package barrier_test

import (
	"context"
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
	"github.com/caravan-sched/caravan/planner/record"
)

func TestAllStartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, nil)
		people := r.people(4)
		// The last one is late.
		early := make(chan []started)
		go func() { early <- together(people[:3]...) }()
		time.Sleep(25 * time.Second)
		a, err := r.service.Join(t.Context(), people[0].who, gangapi.JoinRequest{Run: "run-0", Attempt: 1, Address: "10.0.0.1", Port: 29500, GPUs: gpus(0)})
		if err != nil {
			t.Fatal(err)
		}
		want := gangapi.JoinAnswer{State: gangapi.JoinWaiting, Reason: "waiting for gang: 3 of 4 joined, n3 missing", Joined: 3, Size: 4,
			Missing: []gangapi.Missing{{Group: "w", Index: 3, NodeName: "n3", Why: "has not joined yet"}}}
		if diff := cmp.Diff(want, a.Answer); diff != "" {
			t.Errorf("the answer of one that waits (-want +got):\n%s", diff)
		}
		last := people[3].wait()
		all := append(<-early, last)
		for i, s := range all {
			if s.State != gangapi.JoinStart || s.at.Sub(all[0].at).Abs() > 10*time.Millisecond {
				t.Errorf("member %d starts at %v, member 0 at %v: %+v", i, s.at, all[0].at, s.JoinAnswer)
			}
			if diff := cmp.Diff(all[0].Membership, s.Membership); diff != "" {
				t.Errorf("member %d has another membership (-0 +%d):\n%s", i, i, diff)
			}
		}
		m := all[0].Membership
		if m.MasterAddr != "10.0.0.1" || m.MasterPort != 29500 || m.Generation != 1 || len(m.Members) != 4 || m.Members[2].Processes != perNode {
			t.Errorf("membership %+v", m)
		}
		if err := rendezvous.Validate(*m); err != nil {
			t.Error(err)
		}
		if r.docs.puts != 1 {
			t.Errorf("%d writes for one start, want 1", r.docs.puts)
		}
	})
}

// What is late, comes twice or is old neither starts anybody nor keeps anybody
// from starting.
func TestTheBarrierIsNotConfused(t *testing.T) {
	tests := map[string]struct {
		// disturb happens while three of four wait.
		disturb func(r *rig, people []*person)
		// wantFourth is what happens then to the fourth.
		wantFourth gangapi.JoinState
	}{
		"one asks twice": {func(r *rig, p []*person) { go p[0].ask(); go p[0].ask() }, gangapi.JoinStart},
		"one has gone": {func(r *rig, p []*person) {
			ctx, cancel := context.WithCancel(r.t.Context())
			gone := r.member(3, 3)
			go r.service.Join(ctx, gone.who, gone.join)
			time.Sleep(time.Second)
			// It was the last, so the barrier opens; but a start that one does not
			// hear of is told again when it asks again.
			cancel()
		}, gangapi.JoinStart},
		"another task of a member": {func(r *rig, p []*person) {
			other := r.member(0, 0)
			other.who.Task, other.join.GPUs = "sidecar", nil
			if a, err := other.ask(); err != nil || a.State != gangapi.JoinRefused || !strings.Contains(a.Reason, `task "rank" is the member`) {
				r.t.Errorf("the other task was told %+v, %v", a, err)
			}
		}, gangapi.JoinStart},
		"an allocation of an older version": {func(r *rig, p []*person) {
			old := r.member(3, 7)
			r.cluster.add(3, 7)
			r.cluster.members = r.cluster.members[:4]
			r.update()
			go func() { time.Sleep(time.Second); r.update() }()
			if a := old.wait(); a.State != gangapi.JoinRefused || !strings.Contains(a.Reason, "in no member's place") {
				r.t.Errorf("the old one was told %+v", a.JoinAnswer)
			}
		}, gangapi.JoinStart},
		"an allocation that is to be stopped": {func(r *rig, p []*person) {
			r.cluster.alloc(3, func(a *api.AllocationListStub) { a.DesiredStatus = "stop" })
			r.cluster.members[3].State = observe.AllocStopping
			r.update()
			go func() { time.Sleep(time.Second); r.update() }()
		}, gangapi.JoinRefused},
		"an allocation that Nomad does not know": {func(r *rig, p []*person) {
			made := r.member(9, 9)
			go func() { time.Sleep(time.Second); r.update() }()
			if a := made.wait(); a.State != gangapi.JoinRefused || !strings.Contains(a.Reason, "that Nomad knows") {
				r.t.Errorf("the made-up one was told %+v", a.JoinAnswer)
			}
		}, gangapi.JoinStart},
		"other GPUs than planned": {func(r *rig, p []*person) {
			wrong := r.member(3, 3)
			wrong.join.GPUs = []string{"GPU-9-0", "GPU-3-1"}
			if a := wrong.wait(); a.State != gangapi.JoinRefused || a.Reason != "it was to have 2 GPUs (GPU-3-0, GPU-3-1), and was granted 2 GPUs (GPU-3-1, GPU-9-0)" {
				r.t.Errorf("it was told %+v", a.JoinAnswer)
			}
		}, gangapi.JoinStart},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 4, nil)
				people := r.people(4)
				rest := make(chan []started, 1)
				go func() { rest <- together(people[:3]...) }()
				time.Sleep(3 * time.Second)
				test.disturb(r, people)
				if got := people[3].wait(); got.State != test.wantFourth {
					t.Errorf("the fourth was told %+v, want %s", got.JoinAnswer, test.wantFourth)
				}
				if test.wantFourth != gangapi.JoinStart {
					if r.docs.puts != 0 {
						t.Error("the others were let go")
					}
					synctest.Wait()
					r.cluster.record(func(rec *record.Record) { rec.Phase = record.PhaseQueued })
					r.update()
					time.Sleep(11 * time.Second)
					r.update()
				}
				for i, s := range <-rest {
					if s.State != test.wantFourth {
						t.Errorf("member %d was told %+v, want %s", i, s.JoinAnswer, test.wantFourth)
					}
				}
			})
		})
	}
}

// A poll that ended a while ago is nobody who waits.
func TestWhoHasGoneDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		people := r.people(2)
		people[0].join.WaitMS = 1000
		if a, err := people[0].ask(); err != nil || a.State != gangapi.JoinWaiting {
			t.Fatal(a, err)
		}
		time.Sleep(barrier.PollGrace + time.Second)
		people[1].join.WaitMS = 1000
		if a, err := people[1].ask(); err != nil || a.State != gangapi.JoinWaiting || a.Joined != 1 {
			t.Fatal(a, err)
		}
	})
}

func TestAFailoverForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, nil)
		people := r.people(3)
		// The first planner stores the start, and ends before it has told anybody.
		waiting := make(chan []started, 1)
		go func() { waiting <- together(people[:2]...) }()
		time.Sleep(time.Second)
		r.docs.hold = make(chan struct{})
		third := make(chan started, 1)
		go func() { third <- people[2].wait() }()
		synctest.Wait()
		held := r.docs.hold
		r.docs.hold = nil
		close(held)
		synctest.Wait()
		if r.docs.puts != 1 {
			t.Fatalf("%d writes, want 1", r.docs.puts)
		}
		r.lead()
		all := append(<-waiting, <-third)
		for i, s := range all {
			if s.State != gangapi.JoinStart || s.Membership.Epoch != all[0].Membership.Epoch {
				t.Errorf("member %d was told %+v", i, s.JoinAnswer)
			}
		}
		// And later still everybody is told the same.
		r.lead()
		for i, s := range together(people...) {
			if diff := cmp.Diff(all[0].Membership, s.Membership); diff != "" {
				t.Errorf("member %d after the failover (-before +after):\n%s", i, diff)
			}
		}
		if r.docs.puts != 1 {
			t.Errorf("%d writes, want 1", r.docs.puts)
		}
	})
}

func TestNobodyStartsBeforeItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		fails := 3
		r.docs.fail = func() error {
			if fails--; fails >= 0 {
				return errors.New("no leader")
			}
			return nil
		}
		began := time.Now()
		for _, s := range together(r.people(2)...) {
			if s.State != gangapi.JoinStart || s.at.Sub(began) < 3*time.Second {
				t.Errorf("told %+v after %v", s.JoinAnswer, s.at.Sub(began))
			}
		}
	})
}

func TestWhoDoesNotWait(t *testing.T) {
	tests := map[string]struct {
		change    func(r *rig)
		who       func(p *person)
		want      gangapi.JoinState
		wantWords string
	}{
		"a job that is not managed": {nil, func(p *person) { p.who.Job = "other" }, gangapi.JoinAlone, "does not manage"},
		"a released job whose members start one by one": {func(r *rig) {
			r.cluster.job.Model.Gang = "none"
			r.cluster.release()
		}, nil, gangapi.JoinAlone, "released"},
		"members one by one": {func(r *rig) { r.cluster.job.Model.Gang = "none" }, nil, gangapi.JoinAlone, "one by one"},
		"one by one with other GPUs": {func(r *rig) { r.cluster.job.Model.Gang = "none" },
			func(p *person) { p.join.GPUs = []string{"GPU-9-0"} }, gangapi.JoinRefused, "was granted 1 GPU (GPU-9-0)"},
		"a gang that is taken back": {func(r *rig) {
			r.cluster.job.Record.Phase, r.cluster.job.Record.Reason = record.PhaseRollback, "n1 is lost"
		}, nil, gangapi.JoinRefused, "n1 is lost"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 2, nil)
				if test.change != nil {
					test.change(r)
				}
				r.update()
				p := r.member(0, 0)
				if test.who != nil {
					test.who(p)
				}
				go func() { time.Sleep(time.Second); r.update() }()
				if s := p.wait(); s.State != test.want || !strings.Contains(s.Reason, test.wantWords) {
					t.Errorf("told %+v, want %s with %q", s.JoinAnswer, test.want, test.wantWords)
				}
			})
		})
	}
}

func TestRequestsThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		for name, change := range map[string]func(*gangapi.JoinRequest){
			"run":       func(q *gangapi.JoinRequest) { q.Run = "a\nb" },
			"attempt":   func(q *gangapi.JoinRequest) { q.Attempt = 0 },
			"address":   func(q *gangapi.JoinRequest) { q.Address = "0.0.0.0" },
			"port":      func(q *gangapi.JoinRequest) { q.Port = 70000 },
			"gpus":      func(q *gangapi.JoinRequest) { q.GPUs = []string{"a,b"} },
			"processes": func(q *gangapi.JoinRequest) { q.Processes = -1 },
		} {
			p := r.member(0, 0)
			change(&p.join)
			if _, err := p.ask(); !errors.Is(err, barrier.ErrRequest) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: error %v", name, err)
			}
		}
		if _, err := r.service.Report(t.Context(), r.member(0, 0).who, gangapi.ReportRequest{State: "dancing"}); !errors.Is(err, barrier.ErrRequest) {
			t.Errorf("a state that there is not: %v", err)
		}
	})
}

func TestPollsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		r.service = barrier.NewService(barrier.Options{Documents: r.docs, Now: time.Now, MaxPolls: 1})
		r.update()
		ctx, cancel := context.WithCancel(t.Context())
		p := r.member(0, 0)
		done := make(chan error)
		go func() { _, err := r.service.Join(ctx, p.who, p.join); done <- err }()
		synctest.Wait()
		if _, err := r.member(1, 1).ask(); !errors.Is(err, barrier.ErrBusy) {
			t.Errorf("the second: %v, want %v", err, barrier.ErrBusy)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		q := r.member(1, 1)
		q.join.WaitMS = 10
		// The first one has gone only now, and may be back in a moment.
		if a, err := q.ask(); err != nil || a.State != gangapi.JoinStart {
			t.Errorf("then: %+v, %v", a, err)
		}
	})
}

func TestAGangIsForgottenWithItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		r.begin(2)
		if len(r.docs.data) != 1 {
			t.Fatalf("%d documents, want 1", len(r.docs.data))
		}
		v := r.cluster.view()
		v.Managed = nil
		v.Unseen = []observe.Unseen{{}}
		if err := r.service.Update(t.Context(), r.term, v); err != nil || len(r.docs.data) != 1 {
			t.Fatalf("what is hidden is forgotten: %v, %d documents", err, len(r.docs.data))
		}
		v.Unseen = nil
		if err := r.service.Update(t.Context(), r.term, v); err != nil || len(r.docs.data) != 0 {
			t.Fatalf("%v, %d documents, want none", err, len(r.docs.data))
		}
	})
}

func TestAFollowerStartsWithItsGang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		follower := r.member(0, 0)
		follower.who.Task = "logs"
		follower.join = gangapi.JoinRequest{Run: "logs", Attempt: 1, WaitMS: 10_000, Follow: true}
		a, err := follower.ask()
		if err != nil || a.State != gangapi.JoinWaiting || a.Joined != 0 {
			t.Fatalf("alone: %+v, %v", a, err)
		}
		all := together(append(r.people(2), follower)...)
		for i, s := range all {
			if s.State != gangapi.JoinStart || len(s.Membership.Members) != 2 {
				t.Errorf("%d: %+v", i, s.JoinAnswer)
			}
		}
		// How it ends is its own business.
		follower.report(gangapi.MemberExited, exits(1))
		p := r.member(0, 0)
		p.m = all[0].Membership
		if a := p.report(gangapi.MemberRunning, nil); a.Order != nil {
			t.Errorf("told %+v", a.Order)
		}
	})
}
