package budget

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/internal/budget/drawn"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Report is what was measured.
type Report struct {
	Machine Machine  `json:"machine"`
	Reps    int      `json:"reps"`
	Cases   []Timing `json:"cases"`
	Growth  []Growth `json:"growth"`
	Memory  Memory   `json:"memory"`
}

// Machine is what it was measured on.
type Machine struct {
	CPUs int    `json:"cpus"`
	Arch string `json:"arch"`
	Go   string `json:"go"`
}

// Timing is what one case costs, in milliseconds.
type Timing struct {
	Name     string  `json:"name"`
	What     string  `json:"what"`
	MedianMS float64 `json:"median_ms"`
	LeastMS  float64 `json:"least_ms"`
	// CPUMS is the median of the CPU time, of all threads together.
	CPUMS float64 `json:"cpu_ms"`
	// BudgetMS is what it may cost, 0 if nothing is said; Ratio is the median's
	// part of it.
	BudgetMS float64 `json:"budget_ms,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
}

// Growth is how the CPU time of something grows: with the exponent's power.
type Growth struct {
	What     string  `json:"what"`
	Against  string  `json:"against"`
	Exponent float64 `json:"exponent"`
	Points   []Point `json:"points"`
}

// Point is what one size costs.
type Point struct {
	Size  int     `json:"size"`
	CPUMS float64 `json:"cpu_ms"`
}

// Memory is what a cluster takes that is ready for decisions, with its
// snapshot, after a decision.
type Memory struct {
	Nodes        int     `json:"nodes"`
	MiB          float64 `json:"mib"`
	BytesPerNode float64 `json:"bytes_per_node"`
	BudgetMiB    float64 `json:"budget_mib"`
}

// Options say what is measured.
type Options struct {
	// Match picks cases by name; nil is all of them, and growth and memory too.
	Match func(name string) bool
	// Reps is how often each is measured; the median counts.
	Reps int
	// Least is for how long one measurement lasts at least.
	Least time.Duration
	// Progress is told what is measured next.
	Progress func(what string)
}

// Measure measures.
func Measure(o Options) (*Report, error) {
	r := &Report{Machine: Machine{CPUs: runtime.NumCPU(), Arch: runtime.GOARCH, Go: runtime.Version()}, Reps: o.Reps, Cases: []Timing{}, Growth: []Growth{}}
	for _, c := range Cases() {
		if o.Match != nil && !o.Match(c.Name) {
			continue
		}
		o.Progress(c.Name)
		times, cpu, err := o.time(c)
		if err != nil {
			return nil, err
		}
		t := Timing{Name: c.Name, What: c.What, MedianMS: median(times), LeastMS: times[0], CPUMS: median(cpu), BudgetMS: milliseconds(c.Budget)}
		if c.Budget > 0 {
			t.Ratio = t.MedianMS / t.BudgetMS
		}
		r.Cases = append(r.Cases, t)
	}
	if o.Match != nil {
		return r, nil
	}
	for _, g := range growths() {
		o.Progress(g.what)
		grown, err := o.grow(g)
		if err != nil {
			return nil, err
		}
		r.Growth = append(r.Growth, grown)
	}
	o.Progress("memory")
	var err error
	r.Memory, err = measureMemory(16384, 10000)
	return r, err
}

// time measures a case, and returns the times on the wall and of the CPUs in
// milliseconds, the least first.
func (o Options) time(c Case) (times, cpu []float64, err error) {
	op, err := c.Setup()
	if err != nil {
		return nil, nil, err
	}
	if err := op(); err != nil { // what is made once is made now
		return nil, nil, err
	}
	for range max(1, o.Reps) {
		runtime.GC()
		before, err := cpuTime()
		if err != nil {
			return nil, nil, err
		}
		n, began := 0, time.Now()
		for n == 0 || n < c.Times || time.Since(began) < o.Least {
			if err := op(); err != nil {
				return nil, nil, err
			}
			n++
		}
		times = append(times, milliseconds(time.Since(began))/float64(n))
		after, err := cpuTime()
		if err != nil {
			return nil, nil, err
		}
		cpu = append(cpu, milliseconds(after-before)/float64(n))
	}
	slices.Sort(times)
	slices.Sort(cpu)
	return times, cpu, nil
}

// median is the middle of sorted times.
func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// growth is something whose size varies.
type growth struct {
	what, against string
	sizes         []int
	of            func(size int) Case
}

func growths() []growth {
	half := []int{256, 1024, 4096, 16384}
	return []growth{
		{"a gang of 64 whole nodes", "nodes", half, func(n int) Case { return gang(n, 64, model.Topology{}, 0) }},
		{"a gang on 16384 nodes", "members", []int{8, 32, 128, 512, 2048}, func(n int) Case { return gang(16384, n, model.Topology{}, 0) }},
		{"an event in a long run", "nodes", []int{64, 256, 1024, 4096}, func(n int) Case { return event(n, busy, core.Policy{}, 0) }},
		{"a full cycle, 5 jobs of one GPU for 8 nodes", "nodes", half, func(n int) Case {
			return cycle("one-GPU jobs", n, n*5/8, 0, core.Policy{}, 0, drawn.Cluster, drawn.Singles)
		}},
	}
}

func (o Options) grow(g growth) (Growth, error) {
	out := Growth{What: g.what, Against: g.against}
	for _, size := range g.sizes {
		_, times, err := o.time(g.of(size))
		if err != nil {
			return out, err
		}
		out.Points = append(out.Points, Point{size, median(times)})
	}
	out.Exponent = exponent(out.Points)
	return out, nil
}

// exponent is that of the power law which comes nearest to the points: the slope
// of the least squares fit of their logarithms.
func exponent(points []Point) float64 {
	var n, x, y, xx, xy float64
	for _, p := range points {
		a, b := math.Log(float64(p.Size)), math.Log(p.CPUMS)
		n, x, y, xx, xy = n+1, x+a, y+b, xx+a*a, xy+a*b
	}
	if d := n*xx - x*x; d != 0 {
		return (n*xy - x*y) / d
	}
	return 0
}

// memoryBudget is what a planner may take for 16,384 nodes.
const memoryBudget = 500

func measureMemory(nodes, jobs int) (Memory, error) {
	before := heapInUse()
	s := drawn.Contest(nodes)
	drawn.Singles(s, jobs)
	p, err := core.Prepare(s, core.Policy{})
	if err != nil {
		return Memory{}, fmt.Errorf("prepare %d nodes: %w", nodes, err)
	}
	plan := p.Decide(s.Now)
	used := float64(heapInUse() - before)
	runtime.KeepAlive(p)
	runtime.KeepAlive(plan)
	return Memory{Nodes: nodes, MiB: used / (1 << 20), BytesPerNode: used / float64(nodes), BudgetMiB: memoryBudget}, nil
}

// heapInUse is how much is in use.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
