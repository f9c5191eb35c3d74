package queue

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Eight GPUs, of which short jobs of an hour take two all the time, and a gang of all eight.
func TestCaravanStuck(t *testing.T) {
	now := start.Add(100 * h)
	gang := func(change func(*Entry)) Entry {
		e := Entry{Job: &model.Job{ID: "gang", Submitted: now.Add(-25 * h)}, Waiting: true, Asked: 8, Rest: 25 * h, Waited: 25 * h, Left: Estimate{Known: true, Total: 30 * h, Left: 30 * h}}
		change(&e)
		return e
	}
	short := func(running bool, ago time.Duration) Entry {
		return Entry{Job: &model.Job{Submitted: now.Add(-ago)}, Running: running, Waiting: !running, Held: 1, Asked: 1, Turn: ago, Left: Estimate{Known: true, Total: h, Left: h / 2}}
	}
	runs := func(turn time.Duration) func(*Entry) {
		return func(e *Entry) {
			e.Running, e.Waiting, e.Held, e.Turn, e.Rest, e.Ran = true, false, 8, turn, 0, turn
			e.Job.Submitted = e.Job.Submitted.Add(-turn)
		}
	}
	for name, tc := range map[string]struct {
		gang   func(*Entry)
		older  []Entry
		policy func(*Policy)
		never  bool
		want   bool
	}{
		"first in line for 25 hours":        {want: true},
		"for 23":                            {gang: func(e *Entry) { e.Job.Submitted, e.Rest = now.Add(-23*h), 23*h }},
		"for 25, and a day and a half set":  {policy: func(p *Policy) { p.Caravan.StuckAfter = 36 * h }},
		"somebody older has begun since":    {older: []Entry{{Job: &model.Job{Submitted: now.Add(-50 * h)}, Running: true, Held: 1, Turn: 20 * h}}},
		"somebody older runs for long":      {older: []Entry{{Job: &model.Job{Submitted: now.Add(-50 * h)}, Running: true, Held: 1, Turn: 40 * h}}},
		"an older one runs out of its turn": {older: []Entry{{Job: &model.Job{Submitted: now.Add(-50 * h)}, Running: true, Held: 8, Turn: 40 * h, Left: Estimate{Known: true, Total: 90 * h, Left: 50 * h}}}, want: true},
		"and has begun since":               {older: []Entry{{Job: &model.Job{Submitted: now.Add(-50 * h)}, Running: true, Held: 8, Turn: 20 * h, Left: Estimate{Known: true, Total: 90 * h, Left: 70 * h}}}},
		"a service is never to give way":    {older: []Entry{{Job: &model.Job{Type: "service", Preempt: model.PreemptNever, Submitted: now.Add(-50 * h)}, Running: true, Held: 1, Turn: 40 * h}}},
		"it ran 10 hours ago":               {gang: func(e *Entry) { e.Rest = 10 * h }},
		"it has its turn":                   {gang: runs(5 * h), want: true},
		"it has had its turn":               {gang: runs(7 * h)},
		"it came to run soon":               {gang: func(e *Entry) { runs(h)(e); e.Job.Preempted = []model.Preempted{{At: now.Add(-3 * h)}} }},
		"it can never run":                  {never: true},
		"it wants more than there is":       {gang: func(e *Entry) { e.Asked = 9 }},
	} {
		t.Run(name, func(t *testing.T) {
			e := gang(func(*Entry) {})
			if tc.gang != nil {
				tc.gang(&e)
			}
			s := Situation{Now: now, GPUs: 8, NodeGPUs: 8, CanRun: func(*model.Job) bool { return !tc.never },
				Jobs: append(slices.Clone(tc.older), e, short(true, 2*h), short(true, h), short(false, h/2))}
			at := len(tc.older)
			p := Policy{Order: OrderCaravan}
			p.Preempt.Enabled = true
			if tc.policy != nil {
				tc.policy(&p)
			}
			got := p.Discipline().Stand(s)
			if got[at].InTurn != tc.want || got[at+1].InTurn == tc.want || (got[at].Key < got[at+1].Key) != tc.want {
				t.Errorf("the gang %+v, a short one %+v: want its turn %t", got[at], got[at+1], tc.want)
			}
			if said := strings.Contains(got[at].Why, "the first in line since 2026-01-05 03:00 UTC, more than 24h0m0s, so nobody younger passes it now"); said != (tc.want && e.Waiting) {
				t.Errorf("it is said %q", got[at].Why)
			}
		})
	}
}

// Who would wait behind one that cannot run is the first in line itself, and each line has
// one of its own.
func TestCaravanStuckInLine(t *testing.T) {
	now := start.Add(100 * h)
	gang := func(id, queue string) Entry {
		return Entry{Job: &model.Job{ID: id, Queue: queue, Submitted: now.Add(-50 * h)}, Waiting: true, Asked: 8, Rest: 50 * h, Waited: 50 * h, Left: Estimate{Known: true, Total: 30 * h, Left: 30 * h}}
	}
	s := Situation{Now: now, GPUs: 16, NodeGPUs: 8, CanRun: func(j *model.Job) bool { return j.ID != "never" },
		Jobs: []Entry{gang("never", "a"), gang("first", "a"), gang("second", "a"), gang("other", "b")}}
	for range 15 {
		s.Jobs = append(s.Jobs, Entry{Job: &model.Job{Submitted: now}, Waiting: true, Asked: 1, Left: Estimate{Known: true, Total: h, Left: h}})
	}
	p := Policy{Order: OrderCaravan}
	p.Preempt.Enabled = true
	var turns []string
	for i, st := range p.Discipline().Stand(s) {
		if st.InTurn {
			turns = append(turns, s.Jobs[i].Job.ID)
		}
	}
	if got, want := strings.Join(turns, " "), "first other"; got != want {
		t.Errorf("%q have their turn, want %q", got, want)
	}
}

// Where nobody gives way the first in the order, that has waited for half a day, is not passed
// by short ones once none but these are in its way.
func TestCaravanLetThrough(t *testing.T) {
	now := start.Add(100 * h)
	s := Situation{Now: now, GPUs: 8, NodeGPUs: 8, Jobs: []Entry{
		{Job: &model.Job{ID: "gang", Submitted: now.Add(-13 * h)}, Waiting: true, Asked: 8, Rest: 13 * h, Waited: 13 * h, Left: Estimate{Known: true, Total: 30 * h, Left: 30 * h}},
		{Job: &model.Job{ID: "second", Submitted: now.Add(-13 * h)}, Waiting: true, Asked: 8, Rest: 13 * h, Waited: 13 * h, Left: Estimate{Known: true, Total: 30 * h, Left: 30 * h}},
		{Job: &model.Job{ID: "late", Submitted: now.Add(-9 * h)}, Running: true, Held: 1, Asked: 1, Ran: 5 * h, Turn: 5 * h, Left: Estimate{Known: true, Total: 6 * h, Left: h}},
		{Job: &model.Job{ID: "short", Submitted: now.Add(-2 * h)}, Running: true, Held: 1, Asked: 1, Ran: h, Turn: h, Left: Estimate{Known: true, Total: 2 * h, Left: h}},
		{Job: &model.Job{ID: "new", Submitted: now}, Waiting: true, Asked: 1, Left: Estimate{Known: true, Total: h, Left: h}},
	}}
	var gone []string
	fits := true
	s.FitsWithout = func(j *model.Job, without []*model.Job) bool {
		if gone = nil; j.ID != "gang" {
			t.Errorf("%s was asked about", j.ID)
		}
		for _, other := range without {
			gone = append(gone, other.ID)
		}
		return fits
	}
	stand := Policy{Order: OrderCaravan}.Discipline().Stand
	got := stand(s)
	if !slices.Equal(gone, []string{"short"}) || got[0].Key >= got[4].Key || got[1].Key <= got[4].Key || !strings.HasSuffix(got[0].Why, "it has waited for more than 12h0m0s and only short jobs are in its way, so none passes it now") {
		t.Errorf("without %q: %+v", gone, got)
	}
	fits = false
	if got := stand(s); got[0].Key <= got[4].Key {
		t.Errorf("others are in its way: %+v", got)
	}
	fits, s.Jobs[0].Rest, s.Jobs[1].Rest = true, 11*h, 11*h
	if got := stand(s); got[0].Key <= got[4].Key {
		t.Errorf("after 11 hours: %+v", got)
	}
}

// A short gang of a whole node is passed by shorter jobs for a day where nobody gives way, and
// by those of a higher priority for as long as they come.
func TestCaravanLetThroughShort(t *testing.T) {
	now := start.Add(100 * h)
	for name, tc := range map[string]struct {
		waited   time.Duration
		gpus     int
		priority int
		older    []Entry
		want     bool
	}{
		"after 25 hours":                      {waited: 25 * h, gpus: 8, want: true},
		"after 23":                            {waited: 23 * h, gpus: 8},
		"less than a node":                    {waited: 25 * h, gpus: 7},
		"somebody older has begun since":      {waited: 25 * h, gpus: 8, older: []Entry{{Job: &model.Job{Submitted: now.Add(-30 * h)}, Running: true, Held: 1, Turn: 20 * h}}},
		"who is in its way goes before it":    {waited: 25 * h, gpus: 8, priority: 60},
		"somebody older was placed and waits": {waited: 25 * h, gpus: 8, older: []Entry{{Job: &model.Job{Submitted: now.Add(-30 * h)}, Waiting: true, Asked: 1, Rest: h, Left: Estimate{Known: true, Total: h, Left: h}}}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			hour := Estimate{Known: true, Total: h, Left: h}
			s := Situation{Now: now, GPUs: 8, NodeGPUs: 8, Jobs: append(slices.Clone(tc.older),
				Entry{Job: &model.Job{ID: "gang", Submitted: now.Add(-tc.waited)}, Waiting: true, Asked: tc.gpus, Rest: tc.waited, Waited: tc.waited, Left: Estimate{Known: true, Total: 3 * h, Left: 3 * h}},
				Entry{Job: &model.Job{ID: "runs", Submitted: now.Add(-h)}, Priority: tc.priority, Running: true, Held: 1, Asked: 1, Turn: h / 2, Ran: h / 2, Left: hour},
				Entry{Job: &model.Job{ID: "new", Submitted: now}, Waiting: true, Asked: 1, Left: hour})}
			s.FitsWithout = func(_ *model.Job, gone []*model.Job) bool { return len(gone) > 0 }
			at := len(tc.older)
			got := Policy{Order: OrderCaravan}.Discipline().Stand(s)
			if passed := got[at].Key < got[at+2].Key; passed != tc.want {
				t.Errorf("the gang %+v, a new one %+v: want it first %t", got[at], got[at+2], tc.want)
			}
		})
	}
}
