package queue

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// handOut hands out a cluster to users who each ask for the same again and again,
// and returns how often each got it. Who does not fit asks no more.
func handOut(t *testing.T, queues []model.Queue, capacity Vector, asks map[string]Vector, most map[string]int) map[string]int {
	t.Helper()
	tree := NewTree(queues, nil)
	var homes []Home
	var of []string
	var want []Vector
	for _, name := range []string{"a", "b", "n1", "n2/x", "n2/y"} {
		ask, there := asks[name]
		for range max(most[name], 40) {
			if most[name] > 0 && count(of, name) == most[name] || !there {
				break
			}
			homes, of, want = append(homes, tree.HomeOf(&model.Job{Queue: name})), append(of, name), append(want, ask)
		}
	}
	ledger, free, got := NewLedger(tree), append(Vector{}, capacity...), map[string]int{}
	line := Policy{Order: OrderFairShare}.NewLine(ledger, capacity, homes, want)
	for i, ok := line.Next(); ok; i, ok = line.Next() {
		fits := true
		for k, n := range want[i] {
			fits = fits && n <= free[k]
		}
		if fits {
			free.Sub(want[i])
			ledger.Charge(homes[i], want[i], false)
			line.Charged()
			got[of[i]]++
		}
	}
	return got
}

func count(list []string, name string) (n int) {
	for _, x := range list {
		if x == name {
			n++
		}
	}
	return n
}

func TestFairShare(t *testing.T) {
	tests := map[string]struct {
		queues   []model.Queue
		capacity Vector // GPUs, CPU, memory
		asks     map[string]Vector
		most     map[string]int
		want     map[string]int
	}{
		// Ghodsi et al., section 4.1: 9 CPUs, 18 GB; tasks of <1 CPU, 4 GB> and
		// <3 CPUs, 1 GB>. A gets 3 of its tasks and B 2, each two thirds.
		"the example of the DRF paper": {
			capacity: Vector{0, 9, 18}, asks: map[string]Vector{"a": {0, 1, 4}, "b": {0, 3, 1}}, want: map[string]int{"a": 3, "b": 2},
		},
		// One resource, weights 1 and 3: 12 GPUs are 3 and 9.
		"weights": {
			queues:   []model.Queue{{Path: "a", Weight: 1}, {Path: "b", Weight: 3}},
			capacity: Vector{12, 0, 0}, asks: map[string]Vector{"a": {1, 0, 0}, "b": {1, 0, 0}}, want: map[string]int{"a": 3, "b": 9},
		},
		// n1 and n2/x want CPU, n2/y GPUs only, and gets all 10 of them. Counted
		// flat, n2 would then have a share of 1 and n2/x would get nothing while n1
		// has less. Scaled, n1 and n2 share the CPU.
		"one child's resource is not held against its sibling": {
			capacity: Vector{10, 10, 0}, asks: map[string]Vector{"n1": {0, 1, 0}, "n2/x": {0, 1, 0}, "n2/y": {1, 0, 0}},
			most: map[string]int{"n2/y": 10}, want: map[string]int{"n1": 5, "n2/x": 5, "n2/y": 10},
		},
		// All want GPUs: the two of n2 share what n1 has alone.
		"a parent's children share what it has": {
			capacity: Vector{12, 0, 0}, asks: map[string]Vector{"n1": {1, 0, 0}, "n2/x": {1, 0, 0}, "n2/y": {1, 0, 0}},
			want: map[string]int{"n1": 6, "n2/x": 3, "n2/y": 3},
		},
		// b has used 6 of 12 GPUs on average. Both have the same at 9 and 3.
		"history counts": {
			queues:   []model.Queue{{Path: "a"}, {Path: "b", History: map[string]float64{"gpu": 6}}},
			capacity: Vector{12, 0, 0}, asks: map[string]Vector{"a": {1, 0, 0}, "b": {1, 0, 0}}, want: map[string]int{"a": 9, "b": 3},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, handOut(t, tt.queues, tt.capacity, tt.asks, tt.most)); diff != "" {
				t.Errorf("tasks (-want +got):\n%s", diff)
			}
		})
	}
}

// What n2/y uses when n2/x comes is all counted: both want GPUs.
func TestFairShareOfParentsThatCompete(t *testing.T) {
	tree := NewTree(nil, nil)
	home := func(path string) Home { return tree.HomeOf(&model.Job{Queue: path}) }
	ledger := NewLedger(tree)
	ledger.Charge(home("n2/y"), Vector{8, 0, 0}, false)
	ledger.Charge(home("n1"), Vector{2, 0, 0}, false)
	gpu := Vector{1, 0, 0}
	line := Policy{Order: OrderFairShare}.NewLine(ledger, Vector{20, 0, 0}, []Home{home("n2/x"), home("n1")}, []Vector{gpu, gpu})
	if first, _ := line.Next(); first != 1 {
		t.Error("n2/x goes first although n2 has four times as much as n1")
	}
}

// Of queues with equal shares the one goes next whose next job comes first, not
// whose name does; so it is for those below them too.
func TestFairShareTies(t *testing.T) {
	tree := NewTree(nil, nil)
	paths := []string{"z/x", "a", "z/b", "a"}
	var homes []Home
	var asks []Vector
	for _, path := range paths {
		homes, asks = append(homes, tree.HomeOf(&model.Job{Queue: path})), append(asks, tree.Amount(1, 0, 0))
	}
	line := Policy{Order: OrderFairShare}.NewLine(NewLedger(tree), Vector{8, 0, 0}, homes, asks)
	var got []int
	for i, ok := line.Next(); ok; i, ok = line.Next() {
		got = append(got, i)
	}
	if diff := cmp.Diff([]int{0, 1, 2, 3}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
