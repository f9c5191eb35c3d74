package record_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestSizesAndFormerPlacesAreKept, whole, and what a reader changes is a copy.
func TestSizesAndFormerPlacesAreKept(t *testing.T) {
	_, store := start(t)
	rec := sample("default", "train", 2)
	at := rec.Submitted.Add(time.Minute)
	rec.Sized(at, map[string]int{"w": 4})
	rec.Replace = &model.Replacement{At: at, Members: []model.Member{{Group: "w", Index: 1, Node: "n", GPUs: []string{"GPU-1"}}},
		Failed: []model.FailedPlace{{Group: "w", Index: 1, Node: "n", Why: "is lost"}}}
	s := store()
	if err := s.Put(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]*record.Store{"the writer": s, "another": store()} {
		for range 2 {
			got, err := from.Get(t.Context(), "default", "train")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(rec, got); diff != "" {
				t.Errorf("%s reads (-want +got):\n%s", name, diff)
			}
			got.Replace.Members[0].Node, got.Replace.Failed = "other", nil
			got.Sized(at, nil)
		}
	}
}
