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
