package queue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Two GPUs, gangs of two, turns of an hour. By hand: "a" and "b" share the place
// hour by hour; at 3 "b" and "c" have waited for an hour each, and the older goes
// first; at 4 "c" has waited for two, "a" for one. Whoever is alone runs on.
func TestTimesliceTakesTurns(t *testing.T) {
	ends, rows := play(t, Policy{Order: OrderTimeslice}, nil, 2, h,
		&task{id: "a", long: 3 * h, gpus: 2}, &task{id: "b", at: h, long: 2 * h, gpus: 2}, &task{id: "c", at: 2 * h, long: 3 * h, gpus: 2})
	if diff := cmp.Diff("a b a b c a c c", strings.Join(rows, " ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "6h", "b": "4h", "c": "8h"}, hours(ends)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whole gangs take turns: one of two GPUs waits at 2, when the turn of one single
// is over, and takes the room of both at 3; at 5 its own turn is over. x has an
// hour left then, y two, and the gang one.
func TestTimesliceTurnsWholeGangs(t *testing.T) {
	_, rows := play(t, Policy{Order: OrderTimeslice, Timeslice: Timeslice{Quantum: 2 * h}}, nil, 2, h,
		&task{id: "x", long: 4 * h, gpus: 1}, &task{id: "y", at: h, long: 4 * h, gpus: 1}, &task{id: "gang", at: h, long: 3 * h, gpus: 2})
	if diff := cmp.Diff("x|x y|x y|gang|gang|x y|y|gang", strings.Join(rows, "|")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTimesliceStanding(t *testing.T) {
	j, saves, service := &model.Job{}, &model.Job{Saves: true}, &model.Job{Type: "service"}
	got := Policy{Order: OrderTimeslice}.Discipline().Stand(Situation{Now: start, Jobs: []Entry{
		{Job: j, Rest: 90 * time.Minute}, {Job: j, Running: true, Ran: h - 1, Turn: h - 1}, {Job: j, Running: true, Ran: h, Turn: h},
		{Job: j, Running: true, Ran: 3 * h, Turn: h}, {Job: j, Running: true, Ran: 4 * h, Turn: 2 * h},
		{Job: saves, Running: true, Ran: 3 * h, Turn: h}, {Job: service, Running: true, Ran: 3 * h, Turn: h},
	}})
	want := []Standing{
		{Key: -5400, Why: "its turn comes round: it waits since 2026-01-01 22:30 UTC"},
		{Why: "it has its turn until it has run 1h0m0s"},
		{Class: 1, Why: "its turn of 1h0m0s is over"},
		{Why: "it has its turn until it has run 2h0m0s, as long as it has in all its turns before, since it saves nothing of what it does"},
		{Class: 1, Why: "its turn of 2h0m0s is over"},
		{Class: 1, Why: "its turn of 1h0m0s is over"},
		{Class: 1, Why: "its turn of 1h0m0s is over"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := (Timeslice{Quantum: time.Second}).Validate(); !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "timeslice.quantum 1s: want 1m0s to") {
		t.Errorf("a quantum too short: %v", err)
	}
}
