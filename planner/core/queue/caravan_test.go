package queue

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// One GPU, patience 2. By hand: "long" (6 hours, submitted at 0) is due when it has
// waited for 12. Until then the short ones (1 hour each, at 1, 2, ...) pass it,
// those that come at 1 to 11; the one that comes at 12 does not, though it is short.
func TestCaravanIsPassedOnlyUntilDue(t *testing.T) {
	tasks := []*task{{id: "first", long: h, says: h, gpus: 1}, {id: "long", long: 6 * h, says: 6 * h, gpus: 1}}
	for i := range 15 {
		tasks = append(tasks, &task{id: string(rune('a' + i)), at: time.Duration(i+1) * h, long: h, says: h, gpus: 1})
	}
	_, rows := play(t, Policy{Order: OrderCaravan, Caravan: Caravan{Patience: 2, Short: 2 * h}}, nil, 1, h, tasks...)
	if got, want := strings.Join(rows, " "), "first a b c d e f g h i j k long long long long long long l m n o"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// By hand, an hour after all were submitted, with a patience of 8 and short jobs of
// up to four hours: an hour is due after 8, ten minutes were due 20 minutes ago
// (-3600 + 8*600 = 1200 s from now would be due; 5 minutes were due at -3600 + 2400).
func TestCaravanStanding(t *testing.T) {
	now := start.Add(h)
	one := func(change func(*Entry)) Entry {
		e := Entry{Job: &model.Job{Submitted: start}, Waiting: true, Asked: 1, Waited: h, Left: Estimate{Known: true, Total: h, Left: h}}
		change(&e)
		return e
	}
	s := Situation{Now: now, GPUs: 16 * littleGPUs, NodeGPUs: 8, Jobs: []Entry{
		one(func(e *Entry) {}),
		one(func(e *Entry) { e.Asked, e.Left = 4, Estimate{Known: true, Total: 5 * h, Left: 5 * h} }),
		one(func(e *Entry) {
			e.Left = Estimate{Known: true, Total: 5 * time.Minute, Left: 5 * time.Minute, Runs: 3}
		}),
		one(func(e *Entry) { e.Left = Estimate{} }),
		one(func(e *Entry) {
			e.Running, e.Waiting, e.Ran, e.Waited, e.Left = true, false, h, 0, Estimate{Known: true, Total: 9 * h, Left: 8 * h}
		}),
		one(func(e *Entry) {
			e.Running, e.Waiting, e.Ran, e.Waited, e.Left = true, false, 90*time.Minute, 0, Estimate{Known: true, Total: h}
		}),
		one(func(e *Entry) { e.Ran, e.Left = 9*h, Estimate{Known: true, Total: h} }),
		one(func(e *Entry) { e.Asked = 4 * littleGPUs }),
		one(func(e *Entry) { e.Asked = 5 * littleGPUs }),
	}}
	got := Policy{Order: OrderCaravan, Caravan: Caravan{Patience: 8}}.Discipline().Stand(s)
	typical := math.Pow(2, 13) // the step next to (1 + 5 + 1/12 + 9 + 1 + 1 + 1 + 1) hours / 8 = 8587 s
	want := []Standing{
		{Class: 1, Key: kindSpan + 3600, Why: "said to run for 1h0m0s; has no more than 4h0m0s left, so it goes before longer ones; due at 2026-01-02 08:00 UTC"},
		{Class: 1, Key: 2*kindSpan - 3600, Why: "said to run for 5h0m0s; by age among those that have more than 4h0m0s on 4 GPUs left; due at 2026-01-03 16:00 UTC"},
		{Class: 1, Key: -3600 + 8*300, Why: "predicted to run for 5m0s (± 0s, the median of 3 like it); due since 2026-01-02 00:40 UTC, so nobody new passes it"},
		{Class: 1, Key: kindSpan + typical, Why: "run time unknown; taken to need 2h16m32s as jobs do on average; has no more than 4h0m0s left, so it goes before longer ones; due at 2026-01-02 18:12 UTC"},
		// Who runs is as good as two hours older, or, being short, as one with half as much left.
		{Class: 1, Key: 2*kindSpan - 3600 - 7200},
		{Class: 1, Key: kindSpan + 2700.0/2},
		// 16 hours, since it was to take 1, 2, 4 and 8: 7 are left.
		{Class: 1, Key: 2*kindSpan - 3600, Why: "said to run for 1h0m0s, but has for 9h0m0s already; by age among those that have more than 4h0m0s left; due at 2026-01-07 17:00 UTC"},
		// An hour is the most on four times as many GPUs, and too much on five times.
		{Class: 1, Key: kindSpan + 3600, Why: fmt.Sprintf("said to run for 1h0m0s; has no more than 1h0m0s on %d GPUs left, so it goes before longer ones; due at 2026-01-02 08:00 UTC", 4*littleGPUs)},
		{Class: 1, Key: 2*kindSpan - 3600, Why: fmt.Sprintf("said to run for 1h0m0s; by age among those that have more than 48m0s on %d GPUs left; due at 2026-01-02 08:00 UTC", 5*littleGPUs)},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// With a past, who has had an hour needs what those needed that had more: 68400 seconds,
	// in steps 2^16. A fifth of the work, 147600 GPU-seconds, is what all that had 1800 and
	// one that had 72000 had, and another one does not fit: 2^16 is little, but longer than Short.
	s.Past = NewPast(slices.Repeat([]float64{1800, 72000}, 10))
	s.Jobs[3].Attained = 3600
	if got := (Policy{Order: OrderCaravan}).Discipline().Stand(s)[3]; got.Key != 2*kindSpan-3600 || !strings.HasSuffix(got.Why, "by age among those that have more than 4h0m0s left") {
		t.Errorf("by the past: %+v", got)
	}
	s.Past = NewPast(slices.Repeat([]float64{1800, 7200}, 10))
	// Now a fifth, 18000 GPU-seconds, is what all that had 1800 had, so who needs less than 7200
	// is short, down to the step below (2^12.5); and nobody is due.
	for _, tc := range []struct {
		left time.Duration
		gpus int
		want Standing
	}{
		{96 * time.Minute, 1, Standing{Class: 1, Key: kindSpan + 5760, Why: "said to run for 1h36m0s; has no more than 1h36m33s left, so it goes before longer ones"}},
		{97 * time.Minute, 1, Standing{Class: 1, Key: 2*kindSpan - 3600, Why: "said to run for 1h37m0s; by age among those that have more than 1h36m33s left"}},
		{24 * time.Minute, 4, Standing{Class: 1, Key: kindSpan + 1440, Why: "said to run for 24m0s; has no more than 24m8s on 4 GPUs left, so it goes before longer ones"}},
		{25 * time.Minute, 4, Standing{Class: 1, Key: 2*kindSpan - 3600, Why: "said to run for 25m0s; by age among those that have more than 24m8s on 4 GPUs left"}},
	} {
		s.Jobs[0].Asked, s.Jobs[0].Left = tc.gpus, Estimate{Known: true, Total: tc.left, Left: tc.left}
		if diff := cmp.Diff(tc.want, (Policy{Order: OrderCaravan}).Discipline().Stand(s)[0]); diff != "" {
			t.Errorf("%s on %d GPUs (-want +got):\n%s", tc.left, tc.gpus, diff)
		}
	}
	s.Past = NewPast(slices.Repeat([]float64{3600, 1e6}, 10))
	s.Jobs[3].Attained, s.Jobs[3].Ran = 3000, 3000*time.Second
	if got := (Policy{Order: OrderCaravan, Caravan: Caravan{Short: 200 * h}}).Discipline().Stand(s)[3]; got.Key != kindSpan+math.Pow(2, 19) {
		t.Errorf("what jobs have beyond what it has had: %+v", got)
	}
}

// Of what is drawn, those that count as little have no more of the work than that
// together, and as much as the step below allows.
func TestLittleWorkIsLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		demands := rapid.SliceOfN(rapid.Float64Range(0, 1e9), 1, 200).Draw(t, "demands")
		past, part := NewPast(demands), rapid.Float64Range(0.01, 0.9).Draw(t, "part")
		all, less, upTo := 0.0, 0.0, past.upTo(part)
		for _, d := range demands {
			all += d
			if d < upTo {
				less += d
			}
		}
		if less > part*all*(1+1e-9) {
			t.Errorf("jobs of less than %g had %g of %g", upTo, less, all)
		}
		more := 0.0
		for _, d := range demands {
			if d <= upTo*math.Sqrt2*(1+1e-9) {
				more += d
			}
		}
		if more < part*all*(1-1e-9) {
			t.Errorf("jobs of up to the step after %g had only %g of %g", upTo, more, all)
		}
	})
}

// Eight GPUs on two nodes. By hand: the deadline's two and the short one's have
// their turn first, then by age the gang of four and the one that runs on one; for
// the gang of two that comes next there is nothing left, and it runs already, so it
// gives way; the last one waits. What cannot be stopped comes before everybody.
func TestCaravanTurns(t *testing.T) {
	job := func(id string, at time.Duration, gpus int, running bool, says time.Duration) Entry {
		e := Entry{Job: &model.Job{ID: id, Submitted: start.Add(at)}, Waiting: !running, Running: running, Asked: gpus, Left: Estimate{Known: true, Total: says, Left: says}}
		if running {
			e.Held, e.Turn = gpus, h
		} else {
			e.Waited = 10*h - at
		}
		return e
	}
	s := Situation{Now: start.Add(10 * h), GPUs: 8, NodeGPUs: 4, Jobs: []Entry{
		job("four", 0, 4, false, 20*h),
		job("one", h, 1, true, 20*h),
		job("two", 4*h, 2, true, 20*h),
		job("late", 5*h, 1, false, 20*h),
		job("short", 9*h, 1, false, 2*h),
		job("firm", 9*h, 1, true, 20*h),
	}}
	s.Jobs[5].Turn = time.Minute
	p := Policy{Order: OrderCaravan}
	p.Preempt.Enabled, p.Preempt.MinRunTime = true, 5*time.Minute
	turns := func() (out []string) {
		for i, st := range p.Discipline().Stand(s) {
			out = append(out, fmt.Sprintf("%s %d %t", s.Jobs[i].Job.ID, st.Class, st.InTurn))
		}
		return out
	}
	want := []string{"four 1 true", "one 2 true", "two 3 false", "late 2 true", "short 2 true", "firm 2 true"}
	if diff := cmp.Diff(want, turns()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.Jobs[2].Job.Preempt = model.PreemptNever // then the four are too many, and the small ones go
	want = []string{"four 3 false", "one 2 true", "two 2 true", "late 2 true", "short 2 true", "firm 2 true"}
	if diff := cmp.Diff(want, turns()); diff != "" {
		t.Errorf("never (-want +got):\n%s", diff)
	}
	p.Caravan.DeadlinesOnly = true
	for i, st := range p.Discipline().Stand(s) {
		if st.Class != classCalm || st.InTurn || st.Passed {
			t.Errorf("deadlines only: %s %+v", s.Jobs[i].Job.ID, st)
		}
	}
}

// Whatever there is, those who should run fit into the cluster, what nobody may stop
// is among them, and nobody who is in the order before all others is passed.
func TestCaravanTurnsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Situation{Now: start.Add(1000 * h), GPUs: rapid.IntRange(1, 64).Draw(t, "gpus"), NodeGPUs: 8}
		free := s.GPUs
		for i := range rapid.IntRange(1, 20).Draw(t, "jobs") {
			long := time.Duration(rapid.IntRange(0, 6000).Draw(t, "minutes")) * time.Minute
			e := Entry{Job: &model.Job{ID: fmt.Sprint(i), Submitted: start.Add(time.Duration(rapid.IntRange(0, 60000).Draw(t, "at")) * time.Minute)},
				Asked: rapid.IntRange(1, 64).Draw(t, "asked"), Waiting: true, Priority: rapid.IntRange(1, 2).Draw(t, "priority"), Left: Estimate{Known: long > 0, Total: long, Left: long}}
			if e.Asked <= free && rapid.Bool().Draw(t, "runs") {
				e.Running, e.Waiting, e.Held, e.Turn = true, false, e.Asked, time.Duration(rapid.IntRange(0, 10).Draw(t, "turn"))*time.Minute
				free -= e.Held
			}
			s.Jobs = append(s.Jobs, e)
		}
		p := Policy{Order: OrderCaravan}
		p.Preempt.Enabled, p.Preempt.MinRunTime = true, 5*time.Minute
		took, firm := 0, 0
		stands := p.Discipline().Stand(s)
		first := -1
		for i, st := range stands {
			e := &s.Jobs[i]
			stays := e.Running && e.Turn < p.Preempt.MinRunTime
			if st.InTurn != (st.Class < classLater) || stays && !st.InTurn {
				t.Errorf("job %d: %+v", i, st)
			}
			if st.InTurn {
				took += max(e.Asked, 1)
			}
			if stays {
				firm += e.Held
			}
			if first < 0 || e.Priority > s.Jobs[first].Priority || e.Priority == s.Jobs[first].Priority && st.Key < stands[first].Key {
				first = i
			}
		}
		if took > s.GPUs {
			t.Errorf("%d of %d GPUs", took, s.GPUs)
		}
		if !stands[first].InTurn && s.Jobs[first].Asked+firm <= s.GPUs {
			t.Errorf("job %d is first, and it is not its turn", first)
		}
	})
}

// Where nothing is known of anybody it is first come, first served.
func TestCaravanWithoutEstimates(t *testing.T) {
	var tasks []*task
	for i := range 8 {
		tasks = append(tasks, &task{id: string(rune('a' + i)), at: time.Duration(i) * time.Minute, long: time.Duration(9-i) * time.Hour, gpus: 1 + i%3})
	}
	_, caravan := play(t, Policy{Order: OrderCaravan}, nil, 4, time.Minute, reset(tasks)...)
	_, fifo := play(t, Policy{}, nil, 4, time.Minute, reset(tasks)...)
	if diff := cmp.Diff(fifo, caravan); diff != "" {
		t.Errorf("(-fifo +caravan):\n%s", diff)
	}
	got := Policy{Order: OrderCaravan}.Discipline().Stand(Situation{Now: start, Jobs: []Entry{{Job: &model.Job{Submitted: start}, Waiting: true}}})
	if got[0].Why != "nobody has said how long it runs, so the oldest goes first" {
		t.Errorf("told %q", got[0].Why)
	}
}

// A deadline that can be met is; one that has to begin displaces, and one that
// cannot be met waits with the others.
func TestCaravanMeetsDeadlines(t *testing.T) {
	job := func(deadline time.Duration) *model.Job {
		return &model.Job{Submitted: start, Deadline: start.Add(deadline)}
	}
	hour := Estimate{Known: true, Total: h, Left: h}
	s := Situation{Now: start, GPUs: 2, Jobs: []Entry{
		{Job: &model.Job{Submitted: start.Add(-h)}, Running: true, Held: 2, Asked: 2, Ran: h, Turn: h, Left: Estimate{Known: true, Total: 9 * h, Left: 8 * h}},
		{Job: job(70 * time.Minute), Waiting: true, Asked: 2, Left: hour},
		{Job: job(time.Minute), Waiting: true, Asked: 2, Left: hour},
		{Job: &model.Job{Submitted: start.Add(-h)}, Waiting: true, Asked: 2, Left: hour},
	}}
	p := Policy{Order: OrderCaravan}
	p.Preempt.Enabled = true
	var classes []int
	got := p.Discipline().Stand(s)
	for _, st := range got {
		classes = append(classes, st.Class)
	}
	// The one that runs gives way to the deadline, and those that wait to both.
	if diff := cmp.Diff([]int{3, 0, 3, 3}, classes); diff != "" {
		t.Errorf("classes (-want +got):\n%s", diff)
	}
	if got[1].Key >= got[3].Key || !strings.Contains(got[1].Why, "has to begin now") || !strings.Contains(got[2].Why, "cannot meet") {
		t.Errorf("%+v", got)
	}
}

// On a busy cluster with heavy tails the mean time to completion is near that of
// the shortest first, and well below that in the order of age; the longest wait is
// shorter than with the shortest first.
func TestCaravanBetweenFIFOAndSJF(t *testing.T) {
	var mean, longest [3]time.Duration
	for seed := range uint64(2) {
		for i, order := range []string{OrderFIFO, OrderSJF, OrderCaravan} {
			tasks := busy(seed)
			ends, _ := play(t, Policy{Order: order}, nil, 32, 10*time.Minute, tasks...)
			mean[i] += meanJCT(tasks, ends)
			for _, k := range tasks {
				longest[i] = max(longest[i], ends[k.id]-k.at-k.long)
			}
		}
	}
	t.Logf("fifo, sjf, caravan: mean %s, longest wait %s", mean, longest)
	if mean[2] > mean[0]*6/10 || mean[2] > mean[1]*13/10 || longest[2] >= longest[1] {
		t.Error("caravan is not between them")
	}
}

// busy draws 300 jobs that want more than there is for a while.
func busy(seed uint64) (out []*task) {
	r, at := rand.New(rand.NewPCG(seed, 1)), time.Duration(0)
	for i := range 300 {
		long := time.Duration(math.Exp(r.NormFloat64()*1.4+math.Log(4)))*10*time.Minute + 10*time.Minute
		out = append(out, &task{id: fmt.Sprint(i), at: at.Truncate(10 * time.Minute), long: long, says: long, gpus: []int{1, 1, 1, 2, 4, 8, 8, 16}[r.IntN(8)]})
		at += time.Duration(r.ExpFloat64() * 9 * float64(time.Minute))
	}
	return out
}

// Who waits is passed only by jobs submitted before it was due, whatever the others
// are.
func TestCaravanBoundsPassing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Situation{Now: start.Add(1000 * h), GPUs: 8}
		for i := range rapid.IntRange(2, 12).Draw(t, "jobs") {
			long := time.Duration(rapid.IntRange(0, 5000).Draw(t, "minutes")) * time.Minute
			at := time.Duration(rapid.IntRange(0, 60000).Draw(t, "at")) * time.Minute
			s.Jobs = append(s.Jobs, Entry{Job: &model.Job{ID: fmt.Sprint(i), Submitted: start.Add(at)}, Waited: 1000*h - at,
				Waiting: true, Asked: rapid.IntRange(1, 64).Draw(t, "gpus"), Left: Estimate{Known: long > 0, Total: long, Left: long}})
		}
		slices.SortStableFunc(s.Jobs, func(a, b Entry) int { return a.Job.Submitted.Compare(b.Job.Submitted) })
		patience := rapid.Float64Range(0.1, 20).Draw(t, "patience")
		got := Policy{Order: OrderCaravan, Caravan: Caravan{Patience: patience}}.Discipline().Stand(s)
		longest := 5000 * time.Minute
		for i := range s.Jobs {
			for k := range s.Jobs {
				due := s.Jobs[i].Job.Submitted.Add(seconds(patience*longest.Seconds() + 1))
				if got[k].Key < got[i].Key && s.Jobs[k].Job.Submitted.After(due) && s.Now.After(due) {
					t.Errorf("job %d passes job %d, submitted %s before", k, i, s.Jobs[k].Job.Submitted.Sub(s.Jobs[i].Job.Submitted))
				}
			}
			if math.IsNaN(got[i].Key) || math.IsInf(got[i].Key, 0) {
				t.Errorf("key %g", got[i].Key)
			}
		}
	})
}

func TestSteady(t *testing.T) {
	for mean, want := range map[float64]float64{0: 0, -1: 0, 1: 1, 2: 2, 2.3: 2, 2.5: 2 * math.Sqrt2, 3600: 4096} {
		if got := steady(mean); math.Abs(got-want) > 1e-9 {
			t.Errorf("%g: %g, want %g", mean, got, want)
		}
	}
}

func TestCaravanFaults(t *testing.T) {
	for _, patience := range []float64{-1, MaxPatience + 1, math.NaN()} {
		if err := (Caravan{Patience: patience}).Validate(); !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "caravan.patience") {
			t.Errorf("%g: %v", patience, err)
		}
	}
	for _, short := range []time.Duration{-1, MaxShort + 1} {
		if err := (Caravan{Short: short}).Validate(); !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "caravan.short") {
			t.Errorf("%s: %v", short, err)
		}
	}
}

// With preemption, three hours for each doubling up to 16 GPUs, and twelve from there up to a quarter of
// 1,024: an hour of age is an hour, and who runs is two hours older.
func TestCaravanWideGangsCountAsLater(t *testing.T) {
	for gpus, later := range map[int]time.Duration{1: 0, 2: 3 * h, 8: 9 * h, 16: 12 * h, 32: 24 * h, 256: 60 * h, 512: 60 * h, 1024: 60 * h} {
		for _, running := range []bool{false, true} {
			s := Situation{Now: start.Add(100 * h), GPUs: 1024, Jobs: []Entry{{Job: &model.Job{Submitted: start}, Waiting: !running, Running: running, Asked: gpus, Held: gpus,
				Left: Estimate{Known: true, Total: 200 * h, Left: 200 * h}}}}
			p := Policy{Order: OrderCaravan}
			if got := p.Discipline().Stand(s)[0]; !running && got.Key != kindSpan*kindLong-(100*h).Seconds() {
				t.Errorf("%d GPUs without preemption: key %.0f, want its age alone", gpus, got.Key-kindSpan*kindLong)
			}
			p.Preempt.Enabled = true
			got := p.Discipline().Stand(s)[0]
			want := kindSpan*kindLong + (later - 100*h).Seconds()
			if running {
				want -= headStart.Seconds()
			}
			if math.Abs(got.Key-want) > 1e-3 {
				t.Errorf("%d GPUs, running %t: key %.0f, want %.0f", gpus, running, got.Key-kindSpan*kindLong, want-kindSpan*kindLong)
			}
			if said := strings.Contains(got.Why, fmt.Sprintf("as if it had been submitted %s later for its size", later)); said != (later > 0 && !running) {
				t.Errorf("%d GPUs, running %t: told %q", gpus, running, got.Why)
			}
		}
	}
}

// On 64 GPUs, 16 of them are as if submitted 12 hours later, and 4 as if 6 hours: who wants
// 4 GPUs and comes within 6 hours after it has its turn before it, and who comes later does not.
func TestCaravanWideGangIsPassedForSizeDelay(t *testing.T) {
	long := Estimate{Known: true, Total: 30 * h, Left: 30 * h}
	at := func(after time.Duration, gpus int) Entry {
		return Entry{Job: &model.Job{Submitted: start.Add(after)}, Waiting: true, Asked: gpus, Waited: 40*h - after, Left: long}
	}
	p := Policy{Order: OrderCaravan, Caravan: Caravan{StuckAfter: 1000 * h}}
	p.Preempt.Enabled = true
	for after, passed := range map[time.Duration]bool{h: true, 5 * h: true, 7 * h: false} {
		s := Situation{Now: start.Add(40 * h), GPUs: 64, NodeGPUs: 8, Jobs: []Entry{at(0, 16)}}
		for range 13 { // with them there is no room for 16 GPUs
			s.Jobs = append(s.Jobs, at(after, 4))
		}
		if got := p.Discipline().Stand(s); got[0].InTurn == passed {
			t.Errorf("others come %s later: in turn %t, want it passed %t", after, got[0].InTurn, passed)
		}
	}
}
