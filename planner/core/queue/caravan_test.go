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

// One GPU, patience 2. By hand: "long" (6 hours, submitted at 0) is due at 12,
// the short ones (1 hour each, at 1, 2, ...) two hours after they came, that is
// at 3, 4, ...; so those that came up to 9 go first, and the one that came at 10,
// due at 12, does not: the older one of two that are due at once goes first.
func TestCaravanIsPassedOnlyUntilDue(t *testing.T) {
	tasks := []*task{{id: "first", long: h, says: h, gpus: 1}, {id: "long", long: 6 * h, says: 6 * h, gpus: 1}}
	for i := range 15 {
		tasks = append(tasks, &task{id: string(rune('a' + i)), at: time.Duration(i+1) * h, long: h, says: h, gpus: 1})
	}
	_, rows := play(t, Policy{Order: OrderCaravan, Caravan: Caravan{Patience: 2}}, nil, 1, h, tasks...)
	if got, want := strings.Join(rows, " "), "first a b c d e f g h i long long long long long long j k l m n o"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// GPUs count: of two jobs of one hour, the one with four GPUs is due later. The
// average job asks for two; by hand, 4 x 3600 x 1/2 and 4 x 3600 x 4/2 seconds.
func TestCaravanStanding(t *testing.T) {
	now := start.Add(h)
	one := func(change func(*Entry)) Entry {
		e := Entry{Job: &model.Job{Submitted: start}, Waiting: true, Asked: 1, Left: Estimate{Known: true, Total: h, Left: h}}
		change(&e)
		return e
	}
	s := Situation{Now: now, GPUs: 8, Jobs: []Entry{
		one(func(e *Entry) {}),
		one(func(e *Entry) { e.Asked = 4 }),
		one(func(e *Entry) {
			e.Left = Estimate{Known: true, Total: 10 * time.Minute, Left: 10 * time.Minute, Runs: 3}
			e.Asked = 1
		}),
		one(func(e *Entry) { e.Left = Estimate{} }),
		one(func(e *Entry) { e.Asked = 3; e.Running, e.Waiting = true, false }),
	}}
	got := Policy{Order: OrderCaravan}.Discipline().Stand(s)
	typical := math.Pow(2, 11.5) // the step next to (3 x 3600 + 600) / 4 = 2850
	want := []Standing{
		{Class: 1, Key: -3600 + 4*3600/2, Why: "said to run for 1h0m0s; due at 2026-01-02 02:00 UTC"},
		{Class: 1, Key: -3600 + 4*3600*4/2, Why: "said to run for 1h0m0s; due at 2026-01-02 08:00 UTC"},
		{Class: 1, Key: -3600 + 4*600/2, Why: "predicted to run for 10m0s (± 0s, the median of 3 like it); due since 2026-01-02 00:20 UTC, so nobody new passes it"},
		{Class: 1, Key: -3600 + 4*typical/2, Why: "run time unknown; taken to need 48m16s as jobs do on average; due at 2026-01-02 01:36 UTC"},
		{Class: 1},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// With a past, who has had an hour needs what those needed that had more.
	s.Past = NewPast(slices.Repeat([]float64{1800, 7200}, 10))
	s.Jobs[3].Attained = 3600
	if got := (Policy{Order: OrderCaravan}).Discipline().Stand(s)[3]; got.Key != -3600+4*4096/2 {
		t.Errorf("by the past: %+v", got)
	}
	s.Jobs[3].Attained, s.Jobs[3].Ran = 8000, 2*h
	if got := (Policy{Order: OrderCaravan}).Discipline().Stand(s)[3]; got.Key != -3600+4*2*3600/2 {
		t.Errorf("beyond the past: %+v", got)
	}
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
	if diff := cmp.Diff([]int{1, 0, 1, 1}, classes); diff != "" {
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

// Who is passed is passed only by jobs submitted before it was due, whatever the
// others are.
func TestCaravanBoundsPassing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Situation{Now: start.Add(1000 * h), GPUs: 8}
		for i := range rapid.IntRange(2, 12).Draw(t, "jobs") {
			long := time.Duration(rapid.IntRange(0, 5000).Draw(t, "minutes")) * time.Minute
			s.Jobs = append(s.Jobs, Entry{Job: &model.Job{ID: fmt.Sprint(i), Submitted: start.Add(time.Duration(rapid.IntRange(0, 60000).Draw(t, "at")) * time.Minute)},
				Waiting: true, Asked: rapid.IntRange(1, 64).Draw(t, "gpus"), Left: Estimate{Known: long > 0, Total: long, Left: long}})
		}
		patience := rapid.Float64Range(0.1, 20).Draw(t, "patience")
		got := Policy{Order: OrderCaravan, Caravan: Caravan{Patience: patience}}.Discipline().Stand(s)
		longest := 5000 * time.Minute
		for i := range s.Jobs {
			for k := range s.Jobs {
				later := s.Jobs[k].Job.Submitted.Sub(s.Jobs[i].Job.Submitted)
				if got[k].Key < got[i].Key && later.Seconds() > patience*maxWeight*longest.Seconds() {
					t.Errorf("job %d passes job %d, submitted %s before", k, i, later)
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
}
