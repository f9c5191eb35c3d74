package preempt

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestPolicyFaults(t *testing.T) {
	err := Policy{MaxGiBAtOnce: -9, Storages: []Storage{{Name: "a"}, {Name: "a", MaxAtOnce: -5}, {}}, MinPriorityGap: -1, MaxAtOnce: -2, MaxPerHour: -3, MaxPerJob: -4, MinRunTime: -time.Second, RestartTime: -time.Minute}.Validate()
	if !errors.Is(err, ErrPolicy) {
		t.Fatalf("error: %v", err)
	}
	for _, want := range []string{"min_priority_gap -1", "max_at_once -2", "max_per_hour -3", "max_per_job -4", "min_run_time -1s", "restart_time -1m0s", "max_gib_at_once -9", `storages[1].name "a"`, "storages[1] (a): max_at_once -5", `storages[2].name ""`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if err := (Policy{}).Validate(); err != nil {
		t.Errorf("the zero policy: %v", err)
	}
}

func TestByPriority(t *testing.T) {
	for _, tt := range []struct {
		gap, preemptor, victim int
		want                   bool
	}{
		{0, 50, 50, false}, {0, 51, 50, true}, {10, 59, 50, false}, {10, 60, 50, true}, {10, 40, 50, false},
	} {
		r, a, b := ByPriority{tt.gap}, &model.Job{Priority: tt.preemptor}, &model.Job{Priority: tt.victim}
		got, why := r.MayDisplace(a, b), r.Why(a, b)
		if got != tt.want || strings.Contains(why, "is wanted") == tt.want {
			t.Errorf("gap %d, %d against %d: %t (%s), want %t", tt.gap, tt.preemptor, tt.victim, got, why, tt.want)
		}
	}
}

func TestExempt(t *testing.T) {
	p := Policy{MinRunTime: time.Minute, MaxPerJob: 2}.WithDefaults()
	gave := func(by ...string) (out []model.Preempted) {
		for _, b := range by {
			out = append(out, model.Preempted{At: now, By: b})
		}
		return out
	}
	tests := map[string]struct {
		preemptor, victim model.Job
		want              string
	}{
		"nothing against it":   {victim: model.Job{Started: now.Add(-time.Minute)}},
		"since for ever":       {},
		"never":                {victim: model.Job{Preempt: model.PreemptNever}, want: "never"},
		"only just started":    {victim: model.Job{Started: now.Add(-59 * time.Second)}, want: "for 59s only; 1m0s are granted"},
		"often enough":         {victim: model.Job{Preempted: gave("a", "b")}, want: "2 times"},
		"once more is allowed": {victim: model.Job{Preempted: gave("a")}},
		"it displaced this one": {
			preemptor: model.Job{Preempted: gave("v")}, victim: model.Job{ID: "v"}, want: "displaced this one",
		},
		"its name in another namespace": {
			preemptor: model.Job{Preempted: gave("v")}, victim: model.Job{Namespace: "x", ID: "v"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := p.Exempt(&tt.preemptor, &tt.victim, now)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
