package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Where jobs give way, too, plans that nobody reads place and stop whom whole ones do,
// though not all who wait are looked at. A cluster is played in time: those who are stopped
// take a while, and are queued again.
func TestPlansThatStopSomebodyAreWhole(t *testing.T) {
	passed, stops, still, woken, turns := 0, 0, 0, 0, 0
	play := func(t *rapid.T) {
		policy := stoppingPolicy(t)
		p := anyTheatre(t, policy, rapid.IntRange(0, 3).Draw(t, "right") > 0)
		p.s.Jobs = append(p.s.Jobs, more(t, p, policy)...)
		quietJobs(t, p)
		past := func() {
			p.s.History.Demands = rapid.SliceOfN(rapid.SampledFrom([]float64{3600, 7200, 30000, 1e5, 1e6}), 10, 12).Draw(t, "past")
		}
		if rapid.IntRange(0, 2).Draw(t, "known past") > 0 {
			past()
		}
		news := rapid.IntRange(0, 7).Draw(t, "more end") == 0
		was := copyOf(p.s)
		kept, err := Prepare(was, policy)
		if err != nil {
			t.Fatal(err)
		}
		kept.Terse()
		late, stop := anyTheatre(t, policy, false).s.Jobs, map[string]time.Time{}
		for range rapid.IntRange(5, 40).Draw(t, "rounds") {
			ch, ok := kept.difference(was, p.s)
			if !ok {
				t.Fatal("the snapshots cannot be compared")
			}
			if err := kept.Apply(ch); err != nil {
				t.Fatal(err)
			}
			only := kept.still.known
			was = copyOf(p.s)
			got, want := kept.Decide(p.s.Now), mustDecide(t, was, policy)
			passed += len(want.Decisions) - len(got.Decisions)
			if stops += len(want.Preemptions); kept.lasting != nil {
				turns += len(kept.lasting.turned)
			}
			if stands := kept.still.known && !kept.still.at.Equal(p.s.Now); stands {
				still++
			} else if only && len(startsOf(want))+len(want.Preemptions) > 0 {
				woken++
			}
			if diff := cmp.Diff(startsOf(want), startsOf(got)); diff != "" {
				t.Fatalf("at %s other starts (-whole +kept):\n%s", p.s.Now, diff)
			}
			if diff := cmp.Diff(stopsOf(want), stopsOf(got)); diff != "" {
				t.Fatalf("at %s others are stopped (-whole +kept):\n%s", p.s.Now, diff)
			}
			if diff := cmp.Diff(want.Promises, got.Promises); diff != "" {
				t.Fatalf("at %s other promises (-whole +kept):\n%s", p.s.Now, diff)
			}
			p.carryOut(want, stop)
			if len(late) > 0 && rapid.IntRange(0, 3).Draw(t, "one comes") == 0 {
				j := late[0]
				j.ID, j.Submitted, late = "late "+j.ID, p.s.Now, late[1:]
				p.s.Jobs = append(p.s.Jobs, j)
				p.really[j.ID] = j.Duration
			}
			if len(p.s.History.Demands) > 0 && news && rapid.IntRange(0, 3).Draw(t, "more has ended") == 0 {
				past()
			}
			p.pass(t, stop)
		}
	}
	lacks := func() bool {
		return passed == 0 || stops == 0 || still == 0 || !testing.Short() && (woken == 0 || turns == 0)
	}
	for tries := 0; lacks() && tries < 10; tries++ {
		rapid.Check(t, play)
	}
	t.Logf("%d jobs that wait were not looked at, %d gangs stopped, %d times somebody who waits has his turn in an order that is kept; %d plans were not looked into again, %d times somebody starts or is stopped though only time has passed", passed, stops, turns, still, woken)
	if lacks() {
		t.Error("want some who are not looked at, some who are stopped, some who have their turns in an order that is kept, and some plans that are not looked into again")
	}
}

// A and A2 go before B by their priority, but have had more than an hour, as R has after a
// while: R gives way to B only, though all three ask for the same.
func TestOthersGiveWayToOneOfThoseAlike(t *testing.T) {
	s := draw(t, "b1 r1 n1 rr")
	describe(t, s, "r 15 20m runs:10h")
	submit(t, s, "A 1x2 runs:3h\nA2 1x2 runs:3h\nB 1x2 runs:3h")
	for id, priority := range map[string]int{"A": 20, "A2": 20, "B": 15} {
		jobOf(s, id).Priority, jobOf(s, id).AttainedGPUs = priority, 4000*float64(priority-15)
	}
	policy := easy
	policy.Order, policy.Preempt.Enabled, policy.Forecasts = queue.OrderLAS, true, 1
	p, err := Prepare(s, policy)
	if err != nil {
		t.Fatal(err)
	}
	p.Terse()
	for minutes, want := range []string{9: "", 10: "r to B"} {
		if got := strings.Join(gaveWay(p.Decide(s.Now.Add(time.Duration(minutes)*time.Minute))), ", "); got != want {
			t.Errorf("after %d minutes %q, want %q", minutes, got, want)
		}
	}
}

// stoppingPolicy draws one by which jobs give way.
func stoppingPolicy(t *rapid.T) Policy {
	policy := quietPolicy(t)
	policy.Order = rapid.SampledFrom([]string{queue.OrderCaravan, queue.OrderCaravan, queue.OrderLAS, queue.OrderTimeslice, queue.OrderFIFO}).Draw(t, "order that stops")
	policy.LAS.Thresholds = []float64{3600, 14400}
	policy.Preempt = preempt.Policy{
		Enabled: true, MinRunTime: rapid.SampledFrom([]time.Duration{0, 10 * time.Minute, 2 * time.Hour}).Draw(t, "runs at least"),
		MaxPerHour: rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "per hour"), MaxAtOnce: rapid.SampledFrom([]int{0, 1}).Draw(t, "at once"),
	}
	policy.Caravan.SizeDelay = rapid.SampledFrom([]time.Duration{0, time.Minute, 3 * time.Hour}).Draw(t, "size delay")
	return policy
}

// stopsOf is who gives way to whom, and at what cost.
func stopsOf(plan *model.Plan) (out []string) {
	for i := range plan.Preemptions {
		p := &plan.Preemptions[i]
		out = append(out, fmt.Sprint(p.Job, p.Action, p.For, p.Cost, p.Members, p.Reason))
	}
	return out
}

// carryOut starts whom a plan places, and tells those to stop who give way.
func (p *theatre) carryOut(plan *model.Plan, stop map[string]time.Time) {
	for i := range plan.Promises {
		p.job(plan.Promises[i].Job).Promised = plan.Promises[i].Promised
	}
	for _, d := range plan.Decisions {
		if d.Action == model.ActionAdmit {
			j := p.job(d.Job)
			j.State, j.Members, j.Started = model.StateRunning, d.Members, p.s.Now
		}
	}
	for _, v := range plan.Preemptions {
		j := p.job(v.Job)
		j.State, j.Preempted = model.StateStopping, append(slices.Clone(j.Preempted), model.Preempted{At: p.s.Now, Namespace: v.For.Namespace, By: v.For.ID, ByGroup: v.ForGroup})
		for k, m := range j.Members {
			p.s.Allocs = append(p.s.Allocs, model.Alloc{ID: fmt.Sprint(j.ID, ".", k), Job: j.ID, Group: m.Group, Index: m.Index, Node: m.Node, GPUs: m.GPUs, Stopping: true})
		}
		stop[j.ID] = p.s.Now.Add(time.Minute)
	}
}

// pass lets time pass, mostly until somebody has ended or stopped.
func (p *theatre) pass(t *rapid.T, stop map[string]time.Time) {
	next := p.s.Now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 60, 600}).Draw(t, "minutes")) * time.Minute)
	for i := range p.s.Jobs {
		j := &p.s.Jobs[i]
		ends := j.Started.Add(p.really[j.ID])
		if at, stops := stop[j.ID]; stops {
			ends = at
		}
		if j.State != model.StateQueued && ends.Before(next) {
			next = ends
		}
	}
	p.s.Now = next
	p.s.Jobs = slices.DeleteFunc(p.s.Jobs, func(j model.Job) bool {
		return j.State == model.StateRunning && !j.Started.Add(p.really[j.ID]).After(next)
	})
	for i := range p.s.Jobs {
		j := &p.s.Jobs[i]
		if at, stops := stop[j.ID]; stops && !at.After(next) {
			j.Ran += next.Sub(j.Started)
			j.State, j.Members, j.Started, j.Accounted = model.StateQueued, nil, time.Time{}, next
			delete(stop, j.ID)
			p.s.Allocs = slices.DeleteFunc(slices.Clone(p.s.Allocs), func(a model.Alloc) bool { return a.Job == j.ID })
		}
	}
}
