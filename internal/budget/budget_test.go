package budget

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/internal/budget/drawn"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// run runs the cases whose names begin so.
func run(b *testing.B, prefix string) {
	for _, c := range Cases() {
		name, found := strings.CutPrefix(c.Name, prefix)
		if !found {
			continue
		}
		b.Run(name, func(b *testing.B) {
			op, err := c.Setup()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := op(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkGang(b *testing.B)    { run(b, "gang=") }
func BenchmarkRefused(b *testing.B) { run(b, "refused/") }
func BenchmarkEvent(b *testing.B)   { run(b, "event/") }
func BenchmarkKept(b *testing.B)    { run(b, "kept/") }
func BenchmarkCycle(b *testing.B)   { run(b, "cycle/") }
func BenchmarkVictims(b *testing.B) { run(b, "victims/") }

func TestCasesCoverEveryOrder(t *testing.T) {
	seen := map[string]bool{}
	names := map[string]bool{}
	for _, c := range Cases() {
		if names[c.Name] {
			t.Errorf("%s is measured twice", c.Name)
		}
		names[c.Name] = true
		for _, order := range queue.Orders() {
			seen[order] = seen[order] || strings.HasPrefix(c.Name, "cycle/nodes=16384/jobs=10000/"+order)
		}
	}
	for _, order := range queue.Orders() {
		if !seen[order] {
			t.Errorf("no cycle of order %s is measured", order)
		}
	}
}

// What is drawn is half full, and the jobs that wait are of every kind, whatever
// the size.
func TestDrawnClusters(t *testing.T) {
	for name, draw := range map[string]func(int) *model.Snapshot{"cluster": drawn.Cluster, "contest": drawn.Contest, "full": drawn.Full} {
		t.Run(name, func(t *testing.T) {
			s := draw(512)
			drawn.Mixed(s, 300)
			drawn.AddQueues(s, 40)
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			held := 0
			for _, a := range s.Allocs {
				held += len(a.GPUs)
			}
			part := float64(held) / float64(512*8)
			if name == "full" && part != 1 || name != "full" && (part < 0.4 || part > 0.6) {
				t.Errorf("%.2f of the GPUs are held", part)
			}
			plan, err := core.Decide(s, core.Policy{})
			if err != nil {
				t.Fatal(err)
			}
			actions := map[model.Action]int{}
			for _, d := range plan.Decisions {
				actions[d.Action]++
			}
			if waits := actions[model.ActionWait]; waits == 0 || name != "full" && actions[model.ActionAdmit] == 0 {
				t.Errorf("decisions: %v; want some of each", actions)
			}
		})
	}
}

func TestMeasure(t *testing.T) {
	var told []string
	r, err := Measure(Options{Match: func(name string) bool { return name == "gang=128/nodes=512" }, Reps: 3, Progress: func(what string) { told = append(told, what) }})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"gang=128/nodes=512"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if len(r.Cases) != 1 || len(r.Growth) != 0 {
		t.Fatalf("report %+v, want the one case", r)
	}
	c := r.Cases[0]
	if c.MedianMS <= 0 || c.LeastMS > c.MedianMS || c.CPUMS < 0 || c.BudgetMS != 0.5 || c.Ratio != c.MedianMS/0.5 || c.What != "a gang of 128 whole nodes placed on 4096 GPUs" {
		t.Errorf("timing %+v", c)
	}
}

func TestMeasureTellsWhatFails(t *testing.T) {
	broken := errors.New("broken")
	o := Options{Reps: 1}
	for name, c := range map[string]Case{
		"setup": {Setup: func() (func() error, error) { return nil, broken }},
		"op":    {Setup: func() (func() error, error) { return func() error { return broken }, nil }},
	} {
		if _, _, err := o.time(c); !errors.Is(err, broken) {
			t.Errorf("%s: %v, want the failure", name, err)
		}
	}
}

func TestMedian(t *testing.T) {
	for want, sorted := range map[float64][]float64{3: {1, 3, 9}, 2: {1, 1, 3, 9}, 7: {7}} {
		if got := median(sorted); got != want {
			t.Errorf("median of %v is %g, want %g", sorted, got, want)
		}
	}
}

func TestExponent(t *testing.T) {
	for name, test := range map[string]struct {
		points []Point
		want   float64
	}{
		"linear":    {[]Point{{1, 2}, {10, 20}, {100, 200}}, 1},
		"constant":  {[]Point{{1, 5}, {10, 5}, {100, 5}}, 0},
		"square":    {[]Point{{2, 4}, {4, 16}, {8, 64}}, 2},
		"one point": {[]Point{{2, 4}}, 0},
		// The slope through (0,0), (1,0), (2,3) in logarithms to base 10.
		"in between": {[]Point{{1, 1}, {10, 1}, {100, 1000}}, 1.5},
	} {
		if got := exponent(test.points); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: exponent %g, want %g", name, got, test.want)
		}
	}
}

func TestMemoryIsCounted(t *testing.T) {
	m, err := measureMemory(512, 100)
	if err != nil {
		t.Fatal(err)
	}
	if m.BytesPerNode < 1000 || m.BytesPerNode > 1e6 || math.Abs(m.MiB*(1<<20)/512-m.BytesPerNode) > 1 {
		t.Errorf("memory %+v", m)
	}
}

func TestLongRunIsBusy(t *testing.T) {
	r, err := newLongRun(32, busy, core.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	var waits []int
	for range 200 {
		n, err := r.step()
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, n)
	}
	if slices.Max(waits) == 0 {
		t.Error("nobody ever waited: the run is not what its name says")
	}
}
