package render

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/internal/budget"
)

func TestSpeed(t *testing.T) {
	r := &budget.Report{
		Machine: budget.Machine{CPUs: 2, Arch: "amd64", Go: "go1.26"}, Reps: 5,
		Cases: []budget.Timing{
			{Name: "gang=128/nodes=512", MedianMS: 0.1234, LeastMS: 0.1, CPUMS: 0.13, BudgetMS: 0.5, Ratio: 0.2468},
			{Name: "cycle/nodes=16384", MedianMS: 300, LeastMS: 290, CPUMS: 350, BudgetMS: 250, Ratio: 1.2},
			{Name: "event/gpus=16384", MedianMS: 0.02, LeastMS: 0.01, CPUMS: 0.02},
		},
		Growth: []budget.Growth{{What: "a gang", Against: "nodes", Exponent: 0.123, Points: []budget.Point{{Size: 256, CPUMS: 0.05}, {Size: 1024, CPUMS: 0.06}}}},
		Memory: budget.Memory{Nodes: 16384, MiB: 120.4, BytesPerNode: 7706, BudgetMiB: 500},
	}
	want := `2 CPUs, amd64, go1.26; medians of 5

CASE                MEDIAN    LEAST    CPU      BUDGET  RATIO
gang=128/nodes=512  0.123 ms  0.1 ms   0.13 ms  0.5 ms  0.25
cycle/nodes=16384   300 ms    290 ms   350 ms   250 ms  1.20
event/gpus=16384    0.02 ms   0.01 ms  0.02 ms  -       -

GROWTH OF THE CPU TIME OF  AGAINST  EXPONENT  POINTS
a gang                     nodes    0.12      256: 0.05 ms, 1024: 0.06 ms

16384 nodes, ready for decisions, take 120 MiB (7.5 KiB a node) of at most 500 MiB
`
	var got bytes.Buffer
	if err := (Style{}).Speed(&got, r); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	got.Reset()
	if err := (Style{Color: true}).Speed(&got, r); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(got.Bytes(), []byte("\x1b[31m1.20\x1b[0m")) || bytes.Contains(got.Bytes(), []byte("\x1b[31m0.25")) {
		t.Errorf("what is over its budget, and only that, is to be red:\n%s", &got)
	}
}
