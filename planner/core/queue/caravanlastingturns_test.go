package queue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Who should run now is the same in an order that is kept as where it is found out anew how
// everybody stands, and so is the order of those who wait.
func TestLastingTurnsAreThoseThatAreGivenAnew(t *testing.T) {
	turned, stuck, kept := 0, 0, 0
	compare := func(t *rapid.T) {
		s, policy := anyTurns(t)
		anew := s
		anew.Jobs = slices.Clone(s.Jobs)
		want := newCaravan(policy).Stand(anew)

		l := NewLasting(policy, s.Past, s.GPUs)
		var runs []*Runner
		var order, byAge []*Place
		at := map[*model.Job]int{}
		for i := range s.Jobs {
			e := &s.Jobs[i]
			if at[e.Job] = i; e.Running {
				runs = append(runs, &Runner{Entry: *e})
				continue
			}
			p := l.Place(e)
			order, byAge = append(order, &p), append(byAge, &p)
		}
		slices.SortFunc(order, (*Place).Compare)
		each := func(list []*Place) func(func(*Place) bool) {
			return slices.Values(list)
		}
		var turns Turns
		for range 2 { // what it has found before is of no use to it, and no harm
			turns.GiveTurns(l, &s, runs, each(order), each(byAge))
		}

		got := make([]Standing, len(s.Jobs))
		for i := range got {
			got[i] = Later()
		}
		for _, r := range runs {
			got[at[r.Job]] = r.Standing
		}
		var line []string // the order of those who wait, those first who have their turns
		for i := range turns.Waiting {
			turn := &turns.Waiting[i]
			got[at[turn.Place.Job]] = turn.Standing
			turned++
			if why := turns.Why(turn.Place.Job); !strings.HasSuffix(want[at[turn.Place.Job]].Why, why) || (why == "") == strings.Contains(want[at[turn.Place.Job]].Why, "so nobody younger passes it now") {
				t.Fatalf("of %s it is said %q, want %q", turn.Place.Job.ID, why, want[at[turn.Place.Job]].Why)
			} else if why != "" {
				stuck++
			}
		}
		for i := range got {
			g, w := got[i], want[i]
			if w.Why = ""; s.Jobs[i].Waiting && !w.InTurn {
				w.Key = 0 // it is in their order
			}
			if g != w {
				t.Fatalf("%s stands %+v, want %+v", s.Jobs[i].Job.ID, g, w)
			}
		}
		all := slices.Clone(byAge)
		slices.SortStableFunc(all, func(a, b *Place) int {
			x, y := at[a.Job], at[b.Job]
			i, k := placeOf(&s.Jobs[x], &want[x], x), placeOf(&s.Jobs[y], &want[y], y)
			if i.goesBefore(&k) {
				return -1
			}
			return 1
		})
		var wantLine []string
		for _, p := range all {
			wantLine = append(wantLine, p.Job.ID)
		}
		rest := turns.Waiting
		for _, p := range order {
			for len(rest) > 0 && !p.BeforeByPriority(rest[0].Place) {
				line, rest = append(line, rest[0].Place.Job.ID), rest[1:]
			}
			if !want[at[p.Job]].InTurn {
				line = append(line, p.Job.ID)
				kept++
			}
		}
		for i := range rest {
			line = append(line, rest[i].Place.Job.ID)
		}
		if !slices.Equal(line, wantLine) {
			t.Fatalf("the order is %v, want %v", line, wantLine)
		}
	}
	for tries := 0; (turned == 0 || stuck == 0 || kept == 0) && tries < 10; tries++ {
		rapid.Check(t, func(t *rapid.T) {
			for range 50 { // a case that some skip is wrong for is rare
				compare(t)
			}
		})
	}
	t.Logf("%d had their turns that wait, %d of them were stuck, and %d had not", turned, stuck, kept)
	if turned == 0 || stuck == 0 || kept == 0 {
		t.Errorf("%d had their turns that wait, %d of them were stuck, and %d had not: want some of each", turned, stuck, kept)
	}
}

// placeOf is a job's place in the order of turns.
func placeOf(e *Entry, st *Standing, at int) placeInTurn {
	return placeInTurn{rank: rankInTurn(e.Priority, false, st.Class), key: st.Key, at: int32(at)}
}

// anyTurns draws those who run and wait where jobs give way.
func anyTurns(t *rapid.T) (Situation, Policy) {
	now := start.Add(1000 * h)
	policy := Policy{Order: OrderCaravan}
	policy.Preempt.Enabled = true
	policy.Preempt.SavedOnly = rapid.Bool().Draw(t, "saved only")
	policy.Preempt.MinRunTime = rapid.SampledFrom([]time.Duration{0, h}).Draw(t, "min run")
	policy.Caravan.StuckAfter = rapid.SampledFrom([]time.Duration{0, h, h, 5 * h}).Draw(t, "stuck after")
	s := Situation{Now: now, GPUs: rapid.SampledFrom([]int{0, 16, 31, 32, 48}).Draw(t, "gpus"), NodeGPUs: 8}
	s.Past = NewPast(rapid.SliceOfN(rapid.SampledFrom([]float64{3600, 7200, 30000, 1e5, 1e6}), minDemands, minDemands+2).Draw(t, "past"))
	cannot := map[*model.Job]bool{}
	s.CanRun = func(j *model.Job) bool { return !cannot[j] }
	priorities, queues := rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "priorities"), rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "queues")
	wide := rapid.Bool().Draw(t, "the oldest wants all and waits")
	n, age := rapid.SampledFrom([]int{2, 14, 20, 30}).Draw(t, "jobs"), time.Duration(0)
	for i := range n {
		age += time.Duration(rapid.SampledFrom([]int{0, 1, 20, 60, 300, 1500}).Draw(t, "minutes")) * time.Minute
		j := &model.Job{ID: fmt.Sprintf("j%02d", n-i), Saves: rapid.IntRange(0, 3).Draw(t, "saves") > 0, Queue: []string{"", "q"}[rapid.IntRange(0, queues).Draw(t, "queue")]}
		if j.Submitted = now.Add(-age); rapid.IntRange(0, 9).Draw(t, "nobody knows when") == 0 && i == n-1 {
			j.Submitted = time.Time{}
		}
		if rapid.IntRange(0, 9).Draw(t, "service") == 0 {
			j.Type, j.Preempt = "service", model.PreemptNever
		}
		if rapid.IntRange(0, 2).Draw(t, "known") > 0 {
			j.Duration = time.Duration(rapid.IntRange(1, 60).Draw(t, "runs")) * 20 * time.Minute
		}
		e := Entry{Job: j, Priority: rapid.IntRange(0, priorities).Draw(t, "priority"), Asked: rapid.SampledFrom([]int{0, 1, 2, 8, 16, 24, 32}).Draw(t, "asked")}
		if wide && i == n-1 {
			e.Asked = s.GPUs
		}
		j.Ran = time.Duration(rapid.SampledFrom([]int{0, 0, 1, 10}).Draw(t, "ran")) * h / 2
		e.Ran, e.Attained = j.Ran, j.Ran.Seconds()*float64(e.Asked)
		since := now.Sub(j.Submitted)
		if rapid.Bool().Draw(t, "gave way") {
			j.Preempted = []model.Preempted{{At: now.Add(-min(since, age) / 2)}}
		}
		if e.Running = rapid.Bool().Draw(t, "running") && !(wide && i == n-1); e.Running {
			e.Held, e.Members = e.Asked, 1
			e.Turn = min(since, age) * time.Duration(rapid.IntRange(0, 4).Draw(t, "turn")) / 4
			e.Ran += e.Turn
			e.Attained += e.Turn.Seconds() * float64(e.Held)
		} else {
			e.Waiting, cannot[j] = true, rapid.IntRange(0, 5).Draw(t, "cannot run") == 0
			if rapid.Bool().Draw(t, "ran before") {
				j.Accounted = now.Add(-min(since, age) / 3)
			}
			last := j.Submitted
			if j.Accounted.After(last) {
				last = j.Accounted
			}
			if !last.IsZero() {
				e.Rest = max(0, now.Sub(last))
			}
		}
		if !j.Submitted.IsZero() {
			e.Waited = max(0, since-e.Ran)
		}
		e.Left = EstimateOf(j, e.Ran)
		s.Jobs = append(s.Jobs, e)
	}
	slices.SortFunc(s.Jobs, func(a, b Entry) int { return CompareAge(a.Job, b.Job) })
	return s, policy
}
