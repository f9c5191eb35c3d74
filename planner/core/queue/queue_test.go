package queue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestOrder(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }
	jobs := []*model.Job{
		{ID: "b", Priority: 50, Submitted: at(2)},
		{ID: "d", Priority: 50, Submitted: at(1), Namespace: "z"},
		{ID: "c", Priority: 50, Submitted: at(1), Namespace: "a"},
		{ID: "a", Priority: 50, Submitted: at(1), Namespace: "z"},
		{ID: "late but urgent", Priority: 80, Submitted: at(9)},
		{ID: "first but unimportant", Priority: 1, Submitted: at(0)},
	}
	slices.SortFunc(jobs, Compare)
	var got []string
	for _, j := range jobs {
		got = append(got, j.ID)
	}
	if diff := cmp.Diff([]string{"late but urgent", "c", "a", "d", "b", "first but unimportant"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// Compare is an order: no two jobs are equal, and both ways agree.
func TestCompare(t *testing.T) {
	job := rapid.Custom(func(t *rapid.T) *model.Job {
		return &model.Job{
			ID: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id"), Namespace: rapid.SampledFrom([]string{"", "n"}).Draw(t, "ns"),
			Priority: rapid.IntRange(0, 1).Draw(t, "priority"), Submitted: time.Unix(rapid.Int64Range(0, 1).Draw(t, "at"), 0),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := job.Draw(t, "a"), job.Draw(t, "b"), job.Draw(t, "c")
		if Compare(a, b) != -Compare(b, a) {
			t.Fatal("not the same both ways")
		}
		if Compare(a, b) <= 0 && Compare(b, c) <= 0 && Compare(a, c) > 0 {
			t.Fatal("not transitive")
		}
		if same := a.ID == b.ID && a.Namespace == b.Namespace; !same && Compare(a, b) == 0 {
			t.Fatal("different jobs are equal")
		}
	})
}

func TestPolicy(t *testing.T) {
	tests := map[string]struct {
		policy Policy
		holds  int
		faults []string
	}{
		"default":     {Policy{}, DefaultMaxHolds, nil},
		"fifo":        {Policy{Order: OrderFIFO, MaxHolds: 3}, 3, nil},
		"caravan":     {Policy{Order: OrderCaravan, MaxHolds: DefaultMaxHolds}, caravanDepth, nil},
		"each":        {Policy{Order: OrderCaravan, Backfill: Backfill{Mode: BackfillConservative}}, DefaultMaxHolds, nil},
		"easy":        {Policy{Order: OrderBackfill, MaxHolds: 3}, 1, nil},
		"a depth":     {Policy{Order: OrderFIFO, Backfill: Backfill{Mode: BackfillConservative, Depth: 1}}, 1, nil},
		"each of one": {Policy{Order: OrderFIFO, MaxHolds: 1, Backfill: Backfill{Mode: BackfillConservative}}, 1, nil},
		"best effort": {Policy{Order: OrderBestEffort, MaxHolds: 3}, 0, nil},
		"bad":         {Policy{Order: "random", MaxHolds: -2}, -2, []string{`order "random"`, "max_holds -2"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.policy.Holds(); got != tt.holds {
				t.Errorf("Holds: %d, want %d", got, tt.holds)
			}
			err := tt.policy.Validate()
			if (err != nil) != (tt.faults != nil) || err != nil && !errors.Is(err, ErrPolicy) {
				t.Fatalf("Validate: %v, want faults %q", err, tt.faults)
			}
			for _, fault := range tt.faults {
				if !strings.Contains(err.Error(), fault) {
					t.Errorf("Validate: %v, want %q", err, fault)
				}
			}
		})
	}
}

// Each fault of backfill is told with its value and what is allowed, all of them at once.
func TestBackfillFaults(t *testing.T) {
	for name, test := range map[string]struct {
		backfill Backfill
		want     []string
	}{
		"none":      {Backfill{}, nil},
		"off":       {Backfill{Mode: BackfillOff}, nil},
		"easy":      {Backfill{Mode: BackfillEasy, Depth: 1, DefaultDuration: 1, MaxWait: 1}, nil},
		"each gang": {Backfill{Mode: BackfillConservative}, nil},
		"all of it": {Backfill{Mode: "fast", Depth: -1, DefaultDuration: -1, MaxWait: -1}, []string{
			`backfill.mode "fast": want one of ["off" "easy" "conservative"]`,
			"backfill.depth -1: want 0 or more",
			"backfill.max_wait -1ns: want 0 or more",
			"backfill.default_duration -1ns: want 0 or more",
		}},
	} {
		var got []string
		if err := test.backfill.Validate(); err != nil {
			got = strings.Split(strings.ReplaceAll(err.Error(), ErrPolicy.Error()+": ", ""), "\n")
			if !errors.Is(err, ErrPolicy) {
				t.Errorf("%s: %v is no fault of the policy", name, err)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What is not set is what the documentation says, and what is set, however little, is taken.
func TestBackfillDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		policy    Policy
		trust     time.Duration
		forecasts int
	}{
		"not set":              {Policy{}, 12 * time.Hour, 64},
		"as little as it goes": {Policy{Forecasts: 1, Backfill: Backfill{MaxWait: 1}}, 1, 1},
	} {
		if trust, forecasts := test.policy.Backfill.Trust(), test.policy.MaxForecasts(); trust != test.trust || forecasts != test.forecasts {
			t.Errorf("%s: trusts estimates for %s and makes %d, want %s and %d", name, trust, forecasts, test.trust, test.forecasts)
		}
	}
}

// Where no mode or depth is set, wide gangs have more reservations than others under the
// default order, and never fewer.
func TestWideHolds(t *testing.T) {
	for name, test := range map[string]struct {
		p            Policy
		narrow, wide int
	}{
		"caravan":            {Policy{Order: OrderCaravan}, 1, 4},
		"caravan, reclaims":  {Policy{Order: OrderCaravan, Backfill: Backfill{Reclaim: true, MaxWait: h}}, 1, 4},
		"caravan, easy":      {Policy{Order: OrderCaravan, Backfill: Backfill{Mode: BackfillEasy}}, 1, 1},
		"caravan, a depth":   {Policy{Order: OrderCaravan, Backfill: Backfill{Depth: 9}}, 9, 9},
		"backfill":           {Policy{Order: OrderBackfill}, 1, 1},
		"fifo":               {Policy{Order: OrderFIFO}, DefaultMaxHolds, DefaultMaxHolds},
		"caravan, max_holds": {Policy{Order: OrderCaravan, MaxHolds: 2}, 1, 4},
	} {
		if got := [2]int{test.p.Holds(), test.p.WideHolds()}; got != [2]int{test.narrow, test.wide} {
			t.Errorf("%s: %v, want %v", name, got, [2]int{test.narrow, test.wide})
		}
	}
}
