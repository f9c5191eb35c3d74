package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// While the states of the gangs cannot be read decisions are carried out all
// the same, and what is wrong shows.
func TestGangsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := testDaemon(t, job("a"))
		f.documents.fails(errors.New("no leader"))
		defer start(t, d)()
		synctest.Wait()
		if f.carrier.executed != 1 || !strings.Contains(d.trouble.get().Error, "read the gangs' states: no leader") {
			t.Errorf("executed %d times, trouble %q", f.carrier.executed, d.trouble.get().Error)
		}
		f.documents.fails(nil)
		time.Sleep(2 * gangsRest)
		synctest.Wait()
		if got := d.trouble.get().Error; got != "" {
			t.Errorf("trouble stays: %q", got)
		}
	})
}

func TestLoopCyclesWhenWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := testDaemon(t, job("a"))
		defer start(t, d)()
		synctest.Wait()
		if f.carrier.executed != 1 {
			t.Errorf("executed %d times, want once", f.carrier.executed)
		}
		before := f.observer.count()
		d.poke(false)
		synctest.Wait()
		if got := f.observer.count(); got != before+1 {
			t.Errorf("%d looks after one wake, want 1", got-before)
		}
		time.Sleep(idle + time.Second)
		synctest.Wait()
		if got := f.observer.count(); got != before+2 {
			t.Errorf("%d looks after an idle time, want 1 more", got-before-1)
		}
	})
}

func TestLoopLooksAgainAfterChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := testDaemon(t, job("a"))
		f.carrier.execute = func(p *model.Plan) outcome {
			return outcome{plan: p, changed: f.carrier.executed < 3}
		}
		defer start(t, d)()
		synctest.Wait()
		if f.carrier.executed != 3 || f.observer.count() != 3 {
			t.Errorf("executed %d times after %d looks, want 3 of both", f.carrier.executed, f.observer.count())
		}
	})
}

func TestLoopLooksAgainWhenOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := testDaemon(t, job("a"))
		f.carrier.execute = func(p *model.Plan) outcome { return outcome{plan: p, overtaken: true} }
		defer start(t, d)()
		time.Sleep(10 * soon)
		synctest.Wait()
		if got := f.observer.count(); got < 5 || got > 11 {
			t.Errorf("%d looks in ten times soon, want one each time", got)
		}
	})
}

func TestLoopDecidesNothingOnNoView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := testDaemon(t, job("a"))
		good := f.observer.view
		f.observer.set(good, nil)
		defer start(t, d)()
		synctest.Wait()
		f.carrier.executed = 0
		f.observer.set(nil, errors.New("500"))
		before := f.observer.count()
		d.poke(true)
		synctest.Wait()
		time.Sleep(time.Minute)
		for range 100 {
			d.poke(true) // wakes do not make it hurry
		}
		synctest.Wait()
		if f.carrier.executed != 0 {
			t.Errorf("executed %d times while Nomad cannot be read", f.carrier.executed)
		}
		if got := f.observer.count() - before; got < 3 || got > 30 {
			t.Errorf("%d looks in a minute of trouble, want a few", got)
		}
		st := backend{d}.Status()
		if st.Nomad.OK || st.Nomad.Error != "500" || st.Nomad.RetryAt.IsZero() || st.ViewIndex != 7 {
			t.Errorf("status = %+v, want the error, the time of the next try and the last view", st)
		}
		f.observer.set(good, nil)
		time.Sleep(2 * maxBackoff)
		synctest.Wait()
		if f.carrier.executed == 0 || !(backend{d}).Status().Nomad.OK {
			t.Error("the trouble is over and nothing happens")
		}
	})
}

func TestLoopAdmitsNothingBlindly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := testDaemon(t, job("a"), job("b"))
		d.decide = func(s *model.Snapshot) (*model.Plan, error) {
			return &model.Plan{Decisions: []model.Decision{
				{Namespace: "default", Job: "a", Action: model.ActionAdmit, Members: []model.Member{{Node: "n"}}},
				{Namespace: "default", Job: "b", Action: model.ActionWait, Reason: "no room", Detail: model.Detail{Held: []string{"n"}, MembersWanted: 2}},
			}}, nil
		}
		v := viewOf(job("a"), job("b"))
		v.Unseen = []observe.Unseen{{Namespace: "team", Lacks: []string{"read-job"}}}
		f.observer.set(v, nil)
		var got *model.Plan
		f.carrier.execute = func(p *model.Plan) outcome { got = p; return outcome{plan: p} }
		defer start(t, d)()
		synctest.Wait()
		held := func(id string, wanted int) model.Decision {
			return model.Decision{Namespace: "default", Job: id, Action: model.ActionWait, Reason: v.Blind(), Detail: model.Detail{Code: "hold", MembersWanted: wanted}}
		}
		if diff := cmp.Diff(&model.Plan{Decisions: []model.Decision{held("a", 0), held("b", 2)}}, got); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
		f.observer.set(viewOf(job("a"), job("b")), nil)
		d.poke(true)
		synctest.Wait()
		if got.Decisions[0].Action != model.ActionAdmit {
			t.Error("nothing is admitted although everything is seen")
		}
	})
}

func TestLoopBacksOffOnTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := testDaemon(t, job("a"))
		f.carrier.execute = func(p *model.Plan) outcome {
			return outcome{plan: p, changed: true, halted: true, trouble: errors.New("429")}
		}
		defer start(t, d)()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := f.observer.count(); got < 3 || got > 30 {
			t.Errorf("%d looks in a minute of trouble, want a few", got)
		}
		warned := false
		for _, w := range (backend{d}).Status().Warnings {
			warned = warned || w.Text == "429"
		}
		if !warned {
			t.Error("the trouble is not in the status")
		}
	})
}

func TestFollowerAndObserverCarryNothingOut(t *testing.T) {
	for name, test := range map[string]struct {
		change      func(*Daemon)
		wantDecided bool
	}{
		"follower":     {func(d *Daemon) { d.leader.set(nil, "http://other", nil) }, false},
		"observe only": {func(d *Daemon) { d.cfg.ObserveOnly = true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, f := testDaemon(t, job("a"))
				test.change(d)
				defer start(t, d)()
				synctest.Wait()
				if f.carrier.executed != 0 {
					t.Errorf("executed %d times", f.carrier.executed)
				}
				if _, ok, _ := d.decisions.get("default", "a"); ok != test.wantDecided {
					t.Errorf("decided: %v, want %v", ok, test.wantDecided)
				}
				if d.view.Load() == nil {
					t.Error("nothing was observed")
				}
			})
		})
	}
}

func TestLoopWakesWhenTheCheckerIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := testDaemon(t, job("a"))
		f.carrier.execute = func(p *model.Plan) outcome {
			out := outcome{plan: p}
			if f.carrier.executed == 1 {
				out.due = time.Now().Add(7 * time.Second)
			}
			return out
		}
		defer start(t, d)()
		synctest.Wait()
		before := f.observer.count()
		time.Sleep(7*time.Second + 10*time.Millisecond)
		synctest.Wait()
		if got := f.observer.count() - before; got != 1 {
			t.Errorf("%d looks by the time that something is due, want 1", got)
		}
	})
}

func TestHistoryTellsTroubles(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	rec := &record.Record{}
	rec.Note(at(1), "admit", "it fits")
	rec.Note(at(3), "rollback", "a node is lost")
	rec.Note(at(3), "rollback", "a node is lost")
	got := history(rec, []httpapi.Past{{At: at(4), Action: model.ActionWait, Reason: "no room"}, {At: at(2), Action: model.ActionAdmit, Reason: "it fits"}})
	want := []httpapi.Past{
		{At: at(4), Action: "wait", Reason: "no room"}, {At: at(3), Action: "rollback", Reason: "a node is lost"}, {At: at(2), Action: "admit", Reason: "it fits"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestLoopWakesWhenSomethingIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := job("a")
		late.Model.RetryAfter = time.Now().Add(5 * time.Second)
		d, f := testDaemon(t, late)
		defer start(t, d)()
		synctest.Wait()
		before := f.observer.count()
		time.Sleep(5*time.Second + 10*time.Millisecond)
		synctest.Wait()
		if got := f.observer.count() - before; got != 1 {
			t.Errorf("%d looks by the time of retry, want 1", got)
		}
	})
}

// TestLoopWakesWhenAGPUMayBeDivided: when its node has said that it may be tried
// again.
func TestLoopWakesWhenAGPUMayBeDivided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := testDaemon(t, job("a"))
		now := d.now()
		n := model.Node{ID: "n1", Divisions: []model.Division{{GPU: "a", State: model.DivisionRefused, At: now.Add(-time.Minute), Again: now.Add(-time.Second)}, {GPU: "b", State: model.DivisionRefused, At: now, Again: now.Add(7 * time.Second)}}}
		d.view.Store(&observe.View{Taken: now, Snapshot: &model.Snapshot{Nodes: []model.Node{n}}})
		if got := d.due(); got < 7*time.Second || got > 8*time.Second {
			t.Errorf("due in %s, want 7 s", got)
		}
	})
}

// TestLoopWakesForReservations: when one begins to count, begins and is over.
func TestLoopWakesForReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := testDaemon(t)
		now := d.now()
		in := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
		for name, tt := range map[string]struct {
			r    model.Reservation
			want time.Duration
		}{
			"lead":   {model.Reservation{From: in(14), Until: in(20), Lead: 10 * time.Second}, 4 * time.Second},
			"begins": {model.Reservation{From: in(5), Until: in(20), Lead: 10 * time.Second}, 5 * time.Second},
			"over":   {model.Reservation{From: in(-5), Until: in(6)}, 6 * time.Second},
			"always": {model.Reservation{}, idle},
		} {
			d.view.Store(&observe.View{Taken: now, Snapshot: &model.Snapshot{Reservations: []model.Reservation{tt.r}}})
			if got := d.due().Truncate(time.Second); got != tt.want {
				t.Errorf("%s: due in %s, want %s", name, got, tt.want)
			}
		}
	})
}

func TestWaitDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := testDaemon(t)
		defer start(t, d)()
		synctest.Wait()
		type answer struct {
			reason string
			err    error
		}
		got := make(chan answer, 1)
		ask := func(timeout time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			go func() {
				defer cancel()
				e, err := d.WaitDecision(ctx, "default", "a", "hash-a")
				got <- answer{e.Reason, err}
			}()
		}
		ask(time.Second)
		time.Sleep(2 * time.Second)
		if a := <-got; !errors.Is(a.err, context.DeadlineExceeded) {
			t.Errorf("answer = %+v for a job that is not there", a)
		}
		f.observer.set(viewOf(job("a")), nil)
		began := time.Now()
		ask(time.Minute)
		if a := <-got; a.err != nil || a.reason != "no room for a" {
			t.Errorf("answer = %+v", a)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the decision took %v, although the planner was idle", took)
		}
		other := job("a")
		other.SpecHash = "another"
		f.observer.set(viewOf(other), nil)
		d.poke(true)
		synctest.Wait()
		ask(time.Second)
		if a := <-got; a.err == nil {
			t.Error("a decision on another version was taken for this one's")
		}
	})
}

func TestDecisionsKeepHistory(t *testing.T) {
	d := newDecisions()
	v := viewOf(job("a"))
	for i := range 12 {
		reason := fmt.Sprintf("reason %d", i/2) // each twice in a row
		v.Taken = time.Unix(int64(i), 0)
		d.record(v, &model.Plan{Decisions: []model.Decision{{Namespace: "default", Job: "a", Action: model.ActionWait, Reason: reason}}}, nil)
	}
	e, ok, _ := d.get("default", "a")
	if !ok || e.decision.Reason != "reason 5" || e.position != 1 {
		t.Errorf("last = %+v", e)
	}
	var got []string
	for _, h := range e.history {
		got = append(got, h.Reason)
	}
	if diff := cmp.Diff([]string{"reason 4", "reason 3", "reason 2", "reason 1", "reason 0"}, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	d.record(viewOf(), new(model.Plan), nil)
	if _, ok, _ := d.get("default", "a"); ok {
		t.Error("a job that is gone is remembered")
	}
}
