package queue

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

const h = time.Hour

// Two GPUs, and the second queue begins at 2 GPU-hours. "long" (2 GPUs, 4 hours)
// has had 4 GPU-hours when "short" comes after 2 hours, so it gives way for the
// hour that short takes: 5 and 3 instead of 4 and 5, on average 3 hours instead
// of 3.5.
func TestLASDisplacesWhoHasHadMore(t *testing.T) {
	tasks := func() []*task {
		return []*task{{id: "long", long: 4 * h, gpus: 2}, {id: "short", at: 2 * h, long: h, gpus: 2}}
	}
	las, fifo := tasks(), tasks()
	ends, rows := play(t, Policy{Order: OrderLAS, LAS: LAS{Thresholds: []float64{7200}}}, nil, 2, h, las...)
	if diff := cmp.Diff(map[string]string{"long": "5h", "short": "3h"}, hours(ends)); diff != "" {
		t.Errorf("las (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"long", "long", "short", "long", "long"}, rows); diff != "" {
		t.Errorf("las (-want +got):\n%s", diff)
	}
	if got := meanJCT(las, ends); got != 3*h {
		t.Errorf("las: mean %s", got)
	}
	ends, _ = play(t, Policy{}, nil, 2, h, fifo...)
	if got := meanJCT(fifo, ends); got != 3*h+h/2 {
		t.Errorf("fifo: mean %s", got)
	}
}

// Service is GPUs times time: "wide" leaves the first queue after one hour with
// 4 GPUs, "narrow" after four with one; so narrow goes on where time alone would
// call them equals, and jobs of one queue do not displace each other.
func TestLASCountsGPUsTimesTime(t *testing.T) {
	ends, rows := play(t, Policy{Order: OrderLAS, LAS: LAS{Thresholds: []float64{4 * 3600}}}, nil, 4, h,
		&task{id: "wide", long: 3 * h, gpus: 4}, &task{id: "narrow", at: h, long: 3 * h, gpus: 1}, &task{id: "next", at: h, long: h, gpus: 4})
	if diff := cmp.Diff([]string{"wide", "narrow", "narrow", "narrow", "next", "wide", "wide"}, rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"wide": "7h", "narrow": "4h", "next": "5h"}, hours(ends)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// One job has run for an hour and waits behind new ones that come all the time;
// after twice its run time it is back in the first queue, and is in it until it
// has had the threshold again.
func TestLASPromotesWhoStarves(t *testing.T) {
	tasks := []*task{{id: "old", long: 3 * h, gpus: 1}}
	for i := range 8 {
		tasks = append(tasks, &task{id: string(rune('a' + i)), at: time.Duration(i+1) * h, long: h, gpus: 1})
	}
	_, rows := play(t, Policy{Order: OrderLAS, LAS: LAS{Thresholds: []float64{3600}, Starve: 2}}, nil, 1, h, tasks...)
	// It comes back at 3, where c has just come: the older one goes first. Having
	// had another GPU-hour it gives way again.
	if diff := cmp.Diff("old a b old c d old e f g h", strings.Join(rows, " ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, rows = play(t, Policy{Order: OrderLAS, LAS: LAS{Thresholds: []float64{3600}, Starve: 1e6}}, nil, 1, h, reset(tasks)...)
	if diff := cmp.Diff("old a b c d e f g h old old", strings.Join(rows, " ")); diff != "" {
		t.Errorf("without (-want +got):\n%s", diff)
	}
}

// reset makes tasks new.
func reset(tasks []*task) []*task {
	out := make([]*task, len(tasks))
	for i, k := range tasks {
		out[i] = &task{id: k.id, at: k.at, long: k.long, gpus: k.gpus, says: k.says, priority: k.priority}
	}
	return out
}

func TestLASStanding(t *testing.T) {
	for name, tt := range map[string]struct {
		entry Entry
		want  Standing
	}{
		"new":              {Entry{}, Standing{Why: "queue 1 of 3, after 0 GPU-seconds"}},
		"below":            {Entry{Attained: 3599}, Standing{Why: "queue 1 of 3, after 60.0 GPU-minutes"}},
		"at the threshold": {Entry{Attained: 3600}, Standing{Class: 1, Why: "queue 2 of 3, after 60.0 GPU-minutes"}},
		"last":             {Entry{Attained: 16 * 3600}, Standing{Class: 2, Why: "queue 3 of 3, after 16.0 GPU-hours"}},
		"not quite":        {Entry{Attained: 3600, Ran: h, Rest: 8*h - 1}, Standing{Class: 1, Why: "queue 2 of 3, after 60.0 GPU-minutes"}},
		"starves": {Entry{Attained: 3600, Ran: h, Rest: 8 * h},
			Standing{Forgets: true, Why: "queue 1 of 3 again, since it has waited 8 times as long as the 1h0m0s that it ran, or longer"}},
		"runs": {Entry{Attained: 3600, Ran: h, Rest: 8 * h, Running: true}, Standing{Class: 1, Why: "queue 2 of 3, after 60.0 GPU-minutes"}},
		"was put back": {Entry{Attained: 3700, Running: true, Job: &model.Job{ForgottenGPUs: 3600}},
			Standing{Why: "queue 1 of 3, after 100 GPU-seconds since it was put back to the first"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.entry.Job == nil {
				tt.entry.Job = &model.Job{}
			}
			got := Policy{Order: OrderLAS}.Discipline().Stand(Situation{Jobs: []Entry{tt.entry}})
			if diff := cmp.Diff([]Standing{tt.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLASFaults(t *testing.T) {
	err := LAS{Thresholds: []float64{0, 5, 5, math.NaN()}, Starve: -1}.Validate()
	if !errors.Is(err, ErrPolicy) {
		t.Fatalf("error %v", err)
	}
	for _, want := range []string{"las.thresholds_gpu_s[0] 0:", "las.thresholds_gpu_s[2] 5:", "las.thresholds_gpu_s[3] NaN:", "las.starve -1:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if err := (LAS{Thresholds: make([]float64, MaxThresholds+1)}).Validate(); err == nil || !strings.Contains(err.Error(), "want at most 16") {
		t.Errorf("too many thresholds: %v", err)
	}
	if err := (LAS{}).WithDefaults().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}
