package barrier_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
)

// told is what a watch was told.
type told struct {
	mu     sync.Mutex
	starts []int
	waits  []time.Duration
	spread []time.Duration
	failed []string
	over   []barrier.Over
}

func (w *told) watch() barrier.Watch {
	locked := func(do func()) { w.mu.Lock(); defer w.mu.Unlock(); do() }
	return barrier.Watch{
		Started: func(n int, waited time.Duration) {
			locked(func() { w.starts, w.waits = append(w.starts, n), append(w.waits, waited) })
		},
		Told:   func(d time.Duration) { locked(func() { w.spread = append(w.spread, d) }) },
		Failed: func(cause string) { locked(func() { w.failed = append(w.failed, cause) }) },
		Over:   func(o barrier.Over) { locked(func() { w.over = append(w.over, o) }) },
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, map[string]string{"caravan_min": "2", "caravan_max": "3", "caravan_on_failure": "continue"})
		first := r.member(0, 0)
		done := make(chan started, 1)
		go func() { done <- first.wait() }()
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if n := r.service.Waiting(); n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
		people := []*person{first, r.member(1, 1), r.member(2, 2)}
		together(people[1], people[2])
		<-done
		if n := r.service.Waiting(); n != 0 {
			t.Errorf("%d wait after the start", n)
		}
		people[2].report(gangapi.MemberExited, func(q *gangapi.ReportRequest) { q.Exit = &gangapi.Exit{OOM: true} })
		people[0].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
		people[1].report(gangapi.MemberRunning, nil)
		r.cluster.members[1].State = observe.AllocLost
		r.update()
		synctest.Wait()
		want := told{starts: []int{3}, waits: []time.Duration{7 * time.Second}, spread: []time.Duration{0}, failed: []string{"oom"}}
		if diff := cmp.Diff(want.starts, r.told.starts); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want.waits, r.told.waits); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want.spread, r.told.spread); diff != "" {
			t.Error(diff)
		}
		// One that is lost where too few would be left is the planner's business.
		if diff := cmp.Diff(want.failed, r.told.failed); diff != "" || len(r.told.over) > 0 {
			t.Error(diff, r.told.over)
		}
	})
}

// A gang that has failed for good is told of until it is taken off, by each
// planner that leads.
func TestOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, map[string]string{"caravan_on_failure": "fail"})
		people := r.begin(3)
		people[1].report(gangapi.MemberExited, exits(7))
		synctest.Wait()
		want := barrier.Over{Namespace: "ml", Job: "train", Alloc: "alloc-1-on-1", Why: `ranks 2 to 3 (member 1 of group "w") on n1 failed first, with exit code 7 after 1m1s`}
		if diff := cmp.Diff([]barrier.Over{want}, r.told.over); diff != "" {
			t.Error(diff)
		}
		r.lead()
		if diff := cmp.Diff([]barrier.Over{want}, r.told.over); diff != "" {
			t.Error("the next planner:", diff)
		}
	})
}

// The bounds hold for each group, not for all members together.
func TestContinueMindsEachGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, map[string]string{"caravan_min": "1", "caravan_max": "2", "caravan_on_failure": "continue"})
		r.cluster.job.Model.Groups[0].Count = 2
		second := model.TaskGroup{Name: "v", Count: 2, Devices: r.cluster.job.Model.Groups[0].Devices}
		r.cluster.job.Model.Groups = append(r.cluster.job.Model.Groups, second)
		for i := 2; i < 4; i++ {
			r.cluster.members[i].Member.Group = "v"
			r.cluster.members[i].Member.Index = i - 2
		}
		r.update()
		people := r.begin(4)
		people[3].report(gangapi.MemberExited, exits(3))
		a := people[0].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.WaitMS = 5000 })
		if a.Order == nil || a.Order.Kind != gangapi.OrderRestart || !strings.Contains(a.Order.Reason, `1 are left of group "v", and 2 must be`) {
			t.Errorf("told %+v, %+v", a.Order, a.Membership)
		}
	})
}

// What members have told of their work grows while they run, and not while they
// are suspended.
func TestWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, nil)
		people := r.begin(2)
		progress := func(age time.Duration, step int64) func(*gangapi.ReportRequest) {
			return func(q *gangapi.ReportRequest) {
				q.Progress = &gangapi.Progress{Step: &step, Checkpoint: &gangapi.Checkpoint{AgeMS: age.Milliseconds(), Step: new(step - 2)}}
			}
		}
		check := func(what string, want map[string]barrier.Work) {
			t.Helper()
			got := r.service.Works()
			for alloc, w := range got {
				if w.Progress == nil || w.Progress.Step != w.Step {
					t.Errorf("%s: progress %+v", what, w.Progress)
				}
				w.Progress = nil
				got[alloc] = w
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		check("nobody has told anything", map[string]barrier.Work{})
		people[0].report(gangapi.MemberRunning, progress(10*time.Second, 7))
		people[1].report(gangapi.MemberRunning, func(q *gangapi.ReportRequest) { q.Progress = &gangapi.Progress{Step: new(int64(-4))} })
		time.Sleep(5 * time.Second)
		check("it runs on", map[string]barrier.Work{people[0].who.Alloc: {Running: true, SinceCheckpoint: new(int64(15)), CheckpointStep: new(int64(5)), Step: new(int64(7))}})
		people[0].report(gangapi.MemberSuspended, progress(15*time.Second, 7))
		time.Sleep(time.Hour)
		check("it is suspended", map[string]barrier.Work{people[0].who.Alloc: {SinceCheckpoint: new(int64(15)), CheckpointStep: new(int64(5)), Step: new(int64(7))}})
		people[0].report(gangapi.MemberSuspended, progress(15*time.Second+time.Hour, 7))
		check("it tells so again", map[string]barrier.Work{people[0].who.Alloc: {SinceCheckpoint: new(int64(15)), CheckpointStep: new(int64(5)), Step: new(int64(7))}})
		people[0].report(gangapi.MemberRunning, progress(0, 8))
		check("a new checkpoint", map[string]barrier.Work{people[0].who.Alloc: {Running: true, SinceCheckpoint: new(int64(0)), CheckpointStep: new(int64(6)), Step: new(int64(8))}})
	})
}
