package record_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestCanariesAreKept, whole, and what a reader changes is a copy.
func TestCanariesAreKept(t *testing.T) {
	_, store := start(t)
	rec := sample("default", "serve", 2)
	rec.Rollout = rec.NewRollout(7, rec.Submitted)
	rec.Rollout.Begin(map[string]int{"w": 1})
	rec.Rollout.Canary.Members = []model.Member{{Group: "w", Index: 0, Node: "n", GPUs: []string{"GPU-1"}, Slot: 4}}
	rec.Rollout.Canary.Index, rec.Rollout.Canary.Placed = 8, rec.Submitted.Add(time.Second)
	s := store()
	if err := s.Put(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]*record.Store{"the writer": s, "another": store()} {
		got, err := from.Get(t.Context(), "default", "serve")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rec, got); diff != "" {
			t.Errorf("%s reads (-want +got):\n%s", name, diff)
		}
		got.Rollout.Canary.Members[0].Node, got.Rollout.Canary.Healthy = "other", true
	}
	again, err := s.Get(t.Context(), "default", "serve")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rec, again); diff != "" {
		t.Errorf("a reader's change came back (-want +got):\n%s", diff)
	}
}

// TestBegin: what an unfinished update has changed counts among the canaries of
// the next, and its own go.
func TestBegin(t *testing.T) {
	rec := &record.Record{Original: &api.Job{}, SpecHash: "1"}
	first := rec.NewRollout(1, time.Unix(1, 0))
	first.Begin(map[string]int{"w": 2, "v": 1})
	if first.Canary.Open() == false || len(first.Canary.Lacking()) != 2 {
		t.Fatalf("canaries %+v", first.Canary)
	}
	first.Canary.Members = []model.Member{{Group: "w"}, {Group: "v"}}
	if diff := cmp.Diff(map[string]int{"w": 1}, first.Canary.Lacking()); diff != "" {
		t.Errorf("lacking (-want +got):\n%s", diff)
	}
	first.Rolled = []record.Place{{Group: "w", Index: 1}, {Group: "x"}}
	rec.Rollout, rec.SpecHash = first, "2"
	next := rec.NewRollout(2, time.Unix(2, 0))
	next.Begin(map[string]int{"w": 2, "v": 1})
	if diff := cmp.Diff(map[string]int{"w": 1, "v": 1}, next.Canary.Wanted); diff != "" {
		t.Errorf("wanted (-want +got):\n%s", diff)
	}
	if len(next.Beside()) != 0 || next.SpecHash != "1" {
		t.Errorf("the next update is %+v", next)
	}
	next.Begin(nil)
	if next.Canary.Open() || next.Beside() != nil {
		t.Error("there are canaries that nobody wants")
	}
}
