package queue

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestReport(t *testing.T) {
	tree := orgTree()
	home := func(path string) Home { return tree.HomeOf(&model.Job{Queue: path}) }
	l := NewLedger(tree)
	l.Charge(home("org/a/x"), tree.Amount(5, 0, 700), false)
	l.Charge(home("org"), tree.Amount(1, 0, 0), false)
	got := l.Report(Vector{20, 100, 1000}, []Waiting{{home("org/b"), 8}, {home("org/a/y"), 1}})
	use := func(path string, guaranteed, used, borrowed, waiting, gpus int, share float64) model.QueueUse {
		return model.QueueUse{Path: path, Guaranteed: map[string]int{"gpu": guaranteed}, Limit: map[string]int{}, Used: map[string]int{"gpu": used},
			BorrowedGPUs: borrowed, Waiting: waiting, WaitingGPUs: gpus, Share: share}
	}
	want := []model.QueueUse{use("org", 10, 6, 0, 2, 9, 0.7), use("org/a", 4, 5, 1, 1, 1, 0.7), use("org/b", 4, 0, 0, 1, 8, 0), use("other", 0, 0, 0, 0, 0, 0)}
	want[0].Used["memory_mib"], want[1].Used["memory_mib"] = 700, 700
	want[1].Limit["gpu"] = 7
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// Where no queue is configured nothing is guaranteed, so nothing is borrowed.
func TestReportWithoutQueues(t *testing.T) {
	tree := NewTree(nil, nil)
	l, home := NewLedger(tree), tree.HomeOf(&model.Job{Queue: "team"})
	l.Charge(home, tree.Amount(5, 0, 0), false)
	want := []model.QueueUse{{Path: "team", Guaranteed: map[string]int{"gpu": 0}, Limit: map[string]int{}, Used: map[string]int{"gpu": 5}, Share: 0.25}}
	if diff := cmp.Diff(want, l.Report(Vector{20, 100, 1000}, nil)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}
